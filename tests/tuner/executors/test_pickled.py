"""Which modules the fork server is told to load."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import SCRIPTS, StandInExecutor

from tuner.compat.utilities import UtilityModule
from tuner.error import SerializationError
from tuner.executors.local.pickled import imports_of, pickle_job, write_trainable
from tuner.executors.local.preload import unpickle

MODULE = (SCRIPTS / "users_module.py").read_text()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "users_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    import users_module  # type: ignore[import-not-found]

    return users_module


def test_what_a_trainable_of_a_module_will_import(module: types.ModuleType, tmp_path: Path) -> None:
    shipped = write_trainable(module.trainable, tmp_path)
    assert shipped.imports == {
        "users_module": set(),
        "concurrent": {"futures"},
        "decimal": set(),
        "importlib": {"resources", "metadata"},
    }


def test_what_a_trainable_of_the_script_refers_to(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(MODULE.replace("import json", "import json, string"), namespace)
    shipped = write_trainable(namespace["trainable"], tmp_path)
    assert {"json", "decimal", "concurrent", "importlib"} <= set(shipped.imports)
    assert "xml.dom" not in shipped.imports and "__main__" not in shipped.imports


@pytest.mark.parametrize(
    "code",
    [
        "import tuner.tune_config as old\n",  # no file, but Ray's name of one
        "import tuner.tune_config\nold = tuner\n",
        "import nameless as old\n",
        "import torch\nold = torch\n",  # with torch.ops, found by its name
    ],
)
def test_a_module_of_any_class_goes_by_its_name(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nameless", UtilityModule("nameless"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code + "def trainable(config):\n return old.tune_config, old.ops.aten\n", namespace)
    trainable = unpickle(str(write_trainable(namespace["trainable"], tmp_path).path))
    assert trainable.__globals__["old"] is namespace["old"]


def test_an_optimizer_of_torch_is_foreseen(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(config):\n import torch\n torch.optim.SGD([])\n", namespace)
    assert {"torch", "torch._dynamo"} <= set(write_trainable(namespace["f"], tmp_path).imports)


def test_relative_and_star_imports_are_read_right() -> None:
    code = compile("from . import a\nfrom ..b import c\nfrom os.path import *\nimport x.y as z\n", "f", "exec")
    assert list(imports_of(code)) == [("", 1, ("a",)), ("b", 2, ("c",)), ("os.path", 0, ()), ("x.y", 0, ())]


def test_plain_values_go_the_fast_way_and_others_by_value() -> None:
    assert pickle_job({"lr": 0.1}, "x") == pickle.dumps({"lr": 0.1}, 5)
    assert pickle.loads(pickle_job({"f": lambda: 3}, "x"))["f"]() == 3


cloudpickle.register_pickle_by_value(sys.modules[__name__])


# --- shipping ------------------------------------------------------------------------------------------------


def test_a_large_captured_object_is_stored_once(local: Any, tmp_path: Path) -> None:
    large = os.urandom(5_000_000)

    def trainable(config: Any, talk: Any) -> None:
        talk.report(size=len(large))

    driver = local(trainable)
    trials = [driver.launch() for _ in range(4)]
    driver.finish_all()
    assert [driver.reports(t) for t in trials] == [[{"size": 5_000_000}]] * 4
    stored = [p.stat().st_size for p in (tmp_path / "temporary").iterdir()]
    assert len(stored) == 1 and stored[0] < 5_100_000
    driver.executor.shutdown()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_configs_may_hold_lambdas_and_local_classes(local: Any) -> None:
    class Local:
        value = 3

    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=config["f"](config["object"].value))

    driver = local(trainable)
    assert driver.first_report(driver.launch({"f": lambda x: x * 2, "object": Local()})) == {"value": 6}


def _closure(variable: Any) -> Any:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(x=str(variable))

    return trainable


UNSENDABLE = threading.Lock()


def uses_global(config: Any, talk: Any) -> None:
    talk.report(x=str(UNSENDABLE))


@pytest.mark.parametrize(
    ("trainable", "named"),
    [
        (_closure(UNSENDABLE), "closure variable 'variable' of _closure.<locals>.trainable"),
        (_closure({"a": [1, UNSENDABLE]}), "element 1 of a list"),
        (uses_global, "global variable 'UNSENDABLE' of uses_global"),
    ],
)
def test_a_trainable_that_cannot_be_sent_names_the_variable(tmp_path: Path, trainable: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=named.replace("(", r"\(")):
        StandInExecutor(cpus=1).start(trainable, temporary=tmp_path)
    assert list(tmp_path.iterdir()) == []
