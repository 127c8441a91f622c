"""`command:` in a config file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.trainables.command.programs import written
from tuner.cli import main
from tuner.cli.config_file import load
from tuner.error import SettingError

TEXT = """
command: "{python} {train} --lr {{lr}} --out {{trial_dir}} [[--resume {{checkpoint}}]]"
metrics: {{jsonl: "{{trial_dir}}/log.jsonl", step: epoch}}
checkpoints: {{glob: "{{trial_dir}}/epoch-(?P<step>[0-9]+)", complete: renamed}}
metric: loss
mode: min
storage_path: {place}
param_space:
  lr: {{grid_search: [0.25, 0.5]}}
verbose: 0
"""


def config(directory: Path, text: str) -> Path:
    path = directory / "c.yaml"
    path.write_text(text)
    return path


def test_a_file_with_a_command_runs_and_resumes(tmp_path: Path) -> None:
    text = TEXT.format(python=sys.executable, train=written(tmp_path), place=tmp_path / "results")
    assert main(["run", str(config(tmp_path, text))]) == 0
    place = tmp_path / "results" / "c"
    assert len(list(place.glob("*/checkpoint_*"))) == 12
    kept = yaml.safe_load((place / "config.yaml").read_text())
    assert kept["command"]["metrics"]["step"] == "epoch" and "trainable" not in kept
    assert main(["resume", str(place)]) == 0


def test_arguments_stand_below_as_well_and_files_lie_beside(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text('{"lr": 1}')
    path = config(
        tmp_path,
        "command:\n"
        "  command: [train, '{config_file}']\n"
        "  metrics: {regex: 'loss=(?P<loss>[0-9.]+)'}\n"
        "  config: {file: base.json, set: {lr: lr}}\n"
        "  stop_grace_s: 3\n",
    )
    trainable = load(path).load_trainable()
    assert trainable.settings.stop_grace_s == 3 and trainable.settings.edited.name == "base.json"
    assert trainable.__name__ == "train"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command: train {lr}\n", "metrics is missing"),
        ("metrics: {jsonl: x}\n", "goes with `command:`"),
        ("command: a {lr}\ntrainable: a.py:b\nmetrics: {regex: '(?P<a>.)'}\n", "exclude each other"),
        ("command: {command: a, metric: {}}\n", "did you mean 'metrics'"),
        ("command: {command: a, metrics: {}}\nmetrics: {}\n", "give it once"),
        ("command: a b\nmetrics: {regex: '(?P<a>.)'}\n", "nothing of the config"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingError, match=f"c.yaml: .*{said}"):
        load(config(tmp_path, text))


def test_a_setting_is_changed_from_the_command_line(tmp_path: Path) -> None:
    path = config(tmp_path, "command: 'a {lr}'\nmetrics: {regex: '(?P<a>.)'}\n")
    assert load(path, ["metrics.regex=(?P<b>x)"]).load_trainable().settings.metrics.patterns == ("(?P<b>x)",)


@pytest.mark.docs
def test_the_pages_files_are_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "commands.md").read_text("utf-8")
    (tmp_path / "base.yaml").write_text("optimizer: {lr: 1}\nlayers: [{width: 8}]\n")
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert len(blocks) == 2
    for block in blocks:
        described = load(config(tmp_path, block))
        described.load_trainable().checked_space(described.arguments()["config"])
