"""What people say of a cluster, on two hosts with a disk of their own each: the guide's listings, resources, doctor."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.listings import BEST_FIVE, EIGHT, SEEDS, checkpoints
from tests.servers.cluster import RESULTS, Cluster, Driver, RayHost
from trainables.store import verify

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

_TUNER = str(Path(sys.prefix) / "bin" / "tuner")
_PYTHON = str(Path(sys.prefix) / "bin" / "python")
_WITHIN_S = 150.0


def listing(name: str, cluster: Cluster, *changes: tuple[str, str]) -> str:
    """A listing of the guide as it is printed, for Ray: its two trials wait for each other, on a host each."""
    text = (SEEDS / f"{name}.py").read_text()
    text = text.replace("import tuner as tune\n", "import ray\nfrom ray import tune\n")
    init = f'ray.init(address="{cluster.address}")  # set `address=None` to train on laptop\n'
    at = text.index("\n\n", text.index("from your_module")) + 1
    text = text[:at] + init + text[at:]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = (SEEDS / "your_module.py").read_text().replace("import tuner as tune", "import ray\nfrom ray import tune")
    (begun := cluster.shared / name).mkdir()
    wait = f"""    open(os.path.join({str(begun)!r}, os.uname().nodename), "w").close()
    while len(os.listdir({str(begun)!r})) < 2:
        time.sleep(0.05)
"""
    module = module.replace("import os\n", "import os\nimport time\n", 1).replace(
        "    start = 0\n", wait + "    start = 0\n", 1
    )
    host = cluster.hosts[0]
    host.path("/srv/home/your_module.py").write_text(module)
    host.path(f"/srv/home/{name}.py").write_text(text)
    return f"/srv/home/{name}.py"


def on_both(cluster: Cluster) -> tuple[str, str]:
    """Two trials at once that do not fit on one host."""
    return ('    name="', '    num_samples=2, resources_per_trial={"cpu": 2},\n    name="')


def ran_on(place: Path) -> set[str]:
    """The hosts that trials ran on."""
    rows = [json.loads(file.read_text().splitlines()[-1]) for file in place.rglob("result.json")]
    return {row["hostname"] for row in rows}


def whole(place: Path) -> list[str]:
    """The complete checkpoints below a directory, each hashed."""
    for manifest in place.rglob(".manifest.json"):
        verify.check(manifest.parent)
    return checkpoints(place)


def test_the_guides_cluster_listing_runs_as_printed_and_its_checkpoints_come_to_the_driver(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    script = listing("s001_local_checkpointing", cluster, on_both(cluster))

    said = driver.run([_PYTHON, "-m", "tuner.compat", script], within_s=_WITHIN_S)

    assert "by rsync over ssh" in said
    place = driver.path("/tmp/mypath/my-tune-exp")
    assert ran_on(place) == {"host1", "host2"}
    assert whole(place) == sorted(2 * BEST_FIVE)
    assert whole(other.path("/tmp/mypath/my-tune-exp")) == BEST_FIVE


@pytest.mark.parametrize("name", ["s001_rsync_template", "s001_custom_sync_function"])
def test_the_guides_custom_syncers_move_checkpoints_between_the_hosts(name: str, cluster: Cluster) -> None:
    driver, other = cluster.hosts
    shutil.copy(cluster.network.key, driver.path("/srv/home/ssh_key.pem"))
    recursive = [("rsync {source}", "rsync -r {source}")] if "function" in name else []
    script = listing(name, cluster, on_both(cluster), ('name="experiment_name"', f'name="{name}"'), *recursive)

    said = driver.run([_PYTHON, "-m", "tuner.compat", script], within_s=_WITHIN_S)

    assert "as syncer= says" in said
    assert "nothing to copy" not in said
    place = driver.path(f"/srv/home/tuner_results/{name}")
    assert ran_on(place) == {"host1", "host2"}
    assert whole(place) == sorted(2 * EIGHT)
    assert whole(other.path(f"/srv/home/tuner_results/{name}")) == EIGHT


def test_f41_more_than_any_node_has_is_an_error_before_the_first_trial(cluster: Cluster) -> None:
    """Together the nodes have enough; a trial runs on one."""
    driver = cluster.hosts[0]
    driver.path("/srv/home/train.py").write_text("def train(config):\n    raise AssertionError('it ran')\n")
    driver.path("/srv/home/big.yaml").write_text("trainable: train.py:train\nresources_per_trial: {cpu: 3}\n")

    run = driver.popen([_TUNER, "run", "big.yaml", "--executor", "ray", "--address", cluster.address])

    assert run.wait(_WITHIN_S) == 2
    assert "a trial asks for cpu: 3, and no node of the cluster has that much" in run.output
    assert "cpu: 2" in run.output.partition("Available")[2]
    assert not driver.path("/srv/home/tuner_results/big").exists()


_MIXED = """
import sys, time
import tuner as tune
from tuner.executors import RayExecutor

def train(config):
    for step in range(2):
        time.sleep(0.2)  # so that some run beside others
        tune.report({"step": step})

if __name__ == "__main__":
    analysis = tune.run(
        tune.with_resources(train, lambda config: {"cpu": config["cpus"]}), name="mixed", verbose=1,
        config={"cpus": tune.grid_search([2, 1, 1, 1, 1, 1, 1, 2, 1, 2, 2, 1])}, storage_path=sys.argv[2],
        executor=RayExecutor(address=sys.argv[1]),
    )
    print("ENDED", [trial.status for trial in analysis.trials])
"""


def test_trials_that_ask_for_different_resources_all_get_them(cluster: Cluster) -> None:
    said = cluster.hosts[0].run(_MIXED, cluster.address, RESULTS, within_s=_WITHIN_S)

    assert f"ENDED {12 * ['TERMINATED']}" in said


_REUSED = """
import json, os, socket, sys
from ray import tune
from ray.tune.schedulers import TrialScheduler
from tuner.executors import RayExecutor

class Loads(tune.Trainable):
    def setup(self, config):
        open(f"{config['shared']}/setup-{socket.gethostname()}-{os.getpid()}", "x").close()
        self.reset_config(config)

    def reset_config(self, new_config):
        self.weight = 0
        return True

    def step(self):
        self.weight += self.config["x"]
        return {"score": self.weight, "process": f"{socket.gethostname()}-{os.getpid()}"}

    def save_checkpoint(self, checkpoint_dir):
        return {"weight": self.weight}

    def load_checkpoint(self, checkpoint):
        self.weight = checkpoint["weight"]


class Halving(TrialScheduler):
    # All of six come to the second step; the worse half ends, the others go on, the worst of them from the best one's.
    def __init__(self):
        super().__init__()
        self.over = False

    def set_search_properties(self, metric, mode):
        return True

    def on_trial_result(self, runner, trial, result):
        if result["training_iteration"] == 2 and not self.over:
            return self.PAUSE
        return self.STOP if result["training_iteration"] == 4 else self.CONTINUE

    def choose_trial_to_run(self, runner):
        trials = runner.get_trials()
        if len(trials) == 6 and all(trial.status == "PAUSED" and trial.checkpoint for trial in trials):
            ranks, self.over = sorted(trials, key=lambda trial: trial.last_result["score"]), True
            for worse in ranks[:3]:
                runner.stop_trial(worse)
            copy, best = ranks[3], ranks[5]
            copy.set_config({**best.config, "x": 10})
            copy.on_checkpoint(best.checkpoint)
        ready = ("PENDING", "PAUSED") if self.over else ("PENDING",)
        return next((trial for trial in trials if trial.status in ready), None)

    def on_trial_add(self, runner, trial): ...
    def on_trial_error(self, runner, trial): ...
    def on_trial_complete(self, runner, trial, result): ...
    def on_trial_remove(self, runner, trial): ...


if __name__ == "__main__":
    address, storage_path, shared = sys.argv[1:]
    analysis = tune.run(
        Loads, name="reused", config={"x": tune.grid_search([3, 1, 4, 2, 6, 5]), "shared": shared},
        scheduler=Halving(), reuse_actors=True, executor=RayExecutor(address=address), storage_path=storage_path,
        metric="score", mode="max",
    )
    print("ENDED", json.dumps([(t.config["x"], t.iteration, t.last_result["score"]) for t in analysis.trials]))
"""


def test_a_scheduler_written_for_ray_decides_over_processes_that_are_reused_on_both_hosts(cluster: Cluster) -> None:
    """Pauses, stops and a clone through Ray's controller; there are no more setups than trials that run at once."""
    driver = cluster.hosts[0]
    driver.path("/srv/home/halving.py").write_text(_REUSED)
    (shared := cluster.shared / "reused").mkdir()
    words = ["/srv/home/halving.py", cluster.address, RESULTS, str(shared)]

    said = driver.run([_PYTHON, "-m", "tuner.compat", *words], within_s=_WITHIN_S)

    ended = json.loads(next(line for line in said.splitlines() if line.startswith("ENDED ")).removeprefix("ENDED "))
    assert ended == [[3, 2, 6], [1, 2, 2], [10, 4, 32], [2, 2, 4], [6, 4, 24], [5, 4, 20]], said
    setups = [path.name.split("-")[1] for path in shared.iterdir()]
    assert set(setups) == {"host1", "host2"} and len(setups) < 9, "there were nine attempts"


def said_by_doctor(host: RayHost, *words: str) -> tuple[int, dict[str, str]]:
    """Exit status, and what was said -> its state."""
    driver = host.popen([_TUNER, "doctor", "--json", *words])
    status = driver.wait(_WITHIN_S)
    text = driver.output
    checks = json.loads(text[text.index("{") :])["checks"]
    return status, {f"{check['where']}: {check['said']}": check["state"] for check in checks}


def state_of(words: str, said: dict[str, str]) -> str:
    (found,) = [state for text, state in said.items() if words in text] or [f"{words!r} is not in {list(said)}"]
    return found


def test_doctor_looks_at_every_node_and_at_the_way_to_it(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    before = sorted(path for host in cluster.hosts for path in host.path(RESULTS).rglob("*"))
    driver.path("/srv/home/alone.py").write_text("import json, tuner, no_such_package\n")
    address = ["--address", cluster.address]

    status, said = said_by_doctor(driver, *address, "--storage-path", f"{RESULTS}/mine")
    assert status == 0
    assert state_of("2 nodes with 2 cpu", said) == "ok"
    assert state_of("no other node sees /srv/results/mine", said) == "ok"
    assert state_of(f"host2 ({other.address}): ssh and rsync reach it", said) == "ok"
    assert state_of(f"host2 ({other.address}): its packages are those of here", said) == "ok"
    assert state_of(f"host2 ({other.address}): its clock is the one here", said) == "ok"
    assert state_of(f"host2 ({other.address}): results: /srv/results/mine can be written", said) == "warning"  # 1 GB

    place = str(cluster.shared / "copies")
    words = ["--storage-path", str(cluster.shared), "--upload-dir", place, "alone.py", "--executor", "ray"]
    status, said = said_by_doctor(driver, *address, *words)
    assert status == 1
    assert state_of(f"host2 ({other.address}): no_such_package cannot be imported", said) == "problem"
    assert state_of("every node sees", said) == "ok"
    assert state_of(f"here: {place}: reach, write, read, list, create exclusively", said) == "ok"

    status, said = said_by_doctor(driver, *address, "--storage-path", RESULTS, "--upload-dir", "host2:/srv/results")
    assert status == 0
    for where in ("here", f"host2 ({other.address})"):
        assert state_of(f"{where}: host2:/srv/results: reach, write, read, list, delete", said) == "ok"

    status, said = said_by_doctor(driver, *address, "--storage-path", RESULTS, "--ssh-port", "9")
    assert status == 1
    assert state_of("checkpoints cannot be fetched by rsync over ssh", said) == "problem"

    assert sorted(path for host in cluster.hosts for path in host.path(RESULTS).rglob("*")) == before


@pytest.mark.docs
def test_f38_the_pages_script_survives_the_loss_of_either_host(cluster: Cluster) -> None:
    """As a stranger would do it: the commands and the script of docs/cluster.md."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
    (script,) = [part.split("```")[0] for part in page.split("```python\n")[1:] if "two-machines" in part]
    driver, other = cluster.hosts
    copies = cluster.shared / "runs" / "two-machines"
    command = [_PYTHON, "/srv/home/train.py", str(cluster.shared / "runs")]
    script = script.replace("time.sleep(0.5)", "time.sleep(0.2)")
    driver.path("/srv/home/train.py").write_text(script)

    spare = cluster.boot()
    run = driver.popen(command)
    here = driver.path("/srv/home/tuner_results/two-machines")
    wait_until(lambda: any(hosts == {"host2"} and checkpoints(trial) for trial, hosts in hosts_of(here).items()), run)
    other.kill()
    wait_until(lambda: {"host1", "host2"} in hosts_of(here).values(), run)  # what ran on one goes on, on the other
    at_once = script.replace('executor="ray"', 'executor="ray", takeover=True')  # else it waits for a heartbeat: 60 s
    spare.path("/srv/home/train.py").write_text(at_once)
    driver.kill()

    cluster.hosts.remove(driver)
    cluster.hosts.insert(0, cluster.hosts.pop(cluster.hosts.index(spare)))
    cluster.start_ray(spare, 2, None).ends(_WITHIN_S)
    said = spare.run(command, within_s=_WITHIN_S)
    assert "resuming from" in said and "{'lr': 0.1} 4" in said
    whole(copies)
    rows = [[json.loads(row) for row in file.read_text().splitlines()] for file in copies.rglob("result.json")]
    assert [[row["training_iteration"] for row in trial] for trial in rows] == [list(range(1, 31))] * 4


def wait_until(true: Callable[[], bool], run: Driver) -> None:
    end = time.monotonic() + _WITHIN_S
    while not true():
        assert run.poll() is None, run.output
        assert time.monotonic() < end, run.output
        time.sleep(0.1)


def hosts_of(place: Path) -> dict[Path, set[str]]:
    """The hosts that each trial ran on, by its directory."""
    lines = {file.parent: file.read_text().split("\n")[:-1] for file in place.glob("*/result.json")}
    return {trial: {json.loads(line)["hostname"] for line in found} for trial, found in lines.items()}
