"""One call of a hook: what is run and how, and how long it is waited for."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tuner.driver.hook_call import Hook, HookCall, is_url, shown


def called(hook: Hook, body: bytes = b"{}", timeout_s: float = 30.0, **variables: str) -> str | None:
    call = HookCall(hook, body, variables=variables, timeout_s=timeout_s)
    assert call.wait(60)
    return call.trouble


def test_a_text_is_for_the_shell_and_a_list_is_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert called(f'cat > {out}; echo "$WHAT" >> {out}', b"told ", WHAT="$HOME; true") is None
    assert out.read_text() == "told $HOME; true\n"
    assert called(["touch", str(tmp_path / "a; b")]) is None
    assert (tmp_path / "a; b").exists()


def test_who_reads_nothing_is_no_failure() -> None:
    assert called("exec <&-; exit 0", b"x" * 1_000_000) is None


def test_what_a_command_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    assert called(f"sleep 1000 & echo $! > {tmp_path / 'pid'}") is None
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("hook", "trouble"),
    [
        (["no-such-program"], "failed: FileNotFoundError: "),
        ("no-such-program", "ended with status 127: "),
        ("echo --token abc >&2; exit 2", "ended with status 2: --token ***"),
        ("exit 2", "ended with status 2"),
    ],
)
def test_what_went_wrong_is_said(hook: Hook, trouble: str) -> None:
    said = called(hook)
    assert said is not None and said.startswith(trouble) and "abc" not in said


def test_a_server_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        said = called(f"http://127.0.0.1:{taken.getsockname()[1]}/x")
    assert said is not None and said.startswith("cannot be reached: ")


def test_what_is_shown_of_a_hook() -> None:
    assert is_url(" HTTPS://host/x") and not is_url("curl https://host") and not is_url(["https://host"])
    assert shown("https://hooks.example.org:8443/T0/B0/secret") == "https://hooks.example.org:8443/..."
    assert shown("mail --password=abc\nx") == r"mail --password=***\nx"
    assert shown(["a", "b"]) == "a b"
