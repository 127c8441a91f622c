"""The torch framework of a group: ranks under torch's elastic launcher, with a process group."""

from __future__ import annotations

import contextlib
import datetime
import dis
import logging
import secrets
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainables import knobs, session
from trainables.errors import InvalidSettingError, RanksError
from trainables.group.framework import Framework
from trainables.group.launcher import Launcher, NodeRanks
from trainables.starting import start_thread
from trainables.torch.torch_config import TorchConfig

_PREFIX = "module."
"""What DistributedDataParallel puts before the names of a model's parameters."""
_JOIN_S = 60.0
_GIVEN_UP_S = 5.0
"""After a kill of a group on several nodes: its ranks are dead, and agents may wait for those that are gone."""
_MEETING_S = 300
"""How long nodes wait for one another at the start."""


class TorchBackend(Framework):
    """gloo on CPUs, nccl on GPUs, ranks started by `torch.distributed.launcher`.

    Args:
        config: how ranks find each other.
        gpus: GPUs of each rank; 0: none, a fraction: ranks share one.
    """

    # The last one is 800 modules, which DistributedDataParallel and the optimizers load when they are first used.
    preload: Sequence[str] = ("torch", "torch.distributed.launcher.api", "torch.nn.parallel", "torch._dynamo")

    def __init__(self, config: TorchConfig, gpus: float) -> None:
        self.config, self.gpus = config, gpus
        self.timeout_s = float(config.timeout_s)

    @property
    def name(self) -> str:
        """The process group's back end."""
        # nccl refuses two ranks on one GPU.
        return self.config.backend or ("nccl" if self.gpus >= 1 else "gloo")

    def launcher(self, size: int) -> Launcher:
        import torch.distributed as dist

        if not dist.is_available():
            raise RanksError("this torch was built without torch.distributed")
        if "nccl" in self.name and not dist.is_nccl_available():
            raise InvalidSettingError(
                f"TorchConfig: backend={self.name!r} needs a torch that was built with it; accepted here: 'gloo'"
            )
        return ElasticLauncher()

    def around(self, rank: int, function: Callable[[], Any]) -> Any:
        import torch
        import torch.distributed as dist

        if self.gpus:
            torch.cuda.set_device(int((rank - self.node.first) * self.gpus))
        if self.node.nodes == 1:
            knobs.default("GLOO_SOCKET_IFNAME", "lo")  # the host's name may lead elsewhere
        elif (interface := _interface(self.node.address)) is not None:
            knobs.default("GLOO_SOCKET_IFNAME", interface)
            knobs.default("NCCL_SOCKET_IFNAME", interface)
        dist.init_process_group(self.name, timeout=datetime.timedelta(seconds=self.timeout_s))
        value = function()  # where it raises there is no goodbye: the others are killed, and nccl would wait for them
        dist.destroy_process_group()
        return value

    def waited(self, error: BaseException) -> bool:
        """NCCL and the stores raise errors of their own; gloo's, from C++, are RuntimeErrors and no more."""
        import torch.distributed as dist

        native = type(error) is RuntimeError and dist.is_initialized() and _is_native(error)
        return native or isinstance(error, dist.DistError) or super().waited(error)

    def clean(self, data: dict[str, Any]) -> dict[str, Any]:
        """The dict with the names of a bare model: a checkpoint is to be loaded where there is no group."""
        if session.get_world_size() == 1:
            return data  # nothing was wrapped, and a module of the user's may be called `module`
        return {key: _bare(value) for key, value in data.items()}


class ElasticLauncher:
    """`torch.distributed.launcher` on one machine. Restarting is the driver's: here every rank gets one life.

    The ranks are forked off the trial's process, which has torch loaded and nothing of it used: they start in
    milliseconds. What would make that unsafe must not happen in the leader before: a thread of Python's that may hold a
    lock, and a GPU that was touched; both are looked for. The libraries' own pools of threads are no harm: OpenBLAS and
    torch give theirs up at a fork, and OpenMP's belong to the thread that computed, not to the launcher's, which forks.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._failures: dict[int, int] = {}
        self._quiet = _Quiet()
        self._patience_s = _JOIN_S
        self._across = False

    def start(self, size: int, entry: Callable[[int], bool], ended: Callable[[], None], node: NodeRanks) -> None:
        import torch

        theirs = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        theirs = [name for name in theirs if not name.startswith("trial-")]
        if theirs or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            what = f"threads are running in it ({', '.join(theirs)})" if theirs else "it has used a GPU already"
            raise RanksError(
                f"ranks cannot be forked off the trial's process: {what}. Begin such things in the training function"
            )
        # NVML counts GPUs without making a context, which could not be used after the fork.
        knobs.default("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        from torch.distributed.launcher.api import LaunchConfig

        self._across = node.nodes > 1
        where: dict[str, Any] = {
            "run_id": secrets.token_hex(8),
            "rdzv_backend": "c10d",
            "rdzv_endpoint": "127.0.0.1:0",
            "local_addr": "127.0.0.1",
        }
        if self._across:  # the other back end would number the nodes by their addresses
            where = {
                "run_id": node.name,
                "rdzv_backend": "static",
                "rdzv_endpoint": f"{node.meeting[0]}:{node.meeting[1]}",
                "rdzv_configs": {"rank": node.number, "timeout": _MEETING_S},
                "local_addr": node.address,
            }
        config = LaunchConfig(
            min_nodes=node.nodes,
            max_nodes=node.nodes,
            nproc_per_node=size,
            max_restarts=0,
            start_method="fork",
            **where,
        )
        # Not in the main thread, where it would take over the signal handlers. It lives until all ranks have ended,
        # which matters: they get a signal when the thread that forked them ends.
        self._thread = start_thread(self._run, name="group-launcher", args=(config, entry, ended))

    def kill(self) -> None:
        """Nothing: the agent ends what is left when it sees that a rank is dead. One that waits for others is left."""
        if self._across:
            self._patience_s = _GIVEN_UP_S

    def join(self) -> str | None:
        if self._thread is not None:
            # A rank in the kernel's hands dies when it is let go; the trial does not wait.
            self._thread.join(self._patience_s)
        return None if self._error is None else f"{type(self._error).__name__}: {self._error}"

    def status(self, rank: int) -> int | None:
        return self._failures.get(rank)

    def _run(self, config: Any, entry: Callable[[int], bool], ended: Callable[[], None]) -> None:
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import launch_agent

        try:
            with self._quiet.listening():
                launch_agent(config, _rank_of_torch, [entry])
        except ChildFailedError as error:
            self._failures = {rank: failure.exitcode for rank, failure in error.failures.items()}
        except BaseException as error:
            self._error = error
        finally:
            ended()


def _rank_of_torch(entry: Callable[[int], bool]) -> None:
    """What the launcher calls in each rank."""
    from torch import multiprocessing

    prctl: Any = multiprocessing._prctl_pr_set_pdeathsig  # type: ignore[attr-defined]
    prctl(signal.SIGKILL)  # where no keeper ends what its trial leaves: torch's own choice is SIGINT, which is ignored
    rank = knobs.torchrun_rank()
    assert rank is not None
    if not entry(rank):
        raise SystemExit(1)


class _Quiet(logging.Filter):
    """Keeps the launcher from telling on stderr what is meant to be (no handlers, it is in a thread) or is known.

    What went wrong in a rank is the trial's error; the launcher would tell it again, without the rank's traceback.
    """

    _LOGGERS = (
        "torch.distributed.elastic.multiprocessing.api",
        "torch.distributed.elastic.agent.server.api",
        "torch.distributed.elastic.agent.server.local_elastic_agent",
    )

    def filter(self, record: logging.LogRecord) -> bool:
        return False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        loggers = [logging.getLogger(name) for name in self._LOGGERS]
        for logger in loggers:
            logger.addFilter(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(self)


def _is_native(error: BaseException) -> bool:
    """Whether an exception came out of a call of native code, and of no `raise` in Python."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    operation = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return not dis.opname[operation].startswith(("RAISE", "RERAISE"))


def _interface(address: str) -> str | None:
    """The name of the network interface that has this address."""
    import psutil

    if address.startswith("127."):
        return "lo"
    for name, found in psutil.net_if_addrs().items():
        if any(each.address == address for each in found):
            return str(name)
    return None


def _bare(value: Any) -> Any:
    """A state dict without DDP's prefix, and what holds some; anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(_bare, value))
    if not isinstance(value, Mapping) or not value:
        return value
    kind: Any = type(value)
    if not all(isinstance(key, str) and key.startswith(_PREFIX) for key in value):
        if type(value) in (dict, OrderedDict):
            return kind((key, _bare(part)) for key, part in value.items())
        return value
    made = kind((key.removeprefix(_PREFIX), part) for key, part in value.items())
    metadata = getattr(value, "_metadata", None)  # of a state dict: version numbers by module
    if metadata is not None:
        bare = {key.removeprefix(_PREFIX): part for key, part in metadata.items() if key.startswith(_PREFIX)}
        made._metadata = type(metadata)({"": metadata.get("module", {}), **bare})
    return made
