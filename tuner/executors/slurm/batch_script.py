"""The text of the script that sbatch gets: #SBATCH lines, the user's setup, and the start of an agent on each node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tuner.error import SettingError, refused
from tuner.executors.slurm.batch_options import SAFE, SAFE_SAID, BatchOptions

SIGNAL = "USR1"
"""What a job is sent before its end; SIGTERM is what it gets when it is preempted or cancelled."""

_JOB_NAME = re.compile(r"[A-Za-z0-9._:=@/-]{1,200}")
_IN_OUTPUT = re.compile(r"[^\x00-\x1f\"'\\%]*")


def script(
    options: BatchOptions,
    *,
    name: str,
    output: Path,
    command: Sequence[str],
    cpus: int | None = None,
    gpus: int | None = None,
    signal_s: int = 60,
    signal: str = SIGNAL,
) -> str:
    """The batch script of one job.

    Args:
        name: of the job.
        output: where what the job prints goes; in its last part Slurm puts the job's id for %j, of an array for %A_%a.
        command: what runs on each node, at most one there at a time.
        cpus, gpus: of each node, where the options say nothing of them.
        signal_s: so many seconds before its end the command gets `signal` (Slurm may send it a minute earlier); 0: not.

    A job that is preempted or loses its node does not wait again, unless the options say sbatch={"requeue": True}.

    Raises SettingError for a name or a path that cannot stand there.

    Example:
        >>> print(script(BatchOptions(time="10"), name="a", output=Path("/x/%j.out"), command=["echo", "a b"], cpus=2))
        #!/bin/bash
        #SBATCH --job-name=a
        #SBATCH --output=/x/%j.out
        #SBATCH --open-mode=append
        #SBATCH --no-requeue
        #SBATCH --signal=B:USR1@60
        #SBATCH --nodes=1
        #SBATCH --ntasks-per-node=1
        #SBATCH --time=10
        #SBATCH --cpus-per-task=2
        exec echo 'a b'
        <BLANKLINE>
    """
    if not _JOB_NAME.fullmatch(name):  # squeue and scancel take several names with commas between them
        raise refused("job name", name, f"accepted is {SAFE_SAID}, but no comma, of at most 200 characters")
    if not _IN_OUTPUT.fullmatch(str(output.parent)):
        raise SettingError(
            f"{output.parent} cannot hold what jobs print: Slurm takes no quotes, backslashes or % there; choose "
            "another storage_path"
        )
    several = options.nodes > 1
    lines = [f"--job-name={name}", f"--output={_quoted(str(output))}", "--open-mode=append"]
    if "requeue" not in options.sbatch:
        lines.append("--no-requeue")
    if signal_s > 0:
        # Without B: steps get it, and not the shell: what runs by srun is a step, what takes the shell's place is none.
        lines.append(f"--signal={'' if several else 'B:'}{signal}@{signal_s}")
    if "nodes" not in options.sbatch:
        lines.append("--nodes=1")
    lines += ["--ntasks-per-node=1", *options.lines()]
    if options.cpus_per_task is None and cpus is not None:
        lines.append(f"--cpus-per-task={max(cpus, 1)}")
    if options.gpus_per_node is None and gpus and not {"gres", "gpus", "gpus-per-task"} & {*options.sbatch}:
        lines.append(f"--gpus-per-node={gpus}")
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in lines),
            *([options.setup] if options.setup else []),
            f"exec {_by_srun(options) if several else ''}{shlex.join(command)}",
            "",
        ]
    )


def _by_srun(options: BatchOptions) -> str:
    """One task on each node; those of other nodes go on where one fails. Since 22.05 srun takes cpus from here only."""
    cpus = "${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} "
    return f"srun --nodes={options.nodes} --ntasks={options.nodes} --ntasks-per-node=1 --kill-on-bad-exit=0 {cpus}"


def _quoted(text: str) -> str:
    return text if SAFE.fullmatch(text.replace("%", "")) else f'"{text}"'
