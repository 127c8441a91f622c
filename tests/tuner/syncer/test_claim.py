"""The claim of a generation in a replica: who owned it last, whether that one lives, and who is faster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from trainables.transfer.client import InlineClient
from tuner.clock import VirtualClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.generations import GenerationRecord, encode_record
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Identity, Processes
from tuner.syncer.claim import RemoteClaim, encode_heartbeat, heartbeat_name, take_generation
from tuner.syncer.remote_experiment import RemoteExperiment

HERE = Processes().me()
ELSEWHERE = msgspec.structs.replace(HERE, host="another")


class Beating(VirtualClock):
    """While somebody sleeps the owner sends heartbeats."""

    def __init__(self, file: Path, state: str) -> None:
        super().__init__()
        self._file, self._state, self._beats = file, state, 0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._beats += 1
        self._file.write_bytes(encode_heartbeat(self._state, self._beats))


class Scene:
    def __init__(self, place: Path) -> None:
        self.there = place / "there" / "e" / "generations"
        self.there.mkdir(parents=True)
        self.paths = ExperimentPaths(place / "here" / "e")
        self.paths.generations.mkdir(parents=True)
        self.uploader = InlineClient({"place": str(place / "there")})

    def remote(self) -> RemoteExperiment:
        return RemoteExperiment(self.uploader, self.uploader.uri, "e", timeout_s=10.0)

    def claim(self, clock: VirtualClock | None = None) -> RemoteClaim:
        return RemoteClaim(self.remote(), self.paths, clock or VirtualClock())

    def owned(self, by: Identity, state: str = "held") -> GenerationRecord:
        record = GenerationRecord(3, "someone", by, 0.0)
        (self.there / "000003.json").write_bytes(encode_record(record))
        self.beat_file.write_bytes(encode_heartbeat(state, 0))
        return record

    @property
    def beat_file(self) -> Path:
        return self.there / heartbeat_name(3)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.uploader.close()


def test_a_place_that_nobody_owned_is_free(scene: Scene) -> None:
    claim = scene.claim()
    assert claim.free(claim.last_owner(), takeover=False).highest == 0


def test_a_living_owner_on_this_host_is_never_taken_over(scene: Scene) -> None:
    scene.owned(HERE)
    claim = scene.claim()
    with pytest.raises(OwnedElsewhereError, match="is owned by another driver"):
        claim.free(claim.last_owner(), takeover=True)


def test_who_has_said_that_it_is_done_is_not_waited_for(scene: Scene) -> None:
    scene.owned(ELSEWHERE, state="released")
    clock = VirtualClock()
    claim, begun = scene.claim(clock), clock.monotonic()
    assert claim.free(claim.last_owner(), takeover=False).highest == 3 and clock.monotonic() == begun


def test_who_could_only_say_so_here_is_not_waited_for_either(scene: Scene) -> None:
    record = scene.owned(ELSEWHERE)
    scene.paths.generation(3).write_bytes(encode_record(record, released=True))
    assert scene.claim().last_owner().released


def test_a_silent_owner_elsewhere_is_waited_for(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.owned(ELSEWHERE)
    clock = VirtualClock()
    claim, begun = scene.claim(clock), clock.monotonic()
    assert claim.free(claim.last_owner(), takeover=False).highest == 3
    assert clock.monotonic() - begun >= STALE_S and "waiting up to 60 s" in caplog.text
    assert not claim.wait_until_free(claim.last_owner(), takeover=True), "with takeover nobody waits"


@pytest.mark.parametrize("state", ["held", "released"])
def test_a_heartbeat_says_whether_it_lives(scene: Scene, state: str) -> None:
    scene.owned(ELSEWHERE)
    claim = scene.claim(Beating(scene.beat_file, state))
    if state == "released":
        assert claim.free(claim.last_owner(), takeover=False).highest == 3
    else:
        with pytest.raises(OwnedElsewhereError):
            claim.free(claim.last_owner(), takeover=False)


def test_a_generation_is_taken_once_and_its_owner_may_ask_again(scene: Scene) -> None:
    mine = GenerationRecord(4, "mine", HERE, 0.0)
    assert take_generation(scene.remote(), mine)
    assert take_generation(scene.remote(), mine), "as after an answer that was lost"
    assert not take_generation(scene.remote(), GenerationRecord(4, "other", HERE, 0.0))
