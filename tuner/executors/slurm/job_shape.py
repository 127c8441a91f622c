"""How large a job is: what its options say, else what the largest trial asks for."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from tuner.executors.base import Resources
from tuner.executors.remote.groups import Meant
from tuner.executors.slurm.batch_options import BatchOptions
from tuner.executors.slurm.batch_script import script


class JobShape:
    """Of the jobs of one run."""

    def __init__(self, options: BatchOptions) -> None:
        self.options = options
        self._largest: dict[str, float] = {}

    def grow(self, resources: Resources, meant: Meant) -> None:
        """Somebody asks for that."""
        group = meant(resources)
        for bundle in (resources,) if group is None else group.bundles:
            for name, amount in bundle.items():
                self._largest[name] = max(amount, self._largest.get(name, 0.0))

    @property
    def cpus(self) -> int:
        """Of each node, where the options do not say it."""
        return max(1, math.ceil(self._largest.get("cpu", 1.0)))

    @property
    def gpus(self) -> int:
        return math.ceil(self._largest.get("gpu", 0.0))

    def node(self) -> dict[str, float]:
        """What each node of a job has, as far as that is known before there is one."""
        options = self.options
        cpus = self.cpus if options.cpus_per_task is None else options.cpus_per_task
        found = {"cpu": float(cpus), "gpu": float(self.gpus if options.gpus is None else options.gpus)}
        return found | ({"memory": self._largest["memory"]} if "memory" in self._largest else {})

    def script(self, *, name: str, output: Path, file: Path, generation: int, signal_s: float) -> str:
        """The batch script of a job whose agents find their driver by `file`."""
        command = [sys.executable, "-m", "tuner.executors.slurm.agent_job", str(file), str(generation)]
        return script(
            self.options,
            name=name,
            output=output,
            command=command,
            cpus=self.cpus,
            gpus=self.gpus,
            signal_s=math.ceil(signal_s),
        )
