"""What a script for Ray does with `ray` itself, and with an example module of Ray's that it imports."""

import ray
from ray import cloudpickle, tune
from ray.tune.examples.half import halved
from ray.util.joblib import register_ray

assert ray.__version__.split(".")[0] == "2"
assert cloudpickle.loads(cloudpickle.dumps(lambda: 3))() == 3
context = ray.init(num_cpus=3, num_gpus=0, resources={"licence": 2})
assert context.address_info["address"] == context["address"] == "local"
assert ray.cluster_resources()["CPU"] == 3 and ray.available_resources()["licence"] == 2
done = tune.run(halved, config={"x": 4}, resources_per_trial={"cpu": 3}, verbose=0)
assert done.trials[0].last_result["half"] == 2
with context:
    assert "licence" in ray.cluster_resources()
assert "licence" not in ray.cluster_resources()
try:
    register_ray()
except NotImplementedError as error:
    assert "ray.util.joblib.register_ray is not here; instead: trials are processes" in str(error)
    print("ok")
