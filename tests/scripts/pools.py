"""Trials that start processes with `spawn` and `forkserver`: `... DIRECTORY [unguarded]`."""

import concurrent.futures
import multiprocessing
import pickle
import sys

import tuner as tune

ONLY_IN_THE_SCRIPT = 1


class Row:
    def __init__(self, x):
        self.x = x


def square(x):
    return x * x


def row(x):
    return Row(x)


def cube(x):
    return x**3


def has_run_the_script(_):
    return "ONLY_IN_THE_SCRIPT" in vars(sys.modules["__main__"])


def train(config):
    context = multiprocessing.get_context(config["method"])
    with context.Pool(1) as pool:
        squares = sum(pool.map(square, range(4)))
        rows = pool.map(row, range(2))
        assert [type(each) for each in rows] == pool.map(type, rows) == [Row, Row]
        ran = pool.map(has_run_the_script, [0])
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        cubes = sum(pool.map(config["function"], range(4)))
    assert pickle.loads(pickle.dumps(config["function"])) is config["function"]
    tune.report({"squares": squares, "cubes": cubes, "ran": ran[0]})


def main():
    space = {"method": tune.grid_search(["spawn", "forkserver"]), "function": cube}
    analysis = tune.run(train, config=space, storage_path=sys.argv[1], name="pools", verbose=0)
    print([tuple(trial.last_result[name] for name in ("squares", "cubes", "ran")) for trial in analysis.trials])


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main()

if len(sys.argv) > 2:
    main()
