"""`TorchConfig`: how the processes of a `TorchTrainer` find each other."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.validation import Config, checked_names, one_of, seconds


@checked_names
@dataclass(repr=False)
class TorchConfig(Config):
    """The process group of a `TorchTrainer`.

    Args:
        backend: "nccl", "gloo", or both as "cpu:gloo,cuda:nccl"; None: nccl where each rank has a GPU, else gloo.
        init_method: "env", the only one: the launcher's store.
        timeout_s: how long a rank waits for another, in `report()`, in collective calls and when it has returned, in
            seconds.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800

    def __post_init__(self) -> None:
        one_of("TorchConfig: backend", self.backend, (None, "nccl", "gloo", "cpu:gloo,cuda:nccl"))
        one_of("TorchConfig: init_method", self.init_method, ("env",))
        seconds("TorchConfig: timeout_s", self.timeout_s, zero=False)
