"""The YAML config of `tuner run`: its schema, how it becomes arguments of `tune.run`, and the errors in it.

trainable: train.py:train             # or package.module:name
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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic
import yaml

from trainables.validation import unknown_name
from tuner.callback import Callback
from tuner.cli import yaml_space
from tuner.cli.load_object import load_object
from tuner.error import SettingError
from tuner.experiment.paths import as_local_path, default_storage, safe_name

FILE_NAME = "config.yaml"
"""What the experiment's directory keeps of it, for `tuner resume`."""

Named = str | dict[str, dict[str, Any] | None]
"""`asha`, or `{asha: {max_t: 10}}`."""
Limit = dict[Literal["at_least", "at_most"], float]
"""`{loss: {at_most: 0.1}}`; a plain number stops at or above it, like `at_least`."""


class OnRay(pydantic.BaseModel):
    """`executor: {ray: {address: "10.0.0.1:6379"}}`: the arguments of `RayExecutor`."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)

    address: str | None = None
    runtime_env: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


class Described(pydantic.BaseModel):
    """One experiment, as a file describes it. The keys are the arguments of `tune.run`."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)

    trainable: str
    name: str | None = None
    param_space: dict[str, Any] = {}
    metric: str | list[str] | None = None
    mode: Literal["min", "max"] | list[Literal["min", "max"]] | None = None
    num_samples: int = 1
    scheduler: Named | None = None
    search_alg: Named | None = None
    stop: dict[str, float | Limit] | None = None
    time_budget_s: float | None = None
    resources_per_trial: dict[str, float] | None = None
    max_concurrent_trials: int | None = None
    storage_path: str | None = None
    keep_checkpoints_num: int | None = None
    checkpoint_score_attr: str | None = None
    checkpoint_freq: int = 0
    checkpoint_at_end: bool = False
    checkpoint_budget: int | str | None = None
    max_failures: int = 0
    fail_fast: bool | Literal["raise"] = False
    raise_on_failed_trial: bool = True
    resume: bool | str | None = None
    overwrite: bool = False
    takeover: bool = False
    restore: str | None = None
    seed: int | None = None
    trial_timeout_s: float | None = None
    verbose: int | None = None
    log_to_file: bool | str | list[str] = False
    callbacks: list[Named] = []
    executor: Literal["local", "inline", "ray"] | dict[Literal["ray"], OnRay | None] | None = None
    directory_: str = pydantic.Field(default=".", exclude=True)

    def directory(self) -> Path:
        """Where the experiment lies."""
        storage = default_storage() if self.storage_path is None else as_local_path(self.storage_path)
        return storage / str(self.name)

    def load_trainable(self) -> Any:
        return load_object(self.trainable, Path(self.directory_))

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `tune.run`; what the file does not say is not there. Raises SettingError."""
        given = {key: getattr(self, key) for key in self.model_fields_set if key not in ("trainable", "directory_")}
        given["name"] = self.name
        given["config"] = yaml_space.parse(given.pop("param_space", {}))
        if self.scheduler is not None:
            from tuner.schedulers import create_scheduler

            given["scheduler"] = _made(create_scheduler, self.scheduler, "scheduler")
        if self.search_alg is not None:
            from tuner.search import create_searcher

            given["search_alg"] = _made(create_searcher, self.search_alg, "search_alg")
        if self.stop is not None:
            given["stop"] = {key: _criterion(key, limit) for key, limit in self.stop.items()}
        if isinstance(self.log_to_file, list):
            given["log_to_file"] = tuple(self.log_to_file)
        if isinstance(self.executor, dict):
            from tuner.executors import RayExecutor

            given["executor"] = RayExecutor(**(self.executor["ray"] or OnRay()).model_dump())
        if self.callbacks:
            given["callbacks"] = [self._callback(named) for named in self.callbacks]
        return given

    def _callback(self, named: Named) -> Any:
        name, keywords = _split(named, "callbacks")
        kind = load_object(name, Path(self.directory_))
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


KEYS = tuple(name for name in Described.model_fields if name != "directory_")


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
    mistakes = [unknown_name("key", str(key), KEYS) for key in found if key not in KEYS]
    if isinstance(executor := found.get("executor"), dict):
        mistakes += _mistakes_on_ray(executor)
    if mistakes:
        raise SettingError(f"{source}: " + "; ".join(mistakes))
    try:
        described = Described.model_validate({**found, "directory_": str(directory)})
    except pydantic.ValidationError as error:
        raise SettingError("\n".join(f"{source}: {line}" for line in _mistakes(error))) from None
    yaml_space.parse(described.param_space)
    return described


def _mistakes_on_ray(executor: Mapping[str, Any]) -> list[str]:
    """What is wrong with `{ray: {...}}`."""
    below = executor.get("ray")
    if set(executor) != {"ray"} or not isinstance(below, dict | None):
        return [f"executor={executor!r} is not accepted; accepted: local, inline, ray or {{ray: {{address: ...}}}}"]
    try:
        OnRay.model_validate(below or {})
    except pydantic.ValidationError as error:
        return [f"executor: ray: {line}" for line in _mistakes(error)]
    return []


def _mistakes(error: pydantic.ValidationError) -> list[str]:
    """One line per key: a union reports each of its branches, which is one mistake to a person."""
    lines: dict[str, str] = {}
    for item in error.errors():
        key = str(item["loc"][0])
        if item["type"] == "missing":
            lines[key] = f"{key} is missing"
            continue
        if item["type"] == "extra_forbidden":
            lines[key] = unknown_name("key", key, OnRay.model_fields)
            continue
        said = item["msg"].removeprefix("Input should be ").removeprefix("a valid ")
        if key in lines:
            lines[key] += f" or {said}" if said not in lines[key] else ""
        else:
            lines[key] = f"{key}={item['input']!r} is not accepted; accepted: {said}"
    return list(lines.values())


def _change(found: dict[str, Any], change: str) -> None:
    """Apply one `key.inner=value`; the value is YAML."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise SettingError(f"--set {change!r} is not accepted; accepted is key=value, as in num_samples=50")
    value = _parsed(text, f"--set {change!r}: the value")
    *outer, last = key.split(".")
    if (top := [*outer, last][0]) not in KEYS:
        raise SettingError(f"--set {change!r}: {unknown_name('key', top, KEYS)}")
    place = found
    for name in outer:
        inner = place.setdefault(name, {})
        if not isinstance(inner, dict):
            raise SettingError(f"--set {change!r}: {name} is {inner!r}, which has nothing inside")
        place = inner
    if isinstance(value, str):
        value = _number(value)
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

        kept = self.described.model_dump(exclude_unset=True, exclude={"resume", "overwrite", "storage_path", "name"})
        if self.described.trainable.rpartition(":")[0].endswith(".py"):
            kept["trainable"] = self._found_again()
        fs.replace_file(self.described.directory() / FILE_NAME, yaml.safe_dump(kept, sort_keys=False).encode())

    def _found_again(self) -> str:
        """The trainable's file by its full path: the config lies elsewhere now."""
        given, _, name = self.described.trainable.rpartition(":")
        beside = Path(self.described.directory_) / given
        return f"{(beside if beside.is_file() else Path(given).expanduser()).resolve()}:{name}"
