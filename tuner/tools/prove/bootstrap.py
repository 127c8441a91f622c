"""A script as a proof runs it: `python -m tuner.tools.prove.bootstrap DIRECTORY SCRIPT ARGUMENTS...`.

It is run as `python SCRIPT ARGUMENTS...` would, in a process in which every run is the proof's.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from tuner.driver.build import change_every_run
from tuner.error import SettingError
from tuner.tools.prove.run_watch import redirected
from tuner.tuner import Tuner


def install(place: Path) -> None:
    """Have every run of this process store in `place`, continue what is there, and be watched.

    `Tuner.can_restore` is False then: a `fit()` continues by itself, and the script's own experiment stays as it is.
    """

    def can_restore(path: Any, storage_filesystem: Any = None) -> bool:
        return False

    def restore(path: Any, *arguments: Any, **named: Any) -> Tuner:
        raise SettingError(
            f"Tuner.restore({str(path)!r}): `tuner prove` continues no experiment that was there before; under it "
            "Tuner.can_restore(path) is False: ask that first, and make a new Tuner then"
        )

    change_every_run(lambda spec: redirected(spec, place))
    setattr(Tuner, "can_restore", staticmethod(can_restore))  # noqa: B010 - the class itself knows nothing of proofs
    setattr(Tuner, "restore", staticmethod(restore))  # noqa: B010


if __name__ == "__main__":
    place, script = sys.argv[1:3]
    install(Path(place))
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
