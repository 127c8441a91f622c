"""Starting experiments for agents: of config files that were named, with values inside their space and nothing else.

A request has an id, which is a part of the experiment's name: the same request again is the same experiment. Its record
is durable before its driver is started, which is a process of its own session and outlives the server; a request whose
driver was killed has its experiment continued.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainables.starting import start_thread
from tuner.cli import yaml_space
from tuner.cli.config_file import Described, load
from tuner.clock import Clock
from tuner.error import SettingError, ToolError
from tuner.experiment.liveness import Liveness
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment
from tuner.mcp.budget import AgentBudget
from tuner.mcp.ledger import Ledger, StartRecord
from tuner.mcp.marked import clean
from tuner.orders.mailbox import Mailbox
from tuner.search.given_config import checked_value
from tuner.search.resolve import Space
from tuner.ui.live_experiment import LiveExperiment

READY_S = 60.0
"""So long a process may take that is started, until it says that it runs the experiment."""
OFFERS = ("choice", "grid_search")
"""With these words an agent offers several values of a key."""
LAST = 2_000
"""Bytes of what a driver has printed."""
_ID = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True)
class Request:
    """What an agent asks to have started."""

    config: str
    id: str
    num_samples: int | None = None
    space: Mapping[str, Any] | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """What it says of the settings."""
        return {"num_samples": self.num_samples, "space": dict(self.space or {})}


class Starts:
    """What may be started.

    Args:
        files: config files, read now: what becomes of them later changes nothing. Raises SettingError.
    """

    def __init__(self, files: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self.configs: dict[str, Described] = {}
        for file in files:
            path = Path(file)
            name, number = path.name, 1
            while name in self.configs:
                number += 1
                name = f"{path.name}~{number}"
            self.configs[name] = load(path)

    def ledgers(self) -> list[Ledger]:
        """Where what they start is recorded."""
        return [Ledger(path) for path in {one.directory().absolute().parent: None for one in self.configs.values()}]

    def start(self, request: Request, budget: AgentBudget, opened: Any) -> tuple[StartRecord, Path, bool]:
        """Have an experiment run. Raises ToolError.

        Returns its record, its directory, and whether this began it.

        Args:
            opened: the experiment of a directory, to be looked at.
        """
        described = self._config(request)
        ledger = Ledger(described.directory().absolute().parent)
        name = f"{described.said['name']}-{request.id}"
        root = ledger.storage / name
        with budget.locked():
            record = ledger.record(name)
            if record is None:
                if os.path.lexists(root):
                    raise ToolError(f"id={request.id!r} is not accepted: something else has that name already")
                record = self._recorded(described, request, name, budget)
                budget.check(record.trials or 0, unlimited=record.trials is None)
                ledger.write(record)
                run(ledger, record)
                return record, root, True
            if record.config != request.config or record.asked != request.asked:
                raise ToolError(
                    f"id={request.id!r} is the id of another request, of {record.config} with {record.asked}; "
                    "a new one has an id of its own"
                )
            go_on(ledger, record, opened)
            return record, root, False

    def _config(self, request: Request) -> Described:
        if request.config not in self.configs:
            there = ", ".join(self.configs) or "none: tuner mcp --allow-start CONFIG.yaml allows one"
            raise ToolError(f"config={request.config!r:.80} is not accepted; accepted: {there}")
        if _ID.fullmatch(request.id) is None:
            raise ToolError(f"id={request.id!r:.80} is not accepted; accepted are 1 to 40 characters of A-Z a-z 0-9 -")
        return self.configs[request.config]

    def _recorded(self, described: Described, request: Request, name: str, budget: AgentBudget) -> StartRecord:
        said = dict(described.said)
        for key in ("overwrite", "resume"):
            said.pop(key, None)
        said |= {"name": name, "storage_path": str(described.directory().absolute().parent), "resume": "AUTO"}
        if request.num_samples is not None:
            said["num_samples"] = request.num_samples
        space = said.get("param_space") or {}
        for key, value in (request.space or {}).items():
            space = _narrowed(space, key, value)
        said["param_space"] = space
        yaml_space.parse(space)
        return StartRecord(
            name,
            request.id,
            request.config,
            request.asked,
            yaml.safe_dump(said, sort_keys=False),
            str(described.beside),
            os.getcwd(),
            trials_in_all(said),
            self._clock.time(),
            budget.limits,
            tuple(str(ledger.storage) for ledger in budget.ledgers),
        )


def trials_in_all(said: Mapping[str, Any]) -> int | None:
    """How many trials a config makes, at most; None: no end is known."""
    number = said.get("num_samples", 1)
    return None if number < 0 else number * Space(yaml_space.parse(said.get("param_space") or {})).grid_size


def _narrowed(space: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A space as YAML has it, in which a key has one value, or some are offered, all of which it had before.

    One value is a choice of one: it is a searched value still, which trials are told apart by.
    """
    offers = isinstance(value, dict) and len(value) == 1 and set(value) <= set(OFFERS)
    word, listed = next(iter(value.items())) if offers else (OFFERS[0], [value])
    if not isinstance(listed, list) or not listed:
        raise ToolError(f"space: {key}: {word}: {listed!r:.80} is not accepted; accepted is a list of values")
    parsed = yaml_space.parse(space)
    try:
        ways = [checked_value(parsed, key, one) for one in listed]
    except SettingError as error:
        raise ToolError(f"space: {clean(str(error))}") from None
    literal = [{yaml_space.LITERAL: one} if isinstance(one, dict) else one for one in listed]
    return _put(space, ways[0], {word: literal})


def _put(space: Mapping[str, Any], way: Sequence[str], value: Any) -> dict[str, Any]:
    head, *rest = way
    return {**space, head: _put(space[head], rest, value) if rest else value}


# --- its driver -------------------------------------------------------------------------------------------------


def go_on(ledger: Ledger, record: StartRecord, opened: Any) -> bool:
    """Have an experiment go on that has something to do and no driver; whether that was needed."""
    if ledger.is_owned(record.name):
        return False
    root = ledger.storage / record.name
    if is_experiment(ExperimentPaths(root)):
        live: LiveExperiment = opened(root)
        waits = bool(Mailbox(root).waiting())
        live.look()
        lives = live.driver is not None and live.driver.liveness is Liveness.RUNNING
        taken = any(order.state == "taken" for order in live.picture.state.orders.values())
        if lives or (live.picture.state.run_ended == "finished" and not (waits or taken)):
            return False
    run(ledger, record)
    return True


def run(ledger: Ledger, record: StartRecord) -> None:
    """Start its driver, and wait until that runs the experiment, so that no other is started. Raises ToolError."""
    reads, writes = os.pipe()
    try:
        with open(ledger.printed(record.name), "ab") as printed:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner.mcp.started_run", str(ledger.storage), record.name, str(writes)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(writes,),
                start_new_session=True,
                cwd=record.cwd,
            )
    except OSError as error:
        os.close(reads)
        raise ToolError(f"no process can be started: {error.strerror}") from error
    finally:
        os.close(writes)
    start_thread(process.wait, name=f"mcp-{record.name}")  # no zombie is left of it, which would look alive
    try:
        select.select([reads], [], [], READY_S)
    finally:
        os.close(reads)


def printed(ledger: Ledger, name: str, size: int = LAST) -> str:
    """The end of what the drivers of an experiment have printed."""
    try:
        with open(ledger.printed(name), "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - size, 0))
            return file.read(size).decode("utf-8", "replace")
    except OSError:
        return ""
