"""What stored pickles name stays where they name it: looked for in every sample, without unpickling one.

An experiment is resumed with the pickles that an earlier version wrote: of plug-ins and their states, of settings, of
values of configs. Whoever moves or renames a class that is named here leaves it importable under its old name too.
"""

from __future__ import annotations

import importlib
import operator
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tuner
from tests.data import own
from tests.data.pickled import PROTOCOL, files_of, globals_of, globals_within, strings_of
from tests.data.unpacking import HERE
from tuner.experiment import unpickling
from tuner.schedulers import Reason

OURS = ("tuner", "trainables")
SAMPLES = {
    version.parent.name: sorted(version.parent.glob("*.tar.xz")) for version in sorted(HERE.glob("*/index.json"))
}
versions = pytest.mark.parametrize("version", SAMPLES)


def contents_of(version: str) -> Iterator[tuple[str, bytes]]:
    for sample in SAMPLES[version]:
        for name, content in files_of(sample):
            yield f"{sample.name}: {name}", content


def blobs_of(version: str) -> Iterator[bytes]:
    """The blobs that are pickles; each other one is JSON or an array."""
    for where, content in contents_of(version):
        if "/blobs/" in where:
            if content.startswith(PROTOCOL):
                yield content
            else:
                assert content[:1] in b'{["' or content.startswith(b"\x93NUMPY"), where


def get(module: str, name: str) -> Any:
    """As what opens stored pickles finds it."""
    found = importlib.import_module(unpickling.MOVED.get(module, module))
    return operator.attrgetter(name)(found) if name else found


@versions
def test_what_stored_pickles_name_is_there(version: str) -> None:
    named: dict[tuple[str, str], str] = {}
    for where, content in contents_of(version):
        found = globals_within(content)  # a blob, or a checkpoint that is a dict
        for module, name in found:
            if module.split(".")[0] in OURS:
                named.setdefault((module, name), where)
    assert len(named) > 40
    lost = {}
    for (module, name), where in sorted(named.items()):
        try:
            get(module, name)
        except (ImportError, AttributeError) as error:
            lost[f"{module}.{name}"] = f"{error}; in {where}"
    assert not lost


def test_a_class_that_has_moved_is_found_where_it_is_now() -> None:
    """As by settings, or the state of a scheduler, whose verdicts hold reasons."""
    stored = pickle.dumps(Reason, 0).replace(Reason.__module__.encode(), b"tuner.reason")
    assert unpickling.loads(stored) is Reason


@versions
def test_every_blob_is_read_to_its_end(version: str) -> None:
    assert sum(bool(globals_of(content)) for content in blobs_of(version)) > 100


@versions
def test_what_plug_ins_states_were_of_is_there(version: str) -> None:
    """A state is used by what has the class names that are stored with it; by anything else it is passed over."""
    sources = [*Path(tuner.__file__).parent.rglob("*.py"), Path(own.__file__)]
    classes = {name for file in sources for name in re.findall(r"^ *class (\w+)", file.read_text(), re.MULTILINE)}
    kinds = {kind for content in blobs_of(version) for kind in kinds_of(content)}
    assert len(kinds) > 10
    assert {word for kind in kinds for word in kind.split(" (")[0].split()} <= classes


def kinds_of(content: bytes) -> list[str]:
    """The classes, and what they go by, that a plug-in's state is of."""
    match strings_of(content)[:3]:
        case ["kind", kind, "state"] if kind:
            return [kind]
    return []


class Held:
    """A class that pickles of the tests below name."""

    class Inner:
        pass


def test_names_are_found_however_a_pickle_holds_them() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        inner = pickle.dumps(tuner.Checkpoint, protocol)
        outer = pickle.dumps({"twice": [Held, Held()], "bytes": pickle.dumps([inner])}, protocol)
        expected = {(Held.__module__, "Held"), ("trainables.checkpoint", "Checkpoint")}
        assert expected <= globals_of(outer) if protocol > 2 else {(Held.__module__, "Held")} <= globals_of(outer)
    assert (Held.__module__, "Held.Inner") in globals_of(pickle.dumps(Held.Inner, 4))
    module = importlib.import_module("tuner.search.domains")
    assert (module.__name__, "") in globals_of(cloudpickle.dumps([module]))
    with pytest.raises(ValueError):
        globals_of(b"\x80no pickle")
