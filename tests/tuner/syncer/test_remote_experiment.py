"""The experiment as its replica has it: what a look at it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainables.transfer.client import InlineClient
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.syncer.remote_experiment import RemoteExperiment


class Counted(list[str]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def test_checkpoints_are_looked_for_once_for_all_trials(tmp_path: Path) -> None:
    state = ExperimentState(tmp_path / "here")
    for number in range(20):
        half = tmp_path / "there" / "e" / f"t_{number}" / "checkpoint_000003"
        half.mkdir(parents=True)
        (half / "part").write_bytes(b"x")
        raw = msgspec.Raw(b"{}")
        state.apply(ev.TrialCreated(f"{number}", number, raw, name=f"t_{number}", dirname=f"t_{number}"))
    uploader = InlineClient({"place": str(tmp_path / "there")})
    remote = RemoteExperiment(uploader, uploader.uri, "e", timeout_s=10)
    remote.keys = counted = Counted(remote.keys)

    found = [remote.not_kept(trial) for trial in state.trials]
    assert [[ref.name for ref, _ in refs] for refs in found] == [["checkpoint_000003"]] * 20
    assert [remote.others_of(trial) for trial in state.trials] == [[]] * 20
    assert counted.times == 1

    remote.keys = []
    assert remote.checkpoints() == {}
    assert remote.not_kept(state.trials[0]) == []
    remote.look()
    assert len(remote.checkpoints()) == 20
