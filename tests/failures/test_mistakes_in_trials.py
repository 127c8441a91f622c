"""The table of mistakes that show in a trial: each is said at its first result or end, and a mended script goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistakes import Mistake, check
from mistakes import place as place

REPORTS = 'call tune.report({"loss": x}), or return {"loss": x}'
ON = 'resume="AUTO"'
IN_TRIALS = [
    Mistake(
        "a wrong metric that is near",
        'tune.run(train, metric="los", mode="min", num_samples=3)',
        "MetricMissingError",
        (
            "metric='los'",
            "first result",
            "did you mean 'loss'?",
            "resume the run",
            "TUNE_DISABLE_STRICT_METRIC_CHECKING=1",
            "to continue",
            ON,
        ),
    ),
    Mistake(
        "a wrong metric",
        'tune.run(train, metric="accuracy", num_samples=3)',
        "MetricMissingError",
        ("metric='accuracy'", "has ended", "reported were: loss", "to continue", ON),
    ),
    Mistake(
        "a wrong metric under ASHA",
        'tune.run(train, metric="acc", scheduler="asha", num_samples=3)',
        "MetricMissingError",
        ("metric='acc'", "has ended", "reported were: loss", "to continue", ON),
    ),
    Mistake(
        "no report at all", "def f(config): pass\ntune.run(f)", "MetricMissingError", ("reported nothing", REPORTS, ON)
    ),
    Mistake(
        "a number is returned",
        'def f(config): return 0.5\ntune.run(f, metric="loss")',
        "MetricMissingError",
        ("metric='loss'", "0.5, a number without a name", REPORTS),
    ),
    Mistake(
        "a string is returned",
        'def f(config): return "good"\ntune.run(f)',
        "TrialsFailedError",
        ("a result is a dict of metrics or one number, not str ('good')",),
    ),
    Mistake(
        "the metric is a string",
        'def f(config): tune.report({"loss": "0.5"})\ntune.run(f, metric="loss", mode="min")',
        None,
        ("the metric 'loss'", "'0.5', a str and no number", 'report {"loss": float(x)}'),
    ),
    Mistake(
        "typo in stop",
        'tune.run(train, stop={"los": 0.1})',
        None,
        ("stop: the first result has no metric 'los'", "did you mean 'loss'?"),
    ),
    Mistake(
        "step() returns None",
        "class C(tune.Trainable):\n    def step(self): pass\ntune.run(C)",
        "TrialsFailedError",
        ("C.step() returned None, not a dict of metrics",),
    ),
    Mistake(
        "save_checkpoint returns an int",
        "class C(tune.Trainable):\n    def step(self): return {'a': 1, 'done': True}\n"
        "    def save_checkpoint(self, directory): return 5\n    def load_checkpoint(self, checkpoint): pass\n"
        "tune.run(C, checkpoint_at_end=True)",
        "TrialsFailedError",
        ("save_checkpoint() returned 5 (int); accepted are",),
    ),
    *(
        Mistake(
            f"an exception in {method}",
            "class C(tune.Trainable):\n    def step(self): return {'a': 1, 'done': True}\n"
            "    def save_checkpoint(self, directory): pass\n    def load_checkpoint(self, checkpoint): pass\n"
            f"def {method}(self, *given): raise ValueError('my own words')\nC.{method} = {method}\n"
            "tune.run(C, checkpoint_at_end=True)",
            "TrialsFailedError",
            ("my own words", "error.txt"),
        )
        for method in ("setup", "step", "save_checkpoint")
    ),
    Mistake(
        "an exception in load_checkpoint",
        "class C(tune.Trainable):\n    n = 0\n"
        "    def step(self):\n        self.n += 1\n        if self.n == 2: raise OSError\n        return {'a': 1}\n"
        "    def save_checkpoint(self, directory): return {'a': 1}\n"
        "    def load_checkpoint(self, checkpoint): raise ValueError('my own words')\n"
        "tune.run(C, checkpoint_freq=1, max_failures=1, verbose=0)",
        "TrialsFailedError",
        ("load_checkpoint", "my own words", "error.txt"),
    ),
    Mistake(
        "an exception in the function",
        "def f(config): raise ValueError('my own words')\ntune.run(f)",
        "TrialsFailedError",
        ("1 of 1 trial failed", "my own words", "error.txt"),
    ),
    Mistake(
        "object() in metrics",
        'def f(config): tune.report({"loss": object()})\ntune.run(f)',
        "TrialsFailedError",
        ("loss is a builtins.object", "report numbers"),
    ),
    Mistake(
        "an array and 3 MB of text as metrics",
        "import numpy\ndef f(config): tune.report({'a': numpy.zeros(1000), 'text': 'x' * 3_000_000})\ntune.run(f)",
        None,
        ("finished",),
    ),
    Mistake(
        "a file in the working directory",
        "from pathlib import Path\n"
        "def f(config):\n    Path('out.txt').write_text('what the trial wrote')\n    tune.report({'a': 1})\n"
        "trial = tune.run(f, verbose=0).trials[0]\nprint(Path(trial.path, 'out.txt').read_text())",
        None,
        ("what the trial wrote",),
    ),
    Mistake(
        "a config that cannot be shipped",
        "import threading\ntune.run(train, config={'model': {'lock': threading.Lock()}})",
        "SerializationError",
        ("config value model/lock is a _thread.lock", "Create it inside the trainable"),
    ),
    Mistake(
        "old arguments of Ray",
        "tune.run(train, verbose=0, queue_trials=True, server_port=4)",
        None,
        ("mistake.py:7", "has no effect", "mistake.py:7", "has no effect"),
    ),
    Mistake(
        "threads in a trial",
        "import threading\n"
        "def f(config):\n    each = threading.Thread(target=tune.report, args=({'a': 1},))\n"
        "    each.start()\n    each.join()\n"
        "tune.run(f)",
        None,
        ("finished",),
    ),
    Mistake(
        "a run in a thread",
        "import threading\neach = threading.Thread(target=tune.run, args=(train,))\neach.start()\neach.join()",
        None,
        ("finished",),
    ),
    Mistake(
        "a run in asyncio",
        "import asyncio\nasync def main(): tune.run(train)\nasyncio.run(main())",
        None,
        ("finished",),
    ),
    Mistake(
        "pdb with executor='inline'",
        "import io, pdb, sys\n"
        "def f(config):\n    pdb.Pdb(stdin=io.StringIO('p config\\nc\\n'), stdout=sys.stdout).set_trace()\n"
        "    return {'a': 1}\n"
        "tune.run(f, config={'lr': 0.25}, executor='inline')",
        None,
        ("{'lr': 0.25}", "finished"),
    ),
    Mistake(
        "a relative path",
        'open("data.csv", "w").close()\ndef f(config): open("data.csv")\ntune.run(f)',
        "TrialsFailedError",
        ("'data.csv'", "trials run in their own directory, and 'data.csv' is in", "chdir_to_trial_dir=False"),
    ),
    Mistake(
        "all NaN",
        'def f(config): tune.report({"loss": float("nan")})\n'
        'print(tune.run(f, metric="loss", mode="min", num_samples=2).best_config)',
        None,
        ("there is no best trial: 'loss' is NaN in all trials",),
    ),
    Mistake(
        "best without a metric",
        "analysis = tune.run(train, verbose=0)\nanalysis.best_config",
        "SettingError",
        ("best by which metric?", "Give metric= and mode="),
    ),
    Mistake(
        "best of a metric that is not there",
        'tune.Tuner(train).fit().get_best_result(metric="los", mode="min")',
        "MetricMissingError",
        ("no trial has reported a number 'los'", "nearest first: loss"),
    ),
    Mistake(
        "the name is taken",
        'tune.run(train, name="e", verbose=0)\ntune.run(train, name="e")',
        "ExperimentExistsError",
        ('resume="AUTO"', "overwrite=True"),
    ),
    Mistake(
        "another space at a resume",
        'def run(high): tune.run(train, name="e", config={"x": tune.uniform(0, high)}, verbose=0, resume="AUTO")\n'
        "run(1)\nrun(2)",
        "ResumeError",
        ("x: was uniform(0.0, 1.0), now uniform(0.0, 2.0)",),
    ),
    Mistake(
        "another metric at a resume",
        'tune.run(train, name="e", metric="loss", mode="min", verbose=0)\n'
        'print(tune.run(train, name="e", metric="los", mode="min", resume="AUTO").best_config)',
        None,
        ("metric: was 'loss', now 'los'", "no trial has reported a number 'los'"),
    ),
    Mistake(
        "a score attribute that is missing",
        "def f(config): tune.report({'loss': 1}, checkpoint=tune.Checkpoint.from_dict({'a': 1}))\n"
        "tune.run(f, keep_checkpoints_num=1, checkpoint_score_attr='min-los')",
        None,
        ("checkpoint score attribute 'los'", "nearest first: loss"),
    ),
    Mistake(
        "a run inside of a trial",
        "def f(config): tune.report(tune.run(train, verbose=0).trials[0].last_result)\n"
        "print('the result:', tune.run(f).trials[0].last_result['loss'])",
        None,
        ("finished", "the result: 0.33333"),
    ),
    Mistake(
        "a grid of 10^8",
        "space = {name: tune.grid_search(list(range(100))) for name in 'abcd'}\n"
        "tune.run(train, config=space, time_budget_s=0.2)",
        None,
        ("the grid is large: 100,000,000 combinations", "tune.choice", "of 100,000,000 trials"),
    ),
    Mistake(
        "50,000 printed lines",
        "def f(config):\n    for n in range(50_000): print(n)\n    tune.report({'a': 1})\n"
        "tune.run(f, name='e', executor='local')",
        None,
        ("what trials print goes to files: tuner logs", "finished"),
    ),
    Mistake(
        "the code has changed and nothing is left to run",
        "def f(config): tune.report({'loss': 1})\ntune.run(f, name='e', verbose=0)\n"
        "def f(config): tune.report({'loss': 2})\ntune.run(f, name='e', resume='AUTO')",
        None,
        ("the code of 'f' has changed", "nothing left to run", "with the older code of 'f'", "overwrite=True"),
    ),
    *(
        Mistake(
            f"tuner {arguments}",
            "from tuner.cli import main\n"
            "tune.run(train, name='e', metric='loss', mode='min', verbose=0)\n"
            f"print('status', main({arguments.split()!r}))",
            None,
            (*said, "status 2"),
        )
        for arguments, said in {
            "show results/e --metric los": ("'los'", "nearest first: loss"),
            "report results/e --metric nope": ("'nope'", "nearest first: loss"),
            "retention results/e --policy best:1:los": ("'los'", "nearest first: loss"),
            "report results/e -o x.pdf": ("'x.pdf' is not accepted", "its file ends in .html"),
        }.items()
    ),
    Mistake(
        "nested spaces",
        "def f(config): tune.report({'x': config['model']['layers'][1]['x']})\n"
        "space = {'model': {'layers': [1, {'x': tune.uniform(2, 3)}]}}\n"
        "x = tune.run(f, config=space, verbose=0).trials[0].last_result['x']\nprint('between 2 and 3:', 2 <= x < 3)",
        None,
        ("between 2 and 3: True",),
    ),
]
PROCESSES = [
    Mistake(
        "a closure that cannot be pickled",
        "import threading\nlock = threading.Lock()\ndef f(config): lock.acquire()\ntune.run(f, executor='local')",
        "SerializationError",
        ("global variable 'lock' of f (_thread.lock)", "Create it inside the trainable"),
    ),
    Mistake(
        "breakpoint() in a trial",
        "def f(config):\n    breakpoint()\ntune.run(f, executor='local')",
        "TrialsFailedError",
        ("BdbQuit", 'executor="inline"'),
    ),
    Mistake(
        "an endless loop",
        "def f(config):\n    while True: pass\ntune.run(f, executor='local', trial_timeout_s=0.5)",
        "TrialsFailedError",
        ("trial_timeout_s=0.5",),
    ),
]


@pytest.mark.parametrize("row", IN_TRIALS, ids=str)
def test_a_mistake_that_shows_in_a_trial_is_said(row: Mistake, place: Path) -> None:
    check(row, place)


@pytest.mark.parametrize("row", PROCESSES, ids=str)
def test_a_mistake_that_shows_in_a_process_of_its_own_is_said(row: Mistake, place: Path) -> None:
    check(row, place)
