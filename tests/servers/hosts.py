"""Hosts on a network of their own, each with an sshd: network namespaces, a tmpfs per host, a key per network.

Nothing of it can be seen from outside: a test enters the network with `enter()`. Addresses are in 10.77.0.0/24, inside
the namespaces only. What is started here ends with the test, also when the test is killed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_DRIVER = "10.77.0.1"
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
_ORDINARY = "sh env mkdir rm rmdir xargs printf cat"


def require() -> None:
    """Skip where there can be no such network."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    missing = [name for name in ("ip", "ssh", "sshd", "ssh-keygen", "rsync", "unshare") if _which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (openssh-server, openssh-client, rsync, iproute2)")
    made = subprocess.run(["ip", "netns", "add", f"tt{os.getpid()}x"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"network namespaces are not allowed here: {made.stderr.strip()}")
    _ip("netns", "del", f"tt{os.getpid()}x")


@dataclass
class Host:
    """A host with an sshd, and a disk of its own under /srv."""

    name: str
    address: str
    port: int
    user: str
    network: Network
    sshd: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def uri(self, path: str = "/srv/data") -> str:
        return f"{self.user}@{self.address}:{path}"

    def path(self, there: str) -> Path:
        """How a test sees a path of the host, under /srv."""
        return Path(f"/proc/{self._init}/root{there}")

    def cut(self) -> None:
        """Unplug its cable."""
        _ip("-n", self.network.driver, "link", "set", self.name, "down")

    def mend(self) -> None:
        _ip("-n", self.network.driver, "link", "set", self.name, "up")

    def slow(self, mbit: int) -> None:
        """So many megabits per second go through its cable, each way."""
        for namespace, device in ((self.network.driver, self.name), (self.name, "eth0")):
            rate = ["rate", f"{mbit}mbit", "burst", "64kb", "latency", "200ms"]
            _command("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def mute(self) -> None:
        """Let it receive, and never answer."""
        _ip("-n", self.name, "route", "add", "blackhole", f"{_DRIVER}/32")

    def freeze(self) -> None:
        """Stop its sshd, so that connections are accepted and nothing more."""
        os.kill(self._init, signal.SIGSTOP)

    def pids(self, program: str) -> list[int]:
        """Processes of that name on this host."""
        return _pids(self.name, program)

    @property
    def _init(self) -> int:
        children = Path(f"/proc/{self.sshd.pid}/task/{self.sshd.pid}/children").read_text("ascii").split()
        return int(children[0])


@dataclass
class Network:
    """A switch, a driver on it (where the test enters) and hosts."""

    directory: Path
    driver: str
    key: Path
    known_hosts: Path
    ssh_config: Path
    hosts: list[Host] = field(default_factory=list)

    def host(self, *, size: str = "256m", port: int = 22, known: bool = True, rsync: bool = True) -> Host:
        """Start one more host.

        Args:
            size: of its disk.
            known: whether its key is in known_hosts.
            rsync: whether it has rsync.
        """
        number = len(self.hosts) + 2
        name, address = f"{self.driver}h{number}", f"10.77.0.{number}"
        directory = self.directory / f"host{number}"
        directory.mkdir()
        _keygen(directory / "host_key")
        user = "worker"
        (directory / "passwd").write_text(
            "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
            f"{user}:x:{_UID}:{_UID}::/srv/home:/bin/sh\n"
        )
        (directory / "shadow").write_text(f"root:*:1::::::\n{user}:*:1::::::\n")
        shutil.copy(self.key.with_suffix(".pub"), directory / "authorized_keys")
        (directory / "sshd_config").write_text(_CONFIG.format(address=address, port=port, path="/srv/bin"))
        script = _START.format(
            size=size, directory=directory, uid=_UID, programs=_ORDINARY + (" rsync" if rsync else "")
        )
        _ip("netns", "add", name)
        _ip("-n", self.driver, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self.driver, "link", "set", name, "master", "switch", "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        sshd = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", name]
            + ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        host = Host(name, address, port, user, self, sshd)
        self.hosts.append(host)
        assert sshd.stderr is not None
        for line in sshd.stderr:
            host.log.append(line)
            if "Server listening" in line:
                break
        else:
            raise AssertionError("sshd did not start: " + "".join(host.log))
        host.reader = threading.Thread(target=host.log.extend, args=(sshd.stderr,), daemon=True)
        host.reader.start()
        if known:
            kind, public, *_ = (directory / "host_key.pub").read_text("ascii").split()
            where = address if port == 22 else f"[{address}]:{port}"
            with self.known_hosts.open("a", encoding="ascii") as file:
                file.write(f"{where} {kind} {public}\n")
        return host

    def pids(self, program: str) -> list[int]:
        """Processes of that name on the driver's side."""
        return _pids(self.driver, program)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """This thread, and what it starts meanwhile, are on the driver's network."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/run/netns/{self.driver}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(there)
            yield
        finally:
            _setns(home)
            os.close(there)
            os.close(home)


@contextmanager
def network(directory: Path) -> Iterator[Network]:
    """A network without hosts yet; `directory` gets keys and logs."""
    require()
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
    _ip("netns", "add", driver)
    try:
        _ip("-n", driver, "link", "set", "lo", "up")
        _ip("-n", driver, "link", "add", "switch", "type", "bridge")
        _ip("-n", driver, "address", "add", f"{_DRIVER}/24", "dev", "switch")
        _ip("-n", driver, "link", "set", "switch", "up")
        yield made
    finally:
        for host in made.hosts:
            host.sshd.kill()  # and with it all that runs there: it holds their pid namespace
            host.sshd.wait()
            if host.reader is not None:
                host.reader.join()
            assert host.sshd.stderr is not None
            host.sshd.stderr.close()
            _ip("netns", "del", host.name)
        for pid in (*made.pids("ssh"), *made.pids("rsync")):  # of this network, which is this test's
            os.kill(pid, signal.SIGKILL)
        _ip("netns", "del", driver)


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def _ip(*arguments: str) -> str:
    return _command("ip", *arguments)


def _command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def _pids(namespace: str, program: str) -> list[int]:
    return [int(pid) for pid in _ip("netns", "pids", namespace).split() if _comm(int(pid)) == program]


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("ascii").strip()
    except FileNotFoundError:
        return ""  # it has ended


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
