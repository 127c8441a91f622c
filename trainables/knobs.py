"""The only place of `trainables` that reads environment variables: one function per knob."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any


def azure_storage() -> dict[str, str]:
    """What `AZURE_STORAGE_*` says about the account: CONNECTION_STRING, ACCOUNT_NAME, ACCOUNT_KEY, SAS_TOKEN,
    TENANT_ID, CLIENT_ID and CLIENT_SECRET, by these names in lower case; those that are set."""
    names = ("connection_string", "account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    found = {name: os.environ.get(f"AZURE_STORAGE_{name.upper()}", "") for name in names}
    return {name: value for name, value in found.items() if value}


def cache_dir() -> str:
    """TUNE_CACHE_DIR: where copies of what lies elsewhere are kept; default ~/.cache/tuner."""
    return os.environ.get("TUNE_CACHE_DIR") or "~/.cache/tuner"


def torchrun_rank() -> int | None:
    """RANK, as torchrun sets it; None outside of it."""
    return _number("RANK")


def torchrun_world_size() -> int | None:
    """WORLD_SIZE, as torchrun sets it; None outside of it."""
    return _number("WORLD_SIZE")


def _number(name: str) -> int | None:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else None


def default(name: str, value: str) -> None:
    """Set a variable that a library reads, unless the user has."""
    os.environ.setdefault(name, value)


def set_original_directory(path: str | None) -> str | None:
    """Set TUNE_ORIG_WORKING_DIR, where the driver was started, for a trial; None: remove it. Returns what was set."""
    before = os.environ.pop("TUNE_ORIG_WORKING_DIR", None)
    if path is not None:
        os.environ["TUNE_ORIG_WORKING_DIR"] = path
    return before


def limit_threads(threads: int) -> None:
    """Tell libraries that are loaded from now on, and programs started, how many threads they may use."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = str(threads)


def limit_loaded(threads: int) -> None:
    """Tell those that are loaded already: they read the environment then."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if torch is not None or "numpy" in sys.modules:
        with contextlib.suppress(ImportError):  # optional; without it they stay at what they read
            import threadpoolctl

            threadpoolctl.threadpool_limits(threads)


def environment() -> dict[str, str]:
    """A copy of all variables, for a program that is started with some more."""
    return dict(os.environ)


def tracker_variable(name: str) -> str:
    """WANDB_*, MLFLOW_*, COMET_*: what a tracker's own variable, or one that Ray has for it, says; "": it is unset."""
    return os.environ.get(name, "")


def set_tracker_variable(name: str, value: str) -> None:
    """Set one for this process and its children: an API key or token, from where the library reads it."""
    os.environ[name] = value
