"""The interface of searchers: what its arguments are, and what it says where it is not met."""

from __future__ import annotations

import pytest

from tuner.search import Searcher


def test_a_searcher_without_suggest_says_so() -> None:
    with pytest.raises(NotImplementedError, match="does not define suggest"):
        Searcher().suggest("t")
