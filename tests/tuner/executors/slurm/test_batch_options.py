"""What is asked of each job: checked with the value named, and never shell text but in `setup`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.error import SettingError
from tuner.executors.slurm.batch_options import BatchOptions, check_jobs, from_mapping, parse_time
from tuner.executors.slurm.partitions import shown_time

LINE = re.compile(r"--[a-z][a-z0-9-]*(=[A-Za-z0-9._:=,@/-]+)?")
ANY = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.binary(max_size=4))


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, []),
        ({"partition": "gpu,gpu-long", "time": "1-12:00:00"}, ["--partition=gpu,gpu-long", "--time=1-12:00:00"]),
        ({"gpus_per_node": 2, "cpus_per_task": 8}, ["--gpus-per-node=2", "--cpus-per-task=8"]),
        ({"gpus_per_node": "a100:4", "mem": "64G", "account": "proj@uni"}, None),
        ({"sbatch": {"qos": "high", "nodes": 2, "exclusive": True}}, ["--qos=high", "--nodes=2", "--exclusive"]),
    ],
)
def test_options_become_those_of_sbatch(given: dict[str, Any], lines: list[str] | None) -> None:
    options = BatchOptions(**given)
    expected = ["--gpus-per-node=a100:4", "--mem=64G", "--account=proj@uni"] if lines is None else lines
    assert options.lines() == expected


def test_they_say_nodes_gpus_and_seconds() -> None:
    options = BatchOptions(time="01:30:00", gpus_per_node="a100:4", sbatch={"nodes": 2})
    assert (options.nodes, options.gpus, options.seconds) == (2, 4, 5400.0)
    assert (BatchOptions().nodes, BatchOptions().gpus, BatchOptions().seconds) == (1, None, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition": "a b"}, "partition='a b' is not accepted; accepted is a text of letters"),
        ({"partition": "a\n#SBATCH --uid=0"}, "partition="),
        ({"account": "$(id)"}, "account="),
        ({"time": 43200}, "time=43200 is not accepted; accepted is a text as sbatch takes it"),
        ({"time": "two hours"}, "time='two hours'"),
        ({"time": "0"}, "time='0'"),
        ({"mem": "16GB"}, "mem='16GB' is not accepted; accepted is a text as sbatch takes it: \"16G\""),
        ({"mem": 16}, "mem=16"),
        ({"gpus_per_node": "many"}, "gpus_per_node='many' is not accepted; accepted: a whole number >= 0, or one with"),
        ({"gpus_per_node": True}, "gpus_per_node=True"),
        ({"cpus_per_task": 0}, "cpus_per_task=0 is not accepted; accepted: a whole number >= 1"),
        ({"setup": ["module load"]}, "setup="),
        ({"time": "10\n"}, "time='10\\n' is not accepted"),
        ({"mem": "١G"}, "mem='١G' is not accepted"),
        ({"sbatch": ["--qos=x"]}, "accepted is a dict of options of sbatch"),
        ({"sbatch": {"--qos": "x"}}, "sbatch='--qos' is not accepted"),
        ({"sbatch": {"qos": "a;b"}}, "sbatch['qos']='a;b' is not accepted"),
        ({"sbatch": {"exclusive": False}}, "sbatch['exclusive']=False"),
        ({"sbatch": {"nodes": "1-2"}}, "sbatch['nodes']='1-2'"),
        ({"sbatch": {"time": "10"}}, "sbatch={'time': ...} is not accepted: say time='10'"),
        ({"sbatch": {"array": "0-9"}}, "SlurmExecutor(array=...)"),
        ({"sbatch": {"output": "x"}}, "sbatch={'output': ...} is not accepted: the executor says that"),
    ],
)
def test_what_is_not_accepted_is_named_with_what_is(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        BatchOptions(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jobs": 0}, "jobs=0"),
        ({"array": 1}, "array=1"),
        ({"listen": "eth0; id"}, "listen='eth0; id' is not accepted; accepted are None, and an IP address"),
        ({"reconnect_s": -1}, "reconnect_s=-1"),
    ],
)
def test_the_rest_of_an_executors_options_is_checked_too(given: dict[str, Any], said: str) -> None:
    good: dict[str, Any] = {"jobs": 8, "array": True, "listen": None, "reconnect_s": 300}
    check_jobs(**good)
    check_jobs(**good | {"listen": "fe80::1"})
    with pytest.raises(SettingError, match=re.escape(said)):
        check_jobs(**good | given)


def test_a_config_names_options_that_there_are() -> None:
    assert from_mapping({"jobs": 2, "partition": "p"}) == {"jobs": 2, "partition": "p"}
    with pytest.raises(SettingError, match="unknown option of executor: slurm: 'partion'; did you mean 'partition'"):
        from_mapping({"partion": "p"})


@given(
    partition=ANY, time=ANY, mem=ANY, account=ANY, gpus_per_node=ANY, cpus_per_task=ANY,
    sbatch=st.dictionaries(st.one_of(st.text(max_size=8), st.just("qos"), st.just("nodes")), ANY, max_size=3),
)  # fmt: skip
def test_nothing_that_passes_the_checks_leaves_its_line(**given: Any) -> None:
    try:
        options = BatchOptions(**given)
    except SettingError as error:
        assert "is not accepted" in str(error)
        return
    for line in options.lines():
        assert LINE.fullmatch(line), line


@given(st.integers(1, 10**7))
def test_a_time_that_is_shown_reads_as_the_same(seconds: int) -> None:
    assert parse_time(shown_time(seconds)) == seconds
    assert BatchOptions(time=shown_time(seconds)).seconds == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_time_or_none(text: str) -> None:
    seconds = parse_time(text)
    assert seconds is None or seconds >= 0
