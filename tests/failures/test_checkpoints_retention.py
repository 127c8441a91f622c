"""Which checkpoints are on disk after a run: counts, order, scores (F07-F12, D01-D06, design.md section 6)."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import Counter, count_up, facts, iterations, kept, killed_at, report_scores, run, save, warned

import trainables as train
import tuner as tune
from trainables.errors import InvalidSettingError
from trainables.metrics import lookup
from trainables.store.retention import Best, EveryN, Latest, Pinned
from tuner.cli import main
from tuner.error import SettingError

SCORES = [3.0, -1.0, 7.0, 2.0, 7.0, -5.0, 4.0]
NAN, INF = math.nan, math.inf


# --- F07: the direction counts, however it is said ---------------------------------------------------------------


def by_run_prefix(path, scores, order):
    return run(report_scores, path, config={"scores": scores}, keep_checkpoints_num=2,
               checkpoint_score_attr="min-score" if order == "min" else "score")  # fmt: skip


def by_run_max_prefix(path, scores, order):
    return run(report_scores, path, config={"scores": scores}, keep_checkpoints_num=2,
               checkpoint_score_attr=f"{order}-score")  # fmt: skip


def config_of(order, attribute="score"):
    return train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute=attribute, checkpoint_score_order=order)


def by_run_config(path, scores, order):
    return run(report_scores, path, config={"scores": scores}, checkpoint_config=config_of(order))


def by_prefix_in_config(path, scores, order):
    return run(report_scores, path, config={"scores": scores}, checkpoint_config=train.CheckpointConfig(
        num_to_keep=2, checkpoint_score_attribute=f"{order}-score"))  # fmt: skip


def by_keep_policy(path, scores, order):
    return run(report_scores, path, config={"scores": scores},
               checkpoint_config=train.CheckpointConfig(keep=[Best(2, "score", order)]))  # fmt: skip


def by_tuner(path, scores, order):
    tuner = tune.Tuner(
        report_scores,
        param_space={"scores": scores},
        run_config=tune.RunConfig(name="e", storage_path=str(path), verbose=0, checkpoint_config=config_of(order)),
    )
    tuner.fit()
    return tune.ExperimentAnalysis(path / "e")


def by_strategy(path, scores, order):
    tuner = tune.Tuner(
        report_scores,
        param_space={"scores": scores},
        run_config=tune.RunConfig(
            name="e",
            storage_path=str(path),
            verbose=0,
            checkpoint_config=train.CheckpointStrategy(
                num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order=order
            ),
        ),
    )
    tuner.fit()
    return tune.ExperimentAnalysis(path / "e")


def by_experiment(path, scores, order):
    experiment = tune.Experiment(
        "e", report_scores, config={"scores": scores}, local_dir=str(path), keep_checkpoints_num=2,
        checkpoint_score_attr=f"{order}-score",
    )  # fmt: skip
    tune.run_experiments(experiment, verbose=0)
    return tune.ExperimentAnalysis(path / "e")


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from checkpoint_faults import report_scores
"""


def by_command_line(path, scores, order):
    path.mkdir(parents=True)
    (path / "script.py").write_text(SCRIPT.format(here=str(Path(__file__).parent)))
    config = {
        "trainable": "script.py:report_scores",
        "name": "e",
        "storage_path": str(path),
        "verbose": 0,
        "param_space": {"scores": scores},
        "keep_checkpoints_num": 2,
        "checkpoint_score_attr": f"{order}-score",
    }
    (path / "run.yaml").write_text(json.dumps(config))
    assert main(["run", str(path / "run.yaml")]) == 0
    return tune.ExperimentAnalysis(path / "e")


def by_restored_tuner(path, scores, order):
    """Nothing is said at the restore: the stored number and direction hold for what comes after it."""
    killed_at(3, report_scores, path=path, config={"scores": scores}, checkpoint_config=config_of(order))
    tune.Tuner.restore(path / "e", report_scores).fit()
    return tune.ExperimentAnalysis(path / "e")


ENTRIES = [
    by_run_prefix, by_run_max_prefix, by_run_config, by_prefix_in_config, by_keep_policy, by_tuner, by_strategy,
    by_experiment, by_restored_tuner, by_command_line,
]  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_f07_min_and_max_of_negated_scores_keep_the_same_steps(tmp_path, entry):
    negated = [-score for score in SCORES]
    lowest = entry(tmp_path / "min", SCORES, "min").trials[0]
    highest = entry(tmp_path / "max", negated, "max").trials[0]
    assert iterations(lowest) == iterations(highest)
    expected = [2, 6] if entry is by_strategy else [2, 6, 7]  # the best two, and the latest
    assert iterations(lowest) == expected
    (best_of_max,) = [entry(tmp_path / "again", SCORES, "max").trials[0]]
    assert iterations(best_of_max)[:2] == [3, 5]


# --- F09: what numbers mean --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "on_disk"),
    [(None, [1, 2, 3, 4, 5, 6, 7]), (1, [7]), (2, [6, 7]), (5, [3, 4, 5, 6, 7]), (50, [1, 2, 3, 4, 5, 6, 7])],
)
def test_f09_the_count_on_disk_is_what_the_number_says(tmp_path, keep, on_disk):
    (trial,) = run(count_up, tmp_path, config={"n": 7}, keep_checkpoints_num=keep).trials
    assert iterations(trial) == on_disk


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_f09_there_is_never_more_than_the_number_while_it_runs(tmp_path, keep):
    """Looked at in each report, when deletion has been told and the next save is not begun."""
    seen = []

    class Look(tune.Callback):
        def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
            seen.append(len(trial.checkpoints))

    run(count_up, tmp_path, config={"n": 8}, keep_checkpoints_num=keep, callbacks=[Look()], executor="inline")
    assert max(seen) == keep + 1  # the new one is there before the old one goes: R2
    (trial,) = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert len(kept(trial)) == keep


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True])
def test_f09_a_wrong_number_is_refused_at_once_with_what_is_accepted(tmp_path, wrong):
    for make in (
        lambda: train.CheckpointConfig(num_to_keep=wrong),
        lambda: run(count_up, tmp_path, config={"n": 1}, keep_checkpoints_num=wrong),
    ):
        with pytest.raises(ValueError, match=r"num_to_keep.*None.*>= 1"):
            make()
    assert not os.path.exists(tmp_path / "e")


def test_f09_zero_under_a_strategy_leaves_nothing_on_disk(tmp_path):
    grid = tune.Tuner(
        count_up,
        param_space={"n": 3},
        run_config=tune.RunConfig(
            name="e", storage_path=str(tmp_path), verbose=0, checkpoint_config=train.CheckpointStrategy(num_to_keep=0)
        ),
    ).fit()
    assert [name for name in os.listdir(grid[0].path) if "checkpoint" in name or name.startswith(".")] == []


# --- F10, D06: the latest stays beside the best ------------------------------------------------------------------


def best_at_three(config):
    for count in range(restored_count() + 1, 61):
        if count == 51 and not os.path.exists(config["marker"]):
            open(config["marker"], "w").close()
            raise RuntimeError("died at 50")
        save(count)
        tune.report(score=100.0 if count == 3 else float(count), from_=restored_count())


def restored_count():
    checkpoint = tune.get_checkpoint()
    return 0 if checkpoint is None else int(Path(checkpoint.path, "count").read_text())


def test_f10_the_best_and_the_newest_are_both_there_after_a_crash(tmp_path):
    settings = {
        "config": {"marker": str(tmp_path / "marker")}, "metric": "score", "mode": "max", "keep_checkpoints_num": 1,
        "checkpoint_score_attr": "score",
    }  # fmt: skip
    analysis = run(best_at_three, tmp_path, raise_on_failed_trial=False, **settings)
    (trial,) = analysis.trials
    assert trial.status == "ERROR"
    assert iterations(trial) == [3, 50]
    assert analysis.get_best_checkpoint(trial).iteration == 3
    again = run(best_at_three, tmp_path, resume="AUTO+ERRORED", **settings)
    (trial,) = again.trials
    assert facts(tmp_path / "e", "attempt")[-1]["iteration"] == 50
    assert iterations(trial) == [3, 60]
    assert again.best_checkpoint.iteration == 3
    assert trial.checkpoint.iteration == 60


@pytest.mark.parametrize(
    "config",
    [
        train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"),
        train.CheckpointConfig(num_to_keep=1, checkpoint_score_order="min"),
        train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score", keep=[Pinned([2])]),
        train.CheckpointStrategy(num_to_keep=0),
        train.CheckpointStrategy(num_to_keep=1, checkpoint_score_attribute="score"),
    ],
    ids=["best", "oldest", "pinned", "none", "strategy"],
)
def test_d06_no_setting_removes_the_latest_of_a_trial_that_can_still_run(tmp_path, config):
    """The scores fall, so that the latest is never among the best; the trial then fails."""
    result = tune.Tuner(
        fall_and_fail,
        run_config=tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0, checkpoint_config=config),
    ).fit()[0]
    trial = tune.ExperimentAnalysis(tmp_path / "e").trials[0]
    assert result.error is not None
    assert iterations(trial)[-1] == 5
    assert result.checkpoint.to_dict is not None and result.checkpoint.iteration == 5


def fall_and_fail(config):
    for count in range(1, 6):
        save(count)
        tune.report(score=-float(count))
    raise RuntimeError("over")


# --- F11, F12, D01-D05: what ranks -------------------------------------------------------------------------------


def test_f11_a_metric_that_is_missing_most_of_the_time(tmp_path, caplog):
    scores = [s for value in (1.0, 9.0, 4.0) for s in (value, "MISSING", "MISSING")]
    analysis = run(report_scores, tmp_path, config={"scores": scores}, keep_checkpoints_num=2,
                   checkpoint_score_attr="score")  # fmt: skip
    (trial,) = analysis.trials
    assert trial.status == "TERMINATED"
    assert iterations(trial) == [4, 7, 9]  # the two best with a score, and the latest, which has none
    (only,) = warned(caplog, "score")
    assert "other" in only


def test_f11_without_any_score_the_newest_is_still_what_a_resume_uses(tmp_path):
    settings = {"keep_checkpoints_num": 1, "checkpoint_score_attr": "nowhere"}
    killed_at(6, count_up, hook="on_checkpoint", path=tmp_path, config={"n": 10}, **settings)
    (trial,) = run(count_up, tmp_path, config={"n": 10}, resume=True, **settings).trials
    start = facts(tmp_path / "e", "attempt")[-1]
    assert start["iteration"] == 6
    assert trial.iteration == 10


def nested(config):
    for count, score in enumerate([1.0, 5.0, 2.0, 3.0], 1):
        save(count)
        tune.report({
            "a/b/c": {"a": {"b": {"c": score}}},
            "a.b.c": {"a": {"b": {"c": score}}},
            "eval.auc/x": {"eval.auc": {"x": score}},
            "flat/key": {"flat/key": score},
        }[config["name"]])  # fmt: skip


@pytest.mark.parametrize("name", ["a/b/c", "a.b.c", "eval.auc/x", "flat/key"])
def test_f12_every_spelling_of_a_nested_key_works_everywhere(tmp_path, name, caplog):
    searched = []

    class Search(tune.search.Searcher):
        def suggest(self, trial_id):
            return self.FINISHED if searched else searched.append(trial_id) or {"name": name}

        def on_trial_result(self, trial_id, result):
            searched.append("told")

        def on_trial_complete(self, trial_id, result=None, error=False):
            searched.append("complete")

    analysis = run(
        nested,
        tmp_path,
        config={"name": name},
        metric=name,
        mode="max",
        search_alg=Search(metric=name, mode="max"),
        scheduler=tune.schedulers.ASHAScheduler(metric=None, grace_period=1, max_t=100),
        stop={name: 5.0},
        checkpoint_score_attr=f"max-{name}",
        keep_checkpoints_num=1,
    )
    (trial,) = analysis.trials
    assert trial.iteration == 2  # the stopper found it
    assert iterations(trial) == [2]
    assert analysis.best_checkpoint.iteration == 2
    assert lookup(analysis.best_result, name) == 5.0
    assert "told" in searched
    assert warned(caplog, "metric") == []


@pytest.mark.parametrize(("attr", "best"), [("max-score", 3), ("min-score", 2), ("score", 3)])
def test_d01_both_prefixes_name_a_direction(tmp_path, attr, best, caplog):
    (trial,) = run(report_scores, tmp_path, config={"scores": [3.0, 1.0, 9.0, 5.0]}, keep_checkpoints_num=1,
                   checkpoint_score_attr=attr).trials  # fmt: skip
    assert iterations(trial) == [best, 4]
    assert warned(caplog, "") == []


@pytest.mark.parametrize("attr", ["max-auc", "min-loss", "max-max-auc"])
@pytest.mark.parametrize("given", ["arguments", "config"])
def test_d01_a_metric_may_be_called_like_a_prefix_and_another_one(tmp_path, attr, given, caplog, capsys):
    name, order = "max-auc" if "auc" in attr else "min-loss", attr[:3]

    def train_fn(config):
        for value in (3.0, 9.0, 1.0, 5.0):
            tune.report({name: value}, checkpoint=tune.Checkpoint.from_dict({"value": value}))

    settings = {"keep_checkpoints_num": 1, "checkpoint_score_attr": attr}
    if given == "config":
        settings = {"checkpoint_config": tune.CheckpointConfig(1, attr, order)}
    analysis = run(train_fn, tmp_path, name="e", executor="inline", **settings)
    best = {"max": 9.0, "min": 1.0}[order]
    read = tune.ExperimentAnalysis(tmp_path / "e")
    for found in (analysis, read):
        assert [record.metrics[name] for record in found.trials[0].checkpoints] == [best, 5.0]
        assert [record.metrics[name] for record in found.best_checkpoints(found.trials[0])] == [best]
    assert not warned(caplog, "score attribute")
    capsys.readouterr()
    assert main(["show", str(tmp_path / "e"), "0", "--why", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["why"]
    assert [(row["metrics"], row["why"]) for row in rows if row["iteration"] in (2, 3) and row["fate"] == "kept"] == [
        ({name: best}, [f"best:1:{attr}"])
    ]
    assert main(["retention", str(tmp_path / "e"), "--policy", f"best:1:{attr}", "--json"]) == 0
    (would,) = json.loads(capsys.readouterr().out)["trials"]
    assert would["kept"] == would["would_keep"]


def test_d02_a_mistyped_attribute_is_one_warning_with_the_nearest_key(tmp_path, caplog):
    run(count_up, tmp_path, config={"n": 5}, num_samples=2, keep_checkpoints_num=1, checkpoint_score_attr="scroe")
    (only,) = warned(caplog, "scroe")
    assert only.index("score") < only.index("loss", only.index("Reported"))


@pytest.mark.parametrize("order", ["min", "max"])
def test_d03_a_missing_metric_ranks_below_every_score_in_both_directions(tmp_path, order):
    scores = ["MISSING", 1.0, 2.0, "MISSING", "MISSING"]
    (trial,) = run(report_scores, tmp_path, config={"scores": scores}, keep_checkpoints_num=2,
                   checkpoint_score_attr=f"{order}-score").trials  # fmt: skip
    assert iterations(trial) == [2, 3, 5]


@pytest.mark.parametrize(("order", "stays"), [("max", [3, 6, 7]), ("min", [5, 2, 7])], ids=["max", "min"])
def test_d04_nan_never_evicts_a_number_and_infinities_rank_as_numbers(tmp_path, order, stays):
    """F06's scores: nan, 1, inf, nan, -inf, 3, None; the latest stays beside the best two."""
    (trial,) = run(report_scores, tmp_path, config={"scores": [NAN, 1.0, INF, NAN, -INF, 3.0, None]},
                   keep_checkpoints_num=2, checkpoint_score_attr=f"{order}-score").trials  # fmt: skip
    assert iterations(trial) == sorted(stays)


def test_d04_only_nan_is_kept_where_there_is_nothing_better(tmp_path):
    (trial,) = run(report_scores, tmp_path, config={"scores": [NAN, NAN, NAN]}, keep_checkpoints_num=1,
                   checkpoint_score_attr="score").trials  # fmt: skip
    assert iterations(trial) == [1, 3]  # of equals the earlier, and the latest


def test_equal_scores_keep_the_earlier_one(tmp_path):
    analysis = run(report_scores, tmp_path, config={"scores": [5.0, 5.0, 5.0, 1.0]}, keep_checkpoints_num=1,
                   checkpoint_score_attr="score", metric="score", mode="max")  # fmt: skip
    assert iterations(analysis.trials[0]) == [1, 4]
    assert analysis.get_best_checkpoint(analysis.trials[0]).iteration == 1


def many_in_one_second(config):
    for count in range(1, 13):
        save(count)
        tune.report(score=1.0)


def test_d05_recency_is_the_order_of_saves_within_one_second_and_beyond_ten(tmp_path):
    (trial,) = run(many_in_one_second, tmp_path, keep_checkpoints_num=3).trials
    assert iterations(trial) == [10, 11, 12]


# --- design.md section 6: what else the table says ---------------------------------------------------------------


def test_best_checkpoints_are_exactly_the_best_n_worst_to_best(tmp_path):
    settings = {"param_space": {"scores": [1.0, 9.0, 5.0, 7.0, 2.0]}}
    result = tune.Tuner(
        report_scores, **settings,
        run_config=tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0, checkpoint_config=config_of("max")),
    ).fit()[0]  # fmt: skip
    assert [(c.iteration, metrics["score"]) for c, metrics in result.best_checkpoints] == [(4, 7.0), (2, 9.0)]
    assert result.checkpoint.iteration == 5  # the latest is only here
    whole = tune.Tuner(
        report_scores, **settings,
        run_config=tune.RunConfig(
            name="all", storage_path=str(tmp_path), verbose=0,
            checkpoint_config=train.CheckpointConfig(checkpoint_score_attribute="score"),
        ),
    ).fit()[0]  # fmt: skip
    assert [c.iteration for c, _ in whole.best_checkpoints] == [1, 5, 3, 4, 2]


class Asks(tune.Callback):
    """Asks for a save in the step that it sees."""

    def __init__(self, *at):
        self.at = at

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["training_iteration"] in self.at:
            result["should_checkpoint"] = True


def test_d23_a_callback_asks_for_a_save_and_gets_it_in_the_same_step(tmp_path):
    (trial,) = run(Counter, tmp_path, config={"n": 8}, callbacks=[Asks(3, 6)]).trials
    assert iterations(trial) == [3, 6]
    assert trial.checkpoint.to_dict() == {"count": 6}
    assert [row.get("should_checkpoint") for row in tune.ExperimentAnalysis(tmp_path / "e").trial_dataframes[
        trial.path].to_dict("records")].count(True) == 2  # fmt: skip


def looks(config):
    for count in range(1, 6):
        if tune.get_context().should_checkpoint():
            save(count)
        tune.report(count=count)


def test_d23_a_function_that_looks_saves_at_its_next_report(tmp_path, caplog):
    (trial,) = run(looks, tmp_path, callbacks=[Asks(2)]).trials
    assert iterations(trial) == [2, 3]  # 2: the first time that it may pay, to learn what a save takes


def deaf(config):
    for count in range(1, 6):
        tune.report(count=count)


def test_a_function_that_never_looks_is_told_so_once(tmp_path):
    (trial,) = run(deaf, tmp_path, callbacks=[Asks(2, 3, 4)]).trials
    text = Path(trial.path, "stderr").read_text() + Path(trial.path, "stdout").read_text()
    assert text.count("tune.should_save()") == 1


class Saving(Counter):
    def step(self):
        result = super().step()
        if self.count in (2, 5):
            result["should_checkpoint"] = True
        return result


def test_should_checkpoint_in_a_result_saves(tmp_path):
    (trial,) = run(Saving, tmp_path, config={"n": 6}).trials
    assert iterations(trial) == [2, 5]


@pytest.mark.parametrize(
    ("settings", "saved"),
    [
        ({"checkpoint_freq": 3}, [3, 6]),
        ({"checkpoint_at_end": True}, [7]),
        ({"checkpoint_freq": 3, "checkpoint_at_end": True}, [3, 6, 7]),
        ({"checkpoint_freq": 7, "checkpoint_at_end": True}, [7]),
        ({}, []),
        ({"checkpoint_config": train.CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True)}, [3, 6, 7]),
    ],
)
@pytest.mark.parametrize("how", ["stop", "done", "scheduler"])
def test_frequency_and_at_end_whoever_ends_the_trial(tmp_path, settings, saved, how):
    settings = dict(settings)
    if how == "stop":
        settings["stop"] = {"training_iteration": 7}
    elif how == "done":
        settings["config"] = {"n": 7}
    else:
        settings |= {"scheduler": StopAt(7), "metric": "score", "mode": "max"}
    (trial,) = run(Counter, tmp_path, **settings).trials
    assert trial.status == "TERMINATED"
    assert trial.last_result["done"] is True
    assert iterations(trial) == saved
    assert len(trial.checkpoints) == len(saved)


class StopAt(tune.schedulers.FIFOScheduler):
    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_trial_result(self, trial, result):
        return self.STOP if result["training_iteration"] == self.at else self.CONTINUE


@pytest.mark.parametrize("setting", [{"checkpoint_freq": 2}, {"checkpoint_at_end": True}])
def test_a_function_decides_by_itself_and_such_settings_say_so(tmp_path, setting):
    with pytest.raises(SettingError, match=r"needs a class trainable.*report\(\)"):
        run(count_up, tmp_path, config={"n": 1}, **setting)
    assert list(tmp_path.iterdir()) == []


def names(config):
    for count, step in enumerate([None, 100, 7, 7, None], 1):
        with tune.checkpoint_dir(step) if step is not None else tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(count))
        tune.report(count=count)


def test_a_directory_is_named_by_iteration_or_by_the_step_that_was_given(tmp_path):
    (trial,) = run(names, tmp_path).trials
    assert kept(trial) == [
        "checkpoint_000001", "checkpoint_000100", "checkpoint_000007", "checkpoint_000007.2", "checkpoint_000005"
    ]  # fmt: skip
    assert iterations(trial) == [1, 2, 3, 4, 5]  # the order is the manifests', never the names'
    assert trial.checkpoint.path.endswith("checkpoint_000005")


def test_a_later_attempt_and_a_later_generation_have_their_own_names(tmp_path):
    run(count_up, tmp_path, config={"n": 4, "die_at": 3}, max_failures=1, name="attempts")
    (trial,) = tune.ExperimentAnalysis(tmp_path / "attempts").trials
    assert kept(trial) == ["checkpoint_000001", "checkpoint_000002", "checkpoint_000003-1.2", "checkpoint_000004-1.2"]
    killed_at(2, count_up, hook="on_checkpoint", path=tmp_path, name="generations", config={"n": 4})
    (trial,) = run(count_up, tmp_path, name="generations", config={"n": 4}, resume=True).trials
    assert kept(trial)[:2] == ["checkpoint_000001", "checkpoint_000002"]
    assert kept(trial)[-1] == "checkpoint_000004-2.2"


@pytest.mark.parametrize("wrong", [-1, "x", 1.5])
def test_checkpoint_dir_takes_a_number_from_zero_up(tmp_path, wrong):
    def wrongly(config):
        with tune.checkpoint_dir(config["step"]):
            pass

    (trial,) = run(wrongly, tmp_path, config={"step": wrong}, raise_on_failed_trial=False).trials
    assert trial.error.type == InvalidSettingError.__name__
    assert repr(wrong) in trial.error.message


def test_milestones_and_policies_compose_at_run_level(tmp_path):
    (trial,) = run(count_up, tmp_path, config={"n": 12}, checkpoint_config=train.CheckpointConfig(
        keep=[Latest(2), EveryN(5), Pinned([1])])).trials  # fmt: skip
    assert iterations(trial) == [1, 5, 10, 11, 12]
