""".ci/run: its exit status and the end of its output name what failed."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import running_tests

CI = Path(__file__).parents[1] / ".ci"
NO_TESTS = 'echo "<testsuite/>" > "$(JUNIT)"'
PASSES = dict.fromkeys(("setup", "lint", "docs"), "@echo passes") | dict.fromkeys(("test", "test-wide"), f"@{NO_TESTS}")
PYTEST = f'@{sys.executable} -m pytest -p no:cacheprovider --junitxml="$(JUNIT)" $(or $(ARGS),tests/test_it.py)'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with .ci/run, in which `ci` runs it beside another Makefile."""
    project = tmp_path / "project"
    project.mkdir()
    shutil.copytree(CI, project / ".ci")
    (project / "tests").mkdir()
    shutil.copy(running_tests.__file__, project / "tests" / "conftest.py")
    return project


def environment(project: Path, recipes: dict[str, str], **variables: str) -> dict[str, str]:
    makefile = "".join(f"{target}:\n\t{recipe}\n" for target, recipe in {**PASSES, **recipes}.items())
    (project / "Makefile").write_text(makefile)
    names = ("PATH", "HOME", "LANG")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "CI_LOG_DIR": str(project.parent / "lo gs"), **variables}


def ci(project: Path, recipes: dict[str, str], *shell: str, **variables: str) -> tuple[int, list[str]]:
    """Return the exit status and the last 100 lines."""
    done = subprocess.run(
        [*shell, project / ".ci" / "run"],
        env=environment(project, recipes, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    (log,) = (project.parent / "lo gs").glob("*/log.txt")
    assert log.read_text() == done.stdout
    return done.returncode, done.stdout.splitlines()[-100:]


def test_all_steps_pass(project: Path) -> None:
    status, lines = ci(project, {})
    assert status == 0 and "minutes: set-up 0.0, lint 0.0, tests 0.0, documentation 0.0, wide tests 0.0" in "\n".join(
        lines
    )


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_is_given_the_file(project: Path, shell: str) -> None:
    assert ci(project, {"lint": "@exit 1"}, shell)[0] == 11


@pytest.mark.parametrize(
    ("target", "status"), [("setup", 10), ("lint", 11), ("test", 12), ("test-wide", 13), ("docs", 15)], ids=str
)
def test_a_failed_step_has_a_status_of_its_own_and_its_output_in_the_summary(
    project: Path, target: str, status: int
) -> None:
    ended, lines = ci(project, {target: "@seq 1 500; echo the very cause; exit 1", "test-wide": "@seq 1 500; exit 3"})
    assert ended == status
    after = lines[next(i for i, line in enumerate(lines) if line.endswith(f" - make {target}")) :]
    assert ("the very cause" in after) == (target != "test-wide")
    assert ("documentation not run" in "\n".join(lines)) == (target == "setup")


def test_failed_and_skipped_tests_are_named_with_the_end_of_their_failure(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        "import pytest\n"
        "def test_broken():\n    print('out')\n    left = list(range(40))\n    assert left == ['right']\n"
        "def test_left_out(): pytest.skip('no such program: apt-get install it')\n"
        "@pytest.fixture\ndef server(): raise OSError('port taken')\n"
        "def test_set_up(server): pass\n"
    )
    status, lines = ci(project, {"test": PYTEST, "lint": "@echo a line of ruff; exit 1"})
    text = "\n".join(lines)
    assert status == 11
    summary = text[text.index(" summary ") :]
    assert "FAILED tests/test_it.py::test_broken - AssertionError: assert [0, 1" in summary
    assert "tests/test_it.py:5: AssertionError" in summary
    assert "FAILED tests/test_it.py::test_set_up" in summary and "OSError: port taken" in summary
    assert "SKIPPED [1] no such program: apt-get install it: tests/test_it.py::test_left_out" in summary
    assert "a line of ruff" in summary
    assert lines[-3].startswith("=") and "1 failed, 1 skipped, 1 error" in lines[-3]
    assert lines[-1] == "exit status 11; 3 tests began, 0 did not"


def test_a_skip_is_no_failure(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("import pytest\ndef test_it(): pytest.skip('no fish')\n")
    status, lines = ci(project, {"test": PYTEST})
    assert status == 0 and "skipped: 1;" in "\n".join(lines)


def test_a_module_that_cannot_be_imported_is_named(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("import is_not_there\n")
    status, lines = ci(project, {"test": PYTEST})
    text = "\n".join(lines)
    assert status == 12 and "FAILED tests.test_it - collection failure" in text
    assert "No module named 'is_not_there'" in text[text.index(" summary ") :]


def test_many_failures_share_a_hundred_lines(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(300))\ndef test_it(n): assert n < 0, 'x\\n' * 50\n"
    )
    status, lines = ci(project, {"test": PYTEST})
    assert status == 12 and lines[0].endswith("summary " + "=" * 30)
    assert sum(line.startswith("FAILED tests/test_it.py::test_it[") for line in lines) > 90
    assert "more" in lines[-5]


FLAKY = """
import pathlib, pytest
FILE = pathlib.Path(__file__).with_name("ran")
@pytest.mark.parametrize("name", ["a b/$(exit 1)::'c'"])
def test_noise(name):
    ran = FILE.exists()
    FILE.touch()
    assert ran, "the machine was busy"
"""


IN_A_CLASS = """
class TestIt:
    @pytest.fixture
    def ended(self):
        yield
        assert self.ran, "and it failed at its end too"
    def test_noise(self, ended):
        file = FILE.with_name("ran in a class")
        self.ran = file.exists()
        file.touch()
        assert self.ran, "the machine was busy"
"""


def test_a_wide_test_that_passes_alone_is_flaky_and_no_failure(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(FLAKY + IN_A_CLASS)
    status, lines = ci(project, {"test-wide": PYTEST})
    text = "\n".join(lines)
    assert status == 0 and "FLAKY tests/test_it.py::test_noise[a b/$(exit 1)::'c'] - " in text
    assert "FLAKY tests/test_it.py::TestIt::test_noise - " in text
    assert "the machine was busy" in text[text.index(" summary ===") :] and "flaky: 2;" in text


def test_a_second_failure_fails_the_run(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(FLAKY + "def test_broken(): assert 0\n")
    status, lines = ci(project, {"test-wide": PYTEST})
    text = "\n".join(lines)
    summary = text[text.index(" summary ===") :]
    assert status == 13 and "flaky: 1;" in summary and "FLAKY tests/test_it.py::test_noise" in summary
    assert "FAILED tests/test_it.py::test_broken" in summary


def test_what_fails_beside_no_process_has_no_second_run(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(FLAKY)
    status, lines = ci(project, {"test": PYTEST})
    assert status == 12 and "flaky: 0;" in "\n".join(lines)


def test_many_failures_have_no_second_run(project: Path) -> None:
    broken = "@pytest.mark.parametrize('n', range(10))\ndef test_broken(n): assert 0\n"
    (project / "tests" / "test_it.py").write_text(FLAKY + broken)
    status, lines = ci(project, {"test-wide": PYTEST})
    assert status == 13 and "flaky: 0;" in "\n".join(lines)


def test_a_run_that_was_broken_off_is_no_success_although_what_failed_passes_alone(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        FLAKY + "def test_broken_off():\n    import os, signal\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "def test_never_begun(): assert 0\n"
    )
    status, lines = ci(project, {"test-wide": PYTEST})
    text = "\n".join(lines)
    assert status == 13 and "FAILED tests/test_it.py::test_noise" in text and "flaky: 0;" in text


def test_at_the_time_limit_the_running_tests_are_named_and_ended(project: Path) -> None:
    pid = project / "pid"
    (project / "tests" / "test_it.py").write_text(
        "import os, pathlib, time\n"
        f"def test_endless():\n    pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n    time.sleep(1000)\n"
    )
    status, lines = ci(project, {"test": PYTEST}, CI_LIMIT_MINUTES="0.15")
    assert status == 14 and "RUNNING at the time limit: tests/test_it.py::test_endless" in lines
    assert "documentation not run" in "\n".join(lines)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_late_tests_are_not_begun_and_that_is_no_failure(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text(
        "import time\ndef test_long(): time.sleep(14)\ndef test_late(): assert 0\ndef test_later(): assert 0\n"
    )
    status, lines = ci(project, {"test-wide": PYTEST}, CI_LIMIT_MINUTES="0.3")
    assert status == 0 and lines[-1] == "exit status 0; 1 tests began, 2 did not"
    assert "SKIPPED [2] NOT RUN: time: tests/test_it.py::test_late" in lines


def test_temporary_files_are_gone_at_the_end_and_every_user_can_have_some(project: Path) -> None:
    recipe = f"@{NO_TESTS}; cd $$TMPDIR && touch left && pwd && stat -c %a ."
    status, lines = ci(project, {"test": recipe})
    place = next(line for line in lines if "/ci-" in line)
    assert status == 0 and lines[lines.index(place) + 1] == "1777" and not Path(place).exists()


def test_ctrl_c_reaches_tests_that_a_shell_runs_in_its_background(project: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    recipe = f'@{NO_TESTS}; {sys.executable} -c "{code}"'
    script = f"{project}/.ci/run & wait $!"
    done = subprocess.run(
        ["sh", "-c", script], env=environment(project, {"test": recipe}), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "True" in done.stdout.splitlines(), done.stdout


def test_a_signal_ends_the_step_too(project: Path) -> None:
    recipes = {"setup": f'@{sys.executable} -c "import time; print(1, flush=True); time.sleep(1000)"'}
    command, variables = project / ".ci" / "run", environment(project, recipes)
    with subprocess.Popen([command], env=variables, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "1\n"
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == ""  # the last process that could write to it has ended
    assert running.returncode == 128 + signal.SIGTERM


def test_what_a_make_around_it_wants_leaves_no_test_out(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("def test_it(): pass\n")
    status, lines = ci(project, {"test": PYTEST}, MAKEFLAGS="n", ARGS="--collect-only")
    assert status == 0 and lines[-1] == "exit status 0; 1 tests began, 0 did not"


def test_tests_without_results_are_no_success(project: Path) -> None:
    assert ci(project, {"test-wide": "@true"})[0] == 13


def test_a_limit_that_is_no_number_is_named(project: Path) -> None:
    done = subprocess.run(
        [project / ".ci" / "run"], env=environment(project, {}, CI_LIMIT_MINUTES="x"), capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stderr == "CI_LIMIT_MINUTES='x' is not accepted; it is a number of minutes\n"


def test_two_runs_of_a_commit_keep_their_logs_apart(project: Path) -> None:
    lock = project / "lock"
    variables = environment(project, {"lint": f"@flock --shared {lock} echo one of two"})
    command = [project / ".ci" / "run"]
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        runs = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for run in runs:
            assert run.stdout is not None and run.stdout.readline() == "passes\n"  # it has its log
    printed = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    logs = [log.read_text() for log in (project.parent / "lo gs").glob("*/log.txt")]
    assert sorted(logs) == sorted(f"passes\n{rest}" for rest in printed)
