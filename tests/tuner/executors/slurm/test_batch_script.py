"""The text that sbatch gets."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.error import SettingError
from tuner.executors.slurm.batch_options import BatchOptions
from tuner.executors.slurm.batch_script import script

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10), min_size=1)


def test_setup_comes_before_the_command_and_is_the_only_shell_text() -> None:
    options = BatchOptions(setup="module load cuda\nexport A=1", sbatch={"qos": "high"})
    text = script(options, name="t-1", output=Path("/a/%j.out"), command=["run", "$HOME", "a;b"], cpus=2, gpus=1)
    assert text.splitlines()[-4:] == [
        "#SBATCH --gpus-per-node=1",
        "module load cuda",
        "export A=1",
        "exec run '$HOME' 'a;b'",
    ]


def test_what_the_options_say_of_cpus_and_gpus_holds() -> None:
    options = BatchOptions(cpus_per_task=4, sbatch={"gres": "gpu:a100:2"})
    text = script(options, name="t", output=Path("/a/%j"), command=["x"], cpus=2, gpus=1)
    assert "--cpus-per-task=4" in text
    assert "--cpus-per-task=2" not in text
    assert "--gpus-per-node" not in text


def test_a_job_of_several_nodes_starts_one_on_each_by_srun() -> None:
    text = script(BatchOptions(sbatch={"nodes": 3}), name="t", output=Path("/a/%j"), command=["x"], signal_s=30)
    assert "exec srun --nodes=3 --ntasks=3 --ntasks-per-node=1" in text
    assert "#SBATCH --signal=USR1@30" in text  # to the steps
    assert "#SBATCH --nodes=3" in text
    assert "#SBATCH --nodes=1" not in text


def test_a_job_is_requeued_when_it_is_asked_for() -> None:
    given = {"name": "t", "output": Path("/a/%j"), "command": ["x"]}
    assert "#SBATCH --no-requeue\n" in script(BatchOptions(), **given)  # type: ignore[arg-type]
    again = script(BatchOptions(sbatch={"requeue": True}), **given)  # type: ignore[arg-type]
    assert "#SBATCH --requeue\n" in again
    assert "no-requeue" not in again


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a,b", "x" * 201, "$(id)"])
def test_a_name_that_would_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="job name="):
        script(BatchOptions(), name=name, output=Path("/a/%j"), command=["x"])


@pytest.mark.parametrize("place", ["/a\nb", '/a"b', "/a%jb", "/a\\b"])
def test_a_directory_that_cannot_stand_in_the_script_is_refused(place: str) -> None:
    with pytest.raises(SettingError, match="cannot hold what jobs print"):
        script(BatchOptions(), name="t", output=Path(place, "%j.out"), command=["x"])


@given(WORDS)
def test_a_word_of_the_command_stays_one(words: list[str]) -> None:
    text = script(BatchOptions(), name="t", output=Path("/a/%j"), command=["printf", "%s\\0", *words])
    last = text.split("\nexec ", 1)[1]
    assert shlex.split(last) == ["printf", "%s\\0", *words]


def test_bash_takes_the_words_as_they_are(tmp_path: Path) -> None:
    words = ["a b", "$HOME", "`id`", "x'y\"z", "#", "*", "a\nb", "é"]
    text = script(BatchOptions(setup="A=1"), name="t", output=tmp_path / "%j", command=["printf", "%s\\0", *words])
    said = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[:-1] == words
