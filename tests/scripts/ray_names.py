"""Look up every public name of four versions of Ray, as `ray.M.N` and as ours; print what became of each, as JSON.

usage: ray_names.py NAMES.json: what docs/ray_public.py wrote.
"""

import importlib
import json
import sys
import warnings

import tuner.compat
from tuner.compat.missing import NotHere
from tuner.error import NotHereError

warnings.simplefilter("ignore")
tuner.compat.install()
OURS = {"tune": "tuner", "train": "trainables", "air": "trainables", "ml": "trainables"}


def state(module: str, name: str) -> str:
    """ "works", or "instead: ..." where it says what to use; else what went wrong."""
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        return f"instead: {error}" if f".{name} is not here: " in str(error) else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(found, NotHere):
        return "works"
    try:
        found()
    except NotHereError as error:
        return f"instead: {error}"
    return "it can be called"


made = {}
for path in json.load(open(sys.argv[1])):
    module, _, name = path.partition(":")
    if name:
        _, package, *rest = module.split(".")
        ours = ".".join([OURS[package], *rest])
        made[path] = [state(module, name), state(ours, name)]
print(json.dumps(made))
