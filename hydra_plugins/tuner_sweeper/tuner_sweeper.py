"""`TunerSweeper`: what `hydra/sweeper=tuner` names, and its settings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException, ConfigCompositionException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.tuner_sweeper.hydra_job import OBJECTIVE, trainable_of
from hydra_plugins.tuner_sweeper.swept_space import SweptSpace, overrides_of

_log = logging.getLogger(__name__)

SETTINGS = (
    "callbacks",
    "checkpoint_at_end",
    "checkpoint_budget",
    "checkpoint_freq",
    "checkpoint_score_attr",
    "executor",
    "export_formats",
    "fail_fast",
    "keep_checkpoints_num",
    "log_to_file",
    "max_concurrent_trials",
    "max_failures",
    "metric",
    "mode",
    "num_samples",
    "overwrite",
    "raise_on_failed_trial",
    "resources_per_trial",
    "restore",
    "resume",
    "reuse",
    "reuse_actors",
    "scheduler",
    "search_alg",
    "seed",
    "stop",
    "takeover",
    "time_budget_s",
    "trial_timeout_s",
    "ui",
    "verbose",
)
"""What `hydra.sweeper` may say, beside `params`: the keys of a config file of `tuner run`, named here so that Hydra,
which loads every plug-in at each start of any program, need not load the tuner."""

RESULTS = "optimization_results.yaml"
"""Where Hydra's sweepers write what came out best."""


class TunerSweeper(Sweeper):
    """Runs the jobs of a multirun as the trials of an experiment, which lies under `hydra.sweep.dir`.

    Args:
        settings: `params`, overrides that the command line may replace, and arguments of `tune.run`; None: not given.
            They are read from `hydra.sweeper` itself.
    """

    def __init__(self, **settings: Any) -> None:
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self._task: TaskFunction | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Raises ConfigCompositionException where another launcher is asked for."""
        self.hydra_context, self.config, self._task = hydra_context, config, task_function
        launcher = str(config.hydra.launcher._target_).rpartition(".")[2]
        if launcher != "BasicLauncher":
            raise ConfigCompositionException(
                f"hydra/launcher: {launcher} is not accepted: hydra/sweeper=tuner starts jobs itself; take "
                "hydra/launcher=basic, and hydra.sweeper.max_concurrent_trials, resources_per_trial and executor"
            )

    def sweep(self, arguments: list[str]) -> Any:
        """Run what the overrides describe, or go on with it, and return its `ExperimentAnalysis`.

        Raises CompactHydraException for what is not accepted, and where trials failed.
        """
        from tuner.cli.config_file import check
        from tuner.error import TuneError

        assert self.config is not None
        try:
            settings = self._settings()
            given = check({"trainable": "", **settings}, source="hydra.sweeper", directory=Path.cwd()).arguments()
            return self._run(arguments, given)
        except TuneError as error:
            raise CompactHydraException(str(error)) from error

    def _settings(self) -> dict[str, Any]:
        """What is given. Raises CompactHydraException."""
        assert self.config is not None
        said: Any = OmegaConf.to_container(self.config.hydra.sweeper, resolve=True)
        for key in ("name", "storage_path"):
            if said.get(key) is not None:
                raise CompactHydraException(
                    f"hydra.sweeper.{key}={said[key]!r} is not accepted: the experiment lies under hydra.sweep.dir"
                )
        return {key: value for key, value in said.items() if value is not None and key not in ("_target_", "params")}

    def _run(self, arguments: list[str], given: dict[str, Any]) -> Any:
        from tuner.error import TrialsFailedError
        from tuner.run import run
        from tuner.search import BasicVariantGenerator

        assert self.config is not None and self.hydra_context is not None and self._task is not None
        space = SweptSpace(self._overrides(arguments), grids=given.get("search_alg") is None)
        self.validate_batch_is_legal([overrides_of(config) for config in space.samples])
        draws = isinstance(given.get("search_alg"), BasicVariantGenerator | None)
        if given.get("metric") is None and (not draws or "mode" in given or "scheduler" in given):
            given["metric"] = OBJECTIVE
        if space.drawn and given.get("num_samples", 1) == 1:
            _log.info("one sample is drawn: hydra.sweeper.num_samples says how many")
        directory = Path(self.config.hydra.sweep.dir).absolute()
        _log.info("killed, this sweep goes on with hydra.sweep.dir=%s and the same overrides", directory)
        callbacks = [*given.get("callbacks", ()), _keeping(self.config, directory)]
        failed: TrialsFailedError | None = None
        try:
            analysis = run(
                trainable_of(self.hydra_context, self._task, self.config, given.get("metric")),
                **{"resume": "AUTO", **given, "config": space.space, "callbacks": callbacks},
                name=directory.name,
                storage_path=directory.parent,
                chdir_to_trial_dir=False,
            )
        except TrialsFailedError as error:
            failed, analysis = error, error.analysis
        if given.get("metric") is not None:
            OmegaConf.save(OmegaConf.create(_results(analysis, given["metric"])), directory / RESULTS)
        if failed is not None:
            raise failed
        return analysis

    def _overrides(self, arguments: Sequence[str]) -> list[Any]:
        """Those of `params`, and those of the command line, which replace them."""
        assert self.config is not None and self.hydra_context is not None
        params = self.config.hydra.sweeper.get("params") or {}
        lines = [f"{key}={'null' if value is None else value}" for key, value in params.items()]
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        return parser.parse_overrides([*lines, *arguments])


def _keeping(config: DictConfig, directory: Path) -> Any:
    """A callback that keeps the sweep's config where Hydra does: before that the directory has to be empty."""
    from tuner.callback import Callback

    class KeepMultirun(Callback):
        changes_results = False

        def setup(self, *_: Any, **__: Any) -> None:
            OmegaConf.save(config, directory / "multirun.yaml")

    return KeepMultirun()


def _results(analysis: Any, metric: str | Sequence[str]) -> dict[str, Any]:
    """What came out best, as Hydra's other sweepers say it."""
    if isinstance(metric, str):
        best = analysis.best_trial
        value = None if best is None else best.last_result.get(metric)
        return {"name": "tuner", "best_params": {} if best is None else best.config, "best_value": value}
    solutions = [
        {"params": trial.config, "values": [trial.last_result.get(name) for name in metric]}
        for trial in analysis.best_trials
    ]
    return {"name": "tuner", "solutions": solutions}


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="tuner",
    node={
        "_target_": "hydra_plugins.tuner_sweeper.tuner_sweeper.TunerSweeper",
        "params": None,
        **dict.fromkeys(SETTINGS),
    },
    provider="tuner",
)
