"""The ten tools, as agents are told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.mcp import asked, tools
from tuner.mcp.agent_door import AgentDoor


@dataclass(frozen=True)
class Tool:
    """One tool.

    Args:
        does: None: the server waits.
        changes: it does something, which may be done twice with the same effect.
    """

    called: str
    says: str
    takes: type[asked.Asked]
    does: Callable[[AgentDoor, Any], tools.Told] | None
    changes: bool = False


TOOLS = (
    Tool(
        "experiments",
        "Lists the experiments that there are, what you may order or start, and what is left of your budget.",
        asked.AskedExperiments,
        tools.experiments,
    ),
    Tool(
        "overview",
        "How one experiment stands: state, counts, its best trial, failures, what to do next.",
        asked.AskedOverview,
        tools.overview,
    ),
    Tool(
        "trials",
        "What was tried: trials with config, last metrics and why they ended; the best first.",
        asked.AskedTrials,
        tools.trials,
    ),
    Tool(
        "trial",
        "One trial: config, last result, which checkpoint of which trial it began from, checkpoints, notes, error. "
        "`section` pages through its results, checkpoints (and why each is kept), attempts, notes, error, config.",
        asked.AskedOneTrial,
        tools.trial,
    ),
    Tool(
        "why",
        "Why a trial was stopped, paused, cloned or has failed: each decision with the rung, rank and cut it was made "
        "by, and from which checkpoint it went on.",
        asked.AskedWhy,
        tools.why,
    ),
    Tool(
        "logs",
        "The end of what a trial printed; the cursor gives what stands before it. Without one: its drivers' warnings.",
        asked.AskedLogs,
        tools.logs,
    ),
    Tool("diff", "In what two trials differ: config, last result, state.", asked.AskedDiff, tools.diff),
    Tool(
        "order",
        'Steers an experiment that runs. `order` is one of {"order":"stop","trial":"3"} (or "all"), pause, go, '
        'save, retry, {"order":"add","config":{"lr":0.1}}, '
        '{"order":"fork","trial":"3","iteration":40,"config":{"lr":0.001}}, '
        '{"order":"pin","trial":"3","iteration":40}, unpin, {"order":"tag",...,"tag":"good"}, '
        '{"order":"note","trial":"3","text":"..."}, {"order":"set","name":"num_samples","value":40}. '
        "Trials that are added, forked or tried again count for the budget.",
        asked.AskedOrder,
        tools.order,
        changes=True,
    ),
    Tool(
        "wait",
        "Waits, for a bounded time, until a run or a trial has ended or an order is done; returns how far it is.",
        asked.AskedWait,
        None,
    ),
    Tool(
        "start",
        "Starts an experiment of an allowed config; only num_samples and values inside its search space may be chosen. "
        "It goes on without this server. Call it again with the same id to continue one whose driver was killed.",
        asked.AskedStart,
        tools.start,
        changes=True,
    ),
)
