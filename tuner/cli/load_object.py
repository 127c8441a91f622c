"""Objects by their place: `package.module:name` and `path/file.py:name`, as a config or an option names them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from trainables.validation import nearest_name
from tuner.error import SettingError


def load_object(where: str, directory: Path) -> Any:
    """The object that `package.module:name` or `path/file.py:name` means.

    A file is looked for beside the config (`directory`), then from where the command runs. Raises SettingError.
    """
    module_name, colon, name = where.rpartition(":")
    if not colon or not module_name or not name:
        raise SettingError(f"{where!r} is not accepted; accepted are module:name and path/file.py:name")
    module = _from_file(module_name, directory) if module_name.endswith(".py") else _from_module(module_name)
    try:
        return getattr(module, name)
    except AttributeError:
        near = nearest_name(name, vars(module))
        hint = f"; did you mean {near!r}?" if near else ""
        raise SettingError(f"{module_name} has no {name!r}{hint}") from None


def _from_module(name: str) -> Any:
    _on_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, what it imports is not
        raise SettingError(f"there is no module {name!r} here; is it a file? then path/file.py:name") from error


def _from_file(given: str, directory: Path) -> Any:
    path = Path(given).expanduser()
    places = [path] if path.is_absolute() else [directory / given, Path.cwd() / given]
    file = next((place.resolve() for place in places if place.is_file()), None)
    if file is None:
        looked = dict.fromkeys(str(place.resolve()) for place in places)
        raise SettingError(f"there is no file {' nor '.join(looked)}")
    _on_path(file.parent)  # as `python file.py` would have it, for the modules beside it
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # a trial's process cannot import it by name
    return module


def _on_path(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
