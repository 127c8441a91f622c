"""Print, as JSON, the modules of ours that lack names, or modules below them, that the table has at the same path."""

import importlib
import json

from trainables import aliases
from tuner.compat import table

aliases.COMPLETED = frozenset()


def has(module: object, name: str) -> bool:
    own = vars(module).get("__getattr__")
    own = getattr(own, "completes", own)
    if name in vars(module) or own is None:
        return name in vars(module)
    try:
        own(name)
    except AttributeError:
        return False
    except ImportError:  # it says by itself what to use instead
        return True
    return True


lacking = set()
parents = {theirs.rpartition(".")[0] for theirs in table.sections()}
for theirs in parents | set(table.sections()):
    ours = table.beside(theirs)
    if ours not in (None, "tuner"):  # which looks up by itself
        module = importlib.import_module(ours)
        without = theirs in parents and not hasattr(module, "__path__")
        lacking |= {ours} if without or any(not has(module, name) for name in table.names_of(theirs)) else set()
print(json.dumps(sorted(lacking)))
