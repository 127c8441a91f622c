"""Searches on the surrogate of LCBench: their ranks are guarded by a few that are fixed by their seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "lcbench"
DATASETS = ("167168", "167184")
METHODS = ("random", "asha", "auto")
pytestmark = pytest.mark.timeout(600)  # the first test that needs them waits for six searches
MODULES = ("lcbench", "search", "search_kept", "search_methods", "search_picture", "search_runs", "search_tables")


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules and the surrogate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        imported = SimpleNamespace(**{name: __import__(name) for name in MODULES})
        try:
            imported.surrogate = imported.lcbench.Surrogate(DATA)
        except imported.lcbench.Missing as error:
            pytest.skip(str(error))
        yield imported
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def results(bench):
    found = bench.search_tables.Results()
    chosen = {name: bench.search_methods.OURS[name] for name in METHODS}
    for key in bench.search.wanted(chosen, list(DATASETS), 1, [4]):
        found.runs[key] = bench.search.measured(bench.surrogate, chosen[key[0]], key)
    return found


def test_the_ranks_stand(bench, results) -> None:
    cells = results.shared_cells(4)
    means = {name: results.regrets(name, 4, cells, (0.25, 0.5, 1.0)).mean() for name in METHODS}
    assert means["asha"] < 0.8 * means["random"]
    assert means["auto"] < 0.8 * means["asha"]


@pytest.mark.parametrize("method", ["asha", "auto"])
def test_the_same_seed_gives_the_same_search(bench, results, method: str) -> None:
    key = (method, DATASETS[0], 0, 4)
    again = bench.search.measured(bench.surrogate, bench.search_methods.OURS[method], key)
    assert again["steps"] == results.runs[key]["steps"]


def test_a_search_ends_with_its_virtual_time_and_early_stopping_sees_more_configs(bench, results) -> None:
    for cell in results.shared_cells(4):
        runs = {name: results.runs[(name, *cell, 4)] for name in METHODS}
        assert all(run["steps"][-1][0] <= 1 for run in runs.values())
        assert runs["asha"]["trials"] > 2 * runs["random"]["trials"]
        assert runs["random"]["trials"] > 20


def test_curves_of_many_are_those_of_each(bench) -> None:
    names = list(bench.surrogate.space)
    configs = [dict(zip(names, values, strict=True)) for values in bench.surrogate.random_values(5, 0).tolist()]
    together = bench.surrogate.curves("3945", configs)
    bench.surrogate.clear()
    alone = [bench.surrogate.curves("3945", [config])[0] for config in configs]
    assert np.allclose([curve.accuracy for curve in together], [curve.accuracy for curve in alone], rtol=1e-4)
    assert all(np.all(np.diff(curve.seconds) > 0) for curve in together)


def test_there_are_34_data_sets_of_which_17_may_be_tuned_on(bench) -> None:
    assert len(bench.surrogate.datasets) == 34
    assert len(bench.surrogate.tuned_on) == 17
    assert set(bench.search_runs.references()) == set(bench.surrogate.datasets)


def test_a_file_that_is_another_is_refused_with_where_it_comes_from(bench, tmp_path) -> None:
    with pytest.raises(bench.lcbench.Missing, match="slds-lmu/yahpo_data"):
        bench.lcbench.Surrogate(tmp_path)
    for name in bench.lcbench.DIGESTS:
        (tmp_path / name).write_text("{}")
    with pytest.raises(bench.lcbench.Missing, match="not the file"):
        bench.lcbench.Surrogate(tmp_path)


def test_a_kept_line_has_the_regret_at_all_shares_that_are_compared(bench, results, tmp_path) -> None:
    place = tmp_path / "deep" / "out.jsonl"
    kept = bench.search_kept.Kept(place)
    for key, run in results.runs.items():
        kept.add(key, run)
    stored = bench.search_kept.Kept(place).results
    assert list(stored.runs) == list(results.runs) and stored.runs == kept.results.runs
    assert max(map(len, place.read_text("utf-8").splitlines())) < 320
    assert set(bench.search_tables.SHARES) <= set(bench.search_kept.KEPT)
    cells = results.shared_cells(4)
    for name in METHODS:
        whole, thinned = (each.regrets(name, 4, cells, bench.search_kept.KEPT) for each in (results, stored))
        assert np.abs(whole - thinned).max() < 1e-4


def test_a_line_of_other_code_counts_for_nothing_and_a_torn_one_costs_itself(bench, tmp_path) -> None:
    place, versions = tmp_path / "out.jsonl", {"auto": 2}
    keys = [(method, "a", 0, 4) for method in ("auto", "asha", "tpe")]
    kept = bench.search_kept.Kept(place)
    for key in keys:
        kept.add(key, _run(0.5))
    place.write_text(place.read_text("utf-8")[:-40], "utf-8")
    again = bench.search_kept.Kept(place, versions)
    assert list(again.results.runs) == keys[1:2]
    again.add(keys[2], _run(0.25))
    again.add(keys[0], _run(0.125))
    found = bench.search_kept.Kept(place, versions).results
    assert found.regrets("auto", 4, [("a", 0)], [1.0]) == 0.125 and len(found.runs) == 3
    assert [len(bench.search_kept.Kept(place, {"auto": 3}).results.runs), len(found.runs)] == [2, 3]


def test_the_lines_that_are_kept_are_of_known_methods_and_data_sets(bench) -> None:
    place = ROOT / "benchmarks" / "kept" / "search.jsonl"
    peers = (ROOT / "benchmarks" / "search_peers.py").read_text("utf-8")
    assert set(bench.search_methods.VERSIONS) <= set(bench.search_methods.OURS)
    for line in place.read_text("utf-8").splitlines():
        found = json.loads(line)
        assert found["method"] in bench.search_methods.OURS or f'"{found["method"]}": ' in peers
        assert found["dataset"] in bench.surrogate.datasets and len(found["regrets"]) == len(bench.search_kept.KEPT)


def test_ranks_share_the_mean_of_equal_places(bench) -> None:
    columns = np.array([[0.1, 0.5], [0.1, 0.2], [0.3, 0.9]])
    assert bench.search_tables.ranks(columns).tolist() == [[1.5, 2.0], [1.5, 1.0], [3.0, 3.0]]


def test_regret_is_1_before_the_first_result_and_a_step_between_results(bench) -> None:
    steps = [(0.1, 0.6), (0.5, 0.2)]
    regrets = [bench.search_tables.regret_at(steps, share) for share in (0.05, 0.1, 0.49, 0.5, 1.0)]
    assert regrets == [1.0, 0.6, 0.6, 0.2, 0.2]


def _run(regret: float) -> dict[str, Any]:
    return {"steps": [(0.0, 1.0), (0.375, regret)], "trials": 1, "cpu_s": 0.0}


def test_slow_methods_have_fewer_seeds_and_a_table_of_the_searches_that_all_have(bench) -> None:
    slow = bench.search_methods.SLOW
    keys = list(bench.search.wanted(["asha", "random", slow[0]], ["a", "b"], 3, [4], 1))
    assert len(keys) == 14 and sum(key[0] == slow[0] for key in keys) == 2
    fewer = [key for key in bench.search.wanted(slow, ["a", "b"], 3, [4], 2, 1) if key[0] == slow[0]]
    assert fewer == [(slow[0], "a", 0, 4), (slow[0], "a", 1, 4)]
    found = bench.search_tables.Results({key: _run(0.5) for key in keys})
    quick, both = bench.search_tables.tables(found, 4).split("\n\n4 workers")
    assert "6 searches" in quick and slow[0] not in quick
    assert "2 searches" in both and f"| {slow[0]} |" in both and "| asha |" in both


def test_the_slow_methods_are_known_ones(bench) -> None:
    peers = (ROOT / "benchmarks" / "search_peers.py").read_text("utf-8")
    methods = bench.search_methods
    assert all(name in methods.OURS or f'"{name}": ' in peers for name in methods.SLOW)
    assert set(methods.NAMED_ONLY) < set(methods.SLOW)
    assert list(bench.search.chosen_methods(None, peers=False)) == list(methods.OURS)


def test_when_a_method_has_the_final_regret_of_another(bench) -> None:
    runs = {("auto", "a", seed, 4): _run(0.25) for seed in range(3)}
    runs |= {("asha", "a", seed, 4): _run(0.5) for seed in range(2)}
    runs |= {("tpe", "a", 0, 4): _run(0.125)}
    shown = bench.search_tables.catching_up(bench.search_tables.Results(runs), "auto", 4).splitlines()
    assert shown[2:] == ["| asha | 2 | 0.38 |", "| tpe | 1 | never |"]


def test_a_method_beside_another_is_compared_over_the_searches_of_both(bench) -> None:
    runs = {("auto", dataset, seed, 4): _run(0.25) for dataset in "ab" for seed in range(3)}
    runs |= {("asha", "a", seed, 4): _run(0.5) for seed in range(2)} | {("asha-same", "a", 0, 4): _run(0.5)}
    shown = bench.search_tables.beside(bench.search_tables.Results(runs), "auto", 4).splitlines()
    assert shown[2].startswith("| asha | 2 | 1 | 1.000 / 1.000 (+0.000 to +0.000) |") and len(shown) == 3
    assert shown[2].endswith("| 0.250 / 0.500 (-0.250 to -0.250) |")
    assert bench.search_tables.beside(bench.search_tables.Results(runs), "tpe", 4) == ""


def test_searches_run_in_processes_and_are_not_run_again(bench, tmp_path) -> None:
    out = tmp_path / "out.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "search.py"), "--data", str(DATA), "--json", str(out)]
    command += ["--datasets", DATASETS[0], "--methods", "random", "--processes", "2", "--seeds"]
    first = subprocess.run([*command, "2"], capture_output=True, text=True, check=True)
    assert "2 searches of each" in first.stdout
    measured = out.read_text("utf-8")
    subprocess.run([*command, "2"], capture_output=True, check=True)
    assert out.read_text("utf-8") == measured
    alone = bench.search.measured(bench.surrogate, bench.search_methods.OURS["random"], ("random", DATASETS[0], 1, 4))
    (line,) = [found for found in map(json.loads, measured.splitlines()) if found["seed"] == 1]
    assert line["regrets"][-1] == round(alone["steps"][-1][1], 4)


def test_a_method_is_paired_with_syne_tunes_of_the_same_data_sets_and_seeds_only(bench) -> None:
    def run(regret: float) -> dict[str, Any]:
        return {"steps": [(0.0, regret)], "trials": 1, "cpu_s": 0.0}

    runs = {("asha-same", "a", seed, 4): run(0.25) for seed in range(4)}
    runs |= {("syne-asha-same", "a", seed, 4): run(0.125 * seed) for seed in range(3)}
    found = bench.search_tables.Results(runs)
    assert bench.search_tables.paired(found, "asha-same", "syne-asha-same", 4, 1.0) == (0.125, 0.0, 0.25, 0.125)
    assert "| asha-same |" in bench.search_tables.pairs(found, 4)


def test_tables_and_pictures_go_between_the_marks_of_the_page(bench, results, tmp_path, monkeypatch) -> None:
    page = (ROOT / "docs" / "search.md").read_text("utf-8")
    (tmp_path / "search.md").write_text(page, "utf-8")
    monkeypatch.setattr(bench.search, "DOCS", tmp_path)
    for _ in range(2):
        bench.search.write_docs(results, [4])
    written = (tmp_path / "search.md").read_text("utf-8")
    before, _, rest = page.partition(bench.search.BEGIN.format(""))
    after = rest.partition(bench.search.END)[2]
    assert written.startswith(before) and written.endswith(bench.search.END + after)
    assert written[len(before) : len(written) - len(after)].count("| asha |") == 3
    lines = ElementTree.parse(tmp_path / "search_4.svg").iter("{http://www.w3.org/2000/svg}polyline")
    assert len(list(lines)) == len(METHODS)
    with pytest.raises(SystemExit, match="--docs models: .* has no line"):
        (tmp_path / "search.md").write_text(bench.search.BEGIN.format("") + bench.search.END, "utf-8")
        bench.search.write_docs(results, [4], "models")


def test_what_the_searches_took_is_told_with_the_dearest_methods(bench) -> None:
    runs = {("auto", "a", 0, 4): {**_run(0.5), "cpu_s": 90.0}, ("asha", "a", 0, 4): {**_run(0.5), "cpu_s": 30.0}}
    said = bench.search_tables.costs(bench.search_tables.Results(runs), 4)
    assert said == "These 2 searches took 2 min of CPU; the dearest, each: auto 90 s, asha 30 s.\n"
