"""`MetricsTracker`: sums of numbers over steps, ranks and epochs."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from trainables.errors import MetricError
from trainables.torch.ranks import has_group
from trainables.validation import invalid


class MetricsTracker:
    """Adds up numbers of a step, over all ranks, and over the epoch.

    `update` adds to `local`; `reduce`, called by all ranks, makes `local` the sum over them and adds it to `agg`;
    `reset_local` begins the next step, `end_epoch` the next epoch. Sums are of double precision, and without a process
    group there is one rank.

    Args:
        device: where ranks exchange their sums; None: as the process group needs it (CUDA for "nccl", else the CPU).

    Attributes:
        local: name -> sum of this step.
        agg: name -> sum of this epoch, over all ranks.
        epoch_reports: of each epoch that has ended, its `agg`.

    Source: the interface is that of StrongResearch/cycling_utils.

    Example:
        >>> metrics = MetricsTracker()
        >>> for loss in (3.0, 1.0):
        ...     metrics.reset_local().update({"images": 2, "loss": loss}).reduce().local["loss"]
        3.0
        1.0
        >>> metrics.agg["loss"] / metrics.agg["images"]
        1.0
        >>> metrics.end_epoch().epoch_reports
        [{'images': 4.0, 'loss': 4.0}]
    """

    def __init__(self, device: Any = None) -> None:
        self.device = device
        self.local: defaultdict[str, float] = defaultdict(float)
        self.agg: defaultdict[str, float] = defaultdict(float)
        self.epoch_reports: list[dict[str, float]] = []

    def update(self, metrics: Mapping[str, Any]) -> MetricsTracker:
        """Add numbers, or tensors of one element on any device, to this step's. Raises MetricError for others."""
        if not isinstance(metrics, Mapping):
            raise MetricError(f"{metrics!r} is no mapping: MetricsTracker.update() takes names and numbers")
        found = {name: _number(name, value) for name, value in metrics.items()}
        for name, value in found.items():
            self.local[name] += value
        return self

    def reduce(self) -> MetricsTracker:
        """Sum this step over the ranks, all of which call it; a name that some rank lacks counts as 0 there."""
        if has_group():
            self.local = defaultdict(float, self._summed())
        for name, value in self.local.items():
            self.agg[name] += value
        return self

    def reset_local(self) -> MetricsTracker:
        """Forget this step."""
        self.local = defaultdict(float)
        return self

    def end_epoch(self) -> MetricsTracker:
        """File the sums of this epoch under `epoch_reports`, and begin the next."""
        self.epoch_reports.append(dict(self.agg))
        self.agg = defaultdict(float)
        return self.reset_local()

    def state_dict(self) -> dict[str, Any]:
        """The epochs and the sums of this one; a step that was begun is not part of it, as it differs by rank."""
        return {"epoch_reports": [dict(report) for report in self.epoch_reports], "agg": dict(self.agg)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> MetricsTracker:
        """Go on where a state was saved. Raises InvalidSettingError for what is none."""
        if not isinstance(state_dict, Mapping) or not {"epoch_reports", "agg"} <= set(state_dict):
            raise invalid("load_state_dict: state_dict", state_dict, "what MetricsTracker.state_dict() returned")
        self.epoch_reports = [dict(report) for report in state_dict["epoch_reports"]]
        self.agg = defaultdict(float, state_dict["agg"])
        return self.reset_local()

    def _summed(self) -> dict[str, float]:
        import torch
        import torch.distributed as dist

        device = self._place()
        names = sorted(self.local)
        # All ranks mean the same names, and then one sum does, or they first tell each other which.
        key = [len(names), zlib.crc32("\0".join(names).encode("utf-8", "surrogatepass"))]
        keys = torch.tensor([*key, *(-each for each in key)], dtype=torch.int64, device=device)
        dist.all_reduce(keys, op=dist.ReduceOp.MAX)
        if keys[:2].tolist() != (-keys[2:]).tolist():
            told: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(told, names)
            names = sorted({name for each in told for name in each})
        sums = torch.tensor([self.local.get(name, 0.0) for name in names], dtype=torch.float64, device=device)
        dist.all_reduce(sums)
        return dict(zip(names, sums.tolist(), strict=True))

    def _place(self) -> Any:
        import torch
        import torch.distributed as dist

        if self.device is not None:
            return torch.device(self.device)
        return torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise MetricError(f"{name!r} is {value!r}: MetricsTracker adds up numbers")
    detach = getattr(value, "detach", None)  # a loss knows where it comes from, and torch would warn
    try:
        return float(value if detach is None else detach())  # a tensor's too, wherever it is
    except (TypeError, ValueError, RuntimeError) as error:
        raise MetricError(f"{name!r} is no single number but a {type(value).__name__}: {error}") from error
