"""What Ray's `Trial` has beside ours: by what is known here, or with what to use instead."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner as tune
from tuner.error import NotHereError
from tuner.experiment.ray_trial import _INSTEAD
from tuner.experiment.trial import Trial
from tuner.search.planned_trial import PlannedTrial

RAYS = """
    trial_id trainable_name config evaluated_params experiment_tag status last_result metric_analysis metric_n_steps
    logdir local_dir local_path path experiment_dir_name remote_experiment_path local_experiment_path relative_logdir
    remote_checkpoint_dir node_ip location get_ray_actor_ip placement_group_factory create_placement_group_factory
    stopping_criterion log_to_file max_failures export_formats start_time last_update_time custom_trial_name
    custom_dirname trial_name_creator trial_dirname_creator checkpoint checkpoint_at_end checkpoint_freq
    checkpoint_manager checkpoint_config keep_checkpoints_num checkpoint_score_attr latest_checkpoint_result
    has_checkpoint
    on_checkpoint clear_checkpoint restore_path restoring_from saving_to is_saving is_restoring on_restore num_failures
    num_failures_after_restore error_file pickled_error_file get_error get_pickled_error handle_error write_error_log
    should_stop should_checkpoint should_recover update_last_result update_resources set_config set_status
    set_experiment_tag set_location set_runner set_ray_actor set_storage runner temporary_state run_metadata storage
    generate_id reset init_logdir init_local_path get_trainable_cls is_finished get_json_state from_json_state
    from_directory invalidate_json_state restore_run_metadata has_reported_at_least_once uses_cloud_checkpointing
    sync_on_checkpoint sync_function_tpl results best_result param_config extra_arg stub n_steps last_debug
    resolve_config_placeholders get_runner_ip get_trial_checkpoints custom_syncer remote_checkpoint_dir_prefix
""".split()


def trial(**given: Any) -> Trial:
    made = Trial(
        "t1", 1, "train", given.pop("name", "train_t1"), given.pop("dirname", "train_t1_x"), msgspec.Raw(b"{}")
    )
    made.__dict__["root"] = Path("/results/mine") / made.dirname
    for name, value in given.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("name", RAYS)
def test_every_name_of_rays_works_or_says_what_to_use(name: str) -> None:
    try:
        getattr(trial(), name)
    except NotHereError as error:
        assert re.fullmatch(rf"Trial\.{name} is not here; instead: .{{20,}}", str(error))
        assert not hasattr(trial(), name)


def test_nothing_is_said_to_be_missing_that_is_there() -> None:
    there = {name for name, _ in inspect.getmembers_static(Trial)}
    assert set(_INSTEAD) & there == set()
    assert set(_INSTEAD) - set(RAYS) == {"best_checkpoints", "sync_config"}


def test_a_name_that_no_version_has_is_an_attribute_error_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'trainable_name'"):
        trial().trainable_nam  # noqa: B018
    with pytest.raises(NotHereError, match="ExperimentAnalysis"):
        Trial.from_directory("somewhere")


def test_places_and_names() -> None:
    one = trial()
    assert (one.local_dir, one.experiment_dir_name, one.relative_logdir) == ("/results/mine", "mine", "train_t1_x")
    assert (one.custom_trial_name, one.custom_dirname, one.remote_checkpoint_dir) == (None, None, None)
    named = trial(name="fast", dirname="dir-of-fast")
    assert (named.custom_trial_name, named.custom_dirname) == ("fast", "dir-of-fast")
    one.__dict__["origin"] = "s3://b/mine"
    assert one.remote_checkpoint_dir == "s3://b/mine/train_t1_x"


def test_a_trial_by_hand_is_one_that_is_to_be() -> None:
    made: Any = Trial("train", config={"x": 1}, trial_id="a", evaluated_params={"x": 1}, stopping_criterion={})  # type: ignore[call-arg]
    assert isinstance(made, PlannedTrial) and (made.config, made.trial_id, str(made)) == ({"x": 1}, "a", "train_a")
    assert len({Trial.generate_id() for _ in range(100)}) == 100


def test_a_callback_reads_what_a_run_knows(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    class Reading(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Trial, result: Any, **info: Any) -> None:
            seen.update(
                pg=trial.placement_group_factory.required_resources, ip=trial.node_ip, finished=trial.is_finished()
            )
            seen.update(started=trial.start_time, reported=trial.has_reported_at_least_once)

        def on_trial_error(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
            seen.update(error=trial.get_error(), at=trial.location, file=trial.error_file)

    def fails(config: Any) -> None:
        tune.report({"loss": 1})
        tune.report({"loss": 2})
        raise ValueError("on purpose")

    tune.run(
        fails, storage_path=tmp_path, verbose=0, callbacks=[Reading()], raise_on_failed_trial=False,
        resources_per_trial={"cpu": 2},
    )  # fmt: skip
    assert seen["pg"] == {"CPU": 2.0} and seen["reported"] and not seen["finished"]
    assert seen["started"] > 0 and seen["ip"] and seen["at"].pid > 0
    assert "ValueError: on purpose" in str(seen["error"]) and "on purpose" in seen["error"].traceback


def test_its_stored_form_is_as_it_was() -> None:
    names = {field.name for field in msgspec.structs.fields(Trial)}
    assert "usual" not in names and json.loads(msgspec.json.encode(trial()))["trial_id"] == "t1"
