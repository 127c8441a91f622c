"""Calls of Slurm's commands: without a shell, their output as we ask for it, again while the controller is silent.

It does not depend on what a user has set for them (SQUEUE_FORMAT and the like); sbatch follows a user's SBATCH_ACCOUNT
and so on, as it does by hand.
"""

from __future__ import annotations

import logging
import re
import subprocess
import time
from collections.abc import Sequence

from trainables.net.backoff import pause_s
from tuner import knobs
from tuner.error import SettingError, SlurmSilentError, TuneError

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""So long a command is tried again by default."""
_ONE_S = 90.0
"""For one call: without its configuration file each waits for a minute."""
_PAUSE_S = 10.0

SILENT = re.compile(
    r"Unable to contact slurm controller|timed out on send/recv|Zero Bytes were transmitted|standby mode|"
    r"Slurm temporarily unable|Resource temporarily unavailable|Transport endpoint is not connected|"
    r"Connection (refused|reset|timed out)|controller not responding|has authentication error|"
    r"Protocol authentication error",  # where munged is started again, here or there
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"Invalid job id|job/step already complet", re.IGNORECASE)
NO_CLUSTER = re.compile(
    r"Unable to process configuration file|Could not establish a configuration source|cannot stat", re.I
)
_WHOSE = re.compile(
    r"\b(?:sbatch|squeue|scontrol|scancel|sinfo): (?:error: |fatal: )?|slurm_\w+ error: |allocation failure: "
)
_OURS = ("SQUEUE_", "SINFO_", "SCANCEL_", "SCONTROL_", "SACCT_")
_FOR_ALL = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER")


class Patience:
    """Until when a silent controller is asked again."""

    def __init__(self, limit_s: float) -> None:
        self._end, self._tries = time.monotonic() + limit_s, 0

    def wait(self, said: str) -> None:
        """Pause before the next try. Raises SlurmSilentError when there is none."""
        self._tries += 1
        pause = min(pause_s(self._tries), _PAUSE_S)
        if time.monotonic() + pause > self._end:
            raise SlurmSilentError(f"Slurm's controller does not answer: {shortened(said)}")
        log.warning("Slurm's controller does not answer; asked again in %.1f s: %s", pause, shortened(said))
        time.sleep(pause)


def environment() -> dict[str, str]:
    """Without what changes the output; without what a job, in which this may run, would hand on to its own jobs."""
    whole = knobs.environment()
    hidden = (*_OURS, "SLURM_", "SRUN_") if "SLURM_JOB_ID" in whole else (*_OURS, "SLURM_TIME_FORMAT")
    kept = {key: value for key, value in whole.items() if key in _FOR_ALL or not key.startswith(hidden)}
    return kept | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def run(*command: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment(),
            timeout=_ONE_S,
            check=False,
            start_new_session=True,  # Ctrl-C ends the run in order, and no command of it halfway
        )
    except FileNotFoundError as error:
        raise SettingError(
            f"there is no Slurm on this machine: {command[0]} is not found; start the run on a login node of the "
            "cluster, or with another executor"
        ) from error
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"controller not responding to {command[0]}")


def ask(command: Sequence[str], patience_s: float, *, unknown: str | None = None) -> str:
    """What a command prints; `unknown` where it does not know the job. Raises TuneError for other failures."""
    patience = Patience(patience_s)
    while (done := run(*command)).returncode:
        if unknown is not None and _UNKNOWN.search(done.stderr):
            return unknown
        if NO_CLUSTER.search(done.stderr):
            raise SettingError(
                f"this machine knows no Slurm cluster: {shortened(done.stderr)}; start the run on a login node, or "
                "say in SLURM_CONF where slurm.conf is"
            )
        if not SILENT.search(done.stderr):
            raise TuneError(f"`{' '.join(command[:3])}` failed: {shortened(done.stderr)}")
        patience.wait(done.stderr)
    return done.stdout


def shortened(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip(" *")]
    return _WHOSE.sub("", "; ".join(lines[:3])) or "no word"
