"""Small functions of Ray's that scripts import from `ray.tune.utils` and its neighbours."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

import cloudpickle

from trainables.validation import unknown_name
from tuner import knobs
from tuner.callback import Callback
from tuner.error import SettingError
from tuner.logger import default_loggers

log = logging.getLogger("tuner")
T = TypeVar("T")


class Verbosity(IntEnum):
    """Ray 1.13's names for what `verbose` accepts."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3


def date_str() -> str:
    """Now, as it stands in the names of experiments: "2026-03-01_12-30-00"."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
    override_all_key_list: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Write the values of one dict into another one, dicts in it too, and return that.

    Args:
        original: what is written to.
        new_dict: what is written.
        new_keys_allowed: keys that `original` lacks are no error.
        allow_new_subkey_list: keys below which such keys are no error.
        override_all_if_type_changes: keys whose dict is replaced as a whole where its "type" is another one.
        override_all_key_list: keys whose dict is replaced as a whole.

    Raises SettingError for a key that may not come in anew.

    >>> deep_update({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise SettingError(unknown_name("key", key, list(original)))
        old = original.get(key)
        whole = key in (override_all_key_list or ())
        if isinstance(old, dict) and isinstance(value, Mapping) and key in (override_all_if_type_changes or ()):
            whole |= "type" in old and "type" in value and old["type"] != value["type"]
        if whole or not (isinstance(old, dict) and isinstance(value, Mapping)):
            original[key] = value
        else:
            allowed = new_keys_allowed or key in (allow_new_subkey_list or ())
            deep_update(old, value, allowed, override_all_key_list=override_all_key_list)
    return original


def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **default: Any) -> Any:
    """What is at "a/0/b" in nested dicts and lists; `default=` where there is nothing, else KeyError.

    >>> unflattened_lookup("a/0/b", {"a": [{"b": 1}]})
    1
    """
    if flat_key in lookup:
        return lookup[flat_key]
    for key in flat_key.split(delimiter):
        try:
            lookup = lookup[key] if isinstance(lookup, Mapping) else lookup[int(key)]
        except (KeyError, IndexError, TypeError, ValueError):
            if "default" in default:
                return default["default"]
            raise KeyError(flat_key) from None
    return lookup


class warn_if_slow:
    """A context that logs a warning when what is done in it takes long.

    Args:
        name: of what is done.
        threshold: seconds; None: TUNE_WARN_THRESHOLD_S, else half a second.
        message: with {name} and {duration}.
        disable: True says nothing.
    """

    def __init__(
        self, name: str, threshold: float | None = None, message: str | None = None, disable: bool = False
    ) -> None:
        self.name, self.disable = name, disable
        self.threshold = knobs.slow_after_s() if threshold is None else threshold
        self.message = message or "{name} took {duration:.3f} s"
        self.too_slow = False

    def __enter__(self) -> warn_if_slow:
        self._begun = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        duration = time.perf_counter() - self._begun
        self.too_slow = not self.disable and duration > self.threshold
        if self.too_slow:
            log.warning("%s", self.message.format(name=self.name, duration=duration))


class Tee:
    """A stream that writes to two."""

    def __init__(self, stream1: IO[str], stream2: IO[str]) -> None:
        self.stream1, self.stream2 = stream1, stream2

    def write(self, text: str) -> int:
        """Write to both."""
        self.stream1.write(text)
        return self.stream2.write(text)

    def flush(self) -> None:
        """Flush both."""
        self.stream1.flush()
        self.stream2.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream1, name)


def detect_checkpoint_function(train_func: Callable[..., Any], abort: bool = False, partial: bool = False) -> bool:
    """Whether it takes `(config, checkpoint_dir=...)`; `abort`: raise SettingError if not."""
    fits = _takes(train_func, partial, checkpoint_dir="")
    if abort and not fits:
        raise SettingError(f"{train_func!r} is not accepted; accepted is a function f(config, checkpoint_dir=None)")
    return fits


def detect_reporter(func: Callable[..., Any]) -> bool:
    """Whether it takes `(config, reporter)`."""
    return _takes(func, reporter=None)


def detect_config_single(func: Callable[..., Any]) -> bool:
    """Whether it takes `(config)`."""
    return _takes(func)


def _takes(function: Callable[..., Any], partial: bool = False, **named: Any) -> bool:
    signature = inspect.signature(function)
    try:
        (signature.bind_partial if partial else signature.bind)({}, **named)
    except TypeError:
        return False
    return True


def atomic_save(state: Any, checkpoint_dir: str, file_name: str, tmp_file_name: str) -> None:
    """Pickle a state into a file that is there whole or not at all."""
    temporary = Path(checkpoint_dir, tmp_file_name)
    temporary.write_bytes(cloudpickle.dumps(state))
    os.replace(temporary, Path(checkpoint_dir, file_name))


def load_newest_checkpoint(dirpath: str, ckpt_pattern: str) -> Any:
    """The state in the last, by name, of the files that fit the pattern; None: there is none. It unpickles."""
    found = sorted(Path(dirpath).glob(ckpt_pattern))
    return pickle.loads(found[-1].read_bytes()) if found else None


def create_logdir(dirname: str, local_dir: str) -> str:
    """Make a directory of that name, or where there is one, of that name with a few characters more."""
    place = Path(local_dir).expanduser() / dirname
    if place.exists():
        place = place.with_name(f"{place.name}_{uuid.uuid4().hex[:4]}")
    place.mkdir(parents=True)
    return str(place)


def retry_fn(
    fn: Callable[[], Any],
    exception_type: type[Exception] | tuple[type[Exception], ...] = Exception,
    num_retries: int = 3,
    sleep_time: float = 1,
    **unused: Any,
) -> bool:
    """Call a function until it does not raise; False: it raised every time."""
    for attempt in range(num_retries):
        if attempt:
            time.sleep(sleep_time)
        try:
            fn()
            return True
        except exception_type as error:
            log.warning("attempt %d of %d: %s", attempt + 1, num_retries, error)
    return False


def validate_warmstart(
    parameter_names: Sequence[str],
    points_to_evaluate: Any,
    evaluated_rewards: Any,
    validate_point_name_lengths: bool = True,
) -> None:
    """Refuse points that are no list of points, or not as many as their rewards. Raises TypeError and ValueError."""
    for name, given in (("points_to_evaluate", points_to_evaluate), ("evaluated_rewards", evaluated_rewards)):
        if given and not isinstance(given, list):
            raise TypeError(f"{name}={given!r} is not accepted; accepted is a list")
    for point in points_to_evaluate or ():
        if not isinstance(point, dict | list):
            raise TypeError(f"points_to_evaluate: {point!r} is not accepted; accepted are dicts and lists")
        if validate_point_name_lengths and len(point) != len(parameter_names):
            raise ValueError(f"points_to_evaluate: {point!r} has not as many values as there are: {parameter_names!r}")
    if points_to_evaluate and evaluated_rewards and len(evaluated_rewards) != len(points_to_evaluate):
        raise ValueError(f"{len(evaluated_rewards)} evaluated_rewards of {len(points_to_evaluate)} points_to_evaluate")


def create_default_callbacks(callbacks: Sequence[Callback] | None = None, *unused: Any, **more: Any) -> list[Callback]:
    """The callbacks, and the loggers that every run has beside them."""
    given = list(callbacks or ())
    return [*given, *default_loggers(given)]


def as_it_is(thing: T) -> T:
    """`tune.function` and `tune.durable` of Ray 1: nothing has to be done to what they were for."""
    return thing


def construct_path(path: str | Path, parent_path: str | Path) -> Path:
    """The path itself if it is absolute, else below the parent."""
    return Path(parent_path).expanduser() / Path(path).expanduser()


def get_address_and_port() -> tuple[str, int]:
    """This machine's address, and a port that is free now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return socket.gethostbyname(socket.gethostname()), int(free.getsockname()[1])


def update_env_vars(env_vars: Mapping[str, Any]) -> None:
    """Set environment variables of this process."""
    for name, value in env_vars.items():
        knobs.set_variable(name, str(value))
