"""The data of each view, of now and of earlier moments."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from math import inf
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.tuner.ui.served import client, data, lengths, serving
from tuner.ui.views.comparison import steps_of

VIEWS = ("overview", "trials", "curves", "parameters", "lineage", "machines", "compare", "orders")


def ids(pages: httpx.Client) -> list[str]:
    found: list[str] = data(pages, "e/first/trials.json?columns=id")["id"]
    return found


def test_curves_have_every_result_of_the_chosen_trials(pages: httpx.Client) -> None:
    first, second = ids(pages)[:2]
    told = data(pages, f"e/first/curves.json?trials={second},{first}&metric=loss")
    assert told["trials"]["id"] == [second, first] and lengths({"p": told["points"]}) == {
        told["trials"]["start"][-1] + 4
    }
    start = told["trials"]["start"][1]
    assert told["points"]["value"][start:] == [1.0, 0.5, 1 / 3, 0.25] and set(told["points"]["void"]) == {0}
    assert told["points"]["iteration"][start:] == [1, 2, 3, 4]
    every = data(pages, "e/first/curves.json?metric=nested/auc")
    assert len(every["trials"]["id"]) == 6 and every["note"] is None


def test_a_trial_with_its_shelf_and_decisions(pages: httpx.Client) -> None:
    best = ids(pages)[0]
    told = data(pages, f"e/first/trial/{best}.json")
    shelf = told["checkpoints"]
    assert shelf["name"] == [f"checkpoint_{number:06d}" for number in (1, 2, 3, 4)]
    assert shelf["fate"] == ["deleted", "deleted", "kept", "kept"] and "latest" in shelf["why"][3] and shelf["why"][0]
    assert shelf["value"] == [1.0, 0.5, 1 / 3, 0.25] and shelf["gone_at"][:2] != [None, None]
    assert told["searched"] == ["x", "deep/rate"] and told["config"]["x"] == 1
    assert told["attempts"]["number"] == [1] and told["results"]["iteration"] == [1, 2, 3, 4]
    stopped = next(one for one in ids(pages) if data(pages, f"e/first/trial/{one}.json")["iteration"] == 2)
    decisions = data(pages, f"e/first/trial/{stopped}.json")["decisions"]
    assert decisions["then"] == ["stop"] and decisions["metric"] == ["loss"] and decisions["cut"][0] is not None
    assert decisions["rank"][0] <= decisions["of"][0] and "ASHA" in decisions["said"][0]


def test_a_failed_trial_says_what_failed(pages: httpx.Client) -> None:
    told = data(pages, f"e/first/trial/{ids(pages)[2]}.json")
    assert told["state"] == "ERROR" and told["error"].startswith("ValueError: <b>no</b>")
    assert "raise ValueError" in told["traceback"] and told["attempts"]["why"] == ["failed"]
    assert "error.txt" in told["files"]["name"]
    for address in told["files"]["address"]:
        assert pages.get(address).status_code == 200
    assert pages.get("e/first/trial/none.json").status_code == 404


def test_a_checkpoint_comes_as_a_tar_without_what_links_point_to(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    with serving([tmp_path / "first"]) as one, client(one) as pages:
        best = ids(pages)[0]
        shelf = data(pages, f"e/first/trial/{best}.json")["checkpoints"]
        address = shelf["download"][3]
        (kept,) = tmp_path.rglob(f"*{best}/checkpoint_000004")
        os.symlink("/etc/passwd", kept / "link")
        answer = pages.get(address)
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as packed:
            names = packed.getnames()
            for name in names:
                member = packed.extractfile(name)
                assert member is not None and member.read() == (kept.parent / name).read_bytes()
        assert "checkpoint_000004/link" not in names and len(names) == sum(one.is_file() for one in kept.rglob("*")) - 1
        for other in ("checkpoint_000001", "..", "."):
            assert pages.get(f"e/first/checkpoints/{best}/{other}.tar").status_code == 404
        shutil.move(kept, tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", kept)
        assert pages.get(address).status_code == 404, "a link in place of a checkpoint"
        log = kept.parent / "stdout"
        log.unlink(missing_ok=True)
        for made in (lambda: os.symlink("/etc/passwd", log), lambda: os.mkfifo(log)):
            made()
            assert pages.get(f"e/first/files/{best}/stdout").status_code == 404
            log.unlink()


def test_parameters_with_domains_and_importance(pages: httpx.Client) -> None:
    told = data(pages, "e/first/parameters.json")
    assert {len(values) for values in told.values() if isinstance(values, list)} == {6}
    assert told["goals"] == {"metric": ["loss"], "mode": ["min"]}
    assert lengths({name: told[name] for name in ("id", "value", "config", "last", "checkpoint")}) == {6}
    assert told["domains"]["deep/rate"] == {"kind": "float", "log": False, "low": 0, "high": 1, "choices": None}
    assert told["domains"]["x"]["choices"] == [1, 2, 3, 4, 5, 6]
    assert told["importance"] is None or set(told["importance"]["parameter"]) <= {"x", "deep/rate"}


def test_lineage_and_machines_have_every_trial(pages: httpx.Client) -> None:
    tree, hosts = data(pages, "e/first/lineage.json"), data(pages, "e/first/machines.json")
    assert tree["nodes"]["id"] == ids(pages) and lengths({"n": tree["nodes"]}) == {6}
    assert sum(hosts["hosts"]["trials"]) == 6 and set(hosts["spans"]["id"]) == set(ids(pages))
    assert all(end is not None for end in hosts["spans"]["end"])


def test_two_experiments_over_each_other(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "second")
    with serving([experiment, tmp_path]) as both, client(both) as pages:
        assert data(pages, "e/first/compare.json")["names"] == ["second"]
        told = data(pages, "e/first/compare.json?with=second")
        left, right = told["sides"]
        assert left["best"] == right["best"] and left["curve"] == right["curve"] and left["curve"]["value"][-1] == 0.25
        assert told["parameters"]["key"] == ["x", "deep/rate"]
        assert pages.get("e/first/compare.json?with=third").status_code == 404


def test_a_best_that_stays_infinite_is_one_step() -> None:
    assert steps_of(np.array([inf, inf, 2.0, 2.0, 1.0, -inf, -inf])).tolist() == [0, 2, 4, 5]
    assert steps_of(np.array([])).tolist() == []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_every_moment(pages: httpx.Client, view: str) -> None:
    now = data(pages, f"e/first/{view}.json")
    seq = now["seq"]
    for at in range(0, seq, max(seq // 8, 1)):
        told = data(pages, f"e/first/{view}.json?at={at}")
        assert told["at"] == told["seq"] == at
    later: dict[str, Any] = data(pages, f"e/first/{view}.json?at={seq}")
    assert {**later, "time": 0, "disk": 0} == {**now, "time": 0, "disk": 0}


def test_the_past_is_as_it_was(pages: httpx.Client) -> None:
    seq = data(pages, "e/first/overview.json")["seq"]
    trials = [len(data(pages, f"e/first/trials.json?at={at}")["id"]) for at in range(seq)]
    assert trials == sorted(trials) and trials[0] == 0 and trials[-1] == 6
    early = data(pages, "e/first/overview.json?at=6")
    assert early["counts"]["RUNNING"] == 1 and early["run_ended"] is None and not early["orders"]
    assert pages.get("e/first/overview.json?at=x").status_code == 400


def test_a_history_that_does_not_reach_back_says_where_it_begins(experiment: Path, tmp_path: Path) -> None:
    from trainables.store import fs
    from tuner.clock import SystemClock
    from tuner.experiment.journal_reader import read_journal
    from tuner.experiment.journal_writer import JournalWriter
    from tuner.experiment.paths import ExperimentPaths
    from tuner.experiment.reader import load_state

    shutil.copytree(experiment, tmp_path / "first")
    paths = ExperimentPaths(tmp_path / "first")
    known = read_journal(paths)
    journal = JournalWriter(
        paths, 2, next_seq=known.last_seq + 1, clock=SystemClock(), sync="inline", parents=known.chain, history_bytes=0
    )
    journal.append(b'{"kind":"generation","generation":2,"parent":1,"parent_seq":%d}' % known.last_seq)
    journal.compact(load_state(paths).snapshot({}), grace_s=0.0)
    journal.close()
    for name in fs.listdir(paths.journal):
        if name.startswith("000001-"):
            (paths.journal / name).unlink()
    with serving([tmp_path / "first"]) as one, client(one) as pages:
        best = ids(pages)[0]
        shelf = data(pages, f"e/first/trial/{best}.json")["checkpoints"]
        assert shelf["fate"] == ["kept", "kept"] and shelf["value"] == [1 / 3, 0.25]
        told = data(pages, "e/first/overview.json")
        assert told["first_seq"] == known.last_seq + 1 and told["history_note"]
        refused = pages.get("e/first/overview.json?at=3")
        assert refused.status_code == 404 and refused.json()["first_seq"] == told["first_seq"]
        assert "not recorded" in data(pages, "e/first/curves.json")["note"]


def test_an_order_is_answered_as_its_file_has_it(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    with serving([tmp_path / "first"]) as one, client(one) as pages:
        malformed = pages.post("e/first/orders", content=b"[]")
        assert malformed.status_code == 400 and malformed.json()["state"] == "refused"
        unknown = pages.post("e/first/orders", json={"order": "dance", "trial": "0"})
        assert unknown.status_code == 400 and "there is no order 'dance'" in unknown.json()["why"]
        assert pages.post("e/first/orders", content=b"[" * (1 << 20)).status_code == 400
        nobody = pages.post("e/first/orders", json={"order": "stop", "trial": "0"})
        assert nobody.status_code == 409 and nobody.json()["state"] == "refused" and nobody.json()["why"]
        order = {"order": "retry", "trial": "2"}
        waits = pages.post("e/first/orders", json={**order, "id": "from-the-page-1", "if_dead": "wait"})
        assert waits.status_code == 200, waits.text
        assert waits.json() == {"id": "from-the-page-1", "state": "waiting", "why": ""}
        assert (tmp_path / "first" / "orders" / "from-the-page-1.json").is_file()
        listed = data(pages, "e/first/orders.json")
        assert (listed["id"], listed["order"], listed["state"]) == (["from-the-page-1"], [order], ["waiting"])
        noted = pages.post("e/first/orders", json={"order": "note", "trial": "0", "text": "<b>flat</b>"})
        assert noted.status_code == 200 and noted.json()["state"] == "done", "nobody needs to live for that"


def test_a_checkpoint_is_looked_at_and_read_whole_where_somebody_asks(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    with serving([tmp_path / "first"]) as one, client(one) as pages:
        best = ids(pages)[0]

        def shelf() -> dict[str, list[Any]]:
            found: dict[str, list[Any]] = data(pages, f"e/first/trial/{best}.json")["checkpoints"]
            return {name: values[2:] for name, values in found.items()}

        assert shelf()["verified"] == [None, None] and shelf()["checked"] == ["sizes", "sizes"]
        assert data(pages, f"e/first/trial/{best}.json?at=30")["checkpoints"]["verify"].count(None) >= 2
        addresses = shelf()["verify"]
        assert data(pages, addresses[0])["verified"] is True
        assert shelf()["verified"] == [True, None] and shelf()["verified_at"][0] > 0
        (kept,) = tmp_path.rglob(f"*{best}/checkpoint_000004")
        saved = max(
            (file for file in kept.iterdir() if file.name != ".manifest.json"), key=lambda file: file.stat().st_size
        )
        saved.write_bytes(saved.read_bytes()[:-1] + b"x")
        assert shelf()["verified"] == [True, None], "of the same size"
        assert data(pages, addresses[1])["verified"] is False and "hash" in shelf()["problem"][1]
        saved.write_bytes(b"")
        assert shelf()["verified"] == [True, False] and "bytes" in shelf()["problem"][1]
        shutil.rmtree(kept)
        assert shelf()["verified"] == [True, False] and "not there" in shelf()["problem"][1]
        kept.symlink_to(kept.parent / "checkpoint_000003")
        assert data(pages, addresses[1])["verified"] is False
        assert pages.get(f"e/first/verify/{best}.json?checkpoint=checkpoint_000001").status_code == 404
        assert pages.get("e/first/verify/none.json").status_code == 404
