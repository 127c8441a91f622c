"""Small tools under Ray Tune's names."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import ResourceError, SettingError
from tuner.utils import (
    diagnose_serialization,
    flatten_dict,
    merge_dicts,
    unflatten_dict,
    validate_save_restore,
    wait_for_gpu,
)

names = st.text("abc", min_size=1, max_size=3)
nested = st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1), max_leaves=8)


@given(st.dictionaries(names, nested))
def test_unflatten_is_the_inverse_of_flatten(value: dict[str, Any]) -> None:
    assert unflatten_dict(flatten_dict(value)) == value
    assert unflatten_dict(flatten_dict(value, delimiter="."), delimiter=".") == value


def test_a_delimiter_of_ones_own_leaves_slashes_in_names_as_they_are() -> None:
    assert flatten_dict({"a/b": {"c": 1}, "d/e": 2}, delimiter=".") == {"a/b.c": 1, "d/e": 2}


def test_what_is_unflattened_stays_as_it_was() -> None:
    given = {"a": {}, "a/b": 1}
    assert unflatten_dict(given) == {"a": {"b": 1}}
    assert given == {"a": {}, "a/b": 1}


@pytest.mark.parametrize("flat", [{"a": 1, "a/b": 2}, {"a/b": 2, "a": 1}])
def test_a_value_with_keys_below_it_is_refused(flat: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="cannot be unflattened"):
        unflatten_dict(flat)


def test_what_cannot_be_sent_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    lock = threading.Lock()
    assert diagnose_serialization(lambda config: None)
    assert not diagnose_serialization(lambda config: lock)
    assert "lock" in capsys.readouterr().out


class Counts(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        assert self.count == self.iteration + 1, "the count was not restored"
        return {"count": self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


class Forgets(Counts):
    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Loads nothing."""


def test_a_class_that_restores_what_it_saved_is_told_from_one_that_does_not() -> None:
    assert validate_save_restore(Counts)
    with pytest.raises(AssertionError, match="not restored"):
        validate_save_restore(Forgets)
    with pytest.raises(SettingError, match="subclass of Trainable"):
        validate_save_restore(lambda config: None)


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(ResourceError, match="'no such one'"):
        wait_for_gpu("no such one", retry=1, delay_s=0)


def test_a_gpu_is_waited_for_and_not_after_the_last_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = tmp_path / "looks"
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho look >> {looks}\n[ $(wc -l < {looks}) -lt 3 ] && echo 50, 100 || echo 0, 100\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert wait_for_gpu(0, retry=3, delay_s=0)
    looks.unlink()
    with pytest.raises(ResourceError, match="50% of its memory is in use after 1 looks"):
        wait_for_gpu("0", retry=1, delay_s=3600)  # it returns


def test_dicts_are_merged_into_a_new_one() -> None:
    first, second = {"a": {"b": 1}, "c": 2}, {"a": {"d": [3]}, "c": 4}
    merged = merge_dicts(first, second)
    assert merged == {"a": {"b": 1, "d": [3]}, "c": 4} and first == {"a": {"b": 1}, "c": 2}
    merged["a"]["d"].append(4)
    assert second["a"] == {"d": [3]}
