"""The only place of `tuner` that reads environment variables: one function per knob."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainables.validation import parse_bytes
from tuner.error import refused, require

_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def result_dir() -> str | None:
    """TUNE_RESULT_DIR, or Ray's RAY_AIR_LOCAL_CACHE_DIR: where experiments go when no `storage_path` is given."""
    return os.environ.get("TUNE_RESULT_DIR") or os.environ.get("RAY_AIR_LOCAL_CACHE_DIR")


def existing() -> str | None:
    """TUNE_EXISTING: what becomes of an experiment of the same name: "error" (default), "aside" or "resume"."""
    return os.environ.get("TUNE_EXISTING") or None


def temporary_dir() -> str | None:
    """TUNE_TMPDIR: where trials' temporary directories go; default: `<storage_path>/.tmp`."""
    return os.environ.get("TUNE_TMPDIR") or None


def cuda_visible_devices() -> str | None:
    """CUDA_VISIBLE_DEVICES: the GPUs that this process was given."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def ray_plugins() -> bool:
    """RAY_RUNTIME_ENV_PLUGINS: Ray's plugins, which add keys of their own to `runtime_env`."""
    return bool(os.environ.get("RAY_RUNTIME_ENV_PLUGINS"))


def environment() -> dict[str, str]:
    """A copy of the whole environment, for a process that is to be started with it."""
    return dict(os.environ)


def set_environment(whole: Mapping[str, str]) -> None:
    """Let the environment be that, and nothing else."""
    for name in os.environ.keys() - whole.keys():
        del os.environ[name]
    for name, value in whole.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def variables_of(prefixes: tuple[str, ...]) -> list[str]:
    """The names of all variables that are set and begin with one of these, in alphabetical order."""
    return sorted(name for name in os.environ if name.startswith(prefixes))


def callback_classes() -> list[str]:
    """RAY_TUNE_CALLBACKS: classes, as `module.Class`, that are made for every run."""
    return [path.strip() for path in os.environ.get("RAY_TUNE_CALLBACKS", "").split(",") if path.strip()]


def dated_names() -> bool:
    """TUNE_DISABLE_DATED_SUBDIR=1: the name of a run that is given none has no date."""
    return not _switch("TUNE_DISABLE_DATED_SUBDIR", False)


def handles_interrupts() -> bool:
    """TUNE_DISABLE_SIGINT_HANDLER=1: Ctrl-C is KeyboardInterrupt at once, and not an end in order."""
    return not _switch("TUNE_DISABLE_SIGINT_HANDLER", False)


def hook_timeout_s() -> float:
    """TUNE_HOOK_TIMEOUT_S: seconds that a call of `on_end=` or `on_failure=` may take; default 10."""
    return _seconds("TUNE_HOOK_TIMEOUT_S", 10.0)


def slow_after_s() -> float:
    """TUNE_WARN_THRESHOLD_S: seconds from which on `warn_if_slow` warns; default 0.5."""
    return _seconds("TUNE_WARN_THRESHOLD_S", 0.5)


def disable_loggers() -> bool:
    """TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1: no result.json, progress.csv and TensorBoard files unless asked for."""
    return _switch("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", False)


def disable_tensorboard() -> bool:
    """TUNE_DISABLE_TENSORBOARD=1: no TensorBoard files unless asked for."""
    return _switch("TUNE_DISABLE_TENSORBOARD", False)


def stop_grace_s() -> float:
    """TUNE_STOP_GRACE_S: how long running trials have to save after Ctrl-C, a spent budget, `fail_fast`; default 5."""
    return _seconds("TUNE_STOP_GRACE_S", 5.0)


def on_interrupt() -> str:
    """TUNE_ON_INTERRUPT: what a run does that Ctrl-C has stopped: "raise" (default) or, as Ray's, "return"."""
    word = os.environ.get("TUNE_ON_INTERRUPT") or "raise"
    require(word in ("raise", "return"), "TUNE_ON_INTERRUPT", word, "accepted are raise and return")
    return word


def return_on_interrupt() -> None:
    """What holds from now on where the environment does not say."""
    os.environ.setdefault("TUNE_ON_INTERRUPT", "return")


def silent_after_s() -> float:
    """TUNE_SILENT_AFTER_S: seconds after which a trial that reports nothing is shown as silent; default 300."""
    return _seconds("TUNE_SILENT_AFTER_S", 300.0)


def needs_reports() -> bool:
    """TUNE_NEEDS_REPORTS=0: a function that returns and never reports anything has succeeded, as in Ray."""
    return _switch("TUNE_NEEDS_REPORTS", True)


def need_no_reports() -> None:
    """What holds from now on where the environment does not say."""
    os.environ.setdefault("TUNE_NEEDS_REPORTS", "0")


def strict_metrics() -> bool:
    """TUNE_DISABLE_STRICT_METRIC_CHECKING=1: a metric that is needed may be missing in all results."""
    return not _switch("TUNE_DISABLE_STRICT_METRIC_CHECKING", False)


def max_publish_failures() -> int:
    """TUNE_MAX_PUBLISH_FAILURES: after so many saves in a row that did not reach the disk a trial fails; default 3."""
    text = os.environ.get("TUNE_MAX_PUBLISH_FAILURES") or "3"
    try:
        return int(text)
    except ValueError:
        raise refused("TUNE_MAX_PUBLISH_FAILURES", text, "accepted are 1, 2, 3, ...") from None


def chdir_to_trial_dir() -> bool:
    """TUNE_CHDIR_TO_TRIAL_DIR=0 (or Ray's RAY_CHDIR_TO_TRIAL_DIR=0): trials stay in the driver's working directory."""
    return _switch("TUNE_CHDIR_TO_TRIAL_DIR", _switch("RAY_CHDIR_TO_TRIAL_DIR", True))


def grace_s() -> float:
    """TUNE_GRACE_S: seconds that running trials have to save after a SIGTERM or SIGHUP; default 30."""
    return _seconds("TUNE_GRACE_S", 30.0)


def openmp_threads() -> int:
    """OMP_NUM_THREADS, its outermost level; ValueError or KeyError when it says nothing."""
    return int(os.environ["OMP_NUM_THREADS"].split(",")[0])


def set_variable(name: str, value: str | None) -> None:
    """Set a variable for this process and its children; None: remove it. An attempt gets its environment this way."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def journal_push_s() -> float | None:
    """TUNE_GLOBAL_CHECKPOINT_S: seconds between two pushes of the journal to a replica; default: as often as costs 5 %.

    "auto" is the default too.
    """
    if os.environ.get("TUNE_GLOBAL_CHECKPOINT_S") in (None, "", "auto"):
        return None
    return _seconds("TUNE_GLOBAL_CHECKPOINT_S", 0.0, 'seconds from 0 on, and "auto"')


def job_end_time() -> float | None:
    """SLURM_JOB_END_TIME, which Slurm sets: when the job's time is over, in seconds since the epoch; None: no job's."""
    try:
        return float(os.environ.get("SLURM_JOB_END_TIME", ""))
    except ValueError:
        return None


def slurm_job() -> dict[str, str]:
    """What Slurm says of the job that this process belongs to: SLURM_*, and CUDA_VISIBLE_DEVICES."""
    wanted = ("SLURM_", "CUDA_VISIBLE_DEVICES")
    return {name: text for name, text in os.environ.items() if name.startswith(wanted)}


def session_address() -> str:
    """TUNE_SESSION_ADDRESS: where sessions let callers of other hosts in: an address, a network interface, or "none".

    Default: in a Ray cluster or a Slurm job the address of this node, else none.
    """
    return os.environ.get("TUNE_SESSION_ADDRESS", "").strip()


def history_bytes() -> int:
    """TUNE_HISTORY_BYTES: what the packed history of a journal may take ("64MB"); default 256 MB, 0: none is kept."""
    text = os.environ.get("TUNE_HISTORY_BYTES") or "256MB"
    return 0 if text.strip() == "0" else parse_bytes(text, name="TUNE_HISTORY_BYTES")


def ui() -> bool:
    """TUNE_UI=1: runs that do not say `ui=` have a live page, whose address is printed at the start."""
    return _switch("TUNE_UI", False)


def state_dir() -> str:
    """XDG_STATE_HOME: where what is kept for a user from one command to the next lies; default ~/.local/state."""
    return os.environ.get("XDG_STATE_HOME") or "~/.local/state"


def check_switches() -> None:
    """Refuse a knob that is switched neither on nor off, before anything is made. Raises SettingError."""
    for knob in (
        dated_names,
        handles_interrupts,
        disable_loggers,
        disable_tensorboard,
        needs_reports,
        strict_metrics,
        chdir_to_trial_dir,
        ui,
    ):
        knob()


def _switch(name: str, default: bool) -> bool:
    text = os.environ.get(name, "").strip()
    require(not text or text.lower() in _SWITCH, name, text, "accepted are 1, true, yes, on and 0, false, no, off")
    return _SWITCH[text.lower()] if text else default


def _seconds(name: str, default: float, accepted: str = "seconds from 0 on") -> float:
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    require(value >= 0, name, text, f"accepted are {accepted}")
    return value
