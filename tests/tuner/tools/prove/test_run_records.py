"""What a watched run has done, as it is written down and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tuner.tools.prove import run_records
from tuner.tools.prove.run_records import KillPoint

WHOLE = [1.0, 2.0, 3.0, 4.0]


def test_kills_lie_after_the_first_checkpoint_and_are_the_same_for_the_same_seed(made: Callable[..., Path]) -> None:
    seen = run_records.of_place(made("whole", WHOLE, WHOLE))
    possible = [KillPoint(0, trial, iteration) for trial in (0, 1) for iteration in (3, 4)]
    assert run_records.points(seen, kills=9, seed=0) == possible
    drawn = [run_records.points(seen, kills=2, seed=seed) for seed in range(20)]
    assert drawn == [run_records.points(seen, kills=2, seed=seed) for seed in range(20)]
    assert {point for points in drawn for point in points} == set(possible)


# --- events ---------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_back_and_a_start_voids_what_came_after_it(tmp_path: Path) -> None:
    file = tmp_path / "0.events"
    assert run_records.read(file) == {}
    run_records.write(file, "start", 0, 0, {"lr": 1})
    for iteration in (1, 2, 3):
        run_records.write(file, "result", 0, iteration, {"loss": float("nan") if iteration == 2 else iteration})
    run_records.write(file, "saved", 0, 1)
    run_records.write(file, "killed", 0, 3)
    run_records.write(file, "start", 0, 1, {"lr": 2})
    run_records.write(file, "result", 0, 2, {"loss": 7})
    run_records.write(file, "result", 4, 1, {"loss": 0})
    found = run_records.read(file)
    assert sorted(found) == [0, 4]
    trial = found[0]
    assert trial.results == {1: {"loss": 1}, 2: {"loss": 7}} and trial.configs[2] == {"lr": 2}
    assert trial.saved == [1] and trial.kills == [run_records.RecordedKill(3, went_on_from=1)]
    assert found[4].configs == {1: None}, "nobody wrote down what it had"


@given(st.integers(0, 5), st.integers(0, 99), st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=4))
def test_kills_are_drawn_from_what_is_possible_and_each_is_used_once(
    kills: int, seed: int, trials: list[tuple[int, bool]]
) -> None:
    seen = {
        0: {
            index: run_records.TrialRecord(results={n: {} for n in range(1, count + 1)}, saved=[1] if saves else [])
            for index, (count, saves) in enumerate(trials)
        }
    }
    drawn = run_records.points(seen, kills=kills, seed=seed)
    assert drawn == run_records.points(seen, kills=kills, seed=seed) and len(set(drawn)) == len(drawn)
    possible = sum(max(0, count - 1) for count, saves in trials if saves)
    assert len(drawn) == min(kills, possible)
    assert all(point.iteration > 1 and trials[point.trial][1] for point in drawn), "after the first checkpoint"
    for point in drawn:
        seen[0][point.trial].kills.append(run_records.RecordedKill(point.iteration))
    assert sorted(run_records.spent(seen[0], drawn), key=drawn.index) == drawn


def test_a_kill_that_came_later_than_planned_uses_the_point_before_it() -> None:
    planned = [KillPoint(0, 0, 2), KillPoint(0, 0, 5), KillPoint(0, 1, 2)]
    late = run_records.TrialRecord(kills=[run_records.RecordedKill(4)])
    assert run_records.spent({0: late}, planned) == [planned[0]]


def test_experiments_of_a_place_are_told_apart_by_number_and_timing_is_kept_where_there_is_some(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        run_records.write(tmp_path / f"{number}{run_records.SUFFIX}", "start", number, 0)
        run_records.write_timing(tmp_path, number, ["ASHA goes by time_total_s"] if number == 2 else [])
    assert list(run_records.of_place(tmp_path)) == [0, 2, 10]
    assert run_records.timing(tmp_path) == {2: ["ASHA goes by time_total_s"]}
