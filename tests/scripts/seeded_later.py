"""Imports numpy after two trials were seeded, and draws a number: (keep | forget)."""

import sys

from trainables.runtime.seeding import forget_later_imports, seed_everything

seed_everything(5, 0)
seed_everything(5, 1)  # the trial before is over
finders = [finder for finder in sys.meta_path if type(finder).__name__ == "_SeedAtImport"]
assert len(finders) == 1, finders
if sys.argv[1] == "forget":
    forget_later_imports()
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == "_SeedAtImport"]
import numpy  # noqa: E402

print(numpy.random.random())
