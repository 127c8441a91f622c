"""rsync to real hosts: what it promises, and what happens when the network, the host or the disk fails."""

from __future__ import annotations

import filecmp
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.servers.hosts import Host, Network, network
from trainables.errors import (
    AccessRefusedError,
    CheckpointError,
    InvalidSettingError,
    ObjectNotFoundError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.store import delete, publish, staging, verify
from trainables.store.manifest import MANIFEST_NAME
from trainables.testing.backends import CHECKS, Check
from trainables.testing.files import ODD_NAMES
from trainables.transfer.backend import Backend
from trainables.transfer.rsync import RsyncBackend
from trainables.wire import CheckpointRef

pytestmark = [pytest.mark.root]

Open = Callable[..., RsyncBackend]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(tmp_path_factory.mktemp("net")) as made:
        yield made


@pytest.fixture(scope="module")
def host(net: Network) -> Host:
    """A healthy one."""
    return net.host()


@pytest.fixture
def open_backend(net: Network) -> Iterator[Open]:
    """open_backend(uri, ...) on the driver's network; closed after the test."""
    opened: list[RsyncBackend] = []

    def make(uri: str, **options: object) -> RsyncBackend:
        backend = RsyncBackend(uri, **{"ssh_config": net.ssh_config} | options)
        opened.append(backend)
        return backend

    with net.enter():
        yield make
        for backend in opened:
            backend.close()


_places = itertools.count()


@pytest.fixture
def backend(host: Host, open_backend: Open) -> RsyncBackend:
    """An empty place on the healthy host."""
    return open_backend(host.uri(f"/srv/home/place {next(_places)}"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rsync_conforms(check: Check, backend: Backend) -> None:
    check(backend)


# --- the start: what is wrong is said, with what to do -----------------------------------------------------


def test_check_makes_the_directory_and_leaves_nothing_in_it(host: Host, open_backend: Open) -> None:
    open_backend(host.uri("/srv/home/new/place")).check()
    assert list(host.path("/srv/home/new/place").iterdir()) == []


def test_a_path_without_a_slash_lies_in_the_users_home(host: Host, open_backend: Open) -> None:
    for number, path in enumerate(("at home", "./at home", "~/at home")):
        backend = open_backend(f"{host.user}@{host.address}:{path}")
        backend.check()
        backend.push(Path(__file__).parent, "p", [Path(__file__).name])
        backend.put(f"{number}", b"x")
    found = {entry.name for entry in host.path("/srv/home/at home").iterdir()}
    assert found == {"0", "1", "2", "p"}


def test_nobody_at_that_address(net: Network, host: Host, open_backend: Open) -> None:
    with pytest.raises(StoreMissingError, match="does not answer") as raised:
        open_backend("worker@10.77.0.250:/srv/home/x").check(timeout_s=6)
    assert raised.value.transient


def test_nobody_at_that_port(host: Host, open_backend: Open) -> None:
    with pytest.raises(StoreMissingError, match="does not answer.*refused"):
        open_backend(host.uri(), port=2222).check()


def test_no_such_name(host: Host, open_backend: Open) -> None:
    with pytest.raises(StoreMissingError, match="no host of that name|does not answer"):
        open_backend("no-such-host.invalid:/srv").check()


def test_a_host_that_never_answers(net: Network, open_backend: Open) -> None:
    silent = net.host()
    silent.mute()
    with pytest.raises(StoreMissingError, match="does not answer|in time") as raised:
        open_backend(silent.uri()).check(timeout_s=4)
    assert raised.value.transient


def test_an_sshd_that_accepts_and_says_nothing(net: Network, open_backend: Open) -> None:
    stuck = net.host()
    stuck.freeze()
    with pytest.raises(StoreMissingError, match="does not answer|in time") as raised:
        open_backend(stuck.uri()).check(timeout_s=4)
    assert raised.value.transient


def test_a_key_that_is_refused(host: Host, open_backend: Open, tmp_path: Path) -> None:
    other = tmp_path / "other key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    config = tmp_path / "config"
    config.write_text("".join(line for line in _config_lines(host) if "IdentityFile" not in line))
    with pytest.raises(AccessRefusedError, match="refused the key.*ssh worker@") as raised:
        open_backend(host.uri(), ssh_config=config, key=other).check()
    assert not raised.value.transient
    with pytest.raises(InvalidSettingError, match="is no file"):
        open_backend(host.uri(), key=tmp_path / "missing")


def test_the_key_may_be_an_argument_with_spaces_and_quotes(host: Host, open_backend: Open, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("".join(line for line in _config_lines(host) if "IdentityFile" not in line))
    key = tmp_path / 'it\'s my "key"'
    shutil.copy(host.network.key, key)
    key.chmod(0o600)
    backend = open_backend(host.uri("/srv/home/by key"), ssh_config=config, key=key, port=22)
    backend.check()
    backend.put("a", b"a")
    assert backend.read("a") == b"a"


def test_a_port_of_its_own(net: Network, open_backend: Open) -> None:
    other = net.host(port=2022)
    backend = open_backend(other.uri(), port=2022)
    backend.check()
    backend.put("a", b"a")
    assert other.path("/srv/data/a").read_bytes() == b"a"


def test_a_host_key_that_nobody_knows(net: Network, open_backend: Open) -> None:
    stranger = net.host(known=False)
    with pytest.raises(AccessRefusedError, match="host key is unknown, or not the known one") as raised:
        open_backend(stranger.uri()).check()
    assert not raised.value.transient
    assert stranger.address not in net.known_hosts.read_text(), "nothing was accepted"


def test_a_host_key_that_has_changed(net: Network, host: Host, open_backend: Open) -> None:
    impostor = net.host(known=False)
    kind, public = host.network.known_hosts.read_text().split()[1:3]
    with net.known_hosts.open("a") as file:
        file.write(f"{impostor.address} {kind} {public}\n")
    with pytest.raises(AccessRefusedError, match="host key is unknown, or not the known one"):
        open_backend(impostor.uri()).check()


def test_rsync_is_missing_over_there(net: Network, open_backend: Open) -> None:
    bare = net.host(rsync=False)
    backend = open_backend(bare.uri())
    with pytest.raises(TransferError, match="rsync is not installed on that host.*apt-get") as raised:
        backend.check()
    assert not raised.value.transient
    with pytest.raises(TransferError, match="rsync is not installed on that host"):
        backend.put("a", b"a")


@pytest.mark.parametrize("missing", ["rsync", "ssh"])
def test_a_program_is_missing_here(
    missing: str, host: Host, open_backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {"rsync", "ssh", "env"} - {missing}:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    backend = open_backend(host.uri())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransferError, match=f"there is no {missing} on this host: install it") as raised:
        backend.check()
    assert not raised.value.transient


def test_a_directory_that_the_user_may_not_write_to(host: Host, open_backend: Open) -> None:
    for path in ("/run/sshd/x", "/run/sshd"):
        with pytest.raises(AccessRefusedError, match="may not write there") as raised:
            open_backend(host.uri(path)).check()
        assert not raised.value.transient


def test_a_file_is_no_directory(host: Host, open_backend: Open) -> None:
    with pytest.raises(TransferError, match="File exists|Not a directory"):
        open_backend(host.uri("/etc/passwd")).check()


@pytest.mark.parametrize(
    "uri",
    ["/path", "host", "-oProxyCommand=touch pwned:/path", "a b:/path", "$(touch pwned):/path", "host::module"]
    + ["-l@host:/path", "user@-host:/path", "host:/a/../b", "host:~other/x", "host:/nul\0"],
)
def test_what_is_no_place_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSettingError):
        RsyncBackend(uri)


# --- faults while bytes move -------------------------------------------------------------------------------


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A directory with one file that takes a while."""
    source = tmp_path / "source"
    source.mkdir()
    with (source / "big").open("wb") as file:
        for _ in range(30):
            file.write(os.urandom(1_000_000))
    return source


def once(action: Callable[[], None]) -> Callable[[int], None]:
    """A progress that does something when the first bytes have moved."""
    done = threading.Event()

    def progress(moved: int) -> None:
        if not done.is_set():
            done.set()
            action()

    return progress


def test_a_connection_that_is_cut_leaves_no_torn_file(net: Network, open_backend: Open, big: Path) -> None:
    host = net.host()
    backend = open_backend(host.uri(), timeout_s=3)
    backend.check()
    host.slow(80)
    with pytest.raises(TransferError) as raised:
        backend.push(big, "p", ["big"], progress=once(host.cut))
    assert raised.value.transient
    assert not host.path("/srv/data/p/big").exists(), "nothing has that name before it is whole"
    assert (big / "big").stat().st_size == 30_000_000, "the source is as it was"
    host.mend()
    host.slow(None)
    backend.renew()
    psutil.wait_procs([psutil.Process(pid) for pid in host.pids("rsync")], timeout=30)
    receipts: dict[str, str] = {}
    backend.push(big, "p", ["big"], receipts=receipts)
    assert filecmp.cmp(big / "big", host.path("/srv/data/p/big"), shallow=False)
    assert receipts == {"big": ""}
    assert [entry.key for entry in backend.list()] == ["p/big"], "what was cut off has cleaned up"


@pytest.mark.parametrize("side", ["here", "there"])
def test_an_rsync_that_is_killed_leaves_no_torn_file(side: str, net: Network, open_backend: Open, big: Path) -> None:
    host = net.host()
    backend = open_backend(host.uri())
    backend.check()

    def kill() -> None:
        there = host.pids("rsync")
        pids = there if side == "there" else [p.pid for p in psutil.Process().children() if p.name() == "rsync"]
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    host.slow(80)
    receipts: dict[str, str] = {}
    with pytest.raises(TransferError) as raised:
        backend.push(big, "p", ["big"], receipts=receipts, progress=once(kill))
    assert raised.value.transient
    assert receipts == {}
    assert not backend.exists("p/big")
    assert not host.path("/srv/data/p/big").exists()
    host.slow(None)
    backend.push(big, "p", ["big"])
    assert filecmp.cmp(big / "big", host.path("/srv/data/p/big"), shallow=False)


def test_a_fetch_that_is_cut_leaves_no_torn_file(net: Network, open_backend: Open, big: Path, tmp_path: Path) -> None:
    host = net.host()
    backend = open_backend(host.uri(), timeout_s=3)
    backend.push(big, "p", ["big"])
    host.slow(80)
    with pytest.raises(TransferError) as raised:
        backend.fetch("p", tmp_path / "target", ["big"], progress=once(host.cut))
    assert raised.value.transient and not isinstance(raised.value, ObjectNotFoundError)
    assert os.listdir(tmp_path / "target") == []
    host.mend()
    host.slow(None)
    backend.renew()
    backend.fetch("p", tmp_path / "target")
    assert filecmp.cmp(big / "big", tmp_path / "target" / "big", shallow=False)


def test_a_dead_host_is_never_an_empty_one(net: Network, open_backend: Open) -> None:
    host = net.host()
    backend, hasty = open_backend(host.uri()), open_backend(host.uri(), timeout_s=1)
    backend.put("a", b"a")
    host.cut()
    for call in (lambda: hasty.read("a"), lambda: list(hasty.list()), lambda: hasty.exists("a")):
        with pytest.raises(TransferError) as raised:
            call()
        assert raised.value.transient and not isinstance(raised.value, ObjectNotFoundError)
    with pytest.raises(TransferError):
        hasty.delete(["a"])
    host.mend()
    backend.renew()
    assert backend.exists("a")


def test_a_full_disk_over_there(net: Network, open_backend: Open, big: Path) -> None:
    host = net.host(size="8m")
    backend = open_backend(host.uri())
    backend.put("small", b"small")
    (big / "little").write_bytes(b"little")
    with pytest.raises(TransferError, match="disk is full.*make room"):
        backend.push(big, "p", ["big"])
    assert not host.path("/srv/data/p/big").exists()
    assert [entry.key for entry in backend.list()] == ["small"], "nothing is left of what did not fit"
    backend.push(big, "p", ["little"])
    assert backend.read("p/little") == b"little"


# --- what lies over there ----------------------------------------------------------------------------------


def test_known_content_is_one_file_over_there(backend: Backend, host: Host, tmp_path: Path) -> None:
    """Linked, not copied; not written to; and never believed unread."""
    for name in ("a/weights", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 100_000)
    place = host.path(backend.uri.partition(":")[2])
    backend.push(tmp_path, "trial_1/c1", ["a/weights", "other"])
    same = {"a/weights": "trial_1/c1/a/weights", "other": "trial_1/c1/other"}
    backend.push(tmp_path, "trial_2/c9", ["a/weights", "other"], same=same)
    first, second = (place / key / "a/weights" for key in ("trial_1/c1", "trial_2/c9"))
    assert first.stat().st_ino == second.stat().st_ino
    other = place / "trial_1/c1/other"
    other.write_bytes(b"damage" + other.read_bytes()[6:])  # of the same size
    backend.push(tmp_path, "trial_2/c10", ["a/weights", "other"], same=same)
    assert (place / "trial_2/c10/other").read_bytes() == b"other" * 100_000, "damaged content is sent instead"
    assert (place / "trial_2/c10/a/weights").stat().st_nlink == 3
    backend.delete_tree("trial_1")
    assert second.read_bytes() == b"a/weights" * 100_000


def test_known_content_of_many_directories(backend: Backend, host: Host, tmp_path: Path) -> None:
    names = [f"file_{number}" for number in range(45)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode() * 1000)
        backend.push(tmp_path, f"c_{name}", [name]) if name in ("file_0", "file_22", "file_44") else None
    same = {name: f"c_{name}/{name}" for name in names}
    backend.push(tmp_path, "all", names, same=same)
    place = host.path(backend.uri.partition(":")[2]) / "all"
    assert {name: (place / name).read_bytes() for name in names} == {name: name.encode() * 1000 for name in names}
    assert [name for name in names if (place / name).stat().st_nlink == 2] == ["file_0", "file_22", "file_44"]


def silent_before_it_starts(host: Host, seconds: int) -> Path:
    """Let the rsync over there say nothing for so long, as one does that hashes; a file appears meanwhile."""
    rsync, sleep, begun = shutil.which("rsync"), shutil.which("sleep"), host.path("/srv/home/begun")
    program = host.path("/srv/bin/rsync")
    program.unlink()
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --server ]; then : >/srv/home/begun; {sleep} {seconds}; fi\nexec {rsync} "$@"\n'
    )
    program.chmod(0o755)
    return begun


def test_known_content_may_take_longer_to_hash_than_a_silence_lasts(
    net: Network, open_backend: Open, tmp_path: Path
) -> None:
    host = net.host()
    backend, hasty = open_backend(host.uri()), open_backend(host.uri(), timeout_s=1)
    for name in ("weights", "new"):
        (tmp_path / name).write_bytes(name.encode() * 100_000)
    backend.check()
    backend.push(tmp_path, "c1", ["weights"])
    hasty.check()
    silent_before_it_starts(host, 4)
    with pytest.raises(StoreMissingError, match="does not answer") as raised:
        hasty.push(tmp_path, "c2", ["new"])
    assert raised.value.transient
    hasty.push(tmp_path, "c2", ["weights"], same={"weights": "c1/weights"})
    first, second = (host.path(f"/srv/data/{key}/weights").stat().st_ino for key in ("c1", "c2"))
    assert first == second


def test_a_host_that_dies_while_known_content_is_hashed_is_noticed(
    net: Network, open_backend: Open, tmp_path: Path
) -> None:
    host = net.host()
    backend = open_backend(host.uri(), timeout_s=3)
    (tmp_path / "weights").write_bytes(b"weights")
    backend.check()
    backend.push(tmp_path, "c1", ["weights"])
    begun = silent_before_it_starts(host, 10_000)

    def cut() -> None:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        host.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with pytest.raises(TransferError) as raised:
            backend.push(tmp_path, "c2", ["weights"], same={"weights": "c1/weights"})
    finally:
        cutter.join()
    assert begun.exists()
    assert raised.value.transient


@pytest.mark.parametrize("names", [None, ["good", "evil"]])
@pytest.mark.parametrize("to", ["secrets", "secrets/secret"])
def test_links_over_there_are_refused(
    names: list[str] | None, to: str, backend: Backend, host: Host, tmp_path: Path
) -> None:
    backend.put("p/good", b"good")
    backend.put("secrets/secret", b"secret")
    (host.path(backend.uri.partition(":")[2]) / "p" / "evil").symlink_to(f"../{to}")
    with pytest.raises(TransferCorruptError, match="link"):
        backend.fetch("p", tmp_path / "target", names)
    assert not (tmp_path / "target" / "evil").is_symlink()


def test_no_link_is_made_here_of_one_over_there(backend: Backend, host: Host, tmp_path: Path) -> None:
    """A directory that is a link over there is a directory here: nothing is ever written through it."""
    backend.put("secrets/secret", b"secret")
    backend.put("p/good", b"good")
    (host.path(backend.uri.partition(":")[2]) / "p" / "evil").symlink_to("../secrets")
    backend.fetch("p", tmp_path / "target", ["evil/secret"])
    assert not (tmp_path / "target" / "evil").is_symlink()
    assert (tmp_path / "target" / "evil" / "secret").read_bytes() == b"secret"


def test_a_place_with_an_odd_name(host: Host, open_backend: Open, tmp_path: Path) -> None:
    """Neither a shell nor a pattern of rsync's reads it, here or over there."""
    (tmp_path / "a").write_bytes(b"a")
    before = set(os.listdir())
    names = [" ".join(ODD_NAMES[:14]), " ".join(ODD_NAMES[14:]), "*", "~", "-rf", "host:x"]
    for name in names:
        backend = open_backend(host.uri(f"/srv/home/odd/{name}"))
        backend.push(tmp_path, "p", ["a"])
        backend.fetch("p", tmp_path / "target")
        assert (tmp_path / "target" / "a").read_bytes() == b"a"
        assert [entry.key for entry in backend.list()] == ["p/a"]
        backend.delete(["p/a"])
        assert not backend.exists("p/a")
        backend.close()
    assert {path.name for path in host.path("/srv/home/odd").iterdir()} == set(names)
    assert "pwned" not in {path.name for path in host.path("/srv/home").iterdir()}
    assert set(os.listdir()) == before


def test_one_connection_serves_all_and_ends_with_the_back_end(net: Network, host: Host, open_backend: Open) -> None:
    assert net.pids("ssh") == []
    backend = open_backend(host.uri("/srv/home/shared"))
    for number in range(3):
        backend.put(f"{number}", b"x")
    left = [psutil.Process(pid) for pid in net.pids("ssh")]
    assert len(left) == 1
    backend.close()
    assert psutil.wait_procs(left, timeout=10)[1] == []


def test_the_users_own_shared_connection_is_used(host: Host, open_backend: Open, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("".join(_config_lines(host)) + f"  ControlPath {tmp_path}/mine\n")
    backend = open_backend(host.uri("/srv/home/mine"), ssh_config=config)
    assert not any("ControlPath" in word for word in backend._ssh.command(5))
    backend.check()


def _config_lines(host: Host) -> list[str]:
    return host.network.ssh_config.read_text().splitlines(keepends=True)


# --- F18 ---------------------------------------------------------------------------------------------------


def test_f18_every_manifest_that_is_visible_over_there_verifies(
    backend: RsyncBackend, host: Host, tmp_path: Path
) -> None:
    """Pushed without a pause while a writer saves and prunes, without asking whether something is being pushed."""
    steps, keep = 40, 2
    trial = tmp_path / "trial"
    trial.mkdir()
    over = threading.Event()
    failures: list[str] = []
    seen: set[str] = set()
    begun = threading.Semaphore(0)
    pushed_all = threading.Event()
    deleted: set[str] = set()

    def write() -> None:
        for index in range(1, steps + 1):
            ref = CheckpointRef("abc_00000", publish.checkpoint_name(index, 1, 1), 1, 1, index, index)
            staged = staging.new_directory(trial, str(index))
            (staged / "weights").write_bytes(os.urandom(2_000_000))
            (staged / "d").mkdir()
            (staged / "d" / "state").write_bytes(os.urandom(1000))
            prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b"{}"), created=1e9)
            publish.commit(prepared, trial / ref.name)
            if index > keep:
                begun.acquire()  # in step with the pushes: it prunes while they go on
            for old in verify.list_checkpoints(trial)[:-keep]:
                delete.delete(old.path)

    place = host.path(backend.uri.partition(":")[2]) / "trial"

    def look() -> None:
        last = False
        while not last:
            last = pushed_all.is_set()
            for published in verify.list_checkpoints(place):
                name = published.ref.name
                try:
                    verify.check(published.path)
                except CheckpointError as error:
                    if (published.path / MANIFEST_NAME).exists():  # else it was on its way out: manifest first
                        failures.append(f"{name}: {error}")
                else:
                    seen.add(name)

    backend.check()
    pool = ThreadPoolExecutor(2)
    writer, looker = pool.submit(write), pool.submit(look)
    writer.add_done_callback(lambda _: over.set())
    there: dict[str, list[str]] = {}
    while True:
        last = over.is_set()
        here = {published.ref.name: published for published in verify.list_checkpoints(trial)}
        new = {name: published for name, published in here.items() if name not in there and name not in deleted}
        if new:
            begun.release(3 if len(deleted) % 3 == 2 else 1)  # now and then it prunes what is just being pushed
        for name, published in new.items():
            files = [entry.name for entry in published.manifest.files]
            try:
                backend.push(published.path, f"trial/{name}", files)
                backend.push(published.path, f"trial/{name}", [MANIFEST_NAME])
            except TransferError:
                assert not (published.path / MANIFEST_NAME).exists(), "only what was pruned meanwhile cannot be sent"
                backend.delete_tree(f"trial/{name}")
                continue
            there[name] = files
        for name in [name for name in there if name not in here]:
            backend.delete([f"trial/{name}/{file}" for file in (MANIFEST_NAME, *there.pop(name))])
            deleted.add(name)
        if last:
            break
    pushed_all.set()
    writer.result()
    looker.result()
    pool.shutdown()
    assert failures == []
    assert len(seen) > keep
    left = [published.ref.name for published in verify.list_checkpoints(trial)]
    assert left == [f"checkpoint_{steps - 1:06d}", f"checkpoint_{steps:06d}"], "sources are never removed by sync"
    assert sorted(path.name for path in place.iterdir()) == left, (
        "nothing that was pruned is there, and all that is kept"
    )
    assert all(verify.problems(place / name) == [] for name in left)
