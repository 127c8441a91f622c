"""`pbt_policy_<trial_id>.txt`: the clones that a trial became, as `PopulationBasedTrainingReplay` reads them."""

from __future__ import annotations

from typing import Any

from trainables import tagged
from trainables.store import fs
from tuner.callback import Callback, Trials
from tuner.experiment.trial import Trial


class PolicyFiles(Callback):
    """Appends a line per clone to the policy of its trial, and to `pbt_global.txt`; nothing for runs without clones.

    A line is a JSON list: trial, donor, the trial's iteration, the iterations that the donor's weights had behind
    them, the donor's config, the new config.
    """

    changes_results = False

    def on_trial_clone(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        made = trial.clones[-1]
        by_id = {one.trial_id: one for one in trials if one.trial_id in (trial.trial_id, made.donor.trial_id)}
        donor = by_id[made.donor.trial_id]
        trained = _trained(trials, donor, made.donor.iteration)
        # As they are journaled: what is large in them stands by the name of its blob.
        configs = [tagged.loads(bytes(one.raw_config)) for one in (donor, trial)]
        line = tagged.dumps([trial.trial_id, donor.trial_id, made.iteration, trained, *configs]) + b"\n"
        if b'"$":"blob"' in line:
            return  # a config that cannot be written down: the journal has it in a pickle
        root = trial.directory.parent
        for name in ("pbt_global.txt", f"pbt_policy_{trial.trial_id}.txt"):
            try:
                fd = fs.open_append(root / name)
                try:
                    fs.write(fd, line)
                finally:
                    fs.close(fd)
            except OSError:
                pass  # a file for people; the journal has every clone


def _trained(trials: Trials, trial: Trial, iteration: int) -> int:
    """For how many iterations the weights were trained that a trial had at an iteration of its own count."""
    earlier = [clone for clone in trial.clones if clone.iteration < iteration]
    if not earlier:
        return iteration
    last = earlier[-1]
    donor = next(one for one in trials if one.trial_id == last.donor.trial_id)
    since = iteration - last.iteration
    if donor is trial:
        return last.donor.iteration + since
    return _trained(trials, donor, last.donor.iteration) + since
