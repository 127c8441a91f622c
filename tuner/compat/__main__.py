"""`python -m tuner.compat SCRIPT [ARGUMENTS]`, or `-m MODULE [ARGUMENTS]`: run a script written for Ray Tune."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import TracebackType

from trainables.user_frames import OnPurposeError, is_ours
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


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The hook for errors that nobody caught: Python's own, from the script's first frame on."""
    first = trace
    while first is not None and _starts_the_script(first):
        first = first.tb_next
    last = trace
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    fault = first is None and last is not None and is_ours(last.tb_frame.f_code.co_filename)
    shown = trace if fault and not isinstance(error, OnPurposeError) else first
    error.__traceback__ = shown
    sys.__excepthook__(kind, error, shown)


def _starts_the_script(trace: TracebackType) -> bool:
    frame = trace.tb_frame
    return frame.f_globals.get("__name__") in ("runpy", "importlib._bootstrap") or is_ours(frame.f_code.co_filename)


if __name__ == "__main__":
    sys.excepthook = show
    main(sys.argv[1:])
