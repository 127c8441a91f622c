"""Search spaces as Optuna's distributions, and configs as its parameters."""

from __future__ import annotations

import optuna
import pytest

from tests.tuner.search.optuna_harness import SPACE, by_run, drive, make
from tuner.search import as_searcher


def test_every_domain_is_searched_within_its_bounds() -> None:
    seen = set()
    for config in drive(make(), 40):
        for key in ("u", "qu", "lu", "qlu", "n", "qn", "i", "qi", "li", "qli", "c", "objects", "same", "branch"):
            if key not in ("branch", "objects"):
                assert SPACE[key].is_valid(config[key]), (key, config[key])
        assert config["function"] == config["u"] * 2
        assert config["constant"] == 17
        assert config["objects"] in ({"k": 1}, [2, 3], len)
        assert type(config["list"][1]) is tuple and config["list"][1][0] == "fixed"
        assert config["qi"] in (4, 8, 12, 16, 20)
        assert config["qu"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
        branch = config["branch"]
        seen.add(branch["kind"])
        assert branch == {"kind": "x"} or 5 <= branch["deep"]["z"] <= 6
    assert seen == {"x", "y"}


def test_optunas_own_distributions() -> None:
    space = {
        "a": optuna.distributions.FloatDistribution(0, 1, step=0.25),
        "b/c": optuna.distributions.IntDistribution(1, 8, log=True),
        "d": {"e": optuna.distributions.CategoricalDistribution(["x", "y"]), "fixed": 3},
    }
    searcher = make(space, run_space={"constant": 1})
    config = searcher.suggest("t")
    assert isinstance(config, dict)
    assert config["a"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert 1 <= config["b"]["c"] <= 8
    assert config["d"]["e"] in ("x", "y") and config["d"]["fixed"] == 3


@pytest.mark.parametrize("where", ["searcher", "run", "run without a searcher"])
def test_define_by_run(where: str) -> None:
    if where == "searcher":
        searcher = make(by_run, run_space={"more": 1})
    elif where == "run":
        searcher = make(run_space=by_run)
    else:
        searcher = as_searcher(None, by_run, num_samples=40, metric="loss", mode="min", seed=5)
    configs = drive(searcher, 20)
    assert {config["kind"] for config in configs} == {"linear", "deep"}
    for config in configs:
        assert config["constant"] == 3
        assert ("model" in config) is (config["kind"] == "deep")
