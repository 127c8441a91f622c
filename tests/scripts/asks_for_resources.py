"""Written for Ray: trials that ask for resources that the script declares, and for others."""

import ray
from ray import tune


def train(config):
    tune.report({"x": 1})


if __name__ == "__main__":
    ray.init(resources={"license": 1}, num_cpus=2)
    where = {"local_dir": "results", "verbose": 0}
    both = {"cpu": 0.5, "license": 1, "TPU": 4}
    print(*[trial.status for trial in tune.run(train, num_samples=2, resources_per_trial=both, **where).trials])
    by_config = tune.with_resources(train, lambda config: {"cpu": 1, "custom_resources": {"TPU": 1}})
    print(tune.run(by_config, **where).trials[0].last_result["x"])
    tune.run(train, resources_per_trial={"license": 2}, **where)
