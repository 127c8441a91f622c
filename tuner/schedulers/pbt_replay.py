"""`PopulationBasedTrainingReplay`: trains one trial with the schedule of configs that a population found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from trainables import tagged
from trainables.validation import checked_names
from tuner.error import SettingError
from tuner.experiment.blobs import Blobs
from tuner.schedulers.base import Decision, Directive, Exploit, TrialScheduler, TrialView, Verdict


@checked_names
class PopulationBasedTrainingReplay(TrialScheduler):
    """Changes the config of one trial at the iterations at which PBT changed it on the way to some trial's weights.

    The trial starts with the schedule's first config, whatever the run says. At a change it is saved, and goes on from
    that checkpoint with the next config.

    Args:
        policy_file: a `pbt_policy_<trial>.txt`, of Ray's or of ours: each line is a JSON list (trial, donor, the
            trial's iteration, the donor's iteration, the donor's config, the new config).

    Raises:
        SettingError: the file cannot be read, or is none of these; or the run has a second trial.
    """

    time_attr = "training_iteration"
    _remembered = ("_step", "_iteration", "_trial", "_orders")

    def __init__(self, policy_file: str | Path) -> None:
        super().__init__()
        self.policy_file = Path(policy_file).expanduser()
        self.config, self._changes = _schedule(self.policy_file)
        self._step = self._iteration = 0
        self._trial: str | None = None
        self._orders: list[Directive] = []

    def set_search_properties(self, metric: Any, mode: Any, **spec: Any) -> bool:
        return True  # it compares nothing, so that any metric will do

    def first_config(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._trial is not None:
            raise SettingError(
                f"{self.policy_file} is a schedule for one trial, and there is {self._trial} already; use num_samples=1"
            )
        return self.config

    def on_trial_add(self, trial: TrialView) -> None:
        self._trial = trial.trial_id

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        self._iteration = int(result.get("training_iteration", self._iteration + 1))
        return Decision.PAUSE if self._is_due(self._iteration) else Decision.CONTINUE

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        if self._is_due(iteration) and iteration >= self._iteration:
            # Its own checkpoint, with another config.
            self._orders.append(Directive(trial.trial_id, Exploit(trial.trial_id, self._changes[self._step][1])))
            self._step += 1

    def _is_due(self, iteration: int) -> bool:
        return self._step < len(self._changes) and iteration >= self._changes[self._step][0]

    def orders(self) -> Sequence[Directive]:
        orders, self._orders = self._orders, []
        return orders

    def debug_string(self) -> str:
        return f"PopulationBasedTraining replay: Step {self._iteration}, perturb {self._step}"


def _schedule(file: Path) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The first config, and (iteration, config) of each change after it."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise SettingError(f"policy_file={str(file)!r} cannot be read: {error.strerror}") from error
    steps = [_step(file, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not steps:
        raise SettingError(f"policy_file={str(file)!r} is empty: that trial never went on as a clone")
    chain: list[tuple[int, dict[str, Any]]] = []
    config: dict[str, Any] = {}
    donor: Any = None
    for trial, from_, iteration, old, new in reversed(steps):
        if chain and trial != donor:
            break  # what comes before was of weights that the last exploit replaced
        donor, config = from_, old
        chain.append((iteration, new))
    return config, chain[::-1]


def _step(file: Path, number: int, line: bytes) -> tuple[Any, Any, int, dict[str, Any], dict[str, Any]]:
    """(trial, donor, the donor's iteration, the donor's config, the new config) of one line."""
    problem = SettingError(
        f"policy_file={str(file)!r}, line {number}: {line[:60]!r} is not accepted; accepted is a JSON list of (trial, "
        "donor, iteration, the donor's iteration, the donor's config, the new config)"
    )
    try:
        parsed = tagged.loads(line, blobs=Blobs(file.parent / "blobs"), pickles=False)
    except orjson.JSONDecodeError:
        raise problem from None
    if not isinstance(parsed, list) or len(parsed) != 6:
        raise problem
    trial, donor, _, iteration, old, new = parsed
    whole = isinstance(iteration, int) and not isinstance(iteration, bool)
    if not (whole and isinstance(old, dict) and isinstance(new, dict)):
        raise problem
    return trial, donor, iteration, old, new
