"""Which frames an error has that leaves what a user called."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from trainables.errors import InvalidSettingError
from trainables.user_frames import OnPurposeError, Whose, cut, from_the_call, is_library
from tuner.error import SettingError, TrialsFailedError

MODULES = {Whose.OURS: "tuner.somewhere", Whose.USER: "script", Whose.LIBRARY: "numpy.core"}
FILES = {Whose.OURS: "/src/tuner/a.py", Whose.USER: "/home/me/train.py", Whose.LIBRARY: "/v/site-packages/numpy/a.py"}


def shown(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def fails(config: dict[str, Any]) -> None:
    raise ValueError("boom")


class Broken(tune.Callback):
    def on_trial_result(self, **info: Any) -> None:
        json.loads("{")


def nested(kinds: list[Whose], error: BaseException) -> Callable[[], None]:
    """A call of code that these wrote, from the outside to the inside, the last of which raises."""

    def innermost() -> None:
        raise error

    call: Callable[[], None] = innermost
    for kind in reversed(kinds):
        names: dict[str, Any] = {"__name__": MODULES[kind], "call": call, "error": error}
        does = "raise error" if call is innermost else "call()"
        exec(compile(f"def frame():\n    {does}\n", FILES[kind], "exec"), names)
        call = names["frame"]
    return call


@given(st.lists(st.sampled_from(list(Whose)), min_size=1, max_size=7), st.booleans())
def test_only_a_fault_of_ours_keeps_our_frames(kinds: list[Whose], on_purpose: bool) -> None:
    raised: Exception = InvalidSettingError("x") if on_purpose else KeyError("x")
    with pytest.raises(type(raised)) as caught:
        nested(kinds, raised)()
    raised.__traceback__ = caught.tb.tb_next  # from the outermost of these on
    cut(raised)
    left = [FILES_BACK[frame.filename] for frame in traceback.extract_tb(raised.__traceback__)]
    blamed = next((kind for kind in reversed(kinds) if kind is not Whose.LIBRARY), None)
    if on_purpose:
        assert left == [kind for kind in kinds if kind is Whose.USER]
    elif blamed is Whose.USER and Whose.OURS in kinds:
        assert left == [kind for kind in kinds[kinds.index(Whose.USER) :] if kind is not Whose.OURS]
    else:
        assert left == kinds


FILES_BACK = {file: kind for kind, file in FILES.items()}


@pytest.mark.parametrize(
    "call",
    [
        lambda: tune.run(fails, num_samples=-5),
        lambda: tune.run(fails, config={"x": tune.choice([tune.grid_search([1, 2]), 3])}),
        lambda: tune.run(fails, nmae="x"),
        lambda: tune.Tuner(fails, tune_config=tune.TuneConfig(scheduler="asah")).fit(),
        lambda: tune.Tuner(fails, param_sapce={}),
        lambda: tune.Tuner.restore("/nowhere/at/all", fails),
        lambda: tune.CheckpointConfig(num_to_keep=0),
        lambda: tune.run_experiments({"e": {"run": fails, "num_samples": 0}}),
    ],
    ids=["value", "space", "keyword", "fit", "Tuner", "restore", "config", "run_experiments"],
)
def test_a_mistake_in_a_call_is_raised_from_the_call(call: Callable[[], Any]) -> None:
    with pytest.raises(OnPurposeError) as caught:
        call()
    assert shown(caught.value)[1:] == ["<lambda>"]


def test_verbose_3_has_all_frames() -> None:
    for call in (
        lambda: tune.run(fails, num_samples=-5, verbose=3),
        lambda: tune.Tuner(fails, param_space=3, run_config=tune.RunConfig(verbose=3)).fit(),
    ):
        with pytest.raises(SettingError) as caught:
            call()
        assert len(shown(caught.value)) > 4


def test_a_failed_trial_is_raised_from_the_call(tmp_path: Path) -> None:
    with pytest.raises(TrialsFailedError) as caught:
        tune.run(fails, storage_path=tmp_path, verbose=0, executor="inline")
    assert shown(caught.value) == ["test_a_failed_trial_is_raised_from_the_call"]


def test_what_a_users_callback_raises_shows_the_callback_and_what_it_called(tmp_path: Path) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        tune.run(lambda config: {"a": 1}, callbacks=[Broken()], storage_path=tmp_path, verbose=0, executor="inline")
    assert shown(caught.value)[1:3] == ["on_trial_result", "loads"]


def test_what_an_error_on_purpose_came_from_is_cut_too() -> None:
    @from_the_call
    def door() -> None:
        try:
            nested([Whose.OURS, Whose.LIBRARY], ImportError("no plotly"))()
        except ImportError as error:
            raise SettingError("plots need plotly") from error

    with pytest.raises(SettingError) as caught:
        door()
    assert isinstance(caught.value.__cause__, ImportError)
    assert "plotly" in str(caught.value.__cause__) and "somewhere" not in "".join(
        traceback.format_exception(caught.value)
    )


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/usr/lib/python3.12/json/decoder.py", True),
        ("/v/lib/python3.11/site-packages/torch/nn.py", True),
        ("/usr/lib/python3/dist-packages/yaml.py", True),
        ("<frozen importlib._bootstrap>", True),
        (json.__file__, True),
        ("/home/me/train.py", False),
        ("<ipython-input-3-abc>", False),
        ("<stdin>", False),
        ("/home/me/python3/lib/train.py", False),
    ],
)
def test_what_is_a_library(file: str, library: bool) -> None:
    assert is_library(file) is library


@pytest.mark.parametrize("call", [lambda: tune.choice([]), lambda: tune.grid_search([]), lambda: tune.uniform(1, 0)])
def test_a_domain_and_a_name_that_are_refused_show_the_line_that_has_them_alone(call) -> None:
    for mistake in (call, lambda: tune.nosuch):
        with pytest.raises((SettingError, AttributeError)) as no:
            mistake()
        assert {entry.path.name for entry in no.traceback} == {"test_user_frames.py"}
