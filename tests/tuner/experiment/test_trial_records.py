"""What a trial holds besides plain values: its clones, and how their changes are put back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tuner.experiment.facts import raw, ref
from tuner.experiment.trial_records import Clone

TUPLE = {"$": "tuple", "v": [1, 2]}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"lr": 1, "k": 0}, {"lr": 2, "k": 0}, {"lr": (1, 2)}),
        ({"net": {"lr": 1, "k": 0}}, {"net": {"lr": 2, "k": 0}}, {"net/lr": (1, 2)}),
        ({"a/b": 1}, {"a/b": 2}, {"a/b": (1, 2)}),
        (
            {"opt": {"name": "adam"}},
            {"opt": {"name": "sgd", "m": 1}},
            {"opt/m": (None, 1), "opt/name": ("adam", "sgd")},
        ),
        ({"size": None}, {"size": TUPLE}, {"size/$": (None, "tuple"), "size/v": (None, [1, 2])}),
        ({"k": 0}, {"k": 0, "new": None}, {}),
        ({"k": 0, "old": 1}, {"k": 0}, {"old": (1, None)}),
    ],
)
def test_a_clone_knows_what_it_changed_and_what_to_put_back(
    before: dict[str, Any], after: dict[str, Any], changed: dict[str, Any]
) -> None:
    made = Clone.of(3, ref(2), raw(before), raw(after))
    assert made.changed == changed
    kept = {key: value for key, value in after.items() if key not in made.added}
    assert json.dumps(kept | made.replaced, sort_keys=True) == json.dumps(before, sort_keys=True)


@pytest.mark.parametrize(("key", "changes"), [("size", True), ("size/v", True), ("siz", False), ("lr", False)])
def test_a_value_that_json_lacks_is_changed_where_its_parts_are(key: str, changes: bool) -> None:
    assert Clone.of(3, ref(2), raw({"size": None, "lr": 1}), raw({"size": TUPLE, "lr": 1})).changes(key) is changes
