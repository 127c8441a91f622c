"""A disk whose power can be cut: what was not synced is gone, as after a real power cut.

A filesystem in a file, through a loop device. `cut` is the ioctl with which filesystems are tested for that: all that
the kernel has not written yet is dropped, the log included, and every call fails until the disk is mounted again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: _IOR('X', 125, __u32), the same for ext4, XFS and f2fs."""
_NO_LOG_FLUSH = 2
_MAKE = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "ext4": ["mkfs.ext4", "-q", "-O", "^metadata_csum_seed"]}


class Disk:
    """Mounted while its power is on, in a mount namespace of its own.

    In any other one a test that makes a namespace meanwhile would take the mount with it, and the disk would never end.
    """

    def __init__(self, directory: Path, kind: str, size: int) -> None:
        self.place = directory / "disk"
        """As those see it who were started with `command`."""
        self._image, self._kind = directory / "image", kind
        self.place.mkdir(parents=True)
        with open(self._image, "wb") as file:
            file.truncate(size)
        subprocess.run([*_MAKE[kind], self._image], check=True)
        holder = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep infinity"]
        self._holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *holder], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None and self._holder.stdout.readline(), "there is no namespace"
        if self._mount().returncode != 0:
            self.close()
            pytest.skip("mounting a loop device is not allowed here")

    @property
    def seen(self) -> Path:
        """The same from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self.place}")

    def command(self, directory: Path) -> list[str]:
        """In front of a command: it runs where the disk is."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", f"--wd={directory}"]

    def cut(self) -> None:
        """The power fails."""
        fd = os.open(self.seen, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def come_back(self) -> None:
        """The power is back: the filesystem recovers from its log. Nobody may have a file open there."""
        for done in (self._inside("umount", str(self.place)), self._mount()):
            assert done.returncode == 0, done.stderr

    def turn_read_only(self) -> None:
        """The kernel finds an error in the filesystem (ext4), and lets nobody write any more: as after a bad sector."""
        done = self._inside("mount", "-o", "remount,errors=remount-ro", str(self.place))
        assert done.returncode == 0, done.stderr
        number = self.seen.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("read-only, please")

    def mend(self) -> None:
        """Unmounted, checked and mounted again, as its owner would. Nobody may have a file open there."""
        unmounted = self._inside("umount", str(self.place))
        assert unmounted.returncode == 0, unmounted.stderr
        checked = subprocess.run(["e2fsck", "-fy", self._image], check=False, capture_output=True)
        assert checked.returncode in (0, 1), checked.stdout
        assert self._mount().returncode == 0

    def close(self) -> None:
        self._holder.kill()  # and with its namespace the mount goes
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()

    def _mount(self) -> subprocess.CompletedProcess[bytes]:
        return self._inside("mount", "-o", "loop", "-t", self._kind, str(self._image), str(self.place))

    def _inside(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.command(Path("/")), *command], check=False, capture_output=True)


@contextmanager
def powered_disk(directory: Path, kind: str, size: int = 400 << 20) -> Iterator[Disk]:
    """An empty disk with "xfs" or "ext4", as long as the context lasts."""
    if os.geteuid() != 0 or shutil.which(_MAKE[kind][0]) is None:
        pytest.skip(f"a disk whose power can be cut needs root, and {_MAKE[kind][0]}")
    disk = Disk(directory, kind, size)
    try:
        yield disk
    finally:
        disk.close()
