"""A config file of the user's with some values replaced: read and written by its format's library, never as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainables.command.place_holders import Field, value_of
from trainables.errors import InvalidSettingError, MissingExtraError
from trainables.extras import how_to_install
from trainables.validation import invalid, nearest_name

SUFFIXES = (".yaml", ".yml", ".json", ".toml")


class EditedFile:
    """`config={"file": "base.yaml", "set": {"optimizer.lr": "lr"}}`: the file as it is now, to be written with changes.

    Raises InvalidSettingError: there is no such file, or nothing is at a place that is to be set.
    """

    def __init__(self, given: Any) -> None:
        if not isinstance(given, Mapping) or set(given) != {"file", "set"} or not isinstance(given["set"], Mapping):
            raise invalid(
                "Command: config", given, '{"file": "base.yaml", "set": {"place.in.file": "name in the config"}}'
            )
        path = Path(given["file"]).expanduser()
        if path.suffix not in SUFFIXES:
            raise invalid("Command: config: file", str(path), "a file that ends with " + ", ".join(SUFFIXES))
        try:
            self._text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSettingError(f"Command: config: file={str(path)!r} cannot be read: {error}") from error
        self.name, self._suffix = path.name, path.suffix
        self._changes = {str(place): _field(place, name) for place, name in given["set"].items()}
        if not self._changes:
            raise invalid("Command: config: set", given["set"], "at least one place in the file")
        content = self._content()
        for place in self._changes:
            _holder(content, place, self.name)

    @property
    def fields(self) -> list[Field]:
        """What of the config goes into it."""
        return list(self._changes.values())

    def write(self, target: Path, values: Mapping[str, Any]) -> None:
        """Write it with the values in place. Raises InvalidSettingError for a name that the config has not."""
        content = self._content()
        for place, field in self._changes.items():
            holder, key = _holder(content, place, self.name)
            holder[key] = _plain(value_of(field, values))
        target.write_text(self._written(content), "utf-8")

    def _content(self) -> Any:
        try:
            if self._suffix == ".json":
                return json.loads(self._text)
            if self._suffix == ".toml":
                return _tomlkit().parse(self._text)
            import yaml

            return yaml.safe_load(self._text)
        except ValueError as error:  # JSON's and TOML's
            raise InvalidSettingError(
                f"Command: config: {self.name} is not {self._suffix[1:].upper()}: {error}"
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "yaml":
                raise
            raise InvalidSettingError(f"Command: config: {self.name} is not YAML: {error}") from error

    def _written(self, content: Any) -> str:
        if self._suffix == ".json":
            return json.dumps(content, indent=2)
        if self._suffix == ".toml":
            return str(_tomlkit().dumps(content))
        import yaml

        return str(yaml.safe_dump(content, sort_keys=False))


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ModuleNotFoundError:
        raise MissingExtraError(f"a TOML file needs tomlkit: {how_to_install('toml')}") from None
    return tomlkit


def _field(place: Any, name: Any) -> Field:
    if not isinstance(place, str) or not place or not isinstance(name, str) or not name:
        raise invalid("Command: config: set", {place: name}, 'a place in the file and a name: {"optimizer.lr": "lr"}')
    first, *below = name.replace("[", ".").replace("]", "").split(".")
    return Field(first, tuple(below), "")


def _plain(value: Any) -> Any:
    """What the formats can write; numpy's scalars as numbers."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def _holder(content: Any, place: str, name: str) -> tuple[Any, Any]:
    """The dict or list that holds `a.b.0`, and its key. What the file does not have is a typing error."""
    *above, last = place.split(".")
    holder = content
    for key in above:
        holder = holder[_key(holder, key, place, name)]
    return holder, _key(holder, last, place, name)


def _key(holder: Any, key: str, place: str, name: str) -> Any:
    if isinstance(holder, list) and key.isdigit() and int(key) < len(holder):
        return int(key)
    if isinstance(holder, Mapping) and key in holder:
        return key
    among = [str(each) for each in holder] if isinstance(holder, Mapping) else []
    near = nearest_name(key, among)
    hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(among) or 'none'}"
    raise InvalidSettingError(
        f"Command: config: set: {name} has no {key!r} for {place!r}{hint} (what is to be set has to stand in the file)"
    )
