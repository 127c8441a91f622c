"""Tests mirror the packages: a larger module has a test file of its name, or a row here says which one covers it."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trainables", "tuner", "hydra_plugins")
LARGE = 120
"""Lines, above which a module is to have tests of its own. What an `__init__` names is held by `test_exports.py`."""

COVERED_BY: dict[str, str] = {
    "tuner/executors/slurm/arrivals": "tests/failures/test_slurm_jobs.py",
    "tuner/executors/slurm/executor": "tests/failures/test_slurm_mistakes.py",
    "tuner/executors/slurm/slurm_run": "tests/failures/test_slurm_jobs.py",
    "tuner/executors/slurm/partitions": "tests/tuner/executors/slurm/test_commands.py",
    "trainables/checkpoint_facts": "tests/trainables/test_checkpoint.py",
    "trainables/command/life": "tests/trainables/command/test_command.py",
    "tuner/asking/asked_trial": "tests/tuner/asking/test_ask_session.py",
    "tuner/asking/caller_door": "tests/tuner/executors/callers/test_far_doors.py",
    "tuner/executors/callers/caller_words": "tests/tuner/executors/callers/test_far_doors.py",
    "tuner/asking/caller_link": "tests/tuner/asking/test_ask_session.py",
    "tuner/executors/callers/caller_executor": "tests/tuner/executors/callers/test_doors.py",
    "tuner/executors/callers/caller_lines": "tests/tuner/executors/callers/test_doors.py",
    "tuner/syncer/brief_owner": "tests/tuner/orders/test_unattended.py",
    "tuner/cli/trial_page": "tests/tuner/cli/test_show.py",
    "tuner/ui/event_stream": "tests/tuner/ui/test_app.py",
    "tuner/ui/served_places": "tests/tuner/ui/test_app.py",
    "tuner/ui/trial_columns": "tests/tuner/ui/test_app.py",
    "tuner/ui/ui_server": "tests/tuner/cli/test_ui.py",
    "tuner/ui/sources": "tests/tuner/ui/test_fact_index.py",
    "tuner/ui/trial_story": "tests/tuner/ui/test_views.py",
    "tuner/ui/views/overview": "tests/tuner/ui/test_app.py",
    "tuner/ui/views/machines": "tests/tuner/ui/test_live_experiment.py",
    "tuner/ui/views/searched_space": "tests/tuner/ui/test_views.py",
    "tuner/ui/views/trial_page": "tests/tuner/ui/test_views.py",
}
"""Larger modules whose tests stand in another file: `"tuner/x/y": "tests/..."`."""


@cache
def large() -> frozenset[str]:
    """The larger modules, as `tuner/driver/loop`."""
    return frozenset(
        file.relative_to(ROOT).with_suffix("").as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file.name != "__init__.py" and len(file.read_text("utf-8").splitlines()) > LARGE
    )


def has_its_own(module: str) -> bool:
    """There is a `test_` file of its name in the folder that mirrors its own, or in one above that."""
    path = PurePosixPath(module)
    return any((ROOT / "tests" / folder / f"test_{path.name}.py").is_file() for folder in path.parents[:-1])


def test_every_larger_module_has_tests_under_its_name_or_a_row() -> None:
    alone = {module for module in large() if not has_its_own(module)}
    assert sorted(alone - set(COVERED_BY)) == [], "without tests: write tests/<package>/.../test_<module>.py"
    assert sorted(set(COVERED_BY) - alone) == [], "rows that nothing needs any more"


def test_the_rows_are_few_and_none_is_of_how_a_run_starts_and_goes() -> None:
    assert len(COVERED_BY) < 25
    assert [module for module in COVERED_BY if module.startswith(("tuner/driver/", "tuner/opening/"))] == []


def test_rows_name_files_of_tests() -> None:
    files = {PurePosixPath(file) for file in COVERED_BY.values()}
    assert [file for file in files if not file.name.startswith("test_") or not (ROOT / file).is_file()] == []
