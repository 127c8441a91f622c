"""Names, values and messages that try to steer the terminal, to look like other lines, or to run in a page."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys

import pytest
from rich.console import Console

import tuner as tune
from tests.tuner.ui.made import is_made
from tuner.cli import main
from tuner.error import SettingError
from tuner.progress.live import Progress
from tuner.progress.screen import NotebookScreen, PlainScreen, Status, TerminalScreen
from tuner.progress.table import TrialTable

STEERS = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\x08\r\x00"
"""Sets the title, clears the screen, colours, turns the direction of writing, overwrites."""
FORGED = "name\nok: all is well"
MARKUP = "[red]red[/red][link=http://evil]x[/link]:warning:"
SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
HOSTILE = STEERS + FORGED + MARKUP + SCRIPT


def train(config):
    tune.report({"loss": 1.0, f"metric {HOSTILE}": 2.0, "said": HOSTILE})
    raise ValueError(f"failed: {HOSTILE} password=hunter2")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    lines = io.StringIO()
    tune.run(
        train,
        name="e",
        storage_path=place,
        config={"value": HOSTILE, f"key {HOSTILE}": tune.choice([HOSTILE])},
        trial_name_creator=lambda trial: HOSTILE.replace("\x00", ""),
        executor="inline",
        raise_on_failed_trial=False,
        callbacks=[Progress(verbose=3, screen=PlainScreen(lines))],
        verbose=0,
    )
    return place / "e", lines.getvalue()


def lines_of(said: str) -> str:
    assert not HARMFUL.search(said), repr(said)
    assert "\nok: all is well" not in re.sub(r"(?s)Traceback.*", "", said), "a name looks like a line of ours"
    return said


def test_plain_progress_shows_the_escapes(experiment):
    assert "\\x1b]0;owned" in lines_of(experiment[1])
    assert "hunter2" not in experiment[1]


@pytest.mark.parametrize("arguments", [["show"], ["show", "0"], ["show", "0", "--why"], ["verify"], ["retention"]])
def test_commands_show_the_escapes(experiment, capsys, arguments):
    more = ["--policy", "latest:1"] if arguments == ["retention"] else []
    main([arguments[0], str(experiment[0]), *arguments[1:], *more])
    lines_of("".join(capsys.readouterr()))


def test_ls_and_errors_show_the_escapes(experiment, capsys, tmp_path):
    main(["ls", str(experiment[0].parent)])
    for verb in ("show", "verify", "ls"):
        main([verb, str(tmp_path / STEERS.replace("\x00", ""))])
    main(["show", str(experiment[0]), STEERS])
    lines_of("".join(capsys.readouterr()))


WARNS = """
import logging, sys
from tuner.cli import ls, main
ls.run = lambda arguments: logging.getLogger("tuner.some").warning("odd: %s password=hunter2", sys.argv[1])
main(["ls"])
"""


def test_a_warning_in_a_command_shows_the_escapes():
    hostile = HOSTILE.replace("\x00", "")
    ended = subprocess.run([sys.executable, "-c", WARNS, hostile], capture_output=True, text=True, check=True)
    said = ended.stderr
    assert not HARMFUL.search(said) and "warning: odd: " in said and "hunter2" not in said


def test_the_live_view_shows_text_and_no_markup():
    console = Console(file=io.StringIO(), force_terminal=True, width=400, color_system="truecolor")
    screen = TerminalScreen(console)
    screen.line(HOSTILE)
    status = Status([HOSTILE], TrialTable(["trial", HOSTILE], [[HOSTILE, HOSTILE]]))
    screen.show(status)
    screen.final(status)
    said = console.file.getvalue()
    assert "\x1b]" not in said and "\x07" not in said and "\u202e" not in said and "\x9b" not in said
    assert "[red]red[/red]" in said and ":warning:" in said
    assert "\x1b[2J" not in said and "\x1b[31m" not in said


def test_a_notebook_and_the_report_show_text_and_run_nothing(experiment, tmp_path):
    pages = []
    status = Status([HOSTILE], TrialTable(["trial", HOSTILE], [[HOSTILE]]))
    NotebookScreen(lambda made, **how: pages.append(made._repr_html_())).show(status)
    found = tune.ExperimentAnalysis(experiment[0])
    if is_made:
        found.report(str(tmp_path / "report.html"), metric="loss", mode="min")
        pages.append((tmp_path / "report.html").read_text().partition('<script type="module">')[0])
    for page in pages:
        assert "<script>alert" not in page and "<img src=x" not in page
        assert "\x1b" not in page


def test_json_for_programs_says_everything_as_it_is(experiment, capsys):
    main(["show", str(experiment[0]), "0", "--json"])
    said = capsys.readouterr().out
    assert json.loads(said)["config"]["value"] == HOSTILE
    assert not HARMFUL.search(said)


def test_errors_of_settings_show_the_escapes():
    with pytest.raises(SettingError, match="not accepted") as refused:
        tune.run(train, name=STEERS)
    assert not HARMFUL.search(str(refused.value))
    with pytest.raises(SettingError, match="mode") as refused:
        tune.run(train, metric="loss", mode=STEERS)
    assert not HARMFUL.search(str(refused.value))


def test_a_command_with_a_token_is_not_written_down(tmp_path):
    command = "env TOKEN=hunter2 cp -rT {source} {target}"
    config = tune.SyncConfig(upload_dir=str(tmp_path / "copies"), syncer=command)
    tune.run(
        lambda config: tune.report({"loss": 1}),
        name="e",
        storage_path=tmp_path,
        executor="inline",
        verbose=0,
        sync_config=config,
    )
    assert "hunter2" not in (tmp_path / "e" / "experiment.json").read_text()
