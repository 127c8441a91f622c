"""`Experiment`: the arguments of one `tune.run` as a value (Ray's name for it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.error import SettingError

_RENAMED = {"checkpoint_frequency": "checkpoint_freq", "num_to_keep": "keep_checkpoints_num"}


class Experiment:
    """A name, a trainable, and arguments of `tune.run` for `run_experiments`.

    Args:
        name: the experiment's name.
        run: a trainable, or a registered name.
        arguments: any argument of `tune.run`.
    """

    def __init__(self, name: str, run: Any, **arguments: Any) -> None:
        self.name, self.run = name, run
        self.arguments = {_RENAMED.get(key, key): value for key, value in arguments.items()}

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """An experiment from {"run": ..., **arguments}; SettingError without "run"."""
        if "run" not in spec:
            raise SettingError(f"experiment {name!r} has no 'run'; it has {', '.join(sorted(spec)) or 'nothing'}")
        arguments = dict(spec)
        return cls(name, arguments.pop("run"), **arguments)

    @classmethod
    def several(cls, experiments: Any) -> list[Experiment]:
        """The experiments in any of the forms that `run_experiments` accepts."""
        if isinstance(experiments, Experiment):
            return [experiments]
        if isinstance(experiments, Mapping):
            return [cls.from_json(name, spec) for name, spec in experiments.items()]
        if isinstance(experiments, Sequence) and all(isinstance(item, Experiment) for item in experiments):
            return list(experiments)
        raise SettingError(
            f"experiments={experiments!r} is not accepted; accepted are Experiments, a list of them, or a dict"
        )
