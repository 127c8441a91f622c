"""The YAML config of `tuner run`: its schema, how it becomes arguments of `tune.run`, and the errors in it.

trainable: train.py:train             # or package.module:name; or `command:`, with `metrics:` and `checkpoints:`
metric: loss
mode: min
num_samples: 20
param_space:
  lr: {loguniform: [1.0e-4, 1.0e-1]}  # a domain: its name and its arguments
  layers: {choice: [1, 2, 3]}
  epochs: 10                          # a plain value
scheduler: {asha: {max_t: 10}}
search_alg: optuna
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pydantic
import yaml

from trainables.validation import unknown_name
from tuner.callback import Callback
from tuner.cli import command_keys, executor_key, yaml_space
from tuner.cli.load_object import load_object
from tuner.error import SettingError
from tuner.experiment.paths import ExperimentPaths, as_local_path, cache_of, default_storage, is_elsewhere, safe_name
from tuner.spec import Named, Spec

_PARTS: dict[str, Any] = {
    "keep_checkpoints_num": int | None,
    "checkpoint_score_attr": str | None,
    "checkpoint_freq": int,
    "checkpoint_at_end": bool,
    "max_failures": int,
    "fail_fast": bool | Literal["raise"],
}
"""Arguments of `tune.run` that are a part of a setting, and what the file may say of them."""


def key_types() -> dict[str, Any]:
    """The keys: the rows of the table of settings that a file may have, and the parts."""
    types, rows = get_type_hints(Spec), {each.name: each.metadata["file"] for each in fields(Spec)}
    return {key: types[key] if said is True else said for key, said in rows.items() if said is not None} | _PARTS


_STRICT = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)
_FIELDS: dict[str, Any] = {key: (kind, ... if key == "trainable" else None) for key, kind in key_types().items()}
Keys: type[pydantic.BaseModel] = pydantic.create_model("Keys", __config__=_STRICT, **_FIELDS)
KEYS = tuple(_FIELDS)


@dataclass(frozen=True)
class Described:
    """One experiment, as a file describes it."""

    said: Mapping[str, Any]
    """What stands in it, checked; the keys are arguments of `tune.run`."""
    beside: Path
    """The directory of the file."""

    def directory(self) -> Path:
        """Where the experiment lies."""
        given = self.said.get("storage_path")
        if given is None:
            storage = default_storage()
        else:
            storage = cache_of(given) if is_elsewhere(given) else as_local_path(given)
        return storage / str(self.said["name"])

    def load_trainable(self) -> Any:
        if "command" in self.said:
            return command_keys.made(self.said["command"])
        return load_object(self.said["trainable"], self.beside)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `tune.run`; what the file does not say is not there. Raises SettingError."""
        from tuner.schedulers import create_scheduler
        from tuner.search import create_searcher

        given = {key: value for key, value in self.said.items() if key not in ("trainable", "command")}
        given["config"] = yaml_space.parse(given.pop("param_space", {}))
        makers: dict[str, Callable[[Any], Any]] = {
            "scheduler": lambda named: _made(create_scheduler, named, "scheduler"),
            "search_alg": lambda named: _made(create_searcher, named, "search_alg"),
            "stop": lambda limits: {metric: _criterion(metric, limit) for metric, limit in limits.items()},
            "log_to_file": lambda files: tuple(files) if isinstance(files, list) else files,
            "executor": executor_key.made,
            "callbacks": lambda named: [self._callback(each) for each in named],
        }
        for key, make in makers.items():
            if given.get(key) is not None:
                given[key] = make(given[key])
        return given

    def _callback(self, named: Named) -> Any:
        name, keywords = _split(named, "callbacks")
        kind = load_object(name, self.beside)
        return _made(lambda _, **given: kind(**given), {name: keywords}, "callbacks")


def _criterion(metric: str, limit: Any) -> Any:
    from tuner.stopper import at_least, at_most

    if not isinstance(limit, dict):
        return limit
    if len(limit) != 1:
        raise SettingError(f"stop: {metric}: {limit!r} is not accepted; one of at_least and at_most is said")
    return at_most(limit["at_most"]) if "at_most" in limit else at_least(limit["at_least"])


class _Loader(yaml.SafeLoader):
    """YAML in which no key stands twice: the last one would win unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                raise SettingError(f"the key {key.value!r} in line {line} stands in line {lines[key.value]} already")
            lines[key.value] = line
        return super().construct_mapping(node, deep)


def _parsed(text: str, source: str) -> Any:
    """What a text of YAML holds. Raises SettingError."""
    try:
        return yaml.load(text, _Loader)
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None
    except yaml.YAMLError as error:
        raise SettingError(f"{source} is not YAML: {error}") from error


def load(path: Path, changes: Sequence[str] = ()) -> Described:
    """Read and check a config file, with `--set` changes. Raises SettingError that names the key and the value."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}") from error
    found = _parsed(text, str(path))
    if not isinstance(found, dict):
        raise SettingError(f"{path} has to hold settings as `key: value`, not {type(found).__name__}")
    for change in changes:
        _change(found, change)
    found.setdefault("name", safe_name(path.stem))
    return check(found, source=str(path), directory=path.resolve().parent)


def check(found: Mapping[str, Any], *, source: str, directory: Path) -> Described:
    """Settings as a `Described`. Raises SettingError with every mistake, one per line."""
    found = dict(found)
    try:
        command = command_keys.taken(found, directory)
        if command is not None:
            command_keys.made(command)
            found["trainable"] = ""
    except SettingError as error:
        raise SettingError(f"{source}: {error}") from None
    mistakes = [unknown_name("key", str(key), KEYS) for key in found if key not in KEYS]
    if isinstance(executor := found.get("executor"), dict):
        mistakes += executor_key.mistakes(executor)
    if mistakes:
        raise SettingError(f"{source}: " + "; ".join(mistakes))
    try:
        checked = Keys.model_validate(found)
    except pydantic.ValidationError as error:
        raise SettingError(
            "\n".join(f"{source}: {line}" for line in executor_key.lines_of(error, Keys.model_fields))
        ) from None
    said = {key: getattr(checked, key) for key in KEYS if key in found}
    if command is not None:
        said = {"command": command} | {key: value for key, value in said.items() if key != "trainable"}
    yaml_space.parse(said.get("param_space", {}))
    return Described(said, directory)


def _change(found: dict[str, Any], change: str) -> None:
    """Apply one `key.inner=value`; the value is YAML."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise SettingError(f"--set {change!r} is not accepted; accepted is key=value, as in num_samples=50")
    value = _parsed(text, f"--set {change!r}: the value")
    *outer, last = key.split(".")
    if (top := [*outer, last][0]) not in (known := (*KEYS, "command", *command_keys.BESIDE)):
        raise SettingError(f"--set {change!r}: {unknown_name('key', top, known)}")
    place = found
    for name in outer:
        inner = place.setdefault(name, {})
        if name == "executor" and inner == [*outer, last][1]:  # the same without options
            inner = place[name] = {inner: {}}
        if not isinstance(inner, dict):
            raise SettingError(f"--set {change!r}: {name} is {inner!r}, which has nothing inside")
        place = inner
    if isinstance(value, str):
        value = _number(value)
    if change.startswith("executor=") and isinstance(there := place.get(last), dict) and list(there) == [value]:
        return  # the options in the file hold
    if outer and last in yaml_space.DOMAINS and set(place) <= set(yaml_space.DOMAINS):
        place.clear()  # another domain replaces the one in the file
    place[last] = value


def _number(text: str) -> Any:
    """YAML 1.1 reads 1e-4 as text; nobody means that."""
    try:
        return float(text)
    except ValueError:
        return text


def _split(named: Named, key: str) -> tuple[str, dict[str, Any]]:
    if isinstance(named, str):
        return named, {}
    if len(named) != 1:
        raise SettingError(f"{key}={named!r} is not accepted; accepted is one name, with its arguments below it")
    ((name, keywords),) = named.items()
    return name, keywords or {}


def _made(create: Any, named: Named, key: str) -> Any:
    """Call a factory with what stands below a name; mistakes in there name the key."""
    name, keywords = _split(named, key)
    try:
        return create(name, **yaml_space.numbers(keywords))
    except (TypeError, ValueError) as error:
        raise SettingError(f"{key}: {name}: {error}") from error


class KeepConfig(Callback):
    """Keeps the config beside the journal, so that `tuner resume` needs nothing but the directory."""

    changes_results = False

    def __init__(self, described: Described) -> None:
        self.described = described

    def setup(self, *_: Any, **__: Any) -> None:
        from trainables.store import fs

        said, again = self.described.said, ("resume", "overwrite", "storage_path", "name")
        kept = {key: value for key, value in said.items() if key not in again}
        if said.get("trainable", "").rpartition(":")[0].endswith(".py"):
            kept["trainable"] = found_again(said["trainable"], self.described.beside)
        fs.replace_file(
            ExperimentPaths(self.described.directory()).config_yaml, yaml.safe_dump(kept, sort_keys=False).encode()
        )


def found_again(trainable: str, beside: Path) -> str:
    """A trainable whose file is named by its full path, wherever the config lies then; one of a module as it is."""
    given, _, name = trainable.rpartition(":")
    if not given.endswith(".py"):
        return trainable
    place = beside / given
    return f"{(place if place.is_file() else Path(given).expanduser()).resolve()}:{name}"
