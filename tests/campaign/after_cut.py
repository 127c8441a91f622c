"""What has to hold on a disk whose power was cut, before anybody continues (R1, R2), read by hand."""

from __future__ import annotations

from pathlib import Path

import journal_by_hand
from checkpoints_by_hand import read_all


def problems_after_cut(root: Path) -> list[str]:
    """No checkpoint is torn, and what the journal says was published is there."""
    if not (root / "journal").is_dir():
        return []
    history = journal_by_hand.read(root / "journal", cut=True)
    problems = list(history.problems)
    directories = {fact["trial"]: fact["dirname"] for fact in history.kind("created")}
    gone = {
        (fact["ref"]["trial_id"], fact["ref"]["name"]) for fact in history.kind("forgotten", "dropped", "set_aside")
    }
    there: dict[str, set[str]] = {}
    for name in directories.values():
        held, torn = read_all(root / name, "checkpoint_*")
        problems += [f"{name}: {problem}" for problem in torn]
        there[name] = {each.name for each in held}
    for fact in history.kind("published"):
        ref = fact["ref"]
        if (ref["trial_id"], ref["name"]) not in gone and history.whole:
            if ref["name"] not in there[directories[ref["trial_id"]]]:
                problems.append(f"{ref['trial_id']}: {ref['name']} was published, and is not there")
    return problems
