from __future__ import annotations

import msgspec
import pytest

from trainables.net.frames import Frames, frame
from trainables.wire import (
    Answer,
    AttemptErrored,
    CheckpointRef,
    Decided,
    Durable,
    Finished,
    FromTrial,
    Halt,
    PendingSave,
    Preempted,
    Report,
    SaveFailed,
    SavePublished,
    ToTrial,
    decode_from_trial,
    decode_to_trial,
)

REF = CheckpointRef(trial_id="t1", name="checkpoint_000003", generation=2, attempt=1, index=3, iteration=3)

FROM_TRIAL: list[FromTrial] = [
    Report(iteration=3, metrics=msgspec.Raw(b'{"loss":0.5}')),
    Report(iteration=3, metrics=msgspec.Raw(b"{}"), waits=False),
    Report(iteration=3, metrics=msgspec.Raw(b"{}"), saving=PendingSave(ref=REF, bytes=10)),
    Finished(),
    AttemptErrored(type="ValueError", message="no", traceback="line", pickled=b"\x80\x00", retry=False),
    Preempted(),
    SavePublished(ref=REF, bytes=10, digest="ab"),
    SaveFailed(ref=REF, error="disk full"),
]
TO_TRIAL: list[ToTrial] = [
    Answer(then="pause", save=True, budget_error="too large"),
    Answer(free_until=9),
    Decided(3, Answer(then="stop")),
    Durable(3),
    Halt(),
]


@pytest.mark.parametrize("message", FROM_TRIAL, ids=lambda m: type(m).__name__)
def test_what_a_trial_says_arrives_equal(message: FromTrial) -> None:
    (body,) = Frames().feed(frame(message))
    decoded = decode_from_trial(body)
    if isinstance(message, Report):
        assert isinstance(decoded, Report)
        assert bytes(decoded.metrics) == bytes(message.metrics)
        assert (decoded.iteration, decoded.saving, decoded.waits) == (message.iteration, message.saving, message.waits)
    else:
        assert decoded == message


@pytest.mark.parametrize("message", TO_TRIAL, ids=lambda m: type(m).__name__)
def test_what_a_driver_says_arrives_equal(message: ToTrial) -> None:
    (body,) = Frames().feed(frame(message))
    assert decode_to_trial(body) == message


def test_a_ref_orders_by_generation_attempt_and_index() -> None:
    assert REF.order == (2, 1, 3)
