"""`on_end=` and `on_failure=` with real commands and a real server: what they are told, and that they harm nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import tuner as tune
from tests.listings import SCRIPTS, environment
from trainables.errors import InvalidSettingError
from tuner.cli import main
from tuner.clock import SystemClock
from tuner.driver.hooks import HookFacts
from tuner.error import SettingError
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.spec import Spec


class HookServer(ThreadingHTTPServer):
    """Keeps what is posted to it; answers with the status that is the path, and /hang not before it is closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posts)
        self.posted: list[dict[str, Any]] = []
        self.closed = threading.Event()

    def url(self, path: str = "200") -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Posts(BaseHTTPRequestHandler):
    """One request."""

    server: HookServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(json.loads(body))
        if self.path == "/hang":
            self.server.closed.wait()
            return
        self.send_response(int(self.path.strip("/")))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with HookServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.closed.set()
        server.shutdown()


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})
    if config["x"] > config.get("good", 1):
        raise ValueError(f"x={config['x']} with token=abc123 is too large")


def run(tmp_path: Path, **how: Any) -> tune.ExperimentAnalysis:
    asked: dict[str, Any] = {
        "name": "hooked", "storage_path": tmp_path, "config": {"x": tune.grid_search([1, 0, 3, 2])}, "metric": "loss",
        "mode": "min", "executor": "inline", "raise_on_failed_trial": False, "verbose": 0,
    }  # fmt: skip
    return tune.run(train, **{**asked, **how})


def writes(file: Path) -> str:
    """A hook that adds what it is told to a file, line by line."""
    return f"cat >> {file}; echo >> {file}"


def told(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []


def warned(tmp_path: Path) -> list[str]:
    log = tmp_path / "hooked" / "driver.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if "on_end=" in line or "on_failure=" in line]


def test_a_url_is_told_of_the_end_and_a_command_of_failures(tmp_path: Path, server: HookServer) -> None:
    seen = tmp_path / "seen"
    script = 'import os, sys; open(sys.argv[1], "a").write(sys.stdin.read() + "\\n" + os.environ["TUNER_TEXT"] + "\\n")'
    run(tmp_path, on_end=server.url(), on_failure=[sys.executable, "-c", script, str(seen)])

    (end,) = server.posted
    root = str(tmp_path / "hooked")
    assert (end["event"], end["state"], end["experiment"], end["path"]) == ("end", "finished", "hooked", root)
    assert end["trials"] == {"total": 4, "done": 2, "failed": 2, "running": 0, "paused": 0, "pending": 0}
    assert (end["best"]["number"], end["best"]["value"], end["best"]["params"]) == (1, 0, {"x": 0})
    assert [failed["number"] for failed in end["failures"]] == [2, 3] and end["error"] is None
    assert end["failures"][0]["error"] == "ValueError: x=3 with token=*** is too large"
    assert end["text"] == "hooked: finished: 2 of 4 trials done, 2 failed; best loss 0: trial 1"
    lines = seen.read_text().splitlines()
    first, second = (json.loads(line) for line in lines[::2])
    assert (first["event"], first["state"], second["state"]) == ("failure", "running", "finished")
    assert [[each["number"] for each in call["failures"]] for call in (first, second)] == [[2], [3]]
    assert (
        lines[1]
        == first["text"]
        == ("hooked: trial 2 failed: ValueError: x=3 with token=*** is too large; best loss 0: trial 1")
    )
    assert warned(tmp_path) == []


def test_no_resume_runs_what_an_earlier_start_was_given(tmp_path: Path) -> None:
    seen, failures = tmp_path / "seen", tmp_path / "failures"
    run(tmp_path, on_end=writes(seen), on_failure=writes(failures))
    assert len(told(seen)) == 1 and len(told(failures)) == 2
    stored = [file for file in (tmp_path / "hooked").rglob("*") if file.is_file()]
    assert stored and not [file for file in stored if b"cat >>" in file.read_bytes()]

    run(tmp_path, resume="AUTO+RESTART_ERRORED")
    tune.Tuner.restore(str(tmp_path / "hooked"), train, restart_errored=True).fit()
    assert len(told(seen)) == 1 and len(told(failures)) == 2
    run(tmp_path, resume="AUTO", on_end=writes(seen), on_failure=writes(failures))
    assert len(told(seen)) == 2 and len(told(failures)) == 2, "it ran no trial, so none has failed"


@pytest.mark.parametrize("raises", [True, False])
def test_what_a_run_raises_it_raises_with_hooks_too(tmp_path: Path, raises: bool) -> None:
    seen = tmp_path / "seen"
    with pytest.raises(ValueError if raises else tune.TuneError, match="too large"):
        run(tmp_path, on_end=writes(seen), fail_fast="raise" if raises else False, raise_on_failed_trial=True)
    assert [end["state"] for end in told(seen)] == ["fail_fast" if raises else "finished"]
    assert "x=3" in told(seen)[0]["error"]


class Broken(tune.Callback):
    """Ends the run at its second result."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        if trial.index == 1:
            raise OSError("nowhere to write to")


def test_an_error_that_quotes_a_traceback_is_told_by_its_cause(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n" + '  File "rows.py", line 9, in get\n' * 100 + "KeyError: 'target'\n"
    state = ExperimentState(tmp_path / "e")
    state.apply(ev.TrialCreated("t", 0, msgspec.Raw(b"{}"), name="t", dirname="t"))
    state.apply(ev.TrialEnded("t", "ERROR", 1.0, ev.ErrorInfo("RuntimeError", f"worker 0 failed\n{trace}")))
    hooks = HookFacts(Spec(train), state.root, SystemClock())
    facts = hooks.of("failure", "running", state.trials, list(state.trials))
    assert facts["failures"][0]["error"] == "RuntimeError: KeyError: 'target'"
    assert facts["text"] == "e: trial 0 failed: RuntimeError: KeyError: 'target'"


def test_a_driver_that_fails_tells_of_it(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with pytest.raises(OSError, match="nowhere"):
        run(tmp_path, on_end=writes(seen), callbacks=[Broken()])
    (end,) = told(seen)
    assert (end["state"], end["error"], end["trials"]["done"]) == ("failed", "nowhere to write to", 1)
    assert end["text"].startswith("hooked: failed: 1 of ")


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("echo no such thing >&2; exit 3", "ended with status 3: no such thing"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("echo $$ > pid; sleep 1000 & sleep 1000", "took longer than 0.3 s, and was ended"),
        ("500", "answered 500 Internal Server Error"),
        ("hang", "took longer than 0.3 s"),
    ],
)
def test_a_hook_that_fails_or_hangs_is_one_warning(
    hook: str, said: str, tmp_path: Path, server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_HOOK_TIMEOUT_S", "0.3")
    monkeypatch.chdir(tmp_path)
    given = hook if " " in hook else server.url(hook)
    analysis = run(tmp_path, on_end=given, on_failure=given)

    assert [trial.status for trial in analysis.trials] == ["TERMINATED", "TERMINATED", "ERROR", "ERROR"]
    lines = warned(tmp_path)
    assert len(lines) == 2 and all(line.endswith(said) for line in lines)
    assert f"/{hook}" not in "".join(lines), "a path may be a secret"
    if (tmp_path / "pid").exists():
        assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_many_failures_are_few_calls(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    run(tmp_path, config={"x": tune.grid_search(list(range(30))), "good": -1}, on_failure=writes(seen))
    calls = told(seen)
    assert len(calls) == 2
    assert [each["number"] for call in calls for each in call["failures"]] == list(range(30))


@pytest.mark.parametrize(
    "wrong", ["", " ", [], [""], [1], "s3://bucket/x", "http://", "https://me:secret@host/x", "http://a b", 3, print]
)
def test_what_is_no_hook_is_refused(wrong: Any) -> None:
    for name in ("on_end", "on_failure"):
        with pytest.raises(InvalidSettingError, match=f"{name}=.*a command .* URL"):
            tune.RunConfig(**{name: wrong})


def test_a_program_that_is_not_there_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match="on_end=.*there is no program 'no-such-program'"):
        run(tmp_path, on_end=["no-such-program", "-x"])
    monkeypatch.setenv("TUNE_HOOK_TIMEOUT_S", "soon")
    with pytest.raises(SettingError, match="TUNE_HOOK_TIMEOUT_S='soon'"):
        run(tmp_path, on_end=["true"])
    assert not (tmp_path / "hooked").exists()


def test_the_command_line_gives_them_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code.py").write_text("def train(config):\n    return {'loss': 1}\n")
    config = tmp_path / "hooked.yaml"
    config.write_text(
        f"trainable: code.py:train\nname: hooked\nstorage_path: {tmp_path}\nexecutor: inline\nverbose: 0\n"
    )
    seen = tmp_path / "seen"
    assert main(["run", str(config), "--on-end", writes(seen)]) == 0
    assert main(["resume", str(tmp_path / "hooked")]) == 0
    assert [end["state"] for end in told(seen)] == ["finished"]
    assert main(["resume", str(tmp_path / "hooked"), "--on-end", writes(seen)]) == 0
    assert len(told(seen)) == 2
    config.write_text(config.read_text() + "on_end: echo\n")
    assert main(["run", str(config)]) == 2


def test_ctrl_c_does_not_wait_for_a_hook(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"""
import tuner as tune
tune.run(lambda config: {{"x": 1}}, name="e", storage_path={str(tmp_path)!r}, executor="inline",
         on_end="echo $$ > {pid}; exec sleep 1000")
print("went on")
"""
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("waiting for on_end='echo" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(60) == 0, "the run itself had ended"
    assert "was not waited for, because of Ctrl-C" in said and "went on" in said
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_run_that_is_killed_tells_nobody_and_one_that_is_stopped_tells_how(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = [sys.executable, str(SCRIPTS / "hooked_run.py"), str(tmp_path / "results"), str(seen)]
    status: dict[int, int] = {}
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(" loss=" in line for line in process.stdout)
            os.kill(process.pid, number)
            process.stdout.read()
            status[number] = process.wait(60)
    assert status == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: -signal.SIGINT}
    states = [json.loads(text)["state"] for text in seen.read_text().replace("}{", "}\n{").splitlines()]
    assert states == ["preempted", "interrupted"]
