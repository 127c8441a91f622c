"""Which modules the fork server is told to load."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tuner.executors.local.pickled import imports_of, pickle_job, write_trainable

MODULE = """
import json

def helper():
    import decimal
    return Other().method()

def not_used():
    import xml.dom

class Other:
    def method(self):
        from importlib import resources, metadata
        return json.dumps({})

def trainable(config):
    inner = lambda: __import__("x")
    def deeper():
        from concurrent import futures
    return helper()
"""


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


def test_an_optimizer_of_torch_is_foreseen(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(config):\n import torch\n torch.optim.SGD([])\n", namespace)
    assert {"torch", "torch._dynamo"} <= set(write_trainable(namespace["f"], tmp_path).imports)


def test_relative_and_star_imports_are_read_right() -> None:
    code = compile("from . import a\nfrom ..b import c\nfrom os.path import *\nimport x.y as z\n", "f", "exec")
    assert list(imports_of(code)) == [("", 1, ("a",)), ("b", 2, ("c",)), ("os.path", 0, ()), ("x.y", 0, ())]


def test_plain_values_go_the_fast_way_and_others_by_value() -> None:
    import pickle

    assert pickle_job({"lr": 0.1}, "x") == pickle.dumps({"lr": 0.1}, 5)
    assert pickle.loads(pickle_job({"f": lambda: 3}, "x"))["f"]() == 3
