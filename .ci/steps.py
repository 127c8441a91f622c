"""Run the steps of CI: set-up, lint, tests, documentation and wide tests, each with the command that a person uses.

The output is printed and kept in `${CI_LOG_DIR:-/tmp/tuner-ci}/COMMIT/log.txt`, beside the tests' results (test.xml,
test-wide.xml). Its last 100 lines are a summary: each failed test or step with the end of its output, each skip with
its reason, the minutes of each step, the closing lines of pytest and how many tests began.

The wide tests start processes and servers, and are exposed to noise of the machine. If at most 10 of them fail, these
run once more, alone. One that passes then is printed as FLAKY, with its first failure, and does not fail the run.
There is no second run where pytest did not come to its end.

Exit status: 0 if all steps passed, else that of the first failed step: 10 set-up, 11 lint, 12 tests, 13 wide tests,
15 documentation. 14: the time limit (CI_LIMIT_MINUTES, by default 80) is over; the summary names the tests that were
running. A test that would begin after three quarters of it is skipped ("NOT RUN: time"), which is no failure.

Temporary files are in a directory of this run, in /dev/shm where that has 4 GB free, and are removed at the end.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMMARY_LINES = 100
FAILURE_LINES = 30
SKIP_LINES = 20
SECOND_RUN_TESTS = 10
SECOND_RUN_S = 8 * 60
TIME_LIMIT = 14
LAST_BEGIN = 0.75
"""The part of the time limit in which tests begin."""
NOT_RUN = "NOT RUN: time"
"""The reason of a test that was not begun, as tests/running_tests.py gives it."""
MEMORY_BYTES = 4 * 10**9
"""How much /dev/shm has to have free for temporary files."""
CLOSING_LINE = re.compile(r"=+ .*(passed|failed|error|skipped|deselected|no tests ran).* =+")


@dataclass
class Step:
    """One command of CI.

    Args:
        name: its name in the summary.
        target: the target of the Makefile.
        status: the exit status of CI if this step is the first that fails.
        tests: it runs pytest.
    """

    name: str
    target: str
    status: int
    tests: bool = False
    minutes: float | None = None
    """How long it took; None: it did not run."""
    failed: bool = False
    tail: tuple[str, ...] = ()
    """The last lines of its output."""
    closing: str = ""
    """The closing line of pytest."""
    complete: bool = False
    """All tests ran: the exit status of pytest was 0 or 1."""


@dataclass
class Problem:
    """What the summary shows of a failed test or step: the last lines of its output.

    Args:
        name: the id of the test, or the name of the step.
        message: what follows it in the headline.
        lines: the end of its output.
        flaky: it passed in its second run.
    """

    name: str
    message: str
    lines: list[str]
    flaky: bool = False

    @property
    def headline(self) -> str:
        return f"{'FLAKY' if self.flaky else 'FAILED'} {self.name} - {self.message[:160]}"


class TimeLimitError(Exception):
    """The time limit is over. Its arguments are the names of the tests that were running."""


class Runner:
    """Runs steps, prints their output, and keeps it in a file.

    Args:
        directory: where log.txt and the results of tests are written.
        limit_s: of all steps together, in seconds from now on.
    """

    def __init__(self, directory: Path, limit_s: float) -> None:
        self.directory = directory
        for file in directory.glob("*.xml"):
            file.unlink()
        self._log = (directory / "log.txt").open("wb")
        now = time.monotonic()
        self._deadline, self._last_begin = now + limit_s, now + limit_s * LAST_BEGIN

    def results(self, name: str) -> Path:
        """Return the file of a step's results: of its target, or of the second run."""
        return self.directory / f"{name}.xml"

    def run(self, step: Step, **variables: str) -> None:
        """Run a step to its end, with these environment variables.

        Raises:
            TimeLimitError: the deadline passed; the step's processes were killed.
        """
        began, tail = time.monotonic(), deque[str](maxlen=FAILURE_LINES)
        with tempfile.TemporaryDirectory(prefix="running-") as running:
            process = subprocess.Popen(
                ["make", step.target],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "JUNIT": str(self.results(step.target)),
                    "RUNNING_TESTS": running,
                    "LAST_BEGIN": str(self._last_begin),
                    **variables,
                },
                start_new_session=True,
            )
            # A thread, because a process that outlives the step can keep the pipe open.
            printer = threading.Thread(target=self._print, args=(process, step, tail), daemon=True)
            printer.start()
            try:
                step.failed = process.wait(max(0.0, self._deadline - time.monotonic())) != 0
            except subprocess.TimeoutExpired:
                step.failed = True
                names = running_tests(Path(running))
                end(process, signal.SIGINT)  # pytest writes the results so far
                raise TimeLimitError(*names) from None
            finally:
                end(process, signal.SIGKILL)
                printer.join(10)
                step.minutes, step.tail = (time.monotonic() - began) / 60, tuple(tail)
                step.complete = all_tests_ran(Path(running))

    def run_again(self, target: str, failed: list[Problem]) -> None:
        """Run failed tests of a target once more, alone, and mark those as flaky that pass."""
        results = self.results("second-run")
        ids = results.with_suffix(".txt")
        ids.write_text("".join(f"{problem.name}\n" for problem in failed))
        deadline = self._deadline
        self._deadline = self._last_begin = min(deadline, time.monotonic() + SECOND_RUN_S)
        with suppress(TimeLimitError):
            self.run(Step("second run", target, 0), JUNIT=str(results), ARGS=f"-n 0 {shlex.quote(f'@{ids}')}")
        self._deadline = deadline
        passed = passed_tests(results)
        for problem in failed:
            problem.flaky = problem.name in passed

    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        self._log.write(line)
        self._log.flush()

    def _print(self, process: subprocess.Popen[bytes], step: Step, tail: deque[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.write(line)
            text = line.decode("utf-8", "backslashreplace").rstrip()
            tail.append(text)
            if CLOSING_LINE.fullmatch(text):
                step.closing = text


def running_tests(directory: Path) -> list[str]:
    """Return the names that tests/running_tests.py wrote: of each test that has begun and not ended."""
    names = []
    for file in directory.glob("running-*"):
        with suppress(FileNotFoundError):  # this test has just ended
            names.append(file.read_text())
    return sorted(names)


def all_tests_ran(directory: Path) -> bool:
    """Return whether pytest ended by itself after its last test, as tests/running_tests.py wrote."""
    file = directory / "exit-status"
    return file.exists() and file.read_text() in ("0", "1")


def end(process: subprocess.Popen[bytes], signal_number: int) -> None:
    """Send a signal to the process group of a step, and wait up to 20 s for the end of its first process."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal_number)
        process.wait(20)


def test_cases(file: Path) -> list[ElementTree.Element]:
    """Return the tests in a file of results. There are none if pytest did not write it."""
    try:
        return list(ElementTree.parse(file).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        return []


def test_results(file: Path) -> tuple[list[Problem], dict[str, list[str]], int]:
    """Return failed tests, skipped ones by their reason, and the number of all."""
    failed: list[Problem] = []
    skipped: dict[str, list[str]] = {}
    cases = test_cases(file)
    for case in cases:
        for kind in ("failure", "error"):
            for each in case.iter(kind):
                message, _, _ = (each.get("message") or "").partition("\n")
                failed.append(Problem(test_id(case), message, (each.text or "").rstrip().splitlines()))
        for each in case.iter("skipped"):
            if each.get("type") != "pytest.xfail":
                skipped.setdefault(" ".join((each.get("message") or "").split()), []).append(test_id(case))
    # Of a test that fails at its end too, the first failure.
    first = {problem.name: problem for problem in reversed(failed)}
    return list(first.values())[::-1], skipped, len(cases)


def passed_tests(file: Path) -> set[str]:
    """Return the ids of the tests that passed."""
    cases = test_cases(file)
    return {test_id(case) for case in cases} - {test_id(case) for case in cases if len(case)}


def test_id(case: ElementTree.Element) -> str:
    """Return the id as pytest takes it. A module that cannot be imported has its dotted name."""
    names = (case.get("classname") or "").split(".")
    for end in range(len(names), 0, -1):
        file = f"{'/'.join(names[:end])}.py"
        if (ROOT / file).exists():
            return "::".join([file, *names[end:], str(case.get("name"))])
    return str(case.get("name"))


def summary(
    steps: list[Step], failed: list[Problem], skipped: dict[str, list[str]], running: tuple[str, ...], *ends: str
) -> list[str]:
    """Return at most `SUMMARY_LINES` lines that say what failed; `ends` are the last."""
    last = [f"RUNNING at the time limit: {name}" for name in running[:SKIP_LINES]]
    reasons = [f"SKIPPED [{len(names)}] {reason[:160]}: {names[0]}" for reason, names in sorted(skipped.items())]
    last += reasons[:SKIP_LINES]
    if len(reasons) > SKIP_LINES:
        last.append(f"... and {len(reasons) - SKIP_LINES} more reasons for skips")
    minutes = (f"{step.name} {'not run' if step.minutes is None else f'{step.minutes:.1f}'}" for step in steps)
    flaky, skips = sum(problem.flaky for problem in failed), sum(map(len, skipped.values()))
    last.append(f"flaky: {flaky}; skipped: {skips}; minutes: {', '.join(minutes)}")
    last += [step.closing for step in steps if step.tests and step.closing]
    last += ends
    room = SUMMARY_LINES - len(last) - 1
    shown = failed[:room] if len(failed) <= room else failed[: room - 1]
    each_lines = min(FAILURE_LINES, room // max(1, len(shown)) - 1)
    lines = ["=" * 30 + " summary " + "=" * 30]
    for problem in shown:
        lines += [problem.headline, *problem.lines[max(0, len(problem.lines) - each_lines) :]]
    if len(shown) < len(failed):
        lines.append(f"... and {len(failed) - len(shown)} more")
    return lines + last


def main() -> int:
    given = os.environ.get("CI_LIMIT_MINUTES") or "80"
    try:
        limit_s = float(given) * 60
    except ValueError:
        sys.exit(f"CI_LIMIT_MINUTES={given!r} is not accepted; it is a number of minutes")
    for name in ("ARGS", "MAKEFLAGS", "MFLAGS"):  # of a make around this one: they would leave out steps and tests
        os.environ.pop(name, None)
    directory = own_directory(Path(os.environ.get("CI_LOG_DIR") or "/tmp/tuner-ci").resolve(), commit())
    runner = Runner(directory, limit_s)
    # A shell starts its background commands with SIGINT and SIGQUIT ignored. A signal that has a handler here has its
    # default action in the steps, so that tests of Ctrl-C do not depend on how this was started.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    steps = [
        Step("set-up", "setup", 10),
        Step("lint", "lint", 11),
        Step("tests", "test", 12, tests=True),
        Step("documentation", "docs", 15),
        Step("wide tests", "test-wide", 13, tests=True),
    ]
    status, began = 0, 0
    running: tuple[str, ...] = ()
    problems: list[Problem] = []
    skipped: dict[str, list[str]] = {}
    os.environ.setdefault("SEED", str(int(time.time())))  # a second run draws the examples of the first
    with temporary_files() as os.environ["TMPDIR"]:
        for step in steps:
            try:
                runner.run(step)
            except TimeLimitError as error:
                status, running = TIME_LIMIT, error.args
            failed: list[Problem] = []
            if step.tests:
                failed, skips, count = test_results(runner.results(step.target))
                for reason, names in skips.items():
                    skipped.setdefault(reason, []).extend(names)
                began += count - len(skips.get(NOT_RUN, ()))
                step.failed = step.failed or not runner.results(step.target).exists()
            if step.target == "test-wide" and step.complete and 0 < len(failed) <= SECOND_RUN_TESTS:
                runner.run_again(step.target, failed)
                step.failed = not all(problem.flaky for problem in failed)
            if step.failed:
                status = status or step.status
                failed = failed or [Problem(f"STEP {step.name}", f"make {step.target}", list(step.tail))]
            problems += failed
            if status == TIME_LIMIT or (step.failed and step.target == "setup"):
                break
    counts = f"exit status {status}; {began} tests began, {len(skipped.get(NOT_RUN, ()))} did not"
    for line in summary(steps, problems, skipped, running, f"log and results: {directory}", counts):
        runner.write(f"{line}\n".encode("utf-8", "backslashreplace"))
    return status


@contextmanager
def temporary_files() -> Iterator[str]:
    """A directory for temporary files of all users, as /tmp is one, removed at the end."""
    memory = Path("/dev/shm")
    directory = tempfile.mkdtemp(prefix="ci-", dir=memory if holds_temporary_files(memory) else None)
    os.chmod(directory, 0o1777)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def holds_temporary_files(place: Path) -> bool:
    """Return whether a directory has room, and programs can be written there and run."""
    if not place.is_dir() or not os.access(place, os.W_OK):
        return False
    return shutil.disk_usage(place).free >= MEMORY_BYTES and not os.statvfs(place).f_flag & os.ST_NOEXEC


def own_directory(parent: Path, name: str) -> Path:
    """Return a directory that no other run writes to: of the commit's name, or with a number if it is in use."""
    for number in itertools.count(1):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends; its steps do not inherit it
        except BlockingIOError:
            os.close(lock)
        else:
            return directory
    raise AssertionError


def commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "no-commit"


if __name__ == "__main__":
    sys.exit(main())
