"""Every public name, from its docstring: directives for Sphinx's autodoc, a module on a page."""

from __future__ import annotations

import importlib
import inspect
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, cast

ABSENT = ("keras", "lightgbm", "lightning", "mlflow", "sklearn", "torch", "transformers", "wandb", "xgboost")
"""Imported by modules that are shown, and not installed where the site is built."""
MODULES = {
    "tuner": "the driver: `tune.run`, `Tuner`, search spaces, results",
    "trainables": "what runs inside a trial, and the settings of a run",
    "trainables.config": "the settings, beside those that `trainables` exports",
    "tuner.schedulers": "what stops, pauses and clones trials",
    "tuner.search": "what proposes configs",
    "tuner.stopper": "when a trial, or all, has done enough",
    "tuner.executors": "where trials run",
    "tuner.logger": "files of trials",
    "tuner.syncer": "copies elsewhere",
    "tuner.progress_reporter": "what is seen of a run",
    "tuner.preemption": "machines that are taken away",
    "tuner.experiment": "a trial, as callbacks and schedulers see it",
    "tuner.testing": "proofs, and conformance suites for plug-ins",
    "tuner.utils": "small things under Ray Tune's names",
    "tuner.tracking.wandb": "Weights & Biases follows a run",
    "tuner.tracking.mlflow": "MLflow follows a run",
    "tuner.tracking.comet": "Comet follows a run",
    "tuner.tracking.aim": "Aim follows a run",
    "trainables.torch": "data-parallel training, samplers, atomic saving",
    "trainables.collective": "what ranks of a group tell one another",
    "trainables.sklearn": "scikit-learn",
    "trainables.xgboost": "XGBoost",
    "trainables.lightgbm": "LightGBM",
    "trainables.lightning": "Lightning",
    "trainables.keras": "Keras",
    "trainables.huggingface.transformers": "Transformers",
    "trainables.tracking.wandb_run": "Weights & Biases within a trial",
    "trainables.tracking.mlflow_run": "MLflow within a trial",
}
"""The public modules, in the order in which they are shown. A name that two of them have is shown with the first."""
NOT_SHOWN = ("__version__", "TuneContext", "syncConfig")
"""Other names of `TrainContext` and `SyncConfig`, and what needs no words."""
SEARCHERS = {
    "tuner.search.optuna": "OptunaSearch",
    "tuner.search.hyperopt": "HyperOptSearch",
    "tuner.search.bayesopt": "BayesOptSearch",
    "tuner.search.ax": "AxSearch",
    "tuner.search.nevergrad": "NevergradSearch",
    "tuner.search.smac": "SMACSearch",
}
"""Searchers of other libraries, each in a module of its own."""


def _absent() -> AbstractContextManager[None]:
    """Where the site is built they are stood in for; in the tests they are there."""
    try:
        from sphinx.ext.autodoc.mock import mock
    except ModuleNotFoundError:
        return nullcontext()
    return cast("AbstractContextManager[None]", mock(list(ABSENT)))


@cache
def exported() -> dict[str, dict[str, Any]]:
    """Module -> its public names and what they are, each where it comes first."""
    found: dict[str, dict[str, Any]] = {}
    seen = set[int]()
    with _absent():
        for module in MODULES:
            loaded = importlib.import_module(module)
            names = {name: getattr(loaded, name) for name in loaded.__all__ if name not in NOT_SHOWN}
            found[module] = {name: value for name, value in names.items() if id(value) not in seen}
            seen |= {id(value) for value in names.values()}
        for module, name in SEARCHERS.items():
            found[module] = {name: getattr(importlib.import_module(module), name)}
    return found


def names_of(module: str) -> str:
    """The names of one module, as directives."""
    parts = [module, *(SEARCHERS if module == "tuner.search" else ())]
    return "\n".join(_shown(part, name, value) for part in parts for name, value in exported()[part].items())


def modules() -> str:
    """A table of the modules."""
    rows = [f"| [`{module}`](api/{module}.md) | {said} |" for module, said in MODULES.items()]
    return "\n".join(["| module | what is in it |", "|---|---|", *rows])


def _shown(module: str, name: str, value: Any) -> str:
    kind = (
        "class" if inspect.isclass(value) else "function" if callable(value) and hasattr(value, "__name__") else "data"
    )
    options = ["   :members:"] if kind == "class" else []
    lines = [f".. auto{kind}:: {module}.{name}", *options]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])
