"""Whether `make web` has made the page."""

from __future__ import annotations

import pytest

from tuner.ui.one_file import TEMPLATE

is_made = TEMPLATE.exists()
needs_page = pytest.mark.skipif(not is_made, reason="the page is not there: make web")
