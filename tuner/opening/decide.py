"""What a start does, decided from what stands and what holds; nothing is looked at or touched here."""

from __future__ import annotations

from enum import Enum

from trainables.quick_dataclass import dataclass
from tuner.error import ExperimentDamagedError, ExperimentDivergedError, ExperimentExistsError, ResumeError, TuneError
from tuner.experiment.continuing import how_to_choose, resume_words
from tuner.experiment.existing import Existing
from tuner.experiment.resume import Base
from tuner.opening.settings import Settings, refuse_another
from tuner.opening.survey import LocalStanding, RemoteStanding, StartStanding
from tuner.syncer.relation import Relation


class Action(Enum):
    """What happens to the experiment's directory. Checkpoints of an experiment go with `REPLACE` only."""

    NEW = "new"
    """It is made."""
    RESUME = "resume"
    """What is here goes on."""
    FETCH = "fetch"
    """What is newer in the replica is brought here, and goes on."""
    REPLACE = "replace"
    """What is here makes room for a new one, for good once its first trial has started."""
    RESTORE = "restore"
    """Another experiment is copied under this name, and goes on."""
    ASIDE = "aside"
    """What is here and in the replica gets another name; then it is looked again."""
    REFUSE = "refuse"
    """Nothing is touched."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What will be done."""

    action: Action
    note: str = ""
    """The line that says why."""
    refusal: TuneError | None = None
    asks: str = ""
    """The place of what is resumed, where a person is asked first."""
    sets_aside: bool = False
    """What is here is another history than the one that is fetched, and makes room for it."""
    voids_remote: bool = False
    """What the replica has is another history than the one here, and goes."""

    @property
    def resumes(self) -> bool:
        """An experiment that there was goes on."""
        return self.action in (Action.RESUME, Action.FETCH, Action.RESTORE)


def decide(settings: Settings, standing: StartStanding) -> StartPlan:
    """The one place where resume word, local and remote history meet."""
    try:
        return _decide(settings, standing)
    except TuneError as error:
        return StartPlan(Action.REFUSE, refusal=error)


def _decide(settings: Settings, standing: StartStanding) -> StartPlan:
    spec, local, remote = settings.spec, standing.local, standing.remote
    base, relation = spec.resume_choice.base, Relation.ABSENT if remote is None else remote.relation
    if standing.restores and not local.exists and relation is Relation.ABSENT:
        _leave_orphans_alone(settings, remote)
        return StartPlan(Action.RESTORE)
    if standing.restores and base is Base.NEW:
        there = local.root if local.exists or remote is None else remote.uri
        raise ExperimentExistsError(
            f"there is an experiment at {there}: {resume_words(there, spec.started_by)} continues it, and a start from "
            "another one needs a name that is free"
        )
    if _makes_way(settings, standing):
        return _moved(settings, local, remote)
    if remote is not None:
        _check_remote(settings, remote)
    match base, local.exists, relation:
        case Base.NEW, True, _:
            return _replaced(settings, local)
        case (Base.LOCAL, False, _) | (Base.REMOTE, False, Relation.ABSENT):
            raise ResumeError(_nothing_to_resume(settings, local))
        case (Base.NEW, False, _) | (_, False, Relation.ABSENT):
            return _new(local)
        case Base.REMOTE, True, Relation.ABSENT:
            raise ResumeError(
                'resume="REMOTE" needs a replica: set SyncConfig(upload_dir=...); there is a local experiment at '
                f"{local.root}"
            )
        case Base.LOCAL, True, Relation.NEWER | Relation.DIVERGED:
            return _resumed(settings, local, voids_remote=True)
        case Base.REMOTE, True, Relation.DIVERGED:
            return _fetched(settings, local, remote, sets_aside=True)
        case _, True, Relation.DIVERGED:
            assert remote is not None
            raise ExperimentDivergedError(
                f"{local.root} and {remote.uri} hold two histories of which neither continues the other; "
                f"{how_to_choose(local.root, remote.uri, spec.started_by)}"
            )
        case _, _, Relation.NEWER:
            return _fetched(settings, local, remote)
        case _:
            return _resumed(settings, local)


def _makes_way(settings: Settings, standing: StartStanding) -> bool:
    """Whether an earlier experiment of the name is moved aside, because the environment says so."""
    spec, local, remote = settings.spec, standing.local, standing.remote
    if spec.rerun.existing is not Existing.ASIDE or spec.name is None or spec.overwrite or standing.restores:
        return False
    there = (local.exists and local.told) or (remote is not None and remote.exists and remote.told)
    return there and spec.resume_choice.base is Base.NEW


def _moved(settings: Settings, local: LocalStanding, remote: RemoteStanding | None) -> StartPlan:
    _leave_orphans_alone(settings, remote)
    if local.foreign:
        return _new(local)
    if remote is not None and remote.exists and not remote.can_move:
        raise ExperimentExistsError(
            f"TUNE_EXISTING=aside cannot move the experiment at {remote.uri}: what copies there can neither rename nor "
            f"list, copy and delete. {resume_words(remote.uri, settings.spec.started_by)} (or TUNE_EXISTING=resume) "
            "continues it, overwrite=True replaces it, another name or upload_dir leaves it alone"
        )
    return StartPlan(Action.ASIDE)


def _aside(settings: Settings) -> str:
    """The way out that the environment has; one that a run without a name has not."""
    return "TUNE_EXISTING=aside moves it to another name, " if settings.spec.name is not None else ""


def _check_remote(settings: Settings, remote: RemoteStanding) -> None:
    """What refuses a start whatever is here."""
    spec = settings.spec
    if spec.resume_choice.base is Base.REMOTE and not remote.exists:
        raise ResumeError(f'resume="REMOTE": there is no experiment at {remote.uri}')
    _leave_orphans_alone(settings, remote)
    if spec.resume_choice.base is Base.NEW and not spec.overwrite and remote.exists and remote.told:
        raise ExperimentExistsError(
            f"there is an experiment at {remote.uri}: {resume_words(remote.uri, spec.started_by)} continues it, "
            f"overwrite=True replaces it, {_aside(settings)}another name or upload_dir leaves it alone"
        )


def _leave_orphans_alone(settings: Settings, remote: RemoteStanding | None) -> None:
    if remote is not None and remote.orphans and not settings.spec.overwrite:
        raise ExperimentDamagedError(
            f"{remote.uri} holds checkpoints but no experiment.json: it is left alone. Bring the file back, choose "
            "another name or upload_dir, or say overwrite=True"
        )


def _new(local: LocalStanding) -> StartPlan:
    if local.foreign:
        raise ExperimentDamagedError(
            f"{local.root} holds {', '.join(local.foreign[:3])} but no experiment.json: it is not an experiment of "
            "ours and is left alone; choose another name or storage_path"
        )
    return StartPlan(Action.NEW, f"starting new because there is no experiment at {local.root}")


def _replaced(settings: Settings, local: LocalStanding) -> StartPlan:
    root = local.root
    if settings.spec.overwrite:
        return StartPlan(Action.REPLACE, f"starting new because overwrite=True replaces the experiment at {root}")
    if settings.spec.name is not None and not local.told:
        return StartPlan(Action.REPLACE, f"starting new because the experiment at {root} never had a result")
    if local.driver:
        raise ExperimentExistsError(
            f"the experiment at {root} is {local.driver}: wait for it or stop it, or give this run another name"
        )
    raise ExperimentExistsError(
        f"there is an experiment with results at {root}: {resume_words(root, settings.spec.started_by)} continues it, "
        f"overwrite=True replaces it, {_aside(settings)}another name leaves it alone"
    )


def _resumed(settings: Settings, local: LocalStanding, *, voids_remote: bool = False) -> StartPlan:
    refuse_another(settings, local.description, local.root)
    asks = str(local.root) if settings.spec.resume_choice.base is Base.PROMPT else ""
    note = f"resuming from {local.root}" + (f", {why}" if (why := settings.spec.rerun.note) else "")
    return StartPlan(Action.RESUME, note, asks=asks, voids_remote=voids_remote)


def _fetched(
    settings: Settings, local: LocalStanding, remote: RemoteStanding | None, *, sets_aside: bool = False
) -> StartPlan:
    assert remote is not None
    refuse_another(settings, remote.description, remote.uri)
    if not remote.has_journal:
        raise ExperimentDamagedError(
            f"{remote.uri} has no journal any more, and what it said is lost: bring it back from a copy; "
            "overwrite=True replaces the experiment, another name leaves it alone"
        )
    place = str(local.root) if local.exists else remote.uri
    asks = place if settings.spec.resume_choice.base is Base.PROMPT else ""
    return StartPlan(
        Action.FETCH, f"resuming from {remote.uri}, brought to {local.root}", asks=asks, sets_aside=sets_aside
    )


def _nothing_to_resume(settings: Settings, local: LocalStanding) -> str:
    there = f"; there are: {', '.join(local.others[:10])}" if local.others else ""
    return f"resume={settings.spec.resume!r}: there is no experiment at {local.root}" + (
        there or "; there is no experiment in that directory"
    )
