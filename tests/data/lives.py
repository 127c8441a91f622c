"""Samples of values and of what happens to runs: kills, errors, retention, replicas."""

from __future__ import annotations

from typing import Any

import tuner as tune
from tests.data import own, trained, values
from tests.data.experiment import Experiment, fixed
from tests.data.spaces import domains, odd, searchable, searching, tpe
from tuner import schedulers as sched
from tuner import stopper
from tuner.search import BasicVariantGenerator


def _policies() -> Any:
    from trainables.store.retention import Best, EveryN, EveryT, Latest, Pareto, Pinned

    return tune.CheckpointConfig(
        keep=[Latest(1), Best(1, "score"), EveryN(3), EveryT(3600), Pinned([2]), Pareto({"score": "max"})]
    )


EXPERIMENTS = [
    # --- domains and values
    Experiment(
        "domains", "every kind of domain, grid and random search", fixed(num_samples=3), config=domains, killed=(0.5,)
    ),
    Experiment(
        "domains_optuna", "every kind of domain that Optuna searches", searching(tpe), config=searchable, killed=(0.6,)
    ),
    Experiment(
        "odd_values", "values of a config that JSON has not", fixed(num_samples=2), trained.checks_its_config, odd
    ),
    Experiment(
        "odd_values_killed",
        "the same, killed",
        fixed(num_samples=3),
        trained.checks_its_config,
        odd,
        killed=(0.5,),
        compacts=True,
    ),
    Experiment(
        "odd_results", "values of a result beside numbers", fixed(num_samples=2), trained.odd_results, killed=(0.6,)
    ),
    Experiment(
        "points",
        "points that come first, two trials at a time",
        lambda place: {
            "search_alg": BasicVariantGenerator(points_to_evaluate=[{"x": 0.5}, {"x": 0.25, "g": 2}], max_concurrent=2),
            "num_samples": 3,
        },
        config=lambda: {"x": tune.uniform(0, 1), "g": tune.grid_search([1, 2])},
        killed=(0.4,),
    ),
    # --- lives
    Experiment("finished", "a function, nothing happened", fixed(num_samples=3, keep_checkpoints_num=1)),
    Experiment(
        "killed_thrice",
        "four generations, results that were taken back",
        fixed(num_samples=4, keep_checkpoints_num=2, checkpoint_freq=2, stop={"training_iteration": 5}),
        trained.Walker,
        killed=(0.3, 0.3, 0.3),
    ),
    Experiment(
        "killed_in_save",
        "killed before a checkpoint got its name",
        fixed(num_samples=3),
        trained.walk_files,
        killed=(("before", "rename", 5),),
    ),
    Experiment(
        "killed_before_manifest",
        "killed before a checkpoint got its manifest",
        fixed(num_samples=3, keep_checkpoints_num=1),
        killed=(("before", "write_file", 6),),
    ),
    Experiment(
        "killed_after_rename",
        "killed when a checkpoint had its name and nobody knew",
        fixed(num_samples=3),
        killed=(("after", "rename", 7),),
    ),
    Experiment(
        "compacted",
        "snapshot, the segments behind it, and an open one",
        fixed(num_samples=6, keep_checkpoints_num=1),
        killed=(0.7,),
        compacts=True,
    ),
    Experiment(
        "compacted_finished",
        "a snapshot, nothing happened",
        fixed(num_samples=6, keep_checkpoints_num=1),
        compacts=True,
    ),
    Experiment("never_began", "killed before its first trial had started", fixed(num_samples=2), killed=(0.05,)),
    Experiment(
        "processes",
        "trials in processes",
        fixed(num_samples=4, keep_checkpoints_num=2, resources_per_trial={"cpu": 0.5}),
        killed=(0.5,),
        executor=None,
    ),
    Experiment(
        "processes_class",
        "a class in processes, without an end at the first",
        fixed(
            num_samples=3,
            checkpoint_freq=2,
            checkpoint_at_end=True,
            stop={"training_iteration": 5},
            resources_per_trial={"cpu": 0.5},
        ),
        trained.Files,
        killed=(0.6,),
        executor=None,
        compacts=True,
    ),
    Experiment(
        "restored",
        "settings, search space and plug-ins from what is stored",
        lambda place: {
            "num_samples": 5,
            "max_concurrent_trials": 1,
            "search_alg": tpe(),
            "scheduler": sched.ASHAScheduler(max_t=4, reduction_factor=2),
            "stop": stopper.MaximumIterationStopper(4),
            "callbacks": [own.Hears()],
            "trial_name_creator": values.trial_name,
            "log_to_file": True,
            "max_failures": 2,
        },
        killed=(0.5,),
        restores=True,
    ),
    Experiment(
        "rolled_back",
        "results behind the newest checkpoint",
        fixed(num_samples=3),
        trained.seldom,
        killed=(("facts", 13), ("facts", 9)),
        compacts=True,
    ),
    Experiment(
        "interrupted",
        "stopped by Ctrl-C",
        fixed(num_samples=3, checkpoint_freq=2, stop={"training_iteration": 5}),
        trained.Walker,
        killed=(("interrupt", 7),),
    ),
    Experiment(
        "preempted",
        "a trial that a signal told to go",
        fixed(num_samples=2, resources_per_trial={"cpu": 0.5}, max_concurrent_trials=1),
        trained.told_to_go,
        killed=(0.6,),
        executor=None,
    ),
    Experiment(
        "lost",
        "a trial whose processes died from outside",
        fixed(num_samples=2, resources_per_trial={"cpu": 0.5}, max_concurrent_trials=1),
        trained.loses_its_keeper,
        killed=(0.6,),
        executor=None,
    ),
    Experiment(
        "damaged", "a checkpoint that was set aside", fixed(num_samples=2), killed=(0.8, ("damage",), ("facts", 7))
    ),
    Experiment(
        "save_refused",
        "a save that did not reach the disk",
        fixed(num_samples=2),
        trained.loses_a_save,
        killed=(0.8,),
        environment={trained.FAULTY: "1"},
    ),
    Experiment(
        "replaced",
        "killed when it was about to be replaced",
        fixed(num_samples=2),
        killed=(("whole",), ("facts", 1, {"overwrite": True, "resume": False})),
    ),
    Experiment(
        "from_checkpoint",
        "trials that start from a checkpoint of no experiment",
        lambda place: {"num_samples": 2, "restore": values.start(place)},
        killed=(0.6,),
    ),
    Experiment(
        "trainer",
        "a group of two workers",
        fixed(num_samples=2, max_concurrent_trials=1),
        trained.trainer(),
        lambda: {"train_loop_config": {"x": tune.uniform(0, 1)}},
        killed=(0.6,),
        executor=None,
    ),
    # --- errors
    Experiment(
        "reopened",
        "a trial that failed was taken up again",
        fixed(max_failures=1),
        trained.fails,
        lambda: {"x": tune.uniform(0, 1), "kind": tune.grid_search(["always", "never"])},
        killed=(("whole",), ("facts", 4, {"resume": "AUTO+ERRORED"})),
    ),
    Experiment(
        "errors",
        "a trial that fails once, one that always does",
        fixed(max_failures=1, keep_checkpoints_num=2),
        trained.fails,
        lambda: {"x": tune.uniform(0, 1), "kind": tune.grid_search(["once", "always", "never"])},
    ),
    Experiment(
        "errors_killed",
        "the same, killed",
        fixed(max_failures=1, keep_checkpoints_num=2, num_samples=2),
        trained.fails,
        lambda: {"x": tune.uniform(0, 1), "kind": tune.grid_search(["once", "always", "never"])},
        killed=(0.6,),
        compacts=True,
    ),
    # --- retention
    Experiment(
        "best",
        "the best two by a metric",
        fixed(num_samples=3, keep_checkpoints_num=2, checkpoint_score_attr="min-loss"),
        trained.walk_files,
        killed=(0.6,),
    ),
    Experiment(
        "frequency",
        "every second and at the end, the best by a nested metric",
        fixed(
            num_samples=3,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=1,
                checkpoint_score_attribute="min-eval/loss",
                checkpoint_frequency=2,
                checkpoint_at_end=True,
                publish="blocking",
            ),
            stop={"training_iteration": 5},
        ),
        trained.Files,
        killed=(0.6,),
    ),
    Experiment(
        "policies",
        "policies that compose",
        lambda place: {"num_samples": 3, "checkpoint_config": _policies()},
        killed=(0.6,),
        compacts=True,
    ),
    Experiment(
        "budget",
        "a budget for all checkpoints",
        fixed(num_samples=5, checkpoint_budget=tune.Budget(bytes=4_000, top_k=2)),
        killed=(0.6,),
    ),
    # --- replicas
    Experiment(
        "replica_finished",
        "copies in a directory, nothing happened",
        fixed(num_samples=3, keep_checkpoints_num=2),
        replica="directory",
    ),
    Experiment(
        "replica_killed",
        "copies in a directory, killed while they were made",
        fixed(num_samples=4, keep_checkpoints_num=2),
        trained.walk_files,
        killed=(("copied", 4),),
        replica="directory",
        environment={trained.PACE: "0.05"},
    ),
    Experiment(
        "replica_only",
        "checkpoints of which the copies alone are left",
        fixed(num_samples=3, sync={"keep_local": 1}),
        killed=(("copied", 6),),
        replica="directory",
        compacts=True,
        environment={trained.PACE: "0.05"},
    ),
    Experiment(
        "bucket_finished", "copies in a bucket, nothing happened", fixed(num_samples=2), replica="s3", compacts=True
    ),
    Experiment(
        "bucket_killed",
        "copies in a bucket, killed while they were made",
        fixed(num_samples=4, keep_checkpoints_num=1),
        killed=(("copied", 4),),
        replica="s3",
        environment={trained.PACE: "0.05"},
    ),
]
