# ruff: noqa: E402
"""Asks for Ray where it is not installed, and does all else without it: PLACE."""

import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "ray" or name.startswith("ray."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
import tuner as tune
from tuner.cli import main
from tuner.executors import RayExecutor


def train(config):
    tune.report({"loss": 1})


def says(action):
    try:
        action()
    except ImportError as error:
        assert "pip install " in str(error) and "[ray]" in str(error), error
    else:
        raise AssertionError("no error")


if __name__ == "__main__":
    place = sys.argv[1]
    says(lambda: tune.run(train, storage_path=place, verbose=0, executor="ray"))
    says(lambda: tune.run(train, storage_path=place, verbose=0, executor=RayExecutor("auto")))
    assert len(tune.run(train, storage_path=place, verbose=0, name="here").trials) == 1
    assert main(["doctor"]) == 0 and main(["doctor", "--executor", "ray"]) == 1
    assert "ray" not in sys.modules
    import tuner.compat

    tuner.compat.install()
    import ray

    ray.init()
    says(lambda: ray.init(address="auto"))
    from ray import tune as again

    assert again is tune
    print("well")
