"""The user's token: one file, nobody else's."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest

from tuner.ui.token_file import token_file, user_token


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_it_is_kept_for_the_user_alone_and_used_again() -> None:
    token = user_token()
    assert len(token) >= 32 and user_token() == token
    assert token_file().stat().st_mode & 0o777 == 0o600
    assert token_file().parent.stat().st_mode & 0o077 == 0
    assert [path.name for path in token_file().parent.iterdir()] == ["ui-token"]


@pytest.mark.parametrize("damage", ["mode", "link", "empty", "rubbish", "fifo"])
def test_what_others_could_know_is_no_token(damage: str, caplog: pytest.LogCaptureFixture, home: Path) -> None:
    known, file = user_token(), token_file()
    if damage == "mode":
        file.chmod(0o640)
    elif damage == "link":
        (home / "there").write_text(known)
        (home / "there").chmod(0o600)
        file.unlink()
        file.symlink_to(home / "there")
    elif damage == "fifo":
        file.unlink()
        os.mkfifo(file, 0o600)
    else:
        file.write_text("" if damage == "empty" else "a b c\n" * 9)
    with caplog.at_level(logging.WARNING):
        made = user_token()
    assert made != known and user_token() == made and "another one is made" in caplog.text
    assert not file.is_symlink() and file.stat().st_mode & 0o777 == 0o600


def test_servers_that_start_at_once_have_one_token() -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(user_token())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and set(found) == {user_token()}


def test_where_no_file_can_be_it_is_one_for_now(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "state").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert user_token() != user_token()
    assert "cannot keep the token" in caplog.text
