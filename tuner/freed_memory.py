"""Memory that was needed for a moment goes back to the system: it is made of megabytes, and let go."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE = 128 << 10
"""Where glibc begins; by itself it goes up to 32 MB with what a process has freed, and keeps that much."""


def keep_little() -> None:
    """Have this process keep no more than a little of what it frees. Does nothing where there is no glibc."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)


def give_back() -> None:
    """Give back once what was freed so far, and leave a user's process as it is. Without glibc this does nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
