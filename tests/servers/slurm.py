"""A real Slurm on this machine: a controller, and nodes that each have processes and a host name of their own.

    def test_...() -> None:
        with slurm() as cluster:  # nodes n1 and n2, partition p
            job = cluster.sbatch("#!/bin/sh\\nhostname")
            cluster.wait_for(job, "COMPLETED")

Commands find it by SLURM_CONF (`cluster.env`). A node that is killed loses all its processes, as a machine does that
loses its power. Several clusters can be up at once, each with a munged of its own. Needs root; all of it ends with
the test, jobs too, also when the test is killed.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PATIENCE_S = 60.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_ENDED = set("BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split())
_libc = ctypes.CDLL(None)
_ports: set[int] = set()

_CONF = """
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/ctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/ctld.log
SlurmdLogFile={directory}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
PriorityType=priority/basic
ReturnToService=2
KillWait={kill_wait_s}
SlurmdTimeout=20
MpiDefault=none
{settings}
NodeName={nodes} NodeAddr=127.0.0.1 Port={node_ports} CPUs={cpus} RealMemory={memory_mb}{gres} State=UNKNOWN
{partitions}
"""


def missing() -> str:
    """The program that is not installed; empty: all are there."""
    return next((program for program in PROGRAMS if shutil.which(program, path=_PATH) is None), "")


def free_port() -> int:
    """One that nobody gets by chance meanwhile: below those that the kernel gives to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        with socket.socket() as probe, suppress(OSError):
            if port not in _ports:
                probe.bind(("127.0.0.1", port))
                _ports.add(port)
                return port


@dataclass
class Node:
    name: str
    cluster: Slurm = field(repr=False)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it; `Slurm.wait_for_nodes` waits until the controller knows it."""
        # The shell stays: the first process inherits orphans, and a step ends only when somebody has reaped its own.
        own = "".join(f"mount -t tmpfs own {path}; " for path in self.cluster.apart)
        inside = f"hostname {self.name}; {own}slurmd -D -N {self.name} -f {self.cluster.conf} & wait $!"
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
        self.process = _start([*apart, "sh", "-c", inside])

    def kill(self) -> None:
        """Every process there dies at once; the controller finds out by itself after `SlurmdTimeout`."""
        if self.process is not None:
            first = [os.pidfd_open(pid) for pid in _children(self.process.pid)]
            self.process.kill()  # the parent of the first process in the namespace, which dies with it
            self.process.wait()
            self.process = None
            for process in first:  # when it is gone all others are
                assert select.select([process], [], [], PATIENCE_S)[0], f"{self.name} still lives"
                os.close(process)

    def down(self) -> None:
        """Kill it, and let the controller know at once: its jobs are requeued or have failed."""
        self.kill()
        self.cluster.run("scontrol", "update", f"NodeName={self.name}", "State=DOWN", "Reason=test")

    def up(self) -> None:
        """Boot it again; returns when jobs can run there."""
        self.start()
        self.cluster.wait_for_nodes(self.name)

    def drain(self) -> None:
        """No new job starts there."""
        self.cluster.run("scontrol", "update", f"NodeName={self.name}", "State=DRAIN", "Reason=test")

    def resume(self) -> None:
        self.cluster.run("scontrol", "update", f"NodeName={self.name}", "State=RESUME")


@dataclass
class Slurm:
    directory: Path
    """Of configuration, logs and state; short."""
    apart: Sequence[Path] = ()
    """Directories of which each node has one of its own."""
    nodes: list[Node] = field(default_factory=list)
    controller: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """For the environment of commands that shall find this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
        """Run a command to its good end; returns what it has printed."""
        environment = {**os.environ, "PATH": _PATH, **(env or {}), **self.env}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, (
            f"{command} ended with {done.returncode}: {done.stderr}{done.stdout}\n{self.logs()}"
        )
        return done.stdout

    def sbatch(self, script: str, *options: str) -> int:
        """Submit the text of a script; returns the job's id. Its output: `self.output(job)`."""
        file = self.directory / f"job-{len(list(self.directory.glob('job-*')))}.sh"
        file.write_text(script, "utf-8")
        said = self.run("sbatch", "--parsable", f"--output={self.directory}/%j.out", *options, file)
        return int(said.strip().partition(";")[0])

    def output(self, job: int) -> str:
        """What it has written so far."""
        file = self.directory / f"{job}.out"
        return file.read_text("utf-8", "replace") if file.exists() else ""

    def job(self, job: int) -> dict[str, str]:
        """What `scontrol show job` says of it."""
        said = self.run("scontrol", "-o", "show", "job", str(job))
        return dict(word.partition("=")[::2] for word in said.split() if "=" in word)

    def state(self, job: int) -> str:
        """PENDING, RUNNING, COMPLETED, ..."""
        return self.job(job)["JobState"]

    def wait_for(self, job: int, *states: str, within_s: float = PATIENCE_S) -> str:
        """Wait until a job is in one of these states, or has ended in any when none is given."""
        wanted, end = set(states) or _ENDED, time.monotonic() + within_s
        while (state := self.state(job)) not in wanted:
            if time.monotonic() > end or (state in _ENDED and state not in wanted and not self._comes_back(job)):
                raise AssertionError(f"job {job} is {state}, not {sorted(wanted)}: {self.job(job)}\n{self.logs()}")
            time.sleep(0.05)
        return state

    def jobs(self) -> list[int]:
        """Those that wait, run or are about to end."""
        return [int(line) for line in self.run("squeue", "-h", "-o", "%A").split()]

    def cancel_all(self) -> None:
        """End every job; returns when none is left."""
        end = time.monotonic() + PATIENCE_S
        while jobs := self.jobs():
            assert time.monotonic() < end, f"jobs {jobs} stay\n{self.logs()}"
            subprocess.run(
                ["scancel", *map(str, jobs)], env={**os.environ, **self.env}, capture_output=True, check=False
            )
            time.sleep(0.05)

    def wait_for_nodes(self, *names: str, state: str = "idle") -> None:
        """Wait until all nodes, or those, are in a state as sinfo calls it: idle, mixed, allocated, down, ..."""
        wanted, end = set(names) or {node.name for node in self.nodes}, time.monotonic() + PATIENCE_S
        while True:
            said = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%N %T"], env={**os.environ, **self.env}, capture_output=True, text=True
            )
            found = dict(line.split() for line in said.stdout.splitlines())
            if all(found.get(name) == state for name in wanted):
                return
            if time.monotonic() > end:
                raise AssertionError(f"{wanted} are not {state}: {found} {said.stderr}\n{self.logs()}")
            time.sleep(0.02)

    def start_controller(self) -> None:
        self.controller = _start(["slurmctld", "-D", "-f", str(self.conf)])

    def kill_controller(self) -> None:
        """Commands get no answer until it is started again; jobs run on."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()
        self.controller = None

    def logs(self, lines: int = 25) -> str:
        """The last lines of every log, to be shown when a test has failed."""
        said = {file.name: file.read_text("utf-8", "replace").splitlines() for file in self.directory.glob("*.log")}
        return "".join(f"--- {name}\n" + "\n".join(text[-lines:]) + "\n" for name, text in said.items())

    def _comes_back(self, job: int) -> bool:
        return self.job(job).get("Requeue") == "1"


@contextmanager
def slurm(
    *,
    nodes: int = 2,
    cpus: int = 2,
    memory_mb: int = 4000,
    gpus: int = 0,
    partitions: Mapping[str, str] | None = None,
    kill_wait_s: int = 2,
    apart: Sequence[Path] = (),
    settings: str = "",
) -> Iterator[Slurm]:
    """A cluster whose nodes are idle.

    Args:
        nodes: n1, n2, ...
        cpus: of each node, as Slurm counts them; more than this machine has, too.
        memory_mb: the same for memory.
        gpus: of each node; they are devices that do nothing, but jobs get CUDA_VISIBLE_DEVICES.
        partitions: options of each, as slurm.conf has them, such as {"short": "MaxTime=1"}; the first is the default.
        kill_wait_s: from SIGTERM to SIGKILL of jobs that have reached their time.
        apart: directories of which each node has one of its own, empty at first; others are those of this machine.
        settings: more lines of slurm.conf; a later line of a name wins over an earlier one.
    """
    if os.getuid() != 0:
        pytest.skip("a Slurm of the tests needs root")
    if program := missing():
        pytest.skip(f"{program} is not installed: apt-get install slurmctld slurmd slurm-client munge")
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"sl{os.getpid()}-", dir="/tmp"))  # short: there are sockets under it
    directory.chmod(0o755)
    cluster = Slurm(directory, apart)
    names = [f"n{number + 1}" for number in range(nodes)]
    given = dict(partitions or {"p": "MaxTime=INFINITE"})
    default = next(iter(given))
    # A name once: a second line of a setting is an error to Slurm.
    own = {line.partition("=")[0].strip().lower() for line in settings.splitlines()}
    text = _CONF.format(
        name=directory.name, host=socket.gethostname().partition(".")[0], port=free_port(), directory=directory,
        kill_wait_s=kill_wait_s, settings="{settings}", nodes=",".join(names),
        node_ports=",".join(str(free_port()) for _ in names), cpus=cpus, memory_mb=memory_mb,
        gres=f" Gres=gpu:{gpus}" if gpus else "",
        partitions="\n".join(
            f"PartitionName={name} Nodes=ALL State=UP {'Default=YES ' * (name == default)}{options}"
            for name, options in given.items()
        ),
    )  # fmt: skip
    lines = [line for line in text.splitlines() if line.partition("=")[0].strip().lower() not in own]
    cluster.conf.write_text("\n".join(lines).format(settings=settings) + "\n", "utf-8")
    if gpus:
        devices = [directory / f"gpu{number}" for number in range(gpus)]
        for device in devices:
            os.mknod(device, 0o20666, os.makedev(1, 3))
        (directory / "gres.conf").write_text(f"Name=gpu File={directory}/gpu[0-{gpus - 1}]\n", "utf-8")
    (directory / "state").mkdir()
    munged = None
    try:
        munged = _start_munged(directory)
        cluster.start_controller()
        for name in names:
            cluster.nodes.append(Node(name, cluster))
            cluster.nodes[-1].start()
        cluster.wait_for_nodes()
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()
        for process in (cluster.controller, munged):
            if process is not None:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Remove what clusters have left whose tests were killed."""
    for place in Path("/tmp").glob("sl[0-9]*-*"):
        if not Path("/proc", place.name.removeprefix("sl").partition("-")[0]).exists():
            shutil.rmtree(place, ignore_errors=True)


def _start_munged(directory: Path) -> subprocess.Popen[bytes]:
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"socket": "munge.socket", "key-file": key.name, "pid-file": "munge.pid", "seed-file": "munge.seed"}
    options = [f"--{option}={directory / name}" for option, name in files.items()]
    process = _start(["munged", "--foreground", "--force", "--num-threads=2", *options], directory / "munge.log")
    end = time.monotonic() + PATIENCE_S
    while not (directory / files["socket"]).exists():
        assert process.poll() is None and time.monotonic() < end, (directory / "munge.log").read_text("utf-8")
        time.sleep(0.01)
    return process


def _start(command: list[str], output: Path = Path(os.devnull)) -> subprocess.Popen[bytes]:
    """A process that ends with this one, also when that is killed."""
    with output.open("ab") as said:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={"PATH": _PATH, "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/root")},
            start_new_session=True,
            preexec_fn=lambda: _libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
        )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
