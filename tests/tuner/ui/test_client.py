"""What the page is made of: its size, its licences, and nothing in it that its own policy forbids."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "web" / "src"
STATIC = ROOT / "tuner" / "ui" / "static"

FORBIDDEN = re.compile(r"\bdata:[a-z]+/|https?://(?!www\.w3\.org/2000/svg)|innerHTML|dangerously|\beval\(")


@pytest.fixture
def served() -> dict[str, bytes]:
    """What a browser may load."""
    if not STATIC.is_dir():
        pytest.skip("the page is not there: make web")
    files = (path for path in STATIC.rglob("*") if path.is_file() and not path.name.startswith("LICENSE"))
    return {str(path.relative_to(STATIC)): path.read_bytes() for path in files}


def test_the_page_is_small(served: dict[str, bytes]) -> None:
    assert sum(map(len, served.values())) < 120_000
    assert sum(len(gzip.compress(data, 9)) for data in served.values()) < 50_000


def test_every_module_is_there_and_every_library_has_its_licence(served: dict[str, bytes]) -> None:
    own = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*") if path.is_file()}
    libraries = {name for name in served if name.startswith("vendor/")}

    assert set(served) - libraries == own
    assert {path.name for path in STATIC.glob("vendor/LICENSE-*")} == {"LICENSE-preact", "LICENSE-htm"}
    for name, data in served.items():
        for said in re.findall(rb'\}from"([^"]+)"', data) if name.endswith(".js") else []:
            assert said.startswith(b"."), f"{name} imports {said!r}, which a browser does not find"


def test_nothing_is_inline_or_from_elsewhere() -> None:
    """The policy of the page refuses it, and who works offline would wait."""
    for path in SOURCES.rglob("*"):
        text = path.read_text() if path.is_file() else ""
        assert not FORBIDDEN.search(text), path
        if path.suffix == ".html":
            assert not re.search(r"\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)", text)


def test_the_lock_file_names_integrity_and_no_host() -> None:
    text = (ROOT / "web" / "package-lock.json").read_text()
    fetched = re.findall(r'"node_modules/[^"]+": \{[^}]*?\}', text)

    assert fetched and all('"integrity": "sha512-' in each for each in fetched)
    assert '"resolved"' not in text
