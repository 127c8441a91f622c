"""The addresses of `tuner ui`, asked over loopback."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.tuner.ui.served import client, data, lengths, serving, stream
from tuner.cli import main
from tuner.ui.served_places import Places
from tuner.ui.ui_server import UiServer


def test_the_overview_says_how_it_stands(pages: httpx.Client, experiment: Path) -> None:
    told = data(pages, "e/first/overview.json")
    assert (told["name"], told["path"], told["at"]) == ("first", str(experiment), None)
    assert told["state"] == "finished" and told["liveness"] == "ended"
    assert told["trials"] == 6 and sum(told["counts"].values()) == 6 and told["counts"]["ERROR"] == 1
    assert (told["metric"], told["mode"], told["best"]["value"]) == ("loss", "min", 0.25)
    assert told["best"]["config"]["x"] == 1 and told["best"]["checkpoint"]["name"] == "checkpoint_000004"
    assert told["failures"]["said"] == ["ValueError: <b>no</b> convergence"]
    assert told["orders"] and not told["read_only"]


def test_trials_are_columns_and_say_what_tuner_show_says(
    pages: httpx.Client, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = data(pages, "e/first/trials.json")
    assert lengths(told) == {6}
    main(["show", str(experiment), "--json"])
    shown = {row["id"]: row for row in json.loads(capsys.readouterr().out)["trials"]}
    for row, trial_id in enumerate(told["id"]):
        assert told["said"][row] == shown[trial_id]["state"]
        assert told["state"][row] == shown[trial_id]["status"]
        assert told["checkpoints"][row] == shown[trial_id]["checkpoints"]
        assert told["last"]["loss"][row] == shown[trial_id]["metrics"]["loss"]
        assert told["config"]["deep/rate"][row] == shown[trial_id]["params"]["deep/rate"]
    assert told["best"] == told["id"][0] and told["last"]["nested/auc"][0] == 0.4
    chosen = data(pages, "e/first/trials.json?columns=state,last")
    assert chosen["state"] == told["state"] and "config" not in chosen and chosen["id"] == told["id"]
    refused = pages.get("e/first/trials.json?columns=colour")
    assert refused.status_code == 400 and "there is no column 'colour'" in refused.json()["error"]


def test_the_list_of_experiments(pages: httpx.Client, experiment: Path) -> None:
    told = data(pages, "experiments.json")["experiments"]
    assert (told["name"], told["path"], told["state"], told["trials"]) == (
        ["first"],
        [str(experiment)],
        ["finished"],
        [6],
    )


@pytest.mark.parametrize(
    "address",
    ["e/second/overview.json", "e/first/colours.json", "e/first/files/first/stdout", "e/second/", "static/../app.py"],
)
def test_what_is_not_there_is_404_and_says_so(pages: httpx.Client, address: str) -> None:
    answer = pages.get(address)
    assert answer.status_code == 404 and answer.json()["error"]


def test_the_stream_begins_with_the_newest_number(pages: httpx.Client) -> None:
    seq = data(pages, "e/first/overview.json")["seq"]
    with stream(pages, "e/first/events") as events:
        first = next(events)
    assert (first.kind, first.id, first.data["seq"]) == ("hello", seq, seq)


def test_a_page_that_comes_back_is_told_what_it_missed_from_any_fact_on(pages: httpx.Client) -> None:
    whole = data(pages, "e/first/trials.json")
    seq = whole["seq"]
    for since in range(0, seq, 7):
        with stream(pages, "e/first/events", **{"Last-Event-ID": str(since)}) as events:
            first = next(events)
        assert (first.kind, first.id) == ("changes", seq)
        rows = first.data["trials"]
        assert lengths(rows) == {len(rows["row"])}
        for place, row in enumerate(rows["row"]):
            for name in ("id", "state", "said", "iteration", "checkpoints", "name_of"):
                assert rows[name][place] == whole[name][row]
        assert sorted(first.data["results"]["id"]) == sorted(
            trial for trial in first.data["results"]["id"] if trial in rows["id"]
        )
    assert len(rows["row"]) < 6, "only what has changed since"


@pytest.mark.parametrize("given", ["-3", "100000", "some"])
def test_a_number_that_is_none_of_this_journal_is_a_reset(pages: httpx.Client, given: str) -> None:
    with stream(pages, f"e/first/events?since={given}") as events:
        assert next(events).kind == "reset"


def test_a_trials_log_is_plain_text_in_pieces(pages: httpx.Client) -> None:
    trial = data(pages, "e/first/trials.json")["id"][2]
    whole = pages.get(f"e/first/files/{trial}/error.txt")
    assert "<b>no</b> convergence" in whole.text and whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-type"].startswith("text/plain")
    size = int(whole.headers["x-size"])
    assert len(whole.content) == size
    assert pages.get(f"e/first/files/{trial}/error.txt?tail=5").content == whole.content[-5:]
    rest = pages.get(f"e/first/files/{trial}/error.txt", headers={"Range": "bytes=7-"})
    assert rest.status_code == 206 and rest.content == whole.content[7:]
    assert pages.get(f"e/first/files/{trial}/error.txt", headers={"Range": f"bytes={size}-"}).status_code == 416
    for other in ("params.json", "result.json", "..%2Fexperiment.json"):
        assert pages.get(f"e/first/files/{trial}/{other}").status_code == 404


def test_two_places_with_one_name(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    with serving([experiment, tmp_path]) as both, client(both) as pages:
        assert data(pages, "experiments.json")["experiments"]["name"] == ["first", "first~2"]
        assert data(pages, "e/first~2/overview.json")["path"] == str(tmp_path / "first")


@pytest.mark.parametrize("place", ["first/below/..", "first/../first", "first/below/../../first"])
def test_a_place_with_dots_has_the_name_of_its_directory(experiment: Path, tmp_path: Path, place: str) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    (tmp_path / "first" / "below").mkdir()
    with closing(Places([f"{tmp_path}/{place}", f"{tmp_path}/first"])) as places:
        assert [(live.name, live.source.address) for live in places.all()] == [("first", f"{tmp_path}/first")]


def test_names_are_given_in_the_order_of_the_places(experiment: Path, tmp_path: Path) -> None:
    shutil.copytree(experiment, tmp_path / "first")
    with serving([tmp_path, experiment]) as both, client(both) as pages:
        assert data(pages, "e/first/overview.json")["path"] == str(tmp_path / "first")
        assert data(pages, "e/first~2/overview.json")["path"] == str(experiment)


def test_a_place_that_holds_nothing_readable_is_a_row_and_the_others_are_shown(
    experiment: Path, tmp_path: Path
) -> None:
    shutil.copytree(experiment, tmp_path / "whole")
    shutil.copytree(experiment, tmp_path / "broken")
    (tmp_path / "broken" / "experiment.json").write_text("{")
    with serving([tmp_path]) as both, client(both) as pages:
        told = data(pages, "experiments.json")["experiments"]
        assert told["name"] == ["broken", "whole"] and told["state"][1] == "finished"
        assert "cannot be read" in told["error"][0]
        refused = pages.get("e/broken/overview.json")
        assert refused.status_code == 503 and "cannot be read" in refused.json()["error"]
        shutil.copy(tmp_path / "whole" / "experiment.json", tmp_path / "broken" / "experiment.json")
        with stream(pages, "e/broken/events") as events:  # it is read again until it can be
            kinds = [next(events).kind]
            while kinds[-1] == "loading":
                kinds.append(next(events).kind)
        assert kinds[-1] == "hello"


def test_a_server_that_ends_lets_its_streams_end(experiment: Path) -> None:
    with serving([experiment]) as one, client(one) as pages, stream(pages, "e/first/events") as events:
        assert "hello" in iter(lambda: next(events).kind, "")
        one.stop()
        assert {event.kind for event in events} <= {"overview"}


def test_raw_requests_that_are_none(server: UiServer) -> None:
    with socket.create_connection(("127.0.0.1", server.access.port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no host
        assert line.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 403"))
