"""The driver's side of the fork server: how it starts, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import StandInExecutor

from tuner.error import TuneError
from tuner.executors.local.pickled import write_trainable
from tuner.executors.local.server import ForkServer, describe

cloudpickle.register_pickle_by_value(sys.modules[__name__])


# --- environment -----------------------------------------------------------------------------------------


def shows_environment(config: Any, talk: Any) -> None:
    talk.report(**{name: os.environ.get(name) for name in config["names"]})


def test_a_server_that_never_starts_is_an_error_that_says_so(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_worker.py").write_text("import os\nos._exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(StandInExecutor, "worker", "bad_worker")
    driver = local(shows_environment)
    driver.launch()
    with pytest.raises(TuneError, match="does not start: it exited with status 4"):
        driver.finish_all()


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_shutdown_while_the_server_hangs_in_an_import(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    (tmp_path / "never_ends.py").write_text("import signal\nwhile True: signal.pause()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        import never_ends  # type: ignore[import-not-found]  # noqa: F401

    driver = local(trainable)
    server = watch(driver.executor.owned_processes()[0][0])
    driver.executor.shutdown()
    assert server.gone()


@pytest.mark.parametrize(
    ("returncode", "said"),
    [(None, "is gone"), (0, "exited with status 0"), (4, "exited with status 4"), (-9, "was ended by SIGKILL")],
)
def test_how_a_server_ended_is_said_in_words(returncode: int | None, said: str) -> None:
    assert describe(returncode) == said


def test_a_server_that_was_killed_forks_nothing_and_its_end_is_no_error(tmp_path: Path, watch: Any) -> None:
    written = write_trainable(lambda config, talk: None, tmp_path)
    server = ForkServer(written, worker="standin_worker", lock_fds=(), marker=f"server-{tmp_path}")
    assert server.receive() is None, "it has only just begun"
    watched = watch(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    assert watched.gone(within_s=10)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert not server.fork_keeper(1, theirs)
    assert server.receive() == b""
    server.end()
    assert describe(server.process.returncode) == "was ended by SIGKILL"
