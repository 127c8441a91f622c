"""`ExperimentSpec`: an experiment as searchers are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tuner.error import SettingError


class ExperimentSpec:
    """A name, a trainable, and arguments of `tune.run`.

    Args:
        name: the experiment's name.
        run: a trainable, or a registered name.
        arguments: any argument of `tune.run`.
    """

    PUBLIC_KEYS: ClassVar[set[str]] = {"stop", "num_samples", "time_budget_s"}

    def __init__(self, name: str | None, run: Any, **arguments: Any) -> None:
        self.run, self.arguments = run, arguments
        self.name = name or self.run_identifier

    @property
    def run_identifier(self) -> str:
        """The trainable's name."""
        return self.run if isinstance(self.run, str) else str(getattr(self.run, "__name__", type(self.run).__name__))

    @property
    def spec(self) -> dict[str, Any]:
        """All that is known of it, by Ray's names; "run" is the trainable's name."""
        defaults: dict[str, Any] = {"config": {}, "num_samples": 1, "stop": {}, "time_budget_s": None}
        return {**defaults, **self.arguments, "run": self.run_identifier}

    @property
    def public_spec(self) -> dict[str, Any]:
        """What plug-ins are told of it."""
        return {key: value for key, value in self.spec.items() if key in self.PUBLIC_KEYS}

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> ExperimentSpec:
        """An experiment from {"run": ..., **arguments}; SettingError without "run"."""
        if "run" not in spec:
            raise SettingError(f"experiment {name!r} has no 'run'; it has {', '.join(sorted(spec)) or 'nothing'}")
        arguments = dict(spec)
        if "env" in arguments:
            arguments["config"] = {**arguments.get("config", {}), "env": arguments.pop("env")}
        return cls(name, arguments.pop("run"), **arguments)

    @classmethod
    def several(cls, experiments: Any) -> list[ExperimentSpec]:
        """The experiments in any of the forms that `run_experiments` accepts.

        Raises:
            SettingError: it is none of these forms, or two have the same name.
        """
        made: list[ExperimentSpec] | None = None
        if experiments is None:
            made = []
        elif isinstance(experiments, ExperimentSpec):
            made = [experiments]
        elif isinstance(experiments, Mapping):
            made = [cls.from_json(name, spec) for name, spec in experiments.items()]
        elif isinstance(experiments, Sequence) and all(isinstance(item, ExperimentSpec) for item in experiments):
            made = list(experiments)
        if made is None:
            raise SettingError(
                f"experiments={experiments!r} is not accepted; accepted are Experiments, a list of them, or a dict"
            )
        names = [one.name for one in made]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SettingError(f"experiments: {', '.join(twice)} is there more than once; give each a name of its own")
        return made
