"""The packed history of a journal: nothing is lost on its way there, it is bounded, and it can be torn or given up."""

from __future__ import annotations

import json
import os
import threading

from tests.tuner.experiment.history_harness import Life, whole
from tuner.experiment import history_format as packed
from tuner.experiment.paths import ExperimentPaths


def test_what_a_snapshot_replaced_is_in_the_history_with_its_times(paths: ExperimentPaths) -> None:
    life = Life(paths)
    for _ in range(3):
        life.write(5)
        life.compact()
    life.write(2)

    assert len(os.listdir(paths.history)) == 3
    history = whole(paths)
    facts = list(history.facts())
    assert (facts[0].seq, history.contents.last_seq) == (1, 18)
    assert [(fact.seq, fact.at) for fact in facts[1:]] == [(seq, 1000.0 + seq) for seq in range(2, 19)]
    assert json.loads(facts[3].body)["number"] == 4
    assert history.since == 1002.0, "the first fact tells no time"
    assert history.contents.snapshot_seq == 16
    assert [history.snapshot(seq) for seq in (6, 11, 16)] == [b"6", b"11", b"16"]


def test_facts_between_the_grace_and_the_pack_are_in_the_history_too(paths: ExperimentPaths) -> None:
    life = Life(paths)
    life.write(4)
    life.compact(grace_s=60)
    life.write(4)
    life.compact(grace_s=60)
    assert not paths.history.exists()
    whole(paths)
    life.journal.archive()
    assert len(os.listdir(paths.history)) == 1 and len(os.listdir(paths.journal)) == 3
    assert whole(paths).contents.snapshot_seq == 9
    names = [entry.name for pack in paths.history.iterdir() for entry in packed.read_index(pack)[0].files]
    assert not [name for name in names if name.startswith("snapshot")], "of several only the oldest is needed"


def test_what_a_generation_wrote_after_it_was_taken_over_is_in_no_history(paths: ExperimentPaths) -> None:
    first = Life(paths)
    first.write(3)
    heir = Life(paths, 2)
    heir.write(2)
    first.write(4)  # it did not know
    heir.compact()
    heir.write(1)
    heir.compact()
    history = whole(paths)
    assert history.contents.last_seq == 8
    assert [json.loads(fact.body)["kind"] for fact in history.facts()] == ["generation", *"xxx", "generation", *"xxx"]


def test_the_history_goes_on_over_generations(paths: ExperimentPaths) -> None:
    for generation in (1, 2, 3, 4):
        life = Life(paths, generation)
        life.write(3)
        if generation != 2:
            life.compact()
        life.journal.close()
    assert whole(paths).contents.last_seq == 16


def test_t08_readers_of_the_history_lose_nothing_beside_a_writer_that_packs(paths: ExperimentPaths) -> None:
    life = Life(paths, sync="thread")
    failures: list[BaseException] = []
    over = threading.Event()
    looks = [0] * 4

    def look(number: int) -> None:
        try:
            while not over.is_set() or looks[number] < 3:
                whole(paths)
                looks[number] += 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look, args=(number,)) for number in range(len(looks))]
    for reader in readers:
        reader.start()
    for _ in range(40):
        life.write(20)
        life.compact()
    over.set()
    for reader in readers:
        reader.join()
    assert not failures, failures[0]
    life.journal.close()
    assert whole(paths).contents.last_seq == 801
