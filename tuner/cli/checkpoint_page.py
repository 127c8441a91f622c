"""All about one checkpoint, for `tuner show EXPERIMENT@TAG`; and the tags of an experiment."""

from __future__ import annotations

from typing import Any

from trainables.addresses import checkpoint_address
from trainables.transfer.open import shown
from tuner.addresses import FoundCheckpoint
from tuner.cli import output
from tuner.experiment.state import ExperimentState
from tuner.inspection.experiment_reader import ExperimentReader

TAGS = 8
"""Shown of an experiment."""


def of_checkpoint(found: FoundCheckpoint) -> dict[str, Any]:
    """Where it is, why it is kept, and the result that it belongs to. Nothing is unpickled."""
    rows = ExperimentReader(found.experiment).checkpoints(found.trial)
    (row,) = (row for row in rows if row["name"] == found.record.ref.name)
    where = found.checkpoint
    path = where.path if where.local_path else shown(str(where.uri))
    return row | {"experiment": shown(found.experiment), "path": path, "result": found.record.metrics}


def text_of(facts: dict[str, Any]) -> str:
    """The page."""
    selector = f"{facts['index']}@{facts['iteration']}"
    address = checkpoint_address(output.value(facts["experiment"]), selector)
    lines = [
        f"trial {facts['index']}, iteration {facts['iteration']}, {output.size(facts['bytes'])}, "
        f"saved {output.time(facts['saved_at'])}",
        output.value(facts["path"]),
        f"address: {address}",
        f"kept: {', '.join(map(output.value, facts['why'])) or 'it is to go at the next save'}",
    ]
    lines += [f"tags: {', '.join(facts['tags'])}"] if facts["tags"] else []
    lines += [f"copy at {output.value(place)}" for place in facts["copies"]]
    lines += ["", "result", *(f"  {output.value(key)} = {output.value(each)}" for key, each in facts["result"].items())]
    return "\n".join(lines)


def tags_of(state: ExperimentState) -> dict[str, str]:
    """Tag -> TRIAL@ITERATION."""
    return {
        tag: f"{trial.index}@{record.iteration}"
        for trial in state.trials
        for record in trial.checkpoints
        for tag in record.tags
    }


def tags_text(tags: dict[str, str]) -> list[str]:
    """One line, or none."""
    told = [f"{tag} ({at})" for tag, at in list(tags.items())[:TAGS]]
    more = f" and {len(tags) - TAGS} more" if len(tags) > TAGS else ""
    return [f"tags: {', '.join(told)}{more}"] if tags else []
