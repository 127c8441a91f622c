"""A fingerprint of a trainable's code: the same wherever that stands, another when it does something else."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from trainables.config import ScalingConfig
from trainables.data_parallel_trainer import DataParallelTrainer
from tuner.opening.trainable_code import fingerprint_of, fingerprint_parts, is_another
from tuner.registry import resolve_trainable

FUNCTION = '''
def helper(x):
    return {"loss": x * 2 if x in {"a", "b", "c", "d"} else 0}

def train(config, epochs=3):
    """What it does."""
    for n in range(epochs):
        tune.report(helper([config[k] + n for k in config]))
'''
CLASS = """
class Base(tune.Trainable):
    def setup(self, config):
        self.x = config["x"]

class train(Base):
    @property
    def twice(self):
        return self.x * 2

    @staticmethod
    def made(x):
        return {"loss": x}

    def step(self):
        return self.made(self.twice)
"""
LAMBDA = 'train = lambda config: {"loss": config["x"] * 2}\n'
PARTIAL = (
    "import functools\n" + FUNCTION.replace("def train", "def inner") + "train = functools.partial(inner, epochs=4)\n"
)
SOURCES = [FUNCTION, CLASS, LAMBDA, PARTIAL]


def made(source: str, file: str = "a.py", module: str = "script") -> Any:
    names: dict[str, Any] = {"__name__": module, "tune": tune}
    exec(compile(source, file, "exec"), names)
    return resolve_trainable(names["train"])[0]


@given(st.sampled_from(SOURCES), st.integers(0, 50), st.sampled_from(["a.py", "<ipython-input-3>", "/elsewhere/b.py"]))
def test_it_is_the_same_wherever_it_stands(source: str, lines: int, file: str) -> None:
    moved = "\n" * lines + source.replace("\n    return", "\n\n    # a remark\n    return")
    assert fingerprint_of(made(source)) == fingerprint_of(made(moved, file)) != ""


@pytest.mark.parametrize("source", SOURCES)
def test_a_docstring_and_other_code_around_it_do_not_count(source: str) -> None:
    around = "def unused():\n    return 7\n" + source.replace("What it does", "Something else")
    assert fingerprint_of(made(around)) == fingerprint_of(made(source))


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (FUNCTION, "x * 2", "x * 3"),
        (FUNCTION, "+ n", "- n"),
        (FUNCTION, "epochs=3", "epochs=4"),
        (FUNCTION, '"loss"', '"cost"'),
        (FUNCTION, '"d"', '"e"'),
        (FUNCTION, "        tune.report", "        pass\n    tune.report"),
        (CLASS, "self.x * 2", "self.x * 3"),
        (CLASS, '{"loss": x}', '{"loss": -x}'),
        (CLASS, 'config["x"]', 'config["y"]'),
        (LAMBDA, "* 2", "* 3"),
        (PARTIAL, "x * 2", "x * 3"),
    ],
)
def test_an_edit_is_seen(source: str, old: str, new: str) -> None:
    assert old in source
    before, now = fingerprint_of(made(source)), fingerprint_of(made(source.replace(old, new)))
    assert is_another(before, now) and not is_another(before, before)


def test_trainers_and_bound_objects_are_what_they_run() -> None:
    loops = [made(FUNCTION.replace("def train(config, epochs=3)", f"def train(config, epochs={n})")) for n in (3, 3, 4)]
    scaled = [DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=n)) for n, loop in enumerate(loops, 1)]
    one, two, other = (fingerprint_of(resolve_trainable(trainer)[0]) for trainer in scaled)
    assert one == two != other and one
    plain = fingerprint_of(loops[0])
    assert fingerprint_of(tune.with_parameters(loops[0], epochs=object())) == plain
    assert fingerprint_of(tune.with_resources(loops[0], {"cpu": 2})) == plain
    bound = [
        fingerprint_of(tune.with_parameters(made(CLASS.replace("config)", "config, d=None)")), d=n)) for n in (1, 2)
    ]
    assert bound[0] == bound[1] != ""


def test_another_process_says_the_same() -> None:
    """Sets have another order there."""
    looks = "from tuner.opening.trainable_code import fingerprint_of\nprint(fingerprint_of(train))"
    command = [sys.executable, "-c", f"import tuner as tune\n{FUNCTION}\n{looks}"]  # which imports what it calls
    said = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in "ab"}
    assert said == {f"{fingerprint_of(made(FUNCTION, module='__main__'))}\n"}


class Strange:
    def __call__(self, config: Any) -> None: ...

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("do not look")


@pytest.mark.parametrize("thing", [print, len, functools.partial(print), Strange()])
def test_what_has_no_code_has_none(thing: Any) -> None:
    assert fingerprint_of(thing) == ""
    assert not is_another("", "x") and not is_another(None, "x") and not is_another("cpython-27-0:1", "cpython-311-0:2")


def test_the_parts_say_which_of_them_is_another() -> None:
    before, after = (made(FUNCTION.replace("x * 2", f"x * {factor}")) for factor in (2, 3))
    parts = fingerprint_parts(before), fingerprint_parts(after)
    assert {name for name in parts[0] if parts[0][name] != parts[1][name]} == {"helper"}
    assert parts[0].keys() == parts[1].keys() == {"helper", "train"}
    assert fingerprint_parts(print) == {}
