"""What Ray's `Trial` has beside ours: it works by what is known here, or says what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainables.places import child_of
from trainables.quick_dataclass import dataclass
from trainables.validation import nearest_name
from tuner.error import NoSuchAttributeError, TrialError
from tuner.resources import PlacementGroupFactory
from tuner.search.planned_trial import PlannedTrial
from tuner.search.planned_trial import generate_id as _generate_id

if TYPE_CHECKING:
    from tuner.experiment.events import ErrorInfo


class TrialType(type(msgspec.Struct)):  # type: ignore[misc]
    """Makes `Trial(trainable_name, config=...)`, as a search algorithm writes it for Ray, a trial that is to be."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if len(arguments) < 2 and "index" not in named:
            return PlannedTrial.of(*arguments, **named)
        return super().__call__(*arguments, **named)

    def __getattr__(cls, name: str) -> Any:
        if name in _INSTEAD:
            raise NoSuchAttributeError(f"Trial.{name} is not here; instead: {_INSTEAD[name]}")
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, slots=True)
class TrialLocation:
    """Where a trial ran last, as far as its results say."""

    hostname: str | None
    pid: int | None

    def __str__(self) -> str:
        return f"{self.hostname or 'no host yet'}:{self.pid}"


class RayTrial:
    """The properties and methods of Ray's `Trial`, of all its versions."""

    if TYPE_CHECKING:
        trial_id: str
        trainable_name: str
        name: str
        dirname: str
        iteration: int
        started_at: float | None
        save_due: int
        failures_in_row: int
        resources: dict[str, float] | None
        error: ErrorInfo | None

        @property
        def directory(self) -> Path: ...
        @property
        def last_result(self) -> dict[str, Any]: ...
        @property
        def last_heard_of(self) -> float: ...
        @property
        def latest_checkpoint(self) -> Any: ...

    @classmethod
    def generate_id(cls) -> str:
        """Eight characters that no other trial has."""
        return _generate_id()

    # --- where ----------------------------------------------------------------------------------------------------

    @property
    def local_dir(self) -> str:
        """The experiment's directory."""
        return str(self.directory.parent)

    local_experiment_path = local_dir

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's directory."""
        return self.directory.parent.name

    @property
    def relative_logdir(self) -> str:
        """The name of its own directory."""
        return self.dirname

    @property
    def remote_experiment_path(self) -> str | None:
        """Where the copy of the experiment is that this trial was read from; None: it was read here."""
        origin: str | None = vars(self).get("origin")
        return origin

    remote_checkpoint_dir_prefix = remote_experiment_path

    @property
    def remote_checkpoint_dir(self) -> str | None:
        """Its own directory there."""
        origin = self.remote_experiment_path
        return None if origin is None else child_of(origin, self.dirname)

    @property
    def node_ip(self) -> str | None:
        """The address of the host that it ran on, by its last result."""
        return self.last_result.get("node_ip")

    def get_ray_actor_ip(self) -> str | None:
        """The same."""
        return self.node_ip

    get_runner_ip = get_ray_actor_ip

    @property
    def location(self) -> TrialLocation:
        """Host and process that it ran in, by its last result."""
        return TrialLocation(self.last_result.get("hostname"), self.last_result.get("pid"))

    # --- what it is called ------------------------------------------------------------------------------------------

    @property
    def custom_trial_name(self) -> str | None:
        """Its name, where `trial_name_creator` made that."""
        return None if self.name == f"{self.trainable_name}_{self.trial_id}" else self.name

    @property
    def custom_dirname(self) -> str | None:
        """The name of its directory, where `trial_dirname_creator` made that."""
        return None if self.dirname.startswith(f"{self.trainable_name}_{self.trial_id}") else self.dirname

    # --- how it goes --------------------------------------------------------------------------------------------------

    @property
    def start_time(self) -> float | None:
        """When its first attempt began, in seconds since the epoch; None: none has."""
        return self.started_at

    @property
    def last_update_time(self) -> float:
        """When its newest result came, in seconds since the epoch; 0: none has."""
        return self.last_heard_of

    @property
    def has_reported_at_least_once(self) -> bool:
        """It has a result that stands."""
        return self.iteration > 0

    @property
    def placement_group_factory(self) -> PlacementGroupFactory:
        """What it gets."""
        amounts: Mapping[str, float] = self.resources or vars(self).get("usual") or {"cpu": 1.0}
        return PlacementGroupFactory([{_RAYS.get(name, name): amount for name, amount in amounts.items()}])

    @property
    def num_failures_after_restore(self) -> int:
        """Failures since its last result that was new."""
        return self.failures_in_row

    def has_checkpoint(self) -> bool:
        """One of its checkpoints is kept."""
        return self.latest_checkpoint is not None

    @property
    def is_saving(self) -> bool:
        """A save was asked for and is not on the disk yet."""
        return bool(self.save_due)

    @property
    def is_restoring(self) -> bool:
        """False: its process reads a checkpoint before anything is heard of it."""
        return False

    def get_error(self) -> TrialError | None:
        """Why it failed, or None."""
        return (
            None if self.error is None else TrialError(f"{self.error.type}: {self.error.message}", self.error.traceback)
        )

    get_pickled_error = get_error

    @property
    def pickled_error_file(self) -> None:
        """None: the exception object stays in the process of the trial; `get_error()` has its text."""
        return

    def __getattr__(self, name: str) -> Any:
        if name in _INSTEAD:
            raise NoSuchAttributeError(f"Trial.{name} is not here; instead: {_INSTEAD[name]}")
        if name.startswith("_"):
            raise AttributeError(name)
        near = nearest_name(name, [known for known in dir(type(self)) if not known.startswith("_")])
        raise AttributeError(f"Trial has no {name!r}" + (f"; did you mean {near!r}?" if near else ""))


_RAYS = {"cpu": "CPU", "gpu": "GPU"}
_CHANGED = (
    "a trial is not changed from outside. A scheduler returns what becomes of it from on_trial_result: "
    "tuner.schedulers.base.Exploit(donor_id, config), Reallocate(resources), TrialScheduler.STOP or PAUSE"
)
_CHECKPOINTS = "trial.checkpoint, the newest, and trial.checkpoints, all that are kept, each with its metrics"
_GIVEN = "it is the same for all trials: what was given to tune.run, or to the Tuner"
_PROCESS = (
    "a trial is a process and no actor: trial.status, trial.location, trial.node_ip, trial.placement_group_factory"
)
_READ = "tuner.ExperimentAnalysis(path).trials reads trials, `tuner show --json` prints one"
_NEWEST = "trial.metric_analysis has min, max and avg of each metric, trial.last_result the newest; a callback sees all"
_INSTEAD = {
    name: instead
    for names, instead in (
        (
            "set_config set_status set_experiment_tag set_runner set_ray_actor set_location set_storage reset "
            "update_resources update_last_result on_checkpoint on_restore clear_checkpoint init_logdir init_local_path "
            "handle_error write_error_log create_placement_group_factory resolve_config_placeholders",
            _CHANGED,
        ),
        (
            "checkpoint_manager latest_checkpoint_result best_checkpoints best_result get_trial_checkpoints "
            "restoring_from saving_to restore_path",
            _CHECKPOINTS,
        ),
        (
            "checkpoint_at_end checkpoint_freq checkpoint_config keep_checkpoints_num checkpoint_score_attr "
            "export_formats max_failures log_to_file stopping_criterion trial_name_creator trial_dirname_creator "
            "storage sync_config custom_syncer sync_on_checkpoint sync_function_tpl uses_cloud_checkpointing "
            "should_stop should_checkpoint should_recover get_trainable_cls param_config extra_arg stub",
            _GIVEN,
        ),
        ("runner temporary_state run_metadata last_debug", _PROCESS),
        (
            "get_json_state from_json_state from_directory invalidate_json_state restore_run_metadata results",
            _READ,
        ),
        ("metric_n_steps n_steps", _NEWEST),
    )
    for name in names.split()
}
