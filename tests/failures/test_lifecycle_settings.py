"""Settings of a run: what is accepted, what is refused before anything happens, and what they do.

D20, D26, F40, F41, F42, F46, F52 at the level of whole runs.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, contents, iterations, kept

import tuner as tune
from tuner.error import ResourceError, TrialsFailedError, TrialTimeoutError, TuneError
from tuner.executors import InlineExecutor, LocalExecutor
from tuner.schedulers import ASHAScheduler, Decision, FIFOScheduler
from tuner.stopper import MaximumIterationStopper


def train(config):
    for n in range(1, 4):
        tune.report({"a": n})


class Steps(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"a": self.n, "done": self.n == 3}

    def save_checkpoint(self, directory):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


def run(trainable, path, **settings):
    return tune.run(trainable, storage_path=path, **{"name": "e", "executor": "inline", "verbose": 0, **settings})


# --- documented literals ------------------------------------------------------------------------------------------

by_metric = {"metric": "a", "mode": "max"}
ACCEPTED = {
    "fail_fast": [True, False, "raise", "RAISE"],
    "max_failures": [-1, 0, 2],
    "raise_on_failed_trial": [True, False],
    "verbose": [None, 0, 1, 2, 3],
    "num_samples": [1, 3],
    "max_concurrent_trials": [None, 1, 4],
    "time_budget_s": [None, 60, 0.5e3, datetime.timedelta(minutes=1)],
    "trial_timeout_s": [None, 60, 60.5],
    "keep_checkpoints_num": [None, 1, 5],
    "checkpoint_score_attr": [None, "a", "max-a", "min-a", "training_iteration"],
    "log_to_file": [False, True, "log", ("out", "err"), ["out", "err"]],
    "mode": [None, "min", "max"],
    "executor": ["inline", InlineExecutor],
    "stop": [
        None,
        {},
        {"a": 2},
        {"a": tune.at_most(0)},
        lambda trial_id, result: False,
        lambda: MaximumIterationStopper(2),
        lambda: [MaximumIterationStopper(2), MaximumIterationStopper(3)],
        lambda: tune.CombinedStopper(MaximumIterationStopper(2)),
    ],
    "resources_per_trial": [None, {"cpu": 0.5}, {"CPU": 1, "GPU": 0}, [{"cpu": 0.5}, {"cpu": 0.5}]],
    "scheduler": [None, "fifo", "FIFO"],
    "search_alg": [None, "random"],
    "checkpoint_budget": [None, "1GB", 10**9, tune.Budget("1GB", top_k=2)],
    "resume": [False, None, "AUTO"],
    "chdir_to_trial_dir": [None, True, False],
    "callbacks": [None, [], [tune.Callback()]],
    "seed": [None, 0, 7],
    "sync_config": [None, tune.SyncConfig(), tune.SyncConfig(syncer=None), tune.syncConfig()],
    "checkpoint_config": [
        tune.CheckpointConfig(),
        tune.CheckpointConfig(publish="background"),
        tune.CheckpointConfig(publish="blocking"),
        tune.CheckpointConfig(checkpoint_score_order="min", checkpoint_score_attribute="a"),
    ],
}
CALLED = {"executor", "stop"}


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in ACCEPTED for i in range(len(ACCEPTED[name]))])
def test_d20_every_documented_value_of_every_option_is_taken(tmp_path, capsys, name, number):
    value = ACCEPTED[name][number]
    if name in CALLED and callable(value) and getattr(value, "__code__", None) is None:
        value = value()
    elif name == "stop" and callable(value) and value.__code__.co_argcount == 0:
        value = value()
    analysis = run(train, tmp_path, **{"name": "e", name: value})
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}


@pytest.mark.parametrize("name", ["checkpoint_freq", "checkpoint_at_end"])
def test_d20_options_of_class_trainables(tmp_path, name):
    for number, value in enumerate([0, 1, 3] if name == "checkpoint_freq" else [False, True]):
        (trial,) = run(Steps, tmp_path, **{"name": f"e{number}", name: value}).trials
        expected = {0: 0, 1: 3 if name == "checkpoint_freq" else 1, 3: 1}[int(value)]
        assert len(kept(trial)) == expected


@pytest.mark.parametrize(("scheduler", "search"), [("asha", "optuna"), ("async_hyperband", "optuna")])
def test_d20_schedulers_and_searchers_by_name(tmp_path, scheduler, search):
    analysis = run(
        train,
        tmp_path,
        scheduler=scheduler,
        search_alg=search,
        config={"x": tune.uniform(0, 1)},
        num_samples=2,
        **by_metric,
    )
    assert len(analysis.trials) == 2


REFUSED = {
    "fail_fast": ["maybe", 2, None],
    "max_failures": [-2, 1.5, "many", True],
    "num_samples": [0, -2, 1.5, True, "3"],
    "max_concurrent_trials": [-1, 1.5, "2", True],
    "time_budget_s": [0, -1, "1h", True],
    "trial_timeout_s": [0, -1, "1h", True],
    "keep_checkpoints_num": [0, -1, 1.5, "2", True],
    "checkpoint_score_attr": ["", 3],
    "checkpoint_freq": [-1, "2"],
    "mode": ["MAX", "best", 1],
    "executor": ["remote", 3],
    "stop": [{"a": "much"}, 3, "soon", lambda: None, [1]],
    "resources_per_trial": [{"cpu": -1}, {"cpu": "two"}, {"gpu": 1.5}, {}, "all", 2],
    "scheduler": ["nonsense", 3, ASHAScheduler],
    "search_alg": ["nonsense", "hyperopt", 3, tune.BasicVariantGenerator],
    "checkpoint_budget": ["much", -1, "5 parsecs"],
    "log_to_file": [3, ("one",), ("a", "b", "c")],
    "callbacks": [3, ["no callback"]],
    "progress_reporter": [3],
    "seed": ["seven", 1.5, True],
    "verbose": ["loud", -1],
    "restore": ["/nowhere/at/all"],
    "name": [""],
    "checkpoint_config": [{"num_to_keep": 2}],
    "sync_config": ["s3://bucket"],
    "config": [3, [1], "x"],
    "storage_path_and_local_dir": ["two"],
    "keep_checkpoint_num": [1],
}


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in REFUSED for i in range(len(REFUSED[name]))])
@pytest.mark.parametrize("there", ["nothing", "an experiment to overwrite", "an experiment to resume"])
def test_d20_every_other_value_is_an_error_that_names_it_and_touches_nothing(tmp_path, name, number, there):
    value = REFUSED[name][number]
    storage = tmp_path / "results"
    storage.mkdir()
    settings = {"name": "e", name: value}
    if name == "storage_path_and_local_dir":
        settings = {"name": "e", "local_dir": "/elsewhere"}
    if there != "nothing":
        run(train, storage, name="e")
        settings |= {"overwrite": True} if "overwrite" in there else {"resume": "AUTO"}
    before = contents(storage)
    with pytest.raises((TuneError, ValueError, TypeError)) as caught:
        run(Steps if name == "checkpoint_freq" else train, storage, **settings)
    text = str(caught.value)
    assert not isinstance(caught.value, TrialsFailedError)
    says = "accepted|did you mean|there is no|mean the same|is not shipped|; give|create an instance"
    assert re.search(says, text, re.I), text
    after = {key: text for key, text in contents(storage).items() if not key.startswith("e/generations/")}
    assert after == {key: text for key, text in before.items() if not key.startswith("e/generations/")}
    if there == "nothing":
        assert list(storage.iterdir()) == []


@pytest.mark.parametrize("name", ["queue_trials", "server_port"])
def test_arguments_whose_subject_is_not_here_are_taken_with_one_warning(tmp_path, name):
    with pytest.warns(UserWarning, match=f"{name} has no effect"):
        assert run(train, tmp_path, **{name: ["model"]}).trials[0].status == "TERMINATED"


def test_a_place_that_is_none_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "e").touch()
    for place in ("file", "file/deeper", "results"):
        with pytest.raises(TuneError, match="file|directory|writ"):
            run(train, tmp_path / place)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["e", "file", "results"]


# --- N means N ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5])
def test_d26_stop_and_num_samples_mean_exactly_that_many(tmp_path, n):
    class Endless(tune.Trainable):
        def step(self):
            return {"a": self.iteration + 1}

    stops = [{"training_iteration": n}, {"a": n}, MaximumIterationStopper(n), lambda _, result: result["a"] >= n]
    for number, stop in enumerate(stops):
        analysis = run(Endless, tmp_path, name=f"e{number}", stop=stop, num_samples=n)
        assert [iterations(trial) for trial in analysis.trials] == [list(range(1, n + 1))] * n


def test_d26_across_a_kill_too(tmp_path):
    class Stop(Exception):
        pass

    class Kills(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["a"] == 4:
                raise Stop

    settings = {"stop": {"training_iteration": 6}, "checkpoint_freq": 3, "num_samples": 2}

    class Counts(Steps):
        def step(self):
            self.n += 1
            return {"a": self.n}

    with pytest.raises(Stop):
        run(Counts, tmp_path, callbacks=[Kills()], **settings)
    analysis = run(Counts, tmp_path, resume=True, **settings)
    assert [iterations(trial) for trial in analysis.trials] == [[1, 2, 3, 4, 5, 6]] * 2


# --- trials that hang, and runs that cannot begin -------------------------------------------------------------------


def hangs(config):
    import ctypes

    tune.report({"n": 1}, checkpoint=tune.Checkpoint.from_dict({"n": 1}))
    tune.get_checkpoint()  # once it is published
    tune.report({"n": 2})
    if config["how"] == "loops":
        while True:
            pass
    elif config["how"] == "in C":
        ctypes.PyDLL(None).pause()  # and holds the interpreter's lock
    tune.report({"n": 3})


def test_f40_a_trial_that_hangs_is_ended_marked_and_its_place_is_free(tmp_path):
    with pytest.raises(TrialsFailedError, match="trial_timeout_s=6.0.*TIMEOUT") as caught:
        tune.run(
            hangs,
            config={"how": tune.grid_search(["loops", "in C", "well"])},
            trial_timeout_s=6.0,
            max_concurrent_trials=2,
            max_failures=3,
            name="e",
            storage_path=tmp_path,
            verbose=0,
        )
    trials = {trial.config["how"]: trial for trial in caught.value.analysis.trials}
    assert {how: t.status for how, t in trials.items()} == {"loops": "ERROR", "in C": "ERROR", "well": "TERMINATED"}
    for how in ("loops", "in C"):
        trial = trials[how]
        assert trial.error.type == "TrialTimeoutError" and trial.attempt == 1
        assert (iterations(trial), kept(trial)) == ([1, 2], ["checkpoint_000001"])
        assert "TIMEOUT" in Path(trial.path, "error.txt").read_text()
    grid = tune.ResultGrid(caught.value.analysis)
    assert [type(error) for error in grid.errors] == [TrialTimeoutError] * 2


@pytest.mark.parametrize(
    ("asked", "named"), [({"cpu": 1000}, "1000.*cpu|cpu.*1000"), ({"gpu": 64}, "64"), ({"licence": 2}, "licence")]
)
def test_f41_more_than_there_is_is_an_error_before_the_first_trial(tmp_path, asked, named):
    with pytest.raises(ResourceError, match=named) as caught:
        tune.run(train, resources_per_trial=asked, storage_path=tmp_path, verbose=0)
    available = {"cpu": len(os.sched_getaffinity(0)), "gpu": 0, "licence": 0}
    (key,) = asked
    assert re.search(rf"\b{available[key]}\b", str(caught.value)) or key == "gpu", caught.value
    assert list(tmp_path.iterdir()) == []


class Mute(tune.BasicVariantGenerator):
    """Has nothing to say after the second trial, and does not say that it never will."""

    def suggest(self, trial_id):
        return None if trial_id.endswith("00002") else super().suggest(trial_id)


class Shy(FIFOScheduler):
    """Pauses every trial and takes up none."""

    def on_trial_result(self, trial, result):
        return Decision.PAUSE

    def choose_trial_to_run(self, pending):
        return next((trial for trial in pending if trial.status == "PENDING"), None)


@pytest.mark.parametrize(
    ("settings", "ran", "reason"),
    [({"search_alg": Mute()}, 2, "searcher has neither"), ({"scheduler": Shy()}, 5, "chooses none")],
)
def test_f41_a_run_that_cannot_go_on_ends_and_says_why(tmp_path, caplog, settings, ran, reason):
    analysis = run(Steps, tmp_path, num_samples=5, **settings)
    assert len(analysis.trials) == ran
    assert [record.message for record in caplog.records if reason in record.message]


class Waits(FIFOScheduler):
    """Pauses the large trial at its first result, and takes it up when the others have ended."""

    def __init__(self):
        super().__init__()
        self.ended = 0

    def on_trial_result(self, trial, result):
        return Decision.PAUSE if result["large"] and result["a"] == 1 else Decision.CONTINUE

    def on_trial_complete(self, trial, result):
        self.ended += 1

    def choose_trial_to_run(self, pending):
        return next((trial for trial in pending if not trial.checkpoints or self.ended == 2), None)


class Meets(Steps):
    """The small ones go on when both are there."""

    def step(self):
        if not self.config["large"]:
            Path(self.config["talk"], str(self.config["i"])).touch()
            while len(os.listdir(self.config["talk"])) < 2:
                time.sleep(0.01)
        return super().step() | {"large": self.config["large"]}


def test_f41_small_trials_run_beside_each_other_while_a_large_one_is_not_to_run(tmp_path):
    (tmp_path / "talk").mkdir()
    analysis = run(
        Meets,
        tmp_path,
        executor=LocalExecutor(cpus=2),
        config={
            "i": tune.grid_search([0, 1, 2]),
            "large": tune.sample_from(lambda spec: spec.config.i == 0),
            "talk": str(tmp_path / "talk"),
        },
        resources_per_trial=lambda config: {"cpu": 2 if config["large"] else 1},
        scheduler=Waits(),
        time_budget_s=60,
    )
    assert [(trial.status, trial.iteration) for trial in analysis.trials] == [("TERMINATED", 3)] * 3


SILENT = """
import os, sys
sys.stdout = open(os.environ["TALK"] + "/news", "w", buffering=1)
def quiet(config):
    print("loading the data, this may take a while")
    gate()
    return {"a": 1}
tune.run(quiet, name="e", storage_path=os.environ["RESULTS"])
"""


def test_f41_a_silent_trial_is_shown_with_its_last_line(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(SILENT)
        script = stage.start(TUNE_SILENT_AFTER_S="0.3")
        line = script.hear("quiet_")[-1]
        assert "silent for" in line and "loading the data, this may take a while" in line
        stage.let()
        script.ends_well()


# --- large objects --------------------------------------------------------------------------------------------------

LARGE = """
import os, resource, sys
data = os.urandom(int(sys.argv[1]) * 2**20)
def train(config):
    return {"length": len(data), "i": config["i"]}
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
analysis = tune.run(
    train, name="e", config={"i": tune.grid_search(list(range(int(sys.argv[2]))))}, resume="AUTO",
    storage_path=os.environ["RESULTS"],
)
print("GREW", peak() - before, {trial.last_result["length"] for trial in analysis.trials})
"""


def large_closure(tmp_path, megabytes, trials):
    with Stage(tmp_path) as stage:
        stage.write(LARGE)
        output = stage.run("script.py", megabytes, trials)
        warnings = [line for line in output.splitlines() if "warning" in line]
        assert len(warnings) == 1 and "'data'" in warnings[0] and "with_parameters" in warnings[0]
        assert re.search(rf"{megabytes}(\.\d)? MiB|{megabytes * 1.048576:.0f}(\.\d)? MB", warnings[0]), warnings
        grew = int(re.search(r"GREW (\d+)", output)[1])
        assert grew < megabytes * 1.2 * 1024 + 60 * 1024
        files = [path for path in (stage.results / "e").rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 2**20 + 10_000 * trials
        assert max(path.stat().st_size for path in stage.results.rglob("*") if path.is_file()) < 2**20
        again = stage.run("script.py", megabytes, trials)
        assert "resuming from" in again


def test_f42_a_large_closure_is_named_stored_once_and_kept_out_of_the_state(tmp_path):
    large_closure(tmp_path, 64, 4)


@pytest.mark.soak
def test_f42_a_closure_of_a_gigabyte(tmp_path):
    large_closure(tmp_path, 1024, 50)


def test_f42_large_parameters_bring_no_warning(tmp_path, caplog):
    def summed(config, data):
        return {"length": len(data)}

    analysis = tune.run(
        tune.with_parameters(summed, data=bytes(2**25)), name="e", storage_path=tmp_path, num_samples=2, verbose=0
    )
    assert [trial.last_result["length"] for trial in analysis.trials] == [2**25] * 2
    assert "large" not in caplog.text and analysis.trials[0].trainable_name == "summed"
    files = [path for path in (tmp_path / "e").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2**20


# --- memory ---------------------------------------------------------------------------------------------------------

MEMORY = """
import os, sys
from tuner.executors import SimulatedExecutor

class Watch(tune.Callback):
    def __init__(self):
        self.ended, self.at = 0, {}
    def on_trial_complete(self, iteration, trials, trial, **info):
        self.ended += 1
        if self.ended % 500 == 0:
            with open("/proc/self/statm") as file:
                self.at[self.ended] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def train(config):
    return {"a": 1}
watch, total = Watch(), int(sys.argv[1])
executor = None if sys.argv[2] == "local" else SimulatedExecutor(lambda config: [(1.0, {"a": config["x"]})], slots=4)
tune.run(train, name="e", config={"x": tune.uniform(0, 1)}, num_samples=total, storage_path=os.environ["RESULTS"],
         executor=executor, callbacks=[watch], verbose=0)
first = max(500, total // 4 // 500 * 500)
print("PER TRIAL", (watch.at[total] - watch.at[first]) / (total - first))
"""


@pytest.mark.parametrize(
    ("total", "kind"),
    [(1500, "simulated"), pytest.param(20_000, "local", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_f46_the_driver_keeps_less_than_5_kb_per_finished_trial(tmp_path, total, kind):
    with Stage(tmp_path) as stage:
        stage.write(MEMORY)
        script = stage.start("script.py", total, kind, TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1")
        assert script.wait(3600) == 0, script.output
        assert float(script.output.split()[-1]) < 5000


# --- output -----------------------------------------------------------------------------------------------------------

OUTPUT = """
import json, logging, os, sys
class Warns(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        logging.getLogger("tuner.somewhere").warning("value %s of %s is odd", result["n"], trial.name)
def train(config):
    print("said by the trial")
    print("complained by the trial", file=sys.stderr)
    for n in range(1, 6):
        tune.report({"n": n, "score": n * config["i"]}, checkpoint=tune.Checkpoint.from_dict({"n": n}))
        if config["i"] == 2 and n == 3:
            raise ValueError("the line that is wrong")
analysis = tune.run(
    train, name="e", config={"i": tune.grid_search([1, 2, 3])}, storage_path=os.environ["RESULTS"],
    callbacks=[Warns()], **json.loads(sys.argv[1])
)
"""


def test_f52_verbose_0_prints_0_bytes(tmp_path):
    with Stage(tmp_path) as stage:
        stage.write(OUTPUT)
        quiet = {"verbose": 0, "raise_on_failed_trial": False}
        assert stage.run("script.py", json.dumps(quiet)) == ""
        assert stage.run("script.py", json.dumps({**quiet, "resume": "AUTO"})) == ""
        assert stage.run("script.py", json.dumps({**quiet, "resume": "AUTO+ERRORED"})) == ""
        trial = tune.ExperimentAnalysis(stage.results / "e").trials[0]
        assert "said by the trial" in Path(trial.path, "stdout").read_text()
        assert "complained by the trial" in Path(trial.path, "stderr").read_text()


def test_f52_by_default_a_line_per_event_and_a_warning_once_per_cause(tmp_path):
    with Stage(tmp_path) as stage:
        stage.write(OUTPUT)
        output = stage.run("script.py", json.dumps({"raise_on_failed_trial": False}))
        lines = output.splitlines()
        assert sum("is odd" in line for line in lines) == 1
        table = lines.index(next(line for line in lines if line.startswith("trial ")))
        names = [trial.name for trial in tune.ExperimentAnalysis(stage.results / "e").trials]
        for name in names:
            assert sum(line.startswith(name) for line in lines[:table]) == 1  # it began, reported five times, ended
        assert "said by the trial" not in output


@pytest.mark.parametrize("raises", [True, False])
def test_f52_a_failures_own_line_is_in_the_last_15_and_in_error_txt(tmp_path, raises):
    with Stage(tmp_path) as stage:
        path = stage.write(OUTPUT)
        wrong = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if "raise ValueError" in line)
        script = stage.start("script.py", json.dumps({"raise_on_failed_trial": raises}))
        assert script.wait() == int(raises)
        last = "\n".join(script.output.splitlines()[-15:])
        assert f'script.py", line {wrong}, in train' in last and "ValueError: the line that is wrong" in last
        trial = next(t for t in tune.ExperimentAnalysis(stage.results / "e").trials if t.status == "ERROR")
        assert f'script.py", line {wrong}, in train' in Path(trial.path, "error.txt").read_text()
