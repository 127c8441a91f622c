"""What a caller of a session and its driver say to each other, beside what every trial says (`trainables.wire`).

A caller has one *door* to the driver, a socket that keeps messages apart. Whatever it asks for there comes with the
driver's ends of two sockets, *main* and *side*; the answer comes on main, and from then on they are those of a trial.

From another host all of these are TCP connections of their own. `Entering` is the first word on each, and what is said
at the door has with it the number that its main and side have (`AtFarDoor`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Union

import msgspec

from trainables.decoding import decoder

MESSAGE = 65536
"""The longest message of a door, in bytes."""


class AskFor(msgspec.Struct, frozen=True, tag="ask", tag_field="kind"):
    """A trial is wanted. Comes with main and side."""

    waits: bool = False
    """Until there is one; else only a trial that can begin now is wanted."""


class Offer(msgspec.Struct, frozen=True, tag="offer", tag_field="kind"):
    """The attempt of a driver that was killed goes on in this caller. Comes with main and side."""

    trial_id: str
    generation: int
    attempt: int
    iteration: int = 0
    """Of the report that was not answered; 0: all were."""


class Leaving(msgspec.Struct, frozen=True, tag="leaving", tag_field="kind"):
    """The caller has closed its session, and waits until it may go."""


FromCaller = Union[AskFor, Offer, Leaving]


class Handed(msgspec.Struct, frozen=True, tag="handed", tag_field="kind"):
    """A trial."""

    job: bytes
    """Pickled."""


class NoTrial(msgspec.Struct, frozen=True, tag="none", tag_field="kind"):
    """There is none now."""

    ends: bool = False
    """And none will come of this driver: its last word follows."""


class Adopted(msgspec.Struct, frozen=True, tag="adopted", tag_field="kind"):
    """The attempt goes on."""

    iteration: int
    """So far the journal goes: that result is not to be reported again."""
    then: Literal["continue", "stop", "pause"] = "continue"
    """What was answered to it."""


class Over(msgspec.Struct, frozen=True, tag="over", tag_field="kind"):
    """The attempt does not go on here."""

    then: Literal["stop", "pause"]
    """Its trial has ended; or it goes on from its newest checkpoint, with whoever asks."""


class Settled(msgspec.Struct, frozen=True, tag="settled", tag_field="kind"):
    """How the attempt ended is in the journal."""


class Entering(msgspec.Struct, frozen=True, tag="entering", tag_field="kind"):
    """The first word on a connection from another host."""

    door: str
    """A name of the caller's door that nobody else has."""
    part: Literal["door", "main", "side"] = "door"
    line: int = 0
    """Main and side of one line have the same."""


class AtFarDoor(msgspec.Struct, frozen=True):
    """What a caller on another host says at its door."""

    line: int
    """Of main and side that come with it; 0: none do."""
    said: FromCaller


OnMain = Union[Handed, NoTrial, Adopted, Over, Settled]


class LetIn(msgspec.Struct, frozen=True, tag="let in", tag_field="kind"):
    """The first word of a driver to who has opened its door."""

    generation: int
    notes: list[str] = []
    """What the driver said of its start, for people."""


class MayGo(msgspec.Struct, frozen=True, tag="may go", tag_field="kind"):
    """Others have the session open still."""


class RunOver(msgspec.Struct, frozen=True, tag="run over", tag_field="kind"):
    """The driver's last word: it has written everything down, and ends."""

    error: bytes = b""
    """What was raised, cloudpickled, where it can be."""
    text: str = ""
    """The same as text; "": it has ended in order."""


AtDoor = Union[LetIn, MayGo, RunOver]

decode_from_caller: Callable[[bytes], FromCaller] = decoder(FromCaller)
decode_entering: Callable[[bytes], Entering] = decoder(Entering)
decode_at_far_door: Callable[[bytes], AtFarDoor] = decoder(AtFarDoor)
decode_on_main: Callable[[bytes], OnMain] = decoder(OnMain)
decode_at_door: Callable[[bytes], AtDoor] = decoder(AtDoor)
