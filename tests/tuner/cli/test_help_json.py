"""`tuner --help --json`, and what verbs say to programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.replicated import answer
from tuner.cli import main, parser

WITHOUT_JSON = {"ui", "watch", "mcp", "prove", "completion"}
"""They serve, follow or print something that is a program's already."""


def _help(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer(capsys, *words, "--help", "--json"))
    return told


def test_all_verbs_and_their_arguments_are_told_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    told = _help(capsys)

    verbs = {verb["name"]: verb for verb in told["verbs"]}
    (known,) = (action.choices for action in parser()._actions if action.dest == "verb")
    assert set(verbs) == set(known) and all(verb["help"] for verb in verbs.values())
    arguments = {each["name"]: each for each in verbs["mcp"]["arguments"]}
    assert arguments["places"]["takes"] == "any" and not arguments["places"]["required"]
    assert arguments["--allow-start"]["repeatable"] and arguments["--allow-start"]["metavar"] == "CONFIG.yaml"
    assert arguments["--allow-orders"]["takes"] == 0
    assert {each["name"] for each in verbs["resume"]["arguments"]} >= {"experiment", "--errored"}
    assert ["errored", "restart_errored"] in verbs["resume"]["at_most_one_of"]
    assert set(told["exit_statuses"]) == {"0", "1", "2", "130"}
    assert "--until-stdin-ends" not in str(told)


def test_one_verb_is_told_alone(capsys: pytest.CaptureFixture[str]) -> None:
    (verb,) = _help(capsys, "cp")["verbs"]

    assert verb["name"] == "cp" and [each["name"] for each in verb["arguments"]][:2] == ["source", "target"]


def test_every_verb_but_a_few_answers_programs(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = {
        verb["name"] for verb in _help(capsys)["verbs"] if "--json" not in {each["name"] for each in verb["arguments"]}
    }
    assert lacking == WITHOUT_JSON


def test_the_help_for_people_says_what_exit_statuses_mean() -> None:
    assert "exit status: 0: it was done; 1:" in " ".join(parser().format_help().split())


def test_a_run_answers_with_what_came_of_it_and_nothing_else(config: Path) -> None:
    words = [sys.executable, "-m", "tuner.cli", "run", str(config), "--set", "verbose=1", "--json"]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    assert told["path"] == str(config.parent / "results" / "small") and not told["failed"]
    assert told["best"]["config"] and Path(told["best"]["checkpoint"]).is_dir()


def test_verbs_that_copy_and_write_answer_with_an_object(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> Any:
        return json.loads(answer(capsys, *words, "--json"))

    copied = told("cp", str(experiment), f"{tmp_path}/copies/")
    assert copied["place"] == f"{tmp_path}/copies/{experiment.name}" and copied["checkpoints"] > 0
    assert told("export", str(experiment), "-o", f"{tmp_path}/rows.csv")["rows"] > 0
    facts = [json.loads(line) for line in answer(capsys, "log", str(experiment), "--json").splitlines()]
    assert facts[0]["kind"] == "generation" and facts[-1]["kind"] == "run_ended"
    assert [fact["n"] for fact in facts] == list(range(1, len(facts) + 1))
    one = [json.loads(line) for line in answer(capsys, "log", str(experiment), "1", "--json").splitlines()]
    assert {fact.get("trial") or fact["ref"]["trial_id"] for fact in one} == {one[0]["trial"]}
    assert told("sync", str(experiment), "--to", f"{tmp_path}/replica/{experiment.name}")["complete"]
    assert main(["rm", copied["place"], "--json"]) == 2
    assert "--json goes with --yes" in capsys.readouterr().err
    gone = told("rm", copied["place"], "--now", "--yes")
    assert gone["deleted"] and not Path(copied["place"]).exists()
    assert told("resume", str(experiment))["trials"] > 0
