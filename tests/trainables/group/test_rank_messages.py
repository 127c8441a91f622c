"""The flags that ranks share with their leader, and that messages survive the way."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.group.merging import Part
from trainables.group.rank_messages import (
    CHECKPOINT,
    STOP,
    Flags,
    Go,
    Held,
    Raised,
    RankReport,
    RankUploaded,
    Upload,
)

SIZE = 3
CALLS = st.integers(min_value=1, max_value=(1 << 62) - 1)
STEPS = st.one_of(
    st.tuples(st.just("looked"), st.integers(0, SIZE - 1), st.sampled_from([STOP, CHECKPOINT])),
    st.tuples(st.just("called"), st.integers(0, SIZE - 1), CALLS),
)


@given(st.lists(STEPS, max_size=20))
def test_each_rank_has_its_own_word_and_nothing_that_was_looked_at_is_forgotten(
    steps: list[tuple[str, int, int]],
) -> None:
    calls, looked = [0] * SIZE, [0] * SIZE
    with tempfile.TemporaryDirectory() as directory:
        flags = Flags(Path(directory, "flags"), SIZE, create=True)
        try:
            for step, rank, value in steps:
                getattr(flags, step)(rank, value)
                if step == "called":
                    calls[rank], looked[rank] = value, looked[rank] | STOP
                else:
                    looked[rank] |= value
            assert [flags.calls(rank) for rank in range(SIZE)] == calls
            assert [flags.word(rank) & (STOP | CHECKPOINT) for rank in range(SIZE)] == looked
            assert [flags.any_looked(at) for at in (STOP, CHECKPOINT)] == [
                any(each & at for each in looked) for at in (STOP, CHECKPOINT)
            ]
            assert not flags.leaving
        finally:
            flags.close()


def test_another_process_sees_them_at_once_and_a_copy_carries_all_of_a_word(tmp_path: Path) -> None:
    ours, elsewhere = (Flags(tmp_path / name, 2, create=True) for name in ("flags", "of another host"))
    pid = os.fork()
    if not pid:
        theirs = Flags(tmp_path / "flags", 2)
        theirs.called(1, 41)
        theirs.looked(1, CHECKPOINT)
        os._exit(0 if not theirs.leaving else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    elsewhere.copy(1, ours.word(1))

    assert (elsewhere.calls(1), elsewhere.any_looked(STOP), elsewhere.any_looked(CHECKPOINT)) == (41, True, True)
    assert elsewhere.calls(0) == 0
    ours.leave()
    again = Flags(tmp_path / "flags", 2)
    assert again.leaving and not elsewhere.leaving
    for flags in (ours, elsewhere, again):
        flags.close()


def test_flags_made_for_fewer_ranks_are_not_opened_for_more(tmp_path: Path) -> None:
    Flags(tmp_path / "flags", 1, create=True).close()

    with pytest.raises(ValueError, match="greater than file size"):
        Flags(tmp_path / "flags", 2)


@pytest.mark.parametrize(
    "message",
    [
        RankReport({"loss": float("inf"), "nested": {"a": [1]}}, Path("/x"), OSError(28, "no room")),
        Held(Path("/x"), True),
        Raised("ValueError", "no", "Traceback", b"\0", True),
        RankUploaded(3, {"a": "00"}, "why"),
        Go(True, 4, Upload(4, "checkpoint_000004", Part("rank_1", frozenset({"a"})))),
    ],
)
def test_messages_survive_the_way(message: object) -> None:
    found = pickle.loads(pickle.dumps(message))

    assert repr(found) == repr(message)
    assert type(found) is type(message)
