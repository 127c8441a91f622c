"""Hosts on a network of their own, each with an sshd: network namespaces, a tmpfs per host, a key per network.

Nothing of it can be seen from outside: a test enters the network with `enter()`. Addresses are in 10.77.0.0/24, inside
the namespaces only. What is started here ends with the test, also when the test is killed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_CLONE_NEWPID = 0x20000000
DRIVER = "10.77.0.1"
_numbers = itertools.count(1)

_START = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size={size},mode=755 host /srv
mount -t tmpfs run /run
mkdir -p /run/sshd /srv/home /srv/bin
cp {directory}/authorized_keys {directory}/host_key {directory}/passwd {directory}/shadow /run/sshd/
chmod 644 /run/sshd/authorized_keys /run/sshd/passwd
chmod 600 /run/sshd/host_key
chown {uid}:{uid} /srv /srv/home
mount --bind /run/sshd/passwd /etc/passwd
mount --bind /run/sshd/shadow /etc/shadow
for program in {programs}; do ln -s "$(command -v $program)" /srv/bin/; done
exec /usr/sbin/sshd -D -e -f {directory}/sshd_config
"""

_CONFIG = """
ListenAddress {address}
Port {port}
HostKey /run/sshd/host_key
AuthorizedKeysFile /run/sshd/authorized_keys
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
MaxStartups 100
SetEnv PATH={path}
"""

_UID = 61000
_ORDINARY = "sh env mkdir mv rm rmdir xargs printf cat"


def require() -> None:
    """Skip where there can be no such network."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    missing = [name for name in ("ip", "ssh", "sshd", "ssh-keygen", "rsync", "unshare") if _which(name) is None]
    if missing:
        pytest.skip(
            f"not installed: {', '.join(missing)}: apt-get install openssh-server openssh-client rsync iproute2"
        )
    made = subprocess.run(["ip", "netns", "add", f"tt{os.getpid()}x"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"network namespaces are not allowed here: {made.stderr.strip()}")
    ip("netns", "del", f"tt{os.getpid()}x")


@dataclass(kw_only=True)
class Machine:
    """Processes with a network address, a process namespace and a disk of their own."""

    name: str
    """Of its network namespace."""
    address: str
    network: Network = field(repr=False)
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    """All that runs on it ends with this one."""
    log: list[str] = field(default_factory=list, repr=False)
    reader: threading.Thread | None = field(default=None, repr=False)

    def boot(self, script: str, ready: str, *unshared: str) -> None:
        """Run a shell script as its first process, and wait for a line of its error output that contains `ready`."""
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name]
            + ["unshare", "--mount", "--pid", *unshared, "--fork", "--kill-child=KILL", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if ready in line:
                break
        else:
            raise AssertionError(f"{self.name} did not start: {''.join(self.log)}")
        self.reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True)
        self.reader.start()

    def end(self) -> None:
        """End all that runs there at once; its address stays, and refuses."""
        if self.process is not None:
            self.process.kill()  # and with it all that runs there: it holds their pid namespace
            self.process.wait()
            if self.reader is not None:
                self.reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()
            self.process = None

    def path(self, there: str) -> Path:
        """How a test sees a path of the host, under /srv."""
        return Path(f"/proc/{self.init}/root{there}")

    def cut(self) -> None:
        """Unplug its cable."""
        ip("-n", self.network.driver, "link", "set", self.name, "down")

    def mend(self) -> None:
        ip("-n", self.network.driver, "link", "set", self.name, "up")

    def slow(self, mbit: int | None) -> None:
        """So many megabits per second go through its cable, each way; None: as many as before."""
        for namespace, device in ((self.network.driver, self.name), (self.name, "eth0")):
            if mbit is None:
                _command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
                continue
            rate = ["rate", f"{mbit}mbit", "burst", "64kb", "latency", "200ms"]
            _command("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def mute(self) -> None:
        """Let it receive, and never answer."""
        ip("-n", self.name, "route", "add", "blackhole", f"{DRIVER}/32")

    def pids(self, program: str) -> list[int]:
        """Processes of that name on this host."""
        return _pids(self.name, program)

    @property
    def init(self) -> int:
        """The first of its processes."""
        assert self.process is not None, f"{self.name} has ended"
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()[0])


@dataclass(kw_only=True)
class Host(Machine):
    """A host with an sshd, and a disk of its own under /srv."""

    port: int
    user: str

    def uri(self, path: str = "/srv/data") -> str:
        return f"{self.user}@{self.address}:{path}"

    def freeze(self) -> None:
        """Stop its sshd, so that connections are accepted and nothing more."""
        os.kill(self.init, signal.SIGSTOP)


@dataclass
class Network:
    """A switch, a driver on it (where the test enters) and hosts."""

    directory: Path
    driver: str
    key: Path
    known_hosts: Path
    ssh_config: Path
    hosts: list[Machine] = field(default_factory=list)

    def host(self, *, size: str = "256m", port: int = 22, known: bool = True, rsync: bool = True) -> Host:
        """Start one more host.

        Args:
            size: of its disk.
            known: whether its key is in known_hosts.
            rsync: whether it has rsync.
        """
        user = "worker"
        host = Host(**self.plug(), port=port, user=user)
        directory = self.prepare(host, f"{user}:x:{_UID}:{_UID}::/srv/home:/bin/sh", port=port, path="/srv/bin")
        programs = _ORDINARY + (" rsync" if rsync else "")
        self.hosts.append(host)
        host.boot(_START.format(size=size, directory=directory, uid=_UID, programs=programs), "Server listening")
        if known:
            self.know(host.address if port == 22 else f"[{host.address}]:{port}", directory)
        return host

    def plug(self) -> dict[str, Any]:
        """A network namespace on the switch: the fields of a machine that is to be there."""
        number = len(self.hosts) + 2
        name, address = f"{self.driver}h{number}", f"10.77.0.{number}"
        self._wire(name, address)
        return {"name": name, "address": address, "network": self}

    def plug_anew(self, machine: Machine) -> None:
        """Give a machine that has ended a new network namespace under its old name and address."""
        ip("-n", self.driver, "link", "del", machine.name)  # now: with the namespace it would go some time later
        ip("netns", "del", machine.name)
        self._wire(machine.name, machine.address)

    def _wire(self, name: str, address: str) -> None:
        ip("netns", "add", name)
        ip("-n", self.driver, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", self.driver, "link", "set", name, "master", "switch", "up")
        ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")

    def prepare(self, machine: Machine, user: str, *, port: int = 22, path: str) -> Path:
        """Lay out, in a directory, what an sshd needs; `user` is the line of the one that may log in."""
        directory = self.directory / machine.name
        directory.mkdir()
        _keygen(directory / "host_key")
        root = "root:x:0:0:root:/root:/bin/sh\n" if not user.startswith("root:") else ""
        passwd = f"{root}sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n{user}\n"
        (directory / "passwd").write_text(passwd)
        (directory / "shadow").write_text("".join(f"{x.split(':')[0]}:*:1::::::\n" for x in passwd.splitlines()))
        shutil.copy(self.key.with_suffix(".pub"), directory / "authorized_keys")
        (directory / "sshd_config").write_text(_CONFIG.format(address=machine.address, port=port, path=path))
        return directory

    def know(self, names: str, directory: Path) -> None:
        """Let everybody know the key of a host, given in its directory."""
        kind, public, *_ = (directory / "host_key.pub").read_text("ascii").split()
        with self.known_hosts.open("a", encoding="ascii") as file:
            file.write(f"{names} {kind} {public}\n")

    def pids(self, program: str) -> list[int]:
        """Processes of that name on the driver's side."""
        return _pids(self.driver, program)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """This thread, and what it starts meanwhile, are on the driver's network."""
        with _entered("net", f"/run/netns/{self.driver}", _CLONE_NEWNET):
            yield


@contextmanager
def enter_pids(pid: int) -> Iterator[None]:
    """What this thread starts meanwhile is among the processes of that one."""
    with _entered("pid", f"/proc/{pid}/ns/pid", _CLONE_NEWPID):
        yield


@contextmanager
def _entered(kind: str, there: str, flag: int) -> Iterator[None]:
    home = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(there, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(target, flag)
            yield
        finally:
            _setns(home, flag)
            os.close(target)
    finally:
        os.close(home)


@contextmanager
def network(directory: Path) -> Iterator[Network]:
    """A network without hosts yet; `directory` gets keys and logs."""
    require()
    sweep()
    driver = f"tt{os.getpid()}n{next(_numbers)}"
    key = directory / "id_ed25519"
    _keygen(key)
    known_hosts = directory / "known_hosts"
    known_hosts.touch()
    ssh_config = directory / "ssh_config"
    ssh_config.write_text(
        f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    made = Network(directory, driver, key, known_hosts, ssh_config)
    ip("netns", "add", driver)
    try:
        ip("-n", driver, "link", "set", "lo", "up")
        ip("-n", driver, "link", "add", "switch", "type", "bridge")
        ip("-n", driver, "address", "add", f"{DRIVER}/24", "dev", "switch")
        ip("-n", driver, "link", "set", "switch", "up")
        yield made
    finally:
        for host in made.hosts:
            host.end()
            ip("netns", "del", host.name)
        for pid in (*made.pids("ssh"), *made.pids("rsync")):  # of this network, which is this test's
            os.kill(pid, signal.SIGKILL)
        ip("netns", "del", driver)


def sweep() -> None:
    """Remove the empty namespaces of tests that were killed."""
    for name in ip("netns", "list").split():
        owner = re.match(r"tt(\d+)[nx]", name)
        if owner and not Path("/proc", owner[1]).exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)  # or another test has


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def ip(*arguments: str) -> str:
    return _command("ip", *arguments)


def _command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def _pids(namespace: str, program: str) -> list[int]:
    return [int(pid) for pid in ip("netns", "pids", namespace).split() if _comm(int(pid)) == program]


def _setns(fd: int, kind: int) -> None:
    if _libc.setns(fd, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("ascii").strip()
    except FileNotFoundError:
        return ""  # it has ended


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
