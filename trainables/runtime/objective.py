"""An objective of Optuna given as a trainable: told from one, and shown as the two functions that it becomes."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

_SHOWN = 6
_PRUNES = ("report", "should_prune")
_PRUNING = [
    "# trial.report and trial.should_prune become tune.report at each step, and in tune.run",
    "# scheduler=tune.schedulers.ASHAScheduler(), which stops bad trials",
]
_ANY = ['x = trial.suggest_float("x", 0, 1)']


def is_objective(function: Callable[..., Any]) -> bool:
    """Whether a function asks its first argument for suggestions: `trial.suggest_float("lr", 1e-4, 1e-1)`."""
    return _calls(function, suggests)


def _calls(function: Callable[..., Any], wanted: Callable[[str], bool]) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and bool(code.co_argcount) and _asks(code, code.co_varnames[0], wanted)


def _asks(code: CodeType, first: str, wanted: Callable[[str], bool]) -> bool:
    """Whether code asks what is called `first` for such a method, in functions and comprehensions within it too."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType) and first in each.co_freevars]
    if any(_asks(each, first, wanted) for each in inner):
        return True
    on_top = False
    for step in dis.get_instructions(code) if any(map(wanted, code.co_names)) else ():
        if on_top and isinstance(step.argval, str) and wanted(step.argval):
            return True
        on_top = step.opname.startswith("LOAD_") and step.argval == first
    return False


def two_functions(function: Callable[..., Any]) -> str:
    """What is to be done with an objective: the error's text, with the function's own suggestions in it."""
    name = getattr(function, "__name__", "objective")
    lines = _suggestions(function)
    inner = [line.split("=", 1) for line in lines]
    keys = [ast.literal_eval(_first_argument(call)) for _, call in inner]
    space = [f"    {call.strip()}" for _, call in inner]
    train = [f'    {target.strip()} = config["{key}"]' for (target, _), key in zip(inner, keys, strict=True)]
    return "\n".join(
        [
            f"{name} is an objective of Optuna, and a trainable gets a config. It becomes two functions:",
            "",
            "def space(trial):",
            *space,
            "",
            "def train(config):",
            *train,
            f"    ...                                  # what {name} does with them",
            '    tune.report({"value": value})        # what it returns',
            "",
            "search = OptunaSearch(space)             # from tuner.search.optuna",
            'tune.run(train, search_alg=search, metric="value", mode="min", num_samples=100)',
            *(_PRUNING if _calls(function, _PRUNES.__contains__) else ()),
        ]
    )


def suggests(name: str) -> bool:
    """Whether a method of this name is one that asks Optuna's trial for a value."""
    return name.startswith("suggest_")


def _suggestions(function: Callable[..., Any]) -> list[str]:
    """The function's own `x = trial.suggest_...("x", ...)`, as far as its source is at hand and they are plain."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return _ANY
    found = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _is_plain(node.value)
    ]
    return found[:_SHOWN] if found and all(len(line) < 90 for line in found[:_SHOWN]) else _ANY


def _is_plain(call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Attribute) and suggests(call.func.attr)
    return bool(named and call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str))


def _first_argument(call: str) -> str:
    tree = ast.parse(call.strip(), mode="eval").body
    return ast.unparse(tree.args[0]) if isinstance(tree, ast.Call) else "'x'"
