"""What must hold of a replica at every moment, and of both sides once the run was continued elsewhere (R2-R5)."""

from __future__ import annotations

from pathlib import Path

from crash_disk import materialize
from crash_place import Files, as_view
from crash_rules import LEFT_OVER, Floor, Left, Outcome, Resumed, look, require
from crash_scenarios import Scenario

from trainables.store import verify
from trainables.wire import CheckpointRef
from tuner.experiment.journal import read_journal
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state, read_settings
from tuner.experiment.trial import Trial


def look_there(root: Path, floor: Floor) -> Left:
    """Read what a replica holds, as a tree, and hold it against the rules that hold at every moment."""
    return look(root, floor, staged=False)


def together(here: Left, there: Left) -> Left:
    """What both sides hold: the newer of two journals, and every checkpoint that is complete on either of them."""
    newer = here if _facts(here) >= _facts(there) else there
    refs: dict[str, set[CheckpointRef]] = {}
    for left in (here, there):
        for trial_id, found in left.complete.items():
            refs.setdefault(trial_id, set()).update(found)
    complete = {trial_id: sorted(found, key=lambda ref: ref.order) for trial_id, found in refs.items()}
    return Left(newer.root, newer.state, complete)


def _facts(left: Left) -> int:
    return 0 if left.state is None else read_journal(ExperimentPaths(left.root)).last_seq


def arrived(left: Left, trial: Trial) -> list[CheckpointRef]:
    """The complete checkpoints that the trial may continue from, oldest first."""
    lineage = set(trial.lineage)
    return [ref for ref in left.complete.get(trial.trial_id, []) if ref.order[:2] in lineage]


def check_starts(left: Left, resumed: Resumed) -> None:
    """Who runs had not ended, and goes on from the newest that arrived."""
    before = {} if left.state is None else {trial.trial_id: trial for trial in left.state.trials}
    seen: set[str] = set()
    for launch in resumed.launches:
        job = launch.job
        trial = before.get(job.trial_id)
        if trial is None or job.trial_id in seen:
            require(
                trial is not None or job.checkpoint is None or job.trial_id in seen,
                f"R4: {job.trial_id} is not in the journal and starts from {job.checkpoint}",
            )
            seen.add(job.trial_id)
            continue
        seen.add(job.trial_id)
        complete = arrived(left, trial)
        if trial.is_finished():
            latest = trial.latest_checkpoint
            require(
                trial.status == Trial.TERMINATED and latest is not None and latest.ref not in complete,
                f"R4: {job.trial_id} had ended as {trial.status}, with {latest} there, and runs again",
            )
        start = complete[-1] if complete else None
        require(
            job.checkpoint == start,
            f"R4: {job.trial_id} starts from {job.checkpoint}, the newest complete one is {start}",
        )


def kept_of(scenario: Scenario, left: Left, resumed: Resumed, trial: Trial, outcome: Outcome) -> list[int]:
    """What retention has to keep: of what had arrived and what was saved since. Nothing brings back the rest."""
    before = left.state.trials.get(trial.trial_id) if left.state is not None else None
    starts = [launch.job for launch in resumed.launches if launch.job.trial_id == trial.trial_id]
    if before is None:
        return outcome.kept
    complete = arrived(left, before)
    held = {record.iteration for record in before.checkpoints if record.ref in complete}
    if starts:
        begun = starts[0].start_iteration
        held = {iteration for iteration in held if iteration < begun} | ({begun} if starts[0].checkpoint else set())
        held |= {iteration for iteration in scenario.saved if begun < iteration <= len(outcome.values)}
    elif not before.is_finished() and complete:
        held.add(complete[-1].iteration)  # its end had been decided: what it published last is taken up, not the trial
    return best_and_latest(scenario, outcome, held)


def best_and_latest(scenario: Scenario, outcome: Outcome, held: set[int]) -> list[int]:
    """The iterations that the scenario's settings keep of these."""
    count, by = scenario.settings["keep_checkpoints_num"], scenario.settings.get("checkpoint_score_attr")
    sign = -1 if by == "max-v" else 1
    ranked = sorted(held, key=lambda iteration: sign * outcome.values[iteration - 1] if by else -iteration)
    return sorted({*ranked[:count], *([max(held)] if held else [])})


def check_everywhere(
    scenario: Scenario, left: Left, resumed: Resumed, disk: Path, files: Files, expected: list[Outcome]
) -> None:
    """At the end both sides hold the same experiment; there all that is kept, here nothing that is not."""
    here, there = disk / "here" / "e", disk / "end" / "e"
    materialize(as_view(files), disk / "end")
    mine, its = load_state(ExperimentPaths(here)), load_state(ExperimentPaths(there))
    require(
        [(trial.trial_id, trial.status, trial.config) for trial in mine.trials]
        == [(trial.trial_id, trial.status, trial.config) for trial in its.trials],
        f"R6: here are {list(mine.trials)}, there are {list(its.trials)}",
    )
    assert mine.generation is not None
    known = {"experiment.json", "generations", "journal", "blobs"}
    for log in (path for path in ExperimentPaths(here).driver_logs if path.exists()):
        known.add(log.name)
        there_too = there / log.name
        require(
            there_too.exists() and there_too.read_bytes() == log.read_bytes(), f"R6: {log.name} is not the same there"
        )
    for trial, outcome in zip(its.trials, expected, strict=True):
        known.add(trial.dirname)
        _check_there(trial, there / trial.dirname, kept_of(scenario, left, resumed, trial, outcome))
        _check_here(trial, here / trial.dirname, mine.generation.generation, scenario.sync.get("keep_local"))
        for name in ("result.json", "progress.csv", "params.json", "trial.json"):
            if (here / trial.dirname / name).exists():
                require(
                    (there / trial.dirname / name).exists()
                    and (here / trial.dirname / name).read_bytes() == (there / trial.dirname / name).read_bytes(),
                    f"R6: {trial.dirname}/{name} is not the same there",
                )
    unknown = {path.name for path in there.iterdir()} - known
    require(not unknown, f"R2: {unknown} there belong to nobody")
    _check_blobs(there, its.plugins)
    left_over = [path for path in here.rglob("*") if LEFT_OVER.search(path.name)]
    require(not left_over, f"F29: left over: {left_over}")
    beside = [path.name for path in here.parent.iterdir() if path.name not in ("e", ".tmp")]
    require(not beside, f"F29: left over beside the experiment: {beside}")


def _check_there(trial: Trial, directory: Path, kept: list[int]) -> None:
    listing = verify.scan(directory)
    require(not listing.broken and not listing.unknown, f"R2: {trial.name}: there is {listing}")
    recorded = {record.ref: record.digest for record in trial.checkpoints}
    complete = {published.ref: published.digest for published in listing.complete}
    require(recorded == complete, f"R6: {trial.name}: the journal there knows {list(recorded)}, there are {complete}")
    for published in listing.complete:
        problems = verify.problems(published.path)
        require(not problems, f"R1: {problems}")
    own = [ref for ref in complete if ref.order[:2] in trial.lineage]
    found = sorted(ref.iteration for ref in own)
    require(found == kept, f"R3: {trial.name} keeps {found} there instead of {kept}")


def _check_here(trial: Trial, directory: Path, generation: int, keep_local: int | None) -> None:
    listing = verify.scan(directory)
    require(not listing.broken and not listing.unknown, f"R1: {trial.name}: here is {listing}")
    recorded = {record.ref for record in trial.checkpoints}
    complete = {published.ref for published in listing.complete}
    require(complete <= recorded, f"R3: {trial.name}: here are {complete - recorded} that are not kept")
    for published in listing.complete:
        problems = verify.problems(published.path)
        require(not problems, f"R1: {problems}")
    own = {ref for ref in recorded if ref.generation == generation}
    if keep_local is None:
        require(own <= complete, f"R6: {trial.name}: {own - complete} were saved here and are not here")
    else:
        require(len(complete) <= keep_local, f"{trial.name}: keep_local={keep_local}, and here are {complete}")
        newest = max(recorded, key=lambda ref: ref.order, default=None)
        require(newest not in own or newest in complete, f"{trial.name}: its latest {newest} is not here any more")


def _check_blobs(root: Path, plugins: dict[str, str]) -> None:
    settings = read_settings(ExperimentPaths(root))
    named = {settings[key] for key in ("space_blob", "settings_blob") if settings.get(key)} | set(plugins.values())
    held = {path.name for path in (root / "blobs").iterdir()}
    require(named <= held, f"section 7: {root / 'experiment.json'} and the journal name {named - held}, not there")
