"""One call of a hook: a command is run, or a URL is posted to, in a thread, and for a bounded time only."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO
from urllib.parse import urlsplit

from trainables.errors import LimitError
from trainables.masking import masked
from trainables.printable import one_line
from trainables.starting import signal_name, start_process, start_thread
from tuner import knobs

Hook = str | Sequence[str]
SHOWN = 200
"""Characters at most of what a hook that failed has printed last."""


def is_url(hook: Hook) -> bool:
    """Whether a hook is posted to; else it is run."""
    return isinstance(hook, str) and hook.strip().lower().startswith(("http://", "https://"))


def shown(hook: Hook) -> str:
    """A hook as it may be printed: of a URL no more than its host, for the rest is often a secret."""
    if isinstance(hook, str) and is_url(hook):
        parts = urlsplit(hook.strip())
        return f"{parts.scheme}://{parts.netloc}/..."
    return one_line(masked(hook if isinstance(hook, str) else " ".join(hook)))[:SHOWN]


class HookCall:
    """A call that has begun.

    Args:
        hook: a command for the shell, the words of a command, or an http(s) URL.
        body: JSON, for its standard input or as what is posted.
        variables: what a command finds in its environment besides.
        timeout_s: seconds after which it is ended; a server is not waited for any longer.
    """

    def __init__(self, hook: Hook, body: bytes, *, variables: Mapping[str, str], timeout_s: float) -> None:
        self._hook, self._body, self._variables, self._timeout_s = hook, body, variables, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble: str | None = f"took longer than {timeout_s:g} s"
        self._over = threading.Event()
        try:
            start_thread(self._call, name="hook")
        except LimitError as error:
            self._trouble = f"failed: {error}"
            self._over.set()

    @property
    def trouble(self) -> str | None:
        """What went wrong; None: nothing. Ask when it is over."""
        return self._trouble

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is over, at most so many seconds; whether it is."""
        return self._over.wait(timeout_s)

    def end(self) -> None:
        """Wait for it no longer: a command is killed, with what it has started in its session."""
        process = self._process
        if process is not None and process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has just ended

    def _call(self) -> None:
        try:
            if isinstance(self._hook, str) and is_url(self._hook):
                self._trouble = self._post(self._hook.strip())
            else:
                with tempfile.TemporaryFile() as said:
                    self._trouble = self._run(said)
        except Exception as error:  # whatever it is: a hook ends no run
            self._trouble = f"failed: {type(error).__name__}: {error}"
        finally:
            self._over.set()

    def _run(self, said: IO[bytes]) -> str | None:
        words = ["/bin/sh", "-c", self._hook] if isinstance(self._hook, str) else list(self._hook)
        environment = {**knobs.environment(), **self._variables}
        # A session of its own: Ctrl-C in the terminal is for the run, and with a file for what it prints nobody
        # waits for what it leaves in the background.
        self._process = start_process(
            words,
            what="a hook",
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            self._process.communicate(self._body, self._timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            self._process.wait()
            return f"took longer than {self._timeout_s:g} s, and was ended"
        status = self._process.returncode
        if status == 0:
            return None
        how = f"ended by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
        said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
        return how + (f": {one_line(masked(lines[-1]))[:SHOWN]}" if lines else "")

    def _post(self, url: str) -> str | None:
        import urllib.error
        import urllib.request

        headers = {"Content-Type": "application/json", "User-Agent": "tuner"}
        request = urllib.request.Request(url, self._body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s):
                return None
        except urllib.error.HTTPError as error:
            with error:
                return f"answered {error.code} {one_line(str(error.reason))[:SHOWN]}"
        except TimeoutError:
            return f"took longer than {self._timeout_s:g} s"
        except urllib.error.URLError as error:
            return f"cannot be reached: {one_line(str(error.reason))[:SHOWN]}"
