"""The process of a command: a session of its own, its output passed on line by line, ended with all that it started."""

from __future__ import annotations

import codecs
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Any

from trainables.errors import TrainablesError
from trainables.starting import start_thread

_log = logging.getLogger(__name__)

_LAST_WORDS = 20
"""Lines of the error output that a failure quotes."""
_LAST_CHARACTERS = 2000
"""Of each of them."""
_LINE = 1 << 20
"""Characters of a line that are kept: a program that prints no end of one fills no memory."""


class CommandError(TrainablesError, RuntimeError):
    """A command could not be started, ended with an error, or without a result; the message quotes its last words."""


class CommandProcess:
    """A command that runs.

    Args:
        words: The arguments; for a shell one text.
        shell: Give it to `/bin/sh`.
        cwd: Where it runs.
        env: Its environment.
        hear: Called with each line of its output, in other threads.
        ended: Called when it has ended, in another thread.

    Raises CommandError where it cannot be started.
    """

    def __init__(
        self,
        words: list[str],
        *,
        shell: bool,
        cwd: str,
        env: Mapping[str, str],
        hear: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self._hear, self._ended, self._warned = hear, ended, False
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", words[0]] if shell else words,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            if not os.path.isdir(cwd):
                raise CommandError(f"cwd={cwd!r}, where the command is to run, is no directory here") from error
            raise CommandError(f"the command {words[0]!r} cannot be started in {cwd}: {error}") from error
        self._pumps = [
            self._pump(self._process.stdout, sys.stdout, quoted=False),
            self._pump(self._process.stderr, sys.stderr, quoted=True),
        ]
        start_thread(self._wait, name="command-waiter")

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def ended_well(self) -> bool:
        """It has ended with 0."""
        return self._process.poll() == 0

    def end(self, grace_s: float) -> None:
        """SIGTERM to all that it started, and SIGKILL when the time is over. All of its output was heard after this."""
        if self.runs and grace_s > 0:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                _log.warning("the command did not end within %.3g s of SIGTERM, and is killed", grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pump in self._pumps:
            pump.join(timeout=3.0)  # that long only where something of its has left its session

    def raise_if_failed(self) -> None:
        """Raise CommandError where it has ended with anything but 0."""
        code = self._process.wait()
        if code == 0:
            return
        why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        words = "\n".join(self._last_words)
        raise CommandError(f"the command ended with {why}" + (f"; its last words:\n{words}" if words else ""))

    def _wait(self) -> None:
        self._process.wait()
        self._ended()

    def _pump(self, stream: IO[bytes] | None, to: Any, *, quoted: bool) -> threading.Thread:
        assert stream is not None

        def pump() -> None:
            text, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
            while data := os.read(stream.fileno(), 65536):
                heard = text.decode(data)
                to.write(heard)
                to.flush()
                *lines, rest = (rest + heard).replace("\r", "\n").split("\n")
                self._take(lines, quoted)
                if len(rest) > _LINE:
                    rest = self._cut(rest)
            if quoted or self._process.wait() == 0:  # of a program that was killed it may be half a number
                self._take([rest], quoted)
            stream.close()

        return start_thread(pump, name="command-output")

    def _cut(self, line: str) -> str:
        if not self._warned:
            self._warned = True
            _log.warning("the command printed %d characters without an end of line: only the last of them count", _LINE)
        return line[-_LINE // 2 :]

    def _take(self, lines: list[str], quoted: bool) -> None:
        for line in filter(None, lines):
            self._hear(line)
            if quoted:
                self._last_words.append(line[-_LAST_CHARACTERS:])

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # all of it has ended
