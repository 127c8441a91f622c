"""`python -m tuner.compat SCRIPT [ARGUMENTS]`, or `-m MODULE [ARGUMENTS]`: run a script written for Ray Tune."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tuner.compat import install


def main(arguments: list[str]) -> None:
    """Run the script that comes first, or the module behind `-m`, with the rest as its arguments."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(f"usage: python -m tuner.compat (SCRIPT | -m MODULE) [ARGUMENTS]\n\n{__doc__}\n")
        raise SystemExit(0 if arguments else 2)
    if arguments[0] == "-m" and len(arguments) > 1:
        install()
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    if not script.is_file():
        raise SystemExit(f"tuner.compat: there is no file {arguments[0]}")
    install()
    sys.argv = arguments
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
