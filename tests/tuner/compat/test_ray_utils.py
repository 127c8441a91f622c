"""Small functions of Ray's, at the modules where its versions have them."""

from __future__ import annotations

import copy
import io
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.utils import date_str, deep_update, flatten_dict, unflattened_lookup
from tuner.utils.callback import create_default_callbacks
from tuner.utils.log import Verbosity
from tuner.utils.util import (
    Tee,
    atomic_save,
    create_logdir,
    detect_checkpoint_function,
    detect_config_single,
    detect_reporter,
    load_newest_checkpoint,
    retry_fn,
    validate_warmstart,
)

NESTED = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), NESTED), st.dictionaries(st.sampled_from("abc"), NESTED))
def test_an_update_is_deep_and_what_was_written_is_found(old: dict[str, Any], new: dict[str, Any]) -> None:
    kept = copy.deepcopy(new)
    made = deep_update(old, new, new_keys_allowed=True)
    assert made is old and new == kept
    for key, value in flatten_dict(new).items():
        assert unflattened_lookup(key, made) == value


def test_the_names_of_what_verbose_accepts_are_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for level, printed in ((Verbosity.V0_MINIMAL, False), (Verbosity.V1_EXPERIMENT, True)):
        tune.run(lambda config: {"a": 1}, verbose=level, storage_path=tmp_path, name=level.name, executor="inline")
        assert bool(capsys.readouterr().out) == printed
    assert [int(level) for level in Verbosity] == [0, 1, 2, 3]


def test_a_key_that_may_not_come_in_is_named() -> None:
    with pytest.raises(SettingError, match="unknown key 'lrr'; did you mean 'lr'"):
        deep_update({"lr": 1}, {"lrr": 2})
    assert deep_update({"a": {}}, {"a": {"b": 1}}, allow_new_subkey_list=["a"]) == {"a": {"b": 1}}
    typed = {"a": {"type": "x", "b": 1}}
    assert deep_update(typed, {"a": {"type": "y"}}, override_all_if_type_changes=["a"]) == {"a": {"type": "y"}}
    assert deep_update({"a": {"b": 1}}, {"a": {"c": 1}}, override_all_key_list=["a"]) == {"a": {"c": 1}}
    assert unflattened_lookup("a/1/c", {"a": [{}]}, default=7) == 7
    with pytest.raises(KeyError, match="a/x"):
        unflattened_lookup("a/x", {"a": {}})


def test_a_stream_for_two_writes_to_both() -> None:
    one, other = io.StringIO(), io.StringIO()
    tee = Tee(one, other)
    print("said", file=tee)
    tee.flush()
    assert one.getvalue() == other.getvalue() == "said\n" and tee.closed is False


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda config: None, (False, False, True)),
        (lambda config, checkpoint_dir=None: None, (True, False, True)),
        (lambda config, reporter: None, (False, True, False)),
    ],
)
def test_signatures_are_told_apart(function: Any, told: tuple[bool, bool, bool]) -> None:
    assert (detect_checkpoint_function(function), detect_reporter(function), detect_config_single(function)) == told


def test_a_state_is_saved_whole_and_the_newest_is_loaded(tmp_path: Path) -> None:
    assert load_newest_checkpoint(str(tmp_path), "state-*.pkl") is None
    for number in (1, 2):
        atomic_save({"n": number}, str(tmp_path), f"state-{number}.pkl", ".tmp")
    assert load_newest_checkpoint(str(tmp_path), "state-*.pkl") == {"n": 2}
    assert not (tmp_path / ".tmp").exists()
    assert create_logdir("d", str(tmp_path)) == str(tmp_path / "d") != create_logdir("d", str(tmp_path))


def test_what_fails_is_tried_again() -> None:
    tries = []

    def fails() -> None:
        tries.append(1)
        raise OSError

    assert not retry_fn(fails, OSError, num_retries=3, sleep_time=0) and len(tries) == 3
    assert retry_fn(lambda: None, OSError) and re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", date_str())


def test_points_and_rewards_that_do_not_fit_are_refused() -> None:
    validate_warmstart(["a"], [{"a": 1}], [0.5])
    for points, rewards, error in (("x", None, TypeError), ([1], None, TypeError), ([{}], None, ValueError)):
        with pytest.raises(error):
            validate_warmstart(["a"], points, rewards)
    with pytest.raises(ValueError, match="2 evaluated_rewards of 1"):
        validate_warmstart(["a"], [[1]], [1, 2])


def test_default_callbacks_given_by_hand_are_not_doubled(tmp_path: Path) -> None:
    callbacks = create_default_callbacks([])
    tune.run(lambda config: 1, callbacks=callbacks, storage_path=tmp_path, name="e", executor="inline", verbose=0)
    (file,) = (tmp_path / "e").rglob("result.json")
    assert len(file.read_text().splitlines()) == 1


def test_what_was_to_be_wrapped_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner import DurableTrainable, Trainable, durable, function

    assert function(len) is durable(len) is len and DurableTrainable is Trainable
    from trainables._internal.utils import construct_path, get_address_and_port, update_env_vars

    assert construct_path("a", "/b") == Path("/b/a") and construct_path("/a", "/b") == Path("/a")
    address, port = get_address_and_port()
    assert socket.inet_aton(address) and 0 < port < 2**16
    monkeypatch.setenv("FOR_A_TEST", "")
    update_env_vars({"FOR_A_TEST": 3})
    assert os.environ["FOR_A_TEST"] == "3"
