"""A Ray cluster of several hosts on this machine: each has a network, processes, disk, /tmp and a name of its own.

    def test_...(cluster: Cluster) -> None:  # the fixture of tests/conftest.py: host1 and host2
        script = cluster.hosts[0].popen(SCRIPT, cluster.address)
        third = cluster.add_host()
        third.kill()
        cluster.wait_for(third, alive=False)
        assert "done" in script.ends()

What a host writes under /srv and /tmp no other host sees, and it is memory. All see this repository, its environment
and the directory of the cluster at the same paths. From every host `ssh` and `rsync` reach every other by its name
(host1, host2, ...) or address. All of it ends with the test, also when the test is killed.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.servers.hosts import DRIVER, Machine, Network, enter_pids, ip, network

PATIENCE_S = 60.0
_START_S = 120.0
RESULTS = "/srv/results"
"""An empty directory of its own on every host."""

_REPOSITORY = Path(__file__).resolve().parents[2]
_BIN = Path(sys.prefix, "bin")
_HOME = "/srv/home"
_PORT = 6379
_ENVIRONMENT = {
    "PATH": f"{_BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": _HOME,
    "LANG": "C.UTF-8",
    "PYTHONPATH": str(_REPOSITORY),
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",  # else agents and trials get a thirtieth of what the tests beside them get
    # A host that no longer answers is dead after three checks, 6 s; one whose processes are gone, in 2 s.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "3",
}

_START = """
set -e
mount --make-rprivate /
mount -t tmpfs run /run
{keep}
mount -t tmpfs -o size={size},mode=755 host /srv
mount -t tmpfs -o size={size},mode=1777 tmp /tmp
mount -t tmpfs -o size=256m,mode=1777 shm /dev/shm
{bring}
mkdir -p /run/sshd {home}/.ssh {results}
cp {directory}/authorized_keys {directory}/host_key /run/sshd/
chmod 644 /run/sshd/authorized_keys
chmod 600 /run/sshd/host_key
ln -s {ssh_config} {home}/.ssh/config
mount --bind {directory}/passwd /etc/passwd
mount --bind {directory}/shadow /etc/shadow
mount --bind {hosts} /etc/hosts
hostname {hostname}
{sshd}
sleep infinity &
wait $!
"""

# Asked without being a driver: for each driver Ray starts workers, which costs more than the question.
_NODES = """
import json, sys, time
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo

address, wanted, patience = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
client, end = GcsClient(address=address), time.monotonic() + patience
while True:
    nodes = client.get_all_node_info().values()
    alive = {node.node_manager_address for node in nodes if node.state == GcsNodeInfo.ALIVE}
    if all((host in alive) == lives for host, lives in wanted.items()) or time.monotonic() > end:
        break
    time.sleep(0.1)
print(json.dumps(sorted(alive)))
"""
_numbers = itertools.count(1)
_LOGS = ("gcs_server.*", "raylet.*", "worker-*", "runtime_env_agent.*")
_MOUNTED = ("/run", "/srv", "/tmp", "/dev/shm")
_NAMESPACES = {"mount": "mnt", "net": "net", "uts": "uts", "ipc": "ipc"}


class Driver(subprocess.Popen[str]):
    """A process on a host, seen from the test: its pid, signals and exit status are its own."""

    name: str
    file: Path
    """Where its output goes, both streams, unless the test took it."""

    @property
    def output(self) -> str:
        return self.file.read_text("utf-8", "replace")

    def ends(self, within_s: float = PATIENCE_S) -> str:
        """Wait for its good end; returns what it has printed."""
        try:
            code = self.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
            raise AssertionError(f"{self.name} did not end within {within_s} s:\n{self.output}") from None
        assert code == 0, f"{self.name} ended with {code}:\n{self.output}"
        return self.output

    def close(self) -> None:
        with self:  # closes its pipes and waits
            self.kill()


@dataclass(kw_only=True)
class RayHost(Machine):
    """One host of a cluster."""

    hostname: str
    cluster: Cluster = field(repr=False)
    drivers: list[Driver] = field(default_factory=list, repr=False)
    harmed: bool = False
    """Whether it was killed, frozen or cut off."""

    def popen(
        self, program: str | Sequence[str], *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> Driver:
        """Start a program there: a command, or the text of a Python script; `options` are those of Popen.

        It begins in /srv/home; `env` comes on top of an environment that has nothing of the test's own.
        """
        name = f"{self.hostname}-{next(_numbers)}"
        if isinstance(program, str):
            script = f"{_HOME}/{name}.py"
            self.path(script).write_text(program, "utf-8")
            program = [str(_BIN / "python"), script]
        words = [f"{key}={value}" for key, value in (_ENVIRONMENT | self.cluster.env | dict(env or {})).items()]
        inside = [f"--{option}=/proc/{self.init}/ns/{kind}" for option, kind in _NAMESPACES.items()]
        file = self.cluster.directory / f"{name}.out"
        with enter_pids(self.init), file.open("w") as output:
            driver = Driver(
                ["nsenter", *inside, "env", "-i", "-C", _HOME, *words, *program, *arguments],
                **{"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT, "text": True} | options,
            )
        driver.name, driver.file = f"{' '.join(program)} on {self.hostname}", file
        self.drivers.append(driver)
        return driver

    def run(self, program: str | Sequence[str], *arguments: str, within_s: float = PATIENCE_S, **options: Any) -> str:
        """Run a program there to its good end, as `popen`; returns what it has printed."""
        return self.popen(program, *arguments, **options).ends(within_s)

    def kill(self) -> None:
        """All its processes die at once, and its disk with them; after `cut()`, without a word to the others."""
        if self.process is None:
            return
        self.harmed = True
        init = os.pidfd_open(self.init)
        self.end()
        for driver in self.drivers:
            driver.close()
        assert select.select([init], [], [], PATIENCE_S)[0], f"{self.hostname} still lives"
        os.close(init)

    def cut(self) -> None:
        self.harmed = True
        super().cut()

    def freeze(self) -> None:
        """Stop every process there."""
        self.harmed = True
        while any(_state(pid) not in "TtZX" for pid in self.processes()):  # or a new one has come meanwhile
            self._signal_all(signal.SIGSTOP)
            time.sleep(0.01)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def processes(self) -> list[int]:
        """Every process there, as the test numbers them."""
        return pids_in(os.readlink(f"/proc/{self.init}/ns/pid"))

    def logs(self, lines: int = 15) -> str:
        """The last lines of Ray's logs and of what was started there, to be shown when a test has failed."""
        found = [driver.file for driver in self.drivers]
        if self.process is not None:
            sessions = self.path("/tmp/ray").glob("session_2*/logs")
            found += [file for logs in sessions for kind in _LOGS for file in sorted(logs.glob(kind))]
        texts = ((file.name, _tail(file, lines)) for file in found)
        return "".join(f"--- {self.hostname}: {name}\n{text}\n" for name, text in texts if text)

    def _signal_all(self, number: int) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass
class Cluster:
    """Ray on some hosts; the first is its head."""

    directory: Path
    network: Network = field(repr=False)
    size: str = "1g"
    """Of each host's disk and of its /tmp."""
    ssh: bool = True
    env: dict[str, str] = field(default_factory=dict)
    """More for the environment of all that runs on the hosts."""
    hosts: list[RayHost] = field(default_factory=list)

    @property
    def shared(self) -> Path:
        """A directory that all hosts, and the test, see at this path."""
        return self.directory / "shared"

    @property
    def address(self) -> str:
        """For `ray.init(address=...)`."""
        return f"{self.hosts[0].address}:{_PORT}"

    def add_host(self, *, cpus: int = 2, resources: Mapping[str, float] | None = None) -> RayHost:
        """One more host with Ray; returns when the cluster counts it."""
        host = self.boot()
        self.start_ray(host, cpus, resources).ends(_START_S)
        self.wait_for(host)
        return host

    def tidy(self, hosts: int) -> None:
        """End what tests started, and all hosts but the first so many."""
        added = self.hosts[hosts:]
        for host in added:
            host.kill()
        for host in self.hosts[:hosts]:
            for driver in host.drivers:
                driver.close()
            host.drivers.clear()
        if added and not self.lost:
            self.wait_for(*added, alive=False)
        del self.hosts[hosts:]

    @property
    def lost(self) -> bool:
        """Whether its head was harmed: nothing but another cluster helps then."""
        head = self.network.hosts[0]
        return not isinstance(head, RayHost) or head.harmed

    def mend(self) -> None:
        """Put a new machine in the place of each host that a test has harmed: its name and address, an empty disk."""
        for host in [host for host in self.hosts if host.harmed]:
            host.kill()
            host.drivers.clear()
            self.wait_for(host, alive=False)
            self.network.plug_anew(host)
            self._begin(host)
            self.start_ray(host, 2, None).ends(_START_S)
            self.wait_for(host)
            host.harmed = False

    def empty(self) -> None:
        """Remove what tests have left in the results and in the shared directory."""
        for place in (self.shared, *(host.path(RESULTS) for host in self.hosts)):
            subprocess.run(["rm", "-rf", "--", *place.iterdir()], check=True)

    def boot(self) -> RayHost:
        """One more host, without Ray yet."""
        number = len(self.network.hosts) + 1
        host = RayHost(**self.network.plug(), hostname=f"host{number}", cluster=self)
        self.hosts.append(host)
        self.network.hosts.append(host)
        directory = self.network.prepare(host, f"root:x:0:0::{_HOME}:/bin/sh", path=_ENVIRONMENT["PATH"])
        self.network.know(f"{host.hostname},{host.address}", directory)
        names = self.network.directory / "hosts"
        with names.open("a", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n" * (number == 1) + f"{host.address} {host.hostname}\n")
        self._begin(host)
        return host

    def _begin(self, host: RayHost) -> None:
        ip("-n", host.name, "link", "set", "lo", "up")
        ip("-n", host.name, "route", "add", "default", "via", DRIVER)  # Ray asks the way to find out its own address
        names, directory = self.network.directory / "hosts", self.network.directory / host.name
        seen = (self.directory, _REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))
        kept = [path for path in seen if any(path.is_relative_to(place) for place in _MOUNTED)]
        sshd = f"/usr/sbin/sshd -D -e -f {directory}/sshd_config &"
        script = _START.format(
            size=self.size, directory=directory, hosts=names, hostname=host.hostname, home=_HOME, results=RESULTS,
            ssh_config=self.network.ssh_config, sshd=sshd if self.ssh else "echo ready >&2",
            keep="\n".join(f"mkdir -p /run/kept{path}; mount --rbind {path} /run/kept{path}" for path in kept),
            bring="\n".join(f"mkdir -p {path}; mount --rbind /run/kept{path} {path}" for path in kept),
        )  # fmt: skip
        host.boot(script, "Server listening" if self.ssh else "ready", "--uts", "--ipc", "--mount-proc")

    def start_ray(self, host: RayHost, cpus: int, resources: Mapping[str, float] | None) -> Driver:
        head = ["--head", f"--port={_PORT}", "--include-dashboard=false"]
        where = head if host is self.hosts[0] else [f"--address={self.address}"]
        return host.popen(
            ["ray", "start", *where, f"--node-ip-address={host.address}", f"--num-cpus={cpus}", "--num-gpus=0"]
            + [f"--resources={json.dumps(dict(resources or {}))}", "--object-store-memory=80000000"]
            + ["--disable-usage-stats"]
        )

    def wait_for(self, *hosts: RayHost, alive: bool = True) -> None:
        """Wait until Ray counts these hosts among the living, or among them no more."""
        wanted = json.dumps({host.address: alive for host in hosts})
        said = self.hosts[0].run(_NODES, self.address, wanted, str(PATIENCE_S), within_s=2 * PATIENCE_S)
        living = json.loads(said.splitlines()[-1])
        assert all((host.address in living) == alive for host in hosts), f"{wanted}, but {living}\n{self.logs()}"

    def logs(self) -> str:
        return "".join(host.logs() for host in self.hosts)


@contextmanager
def ray_cluster(
    directory: Path,
    *,
    hosts: int = 2,
    cpus: int = 2,
    resources: Sequence[Mapping[str, float]] = (),
    size: str = "1g",
    ssh: bool = True,
    env: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster, its head the first host; `directory` gets keys and output, and all hosts see it.

    Args:
        directory: empty and of this cluster only.
        cpus: of each host, as Ray counts them.
        resources: custom ones, host by host.
        size: of each host's disk and of its /tmp; memory, as far as it is used.
        ssh: whether the hosts have an sshd.
        env: more for the environment of all that runs on the hosts.
    """
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install ray")
    with network(directory) as made:
        (directory / "shared").mkdir()
        cluster = Cluster(directory, made, size, ssh, dict(env or {}))
        try:
            starting = []
            for number in range(hosts):
                host = cluster.boot()
                given = resources[number] if number < len(resources) else None
                starting.append(cluster.start_ray(host, cpus, given))
            for start in starting:
                start.ends(_START_S)
            cluster.wait_for(*cluster.hosts)
            for host in cluster.hosts:
                host.drivers.clear()
            yield cluster
        except BaseException:
            print(cluster.logs())
            raise
        finally:
            for host in cluster.hosts:
                host.kill()


def pids_in(namespace: str) -> list[int]:
    """The living processes of a process namespace, given as the link in /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and os.readlink(entry / "ns/pid") == namespace:
                found += [int(entry.name)] if _state(int(entry.name)) not in "ZX" else []
    return found


def _tail(file: Path, lines: int) -> str:
    said = file.read_text("utf-8", "replace").splitlines()
    return "\n".join([line for line in said if not line.startswith(("[state-dump]", "\t"))][-lines:])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
