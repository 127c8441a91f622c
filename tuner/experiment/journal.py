"""The experiment's append-only log of facts, as bytes; what they mean is `tuner.experiment.events`.

One writer (`JournalWriter`), any number of readers (`read_journal`), segments of lines with number and checksum, and
snapshots that take the place of older segments. Design.md section 7.
"""

from __future__ import annotations

from tuner.experiment.journal_format import GenerationLink
from tuner.experiment.journal_reader import JournalContents, read_journal
from tuner.experiment.journal_writer import GRACE_S, JournalWriter

__all__ = ["GRACE_S", "JournalContents", "JournalWriter", "GenerationLink", "read_journal"]
