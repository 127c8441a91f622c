"""Experiments that are damaged, gone, not there yet, or called strangely: each is said, and the others go on."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tuner.ui.served import client, data, serving, stream

VIEWS = ("overview", "trials", "curves", "lineage", "machines", "orders")
ANSWERS = (200, 404, 503)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def odd(folder: Path) -> Iterator[httpx.Client]:
    with serving([folder]) as server, client(server) as pages:
        yield pages


Damage = tuple[str, int, int, bytes]
CONTENT = st.binary(max_size=60) | st.sampled_from(
    [b"", b"{}", b"null", b"1e999", b"[" * 5000, b"\n", b'{"format":"x"}']
)
DAMAGE = st.tuples(
    st.sampled_from(["put", "cut", "whole", "remove", "directory", "link"]),
    st.integers(0, 10_000),
    st.integers(0, 20_000),
    CONTENT,
)


def _damage(root: Path, done: Damage) -> None:
    kind, which, where, content = done
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    path = files[which % len(files)]
    held = path.read_bytes()
    where %= len(held) + 1
    if kind in ("remove", "directory", "link"):
        path.unlink()
    if kind == "put":
        path.write_bytes(held[:where] + content + held[where + len(content) :])
    elif kind == "cut":
        path.write_bytes(held[:where])
    elif kind == "whole":
        path.write_bytes(content)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd" if where % 2 else path.name)


NUMBERS = iter(range(10_000))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DAMAGE, min_size=1, max_size=3))
def test_whatever_is_damaged_every_view_answers(
    odd: httpx.Client, folder: Path, experiment: Path, damages: list[Damage]
) -> None:
    name = f"e{next(NUMBERS)}"
    shutil.copytree(experiment, folder / ".staged")
    for damage in damages:
        _damage(folder / ".staged", damage)
    os.rename(folder / ".staged", folder / name)
    asked = [f"e/{name}/{view}.json" for view in VIEWS] + [f"e/{name}/trials.json?at=9"]
    listed = odd.get(f"e/{name}/trials.json")
    assert listed.status_code in ANSWERS
    for trial in listed.json()["id"][:2] if listed.status_code == 200 else ():
        named = quote(trial, safe="")
        asked += [f"e/{name}/trial/{named}.json", f"e/{name}/files/{named}/error.txt"]
        asked.append(f"e/{name}/checkpoints/{named}/checkpoint_000004.tar")
    for address in asked:
        answer = odd.get(address, timeout=20)
        assert answer.status_code in ANSWERS, (address, answer.text)
        if ".json" in address:
            assert answer.status_code == 200 or answer.json()["error"]
    assert odd.get("experiments.json").status_code == 200
    shutil.rmtree(folder / name)


@pytest.mark.parametrize("kind", ["endless", "pipe"])
@pytest.mark.parametrize("place", ["experiment.json", "journal/000001-000001.jsonl", "generations/000001.json"])
def test_what_never_ends_and_what_is_never_written_is_not_read(
    odd: httpx.Client, folder: Path, experiment: Path, place: str, kind: str
) -> None:
    name = f"e{next(NUMBERS)}"
    shutil.copytree(experiment, folder / ".staged")
    path = folder / ".staged" / place
    path.unlink()
    path.symlink_to("/dev/zero") if kind == "endless" else os.mkfifo(path)
    os.rename(folder / ".staged", folder / name)
    answer = odd.get(f"e/{name}/overview.json", timeout=20)
    assert answer.status_code in (404, 503)
    assert answer.status_code == 404 or "no plain file" in answer.json()["error"]
    shutil.rmtree(folder / name)


def test_a_view_that_cannot_be_made_is_one_sentence_one_line_and_the_others_go_on(
    odd: httpx.Client, folder: Path, experiment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(experiment, folder / ".staged")
    settings = json.loads((folder / ".staged" / "experiment.json").read_text())
    settings |= {"metric": ["loss", ["auc"]], "mode": ["min", "max"]}
    (folder / ".staged" / "experiment.json").write_text(json.dumps(settings))
    os.rename(folder / ".staged", folder / "senseless")
    for _ in range(3):
        answer = odd.get("e/senseless/parameters.json")
        assert (answer.status_code, list(answer.json())) == (503, ["error"])
        assert answer.json()["error"].startswith("this cannot be shown: ") and "Traceback" not in answer.text
    (line,) = [record.getMessage() for record in caplog.records if "senseless" in record.getMessage()]
    assert line.startswith("/e/senseless/parameters.json: TypeError: ") and "\n" not in line
    for view in ("trials", "lineage", "machines", "orders"):
        assert data(odd, f"e/senseless/{view}.json")["name"] == "senseless"
    shutil.rmtree(folder / "senseless")


@pytest.mark.parametrize("line", ["uniform(3, 1)", "randint('a')", "loguniform(-1, 1)", "quniform(0, 1, 0)"])
def test_a_domain_that_is_none_is_told_by_the_values(
    odd: httpx.Client, folder: Path, experiment: Path, line: str
) -> None:
    name = f"e{next(NUMBERS)}"
    shutil.copytree(experiment, folder / ".staged")
    settings = json.loads((folder / ".staged" / "experiment.json").read_text())
    (folder / ".staged" / "experiment.json").write_text(json.dumps(settings | {"space": {"x": line}}))
    os.rename(folder / ".staged", folder / name)
    told = data(odd, f"e/{name}/parameters.json")["domains"]["x"]
    assert (told["kind"], told["low"], told["high"]) == ("int", 1, 6)
    shutil.rmtree(folder / name)


def test_a_trial_whose_directory_is_gone_is_shown_all_the_same(
    odd: httpx.Client, folder: Path, experiment: Path
) -> None:
    shutil.copytree(experiment, folder / "bare")
    for path in (folder / "bare").glob("_train*"):
        shutil.rmtree(path)
    told = data(odd, "e/bare/trials.json")
    assert len(told["id"]) == 6 and told["last"]["loss"][0] == 0.25
    page = data(odd, f"e/bare/trial/{told['id'][0]}.json")
    assert page["files"]["name"] == [] and page["results"]["iteration"] == [1, 2, 3, 4]
    gone = odd.get(f"e/bare/checkpoints/{told['id'][0]}/checkpoint_000004.tar")
    assert gone.status_code == 404 and "not there" in gone.json()["error"]


def test_an_experiment_comes_goes_is_renamed_and_comes_back_under_an_open_page(
    odd: httpx.Client, folder: Path, experiment: Path
) -> None:
    assert odd.get("e/late/overview.json").status_code == 404
    shutil.copytree(experiment, folder / ".late")
    os.rename(folder / ".late", folder / "late")
    assert data(odd, "e/late/overview.json")["trials"] == 6
    with stream(odd, "e/late/events") as events:
        next(events)
        os.rename(folder / "late", folder / "other")
        while (event := next(events)).kind != "loading" or event.data["error"] is None:
            pass
        assert "there is no experiment" in event.data["error"]
        assert "there is no experiment" in odd.get("e/late/trials.json").json()["error"]
        assert data(odd, "e/other/overview.json")["trials"] == 6
        os.rename(folder / "other", folder / "late")
        while next(events).kind != "reset":
            pass
    assert data(odd, "e/late/overview.json")["trials"] == 6


def test_an_experiment_that_is_removed_file_by_file_is_gone(odd: httpx.Client, folder: Path, experiment: Path) -> None:
    shutil.copytree(experiment, folder / "going")
    assert data(odd, "e/going/overview.json")["trials"] == 6
    shutil.rmtree(folder / "going" / "journal")
    while odd.get("e/going/overview.json").json().get("trials") != 0:
        pass
    shutil.rmtree(folder / "going")
    while (answer := odd.get("e/going/overview.json")).status_code == 200 or "being read" in answer.json()["error"]:
        pass
    assert answer.status_code == 503 and "there is no experiment" in answer.json()["error"]


@pytest.mark.parametrize(
    "name", ["a b", "50%", "50%25", "a#b", "a?b=c", "é\N{SNOWMAN}", "a\nb", "x" * 200, "a~2", "<b>"]
)
def test_names_of_directories(odd: httpx.Client, folder: Path, experiment: Path, name: str) -> None:
    os.symlink(experiment, folder / name)
    base = f"e/{quote(name, safe='')}"
    assert data(odd, f"{base}/overview.json")["name"] == name
    trial = data(odd, f"{base}/trials.json")["id"][0]
    page = data(odd, f"{base}/trial/{trial}.json")
    for address in filter(None, [*page["checkpoints"]["download"], *page["files"]["address"]]):
        assert odd.get(address).status_code == 200
    (folder / name).unlink()


def test_a_name_that_is_no_text_is_shown_as_one(odd: httpx.Client, folder: Path, experiment: Path) -> None:
    os.symlink(experiment, os.fsencode(folder) + b"/raw\xff")
    names = odd.get("experiments.json").json()["experiments"]["name"]
    shown = next(name for name in names if name.startswith("raw"))
    assert data(odd, f"e/{quote(shown, safe='')}/overview.json")["trials"] == 6
    os.unlink(os.fsencode(folder) + b"/raw\xff")


def test_no_trial_yet_says_so(odd: httpx.Client, folder: Path, experiment: Path) -> None:
    shutil.copytree(experiment, folder / "young")
    for path in (folder / "young" / "journal").iterdir():
        head = path.read_bytes().splitlines(keepends=True)[0] if path.is_file() else b""
        path.write_bytes(head)
    told = data(odd, "e/young/overview.json")
    assert told["trials"] == 0 and told["best"] is None and "no trial yet" in told["hint"][-1]
    for view in VIEWS:
        data(odd, f"e/young/{view}.json")


class Poison:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def test_nothing_is_unpickled_wherever_it_lies(
    odd: httpx.Client, folder: Path, experiment: Path, tmp_path: Path
) -> None:
    sprung = tmp_path / "sprung"
    poison = pickle.dumps(Poison(sprung))
    shutil.copytree(experiment, folder / "poisoned")
    blobs = list((folder / "poisoned" / "blobs").iterdir())
    pickles = [*blobs, *(folder / "poisoned").rglob("*.pkl")]
    assert blobs and len(pickles) > len(blobs)
    for path in pickles:
        path.write_bytes(poison)
    trial = data(odd, "e/poisoned/trials.json")["id"][0]
    for view in (*VIEWS, f"trial/{trial}"):
        data(odd, f"e/poisoned/{view}.json")
        odd.get(f"e/poisoned/{view}.json?at=9")
    page = data(odd, f"e/poisoned/trial/{trial}.json")
    for address in filter(None, [*page["checkpoints"]["download"], *page["checkpoints"].get("verify", ())]):
        odd.get(address)
    for order in ({"order": "note", "trial": "0", "text": "x"}, {"order": "stop", "trial": "0"}):
        odd.post("e/poisoned/orders", content=json.dumps(order))
    assert not sprung.exists()
    pickle.loads(poison)
    assert sprung.exists(), "it would have been seen"
