"""Addresses of hosts, the command that reaches one, and what a failure there means."""

from __future__ import annotations

import errno
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.errors import AccessRefusedError, InvalidSettingError, StoreMissingError, TransferError
from trainables.transfer import programs, ssh
from trainables.transfer.programs import Ended
from trainables.transfer.ssh import Address, Ssh, failure, is_address, parse

URI = "me@host:/runs"


@pytest.mark.parametrize(
    ("uri", "address", "login", "rsync"),
    [
        ("host:/a/b", Address("", "host", "/a/b"), "host", "host"),
        ("me@host:/a//b/./c/", Address("me", "host", "/a/b/c"), "me@host", "me@host"),
        ("me@host:a", Address("me", "host", "./a"), "me@host", "me@host"),
        ("host:~/a", Address("", "host", "./a"), "host", "host"),
        ("host:~", Address("", "host", "./"), "host", "host"),
        ("host:", Address("", "host", "./"), "host", "host"),
        ("host:/", Address("", "host", "/"), "host", "host"),
        ("me@[fe80::1%eth0]:/a", Address("me", "[fe80::1%eth0]", "/a"), "me@fe80::1%eth0", "me@[fe80::1%eth0]"),
        ("a.b-c+d@10.0.0.1:/a b;$(x)", Address("a.b-c+d", "10.0.0.1", "/a b;$(x)"), "a.b-c+d@10.0.0.1",
         "a.b-c+d@10.0.0.1"),
    ],
)  # fmt: skip
def test_an_address_is_taken_apart(uri: str, address: Address, login: str, rsync: str) -> None:
    assert is_address(uri)
    assert parse(uri) == address
    assert (address.login, address.rsync) == (login, rsync)


@pytest.mark.parametrize(
    "uri",
    ["/path", "host", "-oProxyCommand=touch x:/path", "a b:/path", "$(x):/path", "host::module", "-l@host:/path"]
    + ["user@-host:/path", "host:/a/../b", "host:..", "host:~other/x", "host:/nul\0", "@host:/x", ":/x", ""],
)
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSettingError):
        parse(uri)


@given(st.text(st.sampled_from("a-@:[]./~ $;\n0"), max_size=12))
def test_neither_host_nor_user_is_ever_an_option_and_no_path_leads_up(uri: str) -> None:
    try:
        address = parse(uri)
    except InvalidSettingError:
        return
    assert not address.login.startswith("-") and not address.host.startswith("-")
    assert not set(address.login) & set(" $;\n/")
    assert address.path.startswith(("/", "./")) and ".." not in address.path.split("/")
    assert is_address(uri)


# --- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run; the user's configuration shares no connections."""
    ran: list[list[str]] = []

    def run(program: list[str], **more: object) -> Ended:
        ran.append([str(word) for word in program])
        return Ended(0, b"controlpath none\n", "", False)

    monkeypatch.setattr(programs, "run", run)
    return ran


def options(command: list[str]) -> dict[str, str]:
    """The `-o` options of a command."""
    pairs = [after for before, after in zip(command, command[1:], strict=False) if before == "-o"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_nobody_is_asked_and_a_dead_connection_is_noticed(answers: list[list[str]]) -> None:
    made = Ssh(parse(URI), key=Path("/my key"), port=2222, config=Path("/config"), timeout_s=60)

    command = made.command(5)

    assert command[0] == "ssh"
    found = options(command)
    assert (found["BatchMode"], found["IdentitiesOnly"], found["ConnectTimeout"]) == ("yes", "yes", "5")
    assert (found["ServerAliveInterval"], found["ServerAliveCountMax"]) == ("15", "3")
    for option, value in (("-i", "/my key"), ("-p", "2222"), ("-F", "/config")):
        assert command[command.index(option) + 1] == value
    made.disconnect()


def test_no_time_is_ever_none_at_all(answers: list[list[str]]) -> None:
    made = Ssh(parse(URI), timeout_s=0.5)

    found = options(made.command(0.2))

    assert (found["ServerAliveInterval"], found["ConnectTimeout"]) == ("1", "1"), "0 would be for ever"
    made.disconnect()


def test_one_connection_is_shared_and_gone_with_its_directory(
    answers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_LONGEST_SOCKET", 1000)  # wherever temporary directories are
    made = Ssh(parse(URI), timeout_s=60)

    first, second = (options(made.command(5))["ControlPath"] for _ in range(2))

    assert first == second and Path(first).parent.is_dir()
    assert sum("-G" in program for program in answers) == 1, "the configuration is read once"
    made.disconnect()
    assert not Path(first).parent.exists()
    made.disconnect()
    assert options(made.command(5))["ControlPath"] != first
    made.disconnect()


def test_the_users_own_shared_connection_is_left_to_him(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Ended(0, b"user me\ncontrolpath /home/me/.ssh/cm\n", "", False)
    monkeypatch.setattr(programs, "run", lambda program, **more: shared)

    assert "ControlPath" not in options(Ssh(parse(URI), timeout_s=60).command(5))


def test_a_directory_too_long_for_a_socket_means_none_is_shared(
    answers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_LONGEST_SOCKET", 5)
    made = Ssh(parse(URI), timeout_s=60)

    found = options(made.command(5))

    assert found["ControlPath"] == "none" and "ControlMaster" not in found
    made.disconnect()


def test_a_script_runs_in_a_posix_shell_with_its_arguments_as_they_are(answers: list[list[str]]) -> None:
    made = Ssh(parse(URI), timeout_s=60)
    script, arguments = 'printf "%s|" "$@"', ["a b", "$(touch x)", "it's", "-n", ""]

    made.run(script, *arguments, timeout_s=10)
    made.disconnect()

    command = answers[-1]
    assert command[-3:-1] == ["--", "me@host"]
    done = subprocess.run(["sh", "-c", command[-1]], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{argument}|" for argument in arguments)


@given(st.lists(st.text(st.sampled_from("ab '\"\\$"), max_size=5), min_size=1, max_size=4))
def test_the_command_as_one_text_is_the_same_words_for_rsync(words: list[str]) -> None:
    made = Ssh(parse(URI), timeout_s=60)
    made.command = lambda connect_s: list(words)  # type: ignore[method-assign]

    text = made.as_option(5)

    # rsync's own rule: a quote doubled inside of quotes is one
    assert [word[1:-1].replace("''", "'") for word in _quoted(text)] == words


def _quoted(text: str) -> list[str]:
    found, rest = [], text
    while rest:
        end = 1
        while rest[end : end + 2] == "''" or rest[end] != "'":
            end += 2 if rest[end : end + 2] == "''" else 1
        found.append(rest[: end + 1])
        rest = rest[end + 1 :].removeprefix(" ")
    return found


# --- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind", "transient", "remedy"),
    [
        ("Host key verification failed.", AccessRefusedError, False, "compare the key"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", AccessRefusedError, False, "known_hosts"),
        ("me@host: Permission denied (publickey).", AccessRefusedError, False, "`ssh me@host` must work"),
        ("Received disconnect: Too many authentication failures", AccessRefusedError, False, "refused the key"),
        ("ssh: Could not resolve hostname host", StoreMissingError, True, "no host of that name"),
        ("bash: rsync: command not found", TransferError, False, "apt-get install rsync"),
        ("rsync: write failed: No space left on device (28)", TransferError, True, "its disk is full"),
        ("mkdir: Read-only file system", TransferError, False, "choose another directory"),
        ('rsync: mkdir "/x" failed: Permission denied (13)', AccessRefusedError, False, "may not write there"),
        ("ssh: connect to host h port 22: Connection refused", StoreMissingError, True, "does not answer"),
        ("kex_exchange: Connection closed by remote host", StoreMissingError, True, "does not answer"),
        ("write: Broken pipe\nNo space left on device", TransferError, True, "its disk is full"),
    ],
)
def test_a_failure_has_its_cause_and_what_can_be_done(
    said: str, kind: type[TransferError], transient: bool, remedy: str
) -> None:
    found = failure(URI, "copy x", Ended(255, b"", said, False))

    assert type(found) is kind and found.transient is transient
    assert str(found).startswith(f"{URI}: could not copy x: ") and remedy in str(found)
    assert said.splitlines()[-1].strip() in str(found)


def test_a_full_disk_over_there_keeps_its_number() -> None:
    assert failure(URI, "copy", Ended(11, b"", "No space left on device", False)).errno == errno.ENOSPC


@pytest.mark.parametrize(("code", "again"), [(1, False), (2, False), (127, False), (23, True), (12, True), (-9, True)])
def test_what_would_be_the_same_at_the_next_try_is_not_tried_again(code: int, again: bool) -> None:
    found = failure(URI, "copy", Ended(code, b"", "something new", False))

    assert type(found) is TransferError and found.transient is again
    assert "(something new)" in str(found)


def test_one_that_did_not_end_in_time_did_not_answer() -> None:
    found = failure(URI, "copy", Ended(-15, b"", "", True))

    assert type(found) is StoreMissingError and found.transient
    assert str(found) == f"{URI}: could not copy: it did not answer in time"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed: apt-get install openssh-client")
def test_what_is_real_is_what_is_tested() -> None:
    """ssh itself takes the options, and says what the words above are compared with."""
    made = Ssh(parse("nobody@127.0.0.1:/x"), port=1, timeout_s=8)
    try:
        ended = made.run("true", timeout_s=8)
    finally:
        made.disconnect()

    found = failure("nobody@127.0.0.1:/x", "look", ended)
    assert type(found) is StoreMissingError and found.transient
    assert shlex.split(ended.err)[0] == "ssh:"
