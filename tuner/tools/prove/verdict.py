"""What the runs of a proof say together, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from trainables import automatic
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment, load_state
from tuner.experiment.trial import Trial
from tuner.inspection.differences import Difference, differences
from tuner.inspection.trial_diff import AUTOMATIC
from tuner.tools.prove import compare_files, run_records
from tuner.tools.prove.run_records import TrialRecord

NEVER_SAME = ("_timestamp",)
"""What a trainer writes into every dict checkpoint."""

NOTHING_SAVED = """\
nothing was saved: no trial has a checkpoint that it could continue from, so a kill costs all its work.
  A function saves with tune.report(metrics, checkpoint=...) or tune.checkpoint_dir(), and loads at its start what
  tune.get_checkpoint() returns. A class has save_checkpoint and load_checkpoint, and needs
  CheckpointConfig(checkpoint_frequency=N), in tune.run checkpoint_freq=N."""
SAVED_LAST = """\
nothing could be proven: no trial reports anything after its first checkpoint, so there is no training to continue.
  Report more iterations, or save earlier."""
NO_RUN = "the script ran no experiment: it has to call tune.run(...) or Tuner(...).fit() when it is run as a script"
NOT_KILLED = """\
nothing could be proven: no kill happened, because no trial came that far a second time with a checkpoint to continue
  from. The second run took another course than the first: give the script a seed."""
BEGAN_ANEW = """\
It looks as if the training began anew after the kill: the first results then are those of iteration 1.
  Load what tune.get_checkpoint() returns (a class: load_checkpoint) before the first step, its number too."""
BY_ITSELF = """\
Nobody can tell whether it continues: two runs without any kill differ as well (%s).
  Make the script repeat itself first. Likely causes:
  - a generator without a fixed seed: trials get theirs from seed= of tune.run; what is drawn outside of trials, and
    random.Random(), numpy.random.default_rng() and torch.Generator() of one's own, need one
  - kernels that are not deterministic: torch.use_deterministic_algorithms(True), torch.backends.cudnn.benchmark = False
  - a metric that measures time or memory: --ignore NAME
  - the order of a set or of a directory's files; threads that race; limits in seconds (time_budget_s)"""
TIMING = """\
Beyond that the runs took different courses, which depends on how long things take:
%s"""
INCOMPARABLE = """\
Nobody can tell whether it continues: what the run does depends on how long things take, and no trial that was killed
has a result after its kill that both runs share:
%s"""
CAUSES = """\
Two runs without a kill are the same, so something is missing in the checkpoint, or is not loaded. Likely causes:
  - what tune.get_checkpoint() returns is not loaded before the first step
  - the random states of python, numpy, torch and CUDA are not saved (TrainState of trainables.torch saves them all)
  - the optimizer, the lr scheduler, the gradient scaler or a running average is not saved, or not loaded
  - the order of the data: a DataLoader that shuffles begins a new order (InterruptableDistributedSampler continues it)
  - the number of the step or the epoch is off by one after loading
  - a metric that measures time or memory: --ignore NAME"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a proof."""

    proven: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Finding:
    """The differences of one trial, in results and in its last checkpoint."""

    trial: str
    metrics: Sequence[tuple[int, Difference]]
    state: Sequence[Difference]
    other: Sequence[str]


def before_kills(whole: Path) -> Verdict | None:
    """What can be said of a run without a kill already: it failed, or there is nothing to continue. None: go on."""
    seen = run_records.of_place(whole)
    if not seen:
        return Verdict(False, NO_RUN)
    for state in _states(whole).values():
        for trial in state.trials:
            if trial.error is not None:
                return Verdict(False, f"{_called(trial)} failed without any kill:\n{_error(trial)}")
    trials = [trial for found in seen.values() for trial in found.values()]
    if not any(trial.saved for trial in trials):
        return Verdict(False, NOTHING_SAVED)
    return None if run_records.points(seen, kills=1, seed=0) else Verdict(False, SAVED_LAST)


def judge(whole: Path, killed: Path, *, ignore: Sequence[str], control: Callable[[], Path]) -> Verdict:
    """Compare the run without a kill and the one with kills.

    `control` makes another run without a kill; it is asked only where something differs.
    """
    seen = run_records.of_place(killed)
    kills = [(index, kill) for found in seen.values() for index, trial in sorted(found.items()) for kill in trial.kills]
    if not kills:
        return Verdict(False, NOT_KILLED)
    told = "; ".join(f"trial {index} at iteration {kill.iteration}, {_from(kill)}" for index, kill in kills)
    first, timing = next(_findings(whole, killed, ignore), None), run_records.timing(whole)
    if first is not None and timing:
        first = next(_findings(whole, killed, ignore, timing), None)
        if first is None:
            return _as_far(whole, seen, told, timing)
    if first is None:
        results = sum(len(trial.results) for found in seen.values() for trial in found.values())
        trials = sum(map(len, seen.values()))
        return Verdict(
            True,
            f"proven: killed {_times(len(kills))} ({told}), and all {results} results and the last checkpoints of "
            f"{trials} trial{'' if trials == 1 else 's'} are what they are without a kill",
        )
    lines = [f"not proven: {first.trial} does not go on as without a kill (killed: {told})", *_said(first)]
    again = next(_findings(whole, control(), ignore, timing), None)
    if again is not None:
        lines.append(BY_ITSELF % "; ".join(line.strip() for line in _said(again)[:1]))
    elif not first.other or first.metrics:
        anew = any(_begins_anew(whole, seen, number) for number in seen)
        lines.append(BEGAN_ANEW if anew else CAUSES)
    return Verdict(False, "\n".join(lines))


def _as_far(
    whole: Path, seen: Mapping[int, Mapping[int, TrialRecord]], told: str, timing: Mapping[int, Sequence[str]]
) -> Verdict:
    """What can be said where the runs are the same as far as they took the same course."""
    lines = "\n".join(f"  - {line}" for number in sorted(timing) for line in timing[number])
    first = run_records.of_place(whole)
    common = compared = 0
    for number, trials in seen.items():
        for index, trial in trials.items():
            shared = _shared(first.get(number, {}).get(index, TrialRecord()), trial)
            common += len(shared)
            compared += sum(any(reached > (kill.went_on_from or 0) for reached in shared) for kill in trial.kills)
    if not compared:
        return Verdict(False, INCOMPARABLE % lines)
    said = f"proven as far as the runs can be compared: killed at {told}, and the {common} results that both have are"
    return Verdict(True, f"{said} the same\n{TIMING % lines}")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _from(kill: run_records.RecordedKill) -> str:
    if kill.went_on_from is None:
        return "and it never came back"
    return f"went on from {kill.went_on_from}" if kill.went_on_from else "began anew"


def _said(finding: _Finding) -> list[str]:
    lines = []
    if finding.metrics:
        iteration, found = finding.metrics[0]
        more = f" (and {len(finding.metrics) - 1} more)" if len(finding.metrics) > 1 else ""
        lines.append(f"  first metric that differs: {found.name} at iteration {iteration}: {found.text}{more}")
    lines += [f"  {line}" for line in finding.other]
    if finding.state:
        first = next((found for found in finding.state if found.tensor), finding.state[0])
        more = f" (and {len(finding.state) - 1} more)" if len(finding.state) > 1 else ""
        kind = "tensor" if first.tensor else "value"
        lines.append(f"  first {kind} that differs in the last checkpoint: {first.name} {first.text}{more}")
    return lines


# --- comparing --------------------------------------------------------------------------------------------------


def _states(place: Path) -> dict[int, Any]:
    """Experiment's number -> its state, of those that have one."""
    found = {}
    for number in run_records.of_place(place):
        inside = sorted((place / str(number)).iterdir()) if (place / str(number)).is_dir() else []
        for paths in map(ExperimentPaths, inside):
            if is_experiment(paths):
                found[number] = load_state(paths)
    return found


def _findings(
    whole: Path, other: Path, ignore: Sequence[str], timing: Mapping[int, Sequence[str]] = MappingProxyType({})
) -> Iterator[_Finding]:
    """Trial by trial what differs, in the order of creation.

    Of experiments in `timing` only what cannot come of another course.
    """
    seen = run_records.of_place(whole), run_records.of_place(other)
    states = _states(whole), _states(other)
    for number, state in states[0].items():
        there = {trial.index: trial for trial in states[1][number].trials} if number in states[1] else {}
        for trial in state.trials:
            again = there.get(trial.index)
            if again is None and number in timing:
                continue
            if again is None:
                yield _Finding(_called(trial), (), (), ["the trial is missing"])
                continue
            one, two = (found[number].get(trial.index, TrialRecord()) for found in seen)
            finding = (_compare_shared if number in timing else _compare)(trial, again, (one, two), ignore)
            if finding.metrics or finding.state or finding.other:
                yield finding


def _compare(trial: Trial, again: Trial, seen: tuple[TrialRecord, TrialRecord], ignore: Sequence[str]) -> _Finding:
    configs = [msgspec.json.decode(found.raw_config) for found in (trial, again)]
    other = [f"its config differs: {found.name}: {found.text}" for found in differences(*configs)]
    if again.error is not None:
        other.append(f"it failed after it was continued:\n{_error(again)}")
    elif trial.status != again.status:
        other.append(f"it ended as {trial.status}, now {again.status}")
    metrics = list(_results(seen[0].results, seen[1].results, ignore))
    last, now = trial.latest_checkpoint, again.latest_checkpoint
    state: list[Difference] = []
    if last is not None and now is not None:
        paths = trial.directory / last.ref.name, again.directory / now.ref.name
        state = list(compare_files.compare(*paths, ignore=(*NEVER_SAME, *ignore)))
        if last.iteration != now.iteration:
            other.append(f"its last checkpoint is that of iteration {last.iteration}, now {now.iteration}")
    elif last is not now:
        other.append("it has no checkpoint at its end" if now is None else "it has a checkpoint at its end now")
    return _Finding(_called(trial), metrics, state, other)


def _compare_shared(
    trial: Trial, again: Trial, seen: tuple[TrialRecord, TrialRecord], ignore: Sequence[str]
) -> _Finding:
    """`_compare`, of the results that both runs came to before the trial became a clone or got another config."""
    other = [] if again.error is None else [f"it failed after it was continued:\n{_error(again)}"]
    shared = _shared(*seen)
    first, second = ({iteration: record.results[iteration] for iteration in shared} for record in seen)
    metrics = list(_results(first, second, ignore))
    return _Finding(_called(trial), metrics, (), other)


def _shared(one: TrialRecord, two: TrialRecord) -> list[int]:
    """The iterations that both came to with the same config, in order."""
    shared: list[int] = []
    for iteration in sorted(one.results.keys() & two.results.keys()):
        if any(differences(one.configs.get(iteration), two.configs.get(iteration))):
            break
        shared.append(iteration)
    return shared


def _results(
    one: Mapping[int, Mapping[str, Any]], two: Mapping[int, Mapping[str, Any]], ignore: Sequence[str]
) -> Iterator[tuple[int, Difference]]:
    for iteration in sorted({*one, *two}):
        if iteration not in two or iteration not in one:
            what = "never came" if iteration not in two else "came, and does not without a kill"
            yield iteration, Difference("the result", what)
            continue
        for found in differences(_user(one[iteration]), _user(two[iteration]), ignore=ignore):
            yield iteration, found


def _user(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in AUTOMATIC}


def _begins_anew(whole: Path, seen: Mapping[int, Mapping[int, TrialRecord]], number: int) -> bool:
    """Whether some trial's first results after a kill are those of a trial that begins."""
    first = run_records.of_place(whole).get(number, {})
    for index, trial in seen[number].items():
        begun = _numbers(first.get(index, TrialRecord()).results.get(1, {}))
        for kill in trial.kills:
            after = (kill.went_on_from or 0) + 1
            if after > 1 and begun and _numbers(trial.results.get(after, {})) == begun:
                return True
    return False


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in _user(result).items()
        if isinstance(value, int | float) and key != automatic.TRAINING_ITERATION
    }


def _called(trial: Trial) -> str:
    shown = (
        (key, f"{value:.4g}" if isinstance(value, float) else value) for key, value in trial.evaluated_params.items()
    )
    params = ", ".join(f"{key}={value}" for key, value in shown)
    return f"trial {trial.index}{f' ({params})' if params else ''}"


def _error(trial: Trial) -> str:
    assert trial.error is not None
    text = trial.error.traceback or f"{trial.error.type}: {trial.error.message}"
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-12:])
