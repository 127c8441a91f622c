"""The pages as a whole: links that lead somewhere, errors and settings that are explained, forty answers."""

from __future__ import annotations

import inspect
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docs.blocks import BLOCK, ROOT, pages
from tuner.cli import main
from tuner.cli.config_file import check
from tuner.cli.config_schema import schema
from tuner.cli.explain import classes, remedies
from tuner.error import SettingError
from tuner.spec import Spec

DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!`)\[[^\]\[]*\]\(([^)\s:]+)\)")
SITE = sorted(DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def made() -> Any:
    """What puts the reference together, as the site has it."""
    sys.path.insert(0, str(DOCS))
    import made

    yield made
    sys.path.remove(str(DOCS))


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def test_no_link_is_dead(made: Any) -> None:
    dead = []
    for page in pages():
        text = BLOCK.sub("", made.MARK.sub("", page.read_text("utf-8")))
        for link in LINK.findall(text):
            file, _, place = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
            elif place and target.suffix == ".md":
                whole = made.completed(target.read_text("utf-8"), target)
                dead += [] if place in anchors(whole) else [f"{page.relative_to(ROOT)}: {link}"]
    assert dead == []


def test_every_page_is_in_the_contents() -> None:
    """Pages lie where an entry, or the pattern of a folder, takes them."""
    for page in SITE:
        folder, name = page.parent, page.stem
        if page in (DOCS / "index.md", DOCS / "search.md"):
            continue
        index = DOCS / "index.md" if folder == DOCS or not (folder / "index.md").exists() else folder / "index.md"
        text = index.read_text("utf-8") + (DOCS / "index.md").read_text("utf-8")
        text += (DOCS / "reference" / "index.md").read_text("utf-8")
        place = page.relative_to(DOCS).with_suffix("")
        patterns = [f"{place}", f"{name}", f"{place.parent}/*", f"{place.parent.name}/*"]
        assert any(re.search(rf"^{re.escape(one)}$", text, re.MULTILINE) for one in patterns) or folder == DOCS, page


def test_every_error_has_its_cause_and_what_helps(made: Any) -> None:
    assert remedies().keys() == classes().keys()
    text = made.errors.sections()
    assert all(f"\n## {name}\n" in f"\n{text}" for name in remedies())
    assert "**Cause.** \n" not in text


def test_every_setting_has_a_row_that_says_what_it_means(made: Any) -> None:
    rows = [line.split(" | ") for line in made.settings.table().splitlines()[2:] if line.startswith("| `")]
    assert not [row for row in rows if len(re.sub(r"\*\(.*\)\*", "", row[-1]).strip(" |")) < 10]
    names = {row[0].strip("| `") for row in rows}
    assert {made.settings.CALLED.get(each.name, each.name) for each in fields(Spec)} - set(made.settings.INNER) <= names


def test_every_variable_that_is_read_has_a_row(made: Any) -> None:
    from trainables import knobs as below
    from tuner import knobs

    table = made.variables.table()
    read = {name for module in (knobs, below) for name in re.findall(r'"(TUNE_[A-Z_]+)"', inspect.getsource(module))}
    missing = {name for name in read if name not in table}
    assert missing <= {"TUNE_ORIG_WORKING_DIR"}  # which trials are told, and nobody sets


def test_every_public_module_has_a_page(made: Any) -> None:
    shown = {page.stem for page in (DOCS / "reference" / "api").glob("*.md")}
    assert shown == set(made.api.MODULES)
    documented = {name for names in made.api.exported().values() for name in names}
    import trainables
    import tuner

    assert not {*tuner.__all__, *trainables.__all__} - documented - set(made.api.NOT_SHOWN)


def test_every_verb_has_a_section(made: Any) -> None:
    from tuner.cli import parser

    text = made.command.verbs()
    assert all(
        f"## tuner {verb}\n" in text for verb in re.findall(r"^    (\w+) ", parser().format_help(), re.MULTILINE)
    )


def test_the_index_for_models_names_every_page(made: Any) -> None:
    text = made.for_models.index()
    for page in SITE:
        if page not in (DOCS / "index.md", DOCS / "search.md"):
            assert f"({page.relative_to(DOCS).with_suffix('.html')})" in text
    assert "```" not in text and "(how-to/checkpoints.html): Keep the best five by auc; " in text


def test_forty_questions_have_an_answer() -> None:
    found = [line for page in (DOCS / "how-to").glob("*.md") for line in page.read_text("utf-8").splitlines()]
    assert len([line for line in found if line.startswith("## ")]) >= 40


# --- the schema of config files ---------------------------------------------------------------------------------


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "--schema"])
    assert end.value.code == 0 and json.loads(capsys.readouterr().out) == schema()


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_schema_takes_what_is_accepted(file: Path) -> None:
    jsonschema.validate(yaml.safe_load(file.read_text("utf-8")), schema())


@pytest.mark.parametrize(
    "mistake",
    [
        {"num_sample": 3},
        {"num_samples": "three"},
        {"mode": "lowest"},
        {"metric": 3},
        {"executor": "cloud"},
        {"param_space": {"x": {"choice": 3}}},
        {"command": "python x.py"},
    ],
    ids=str,
)
def test_what_the_schema_refuses_is_refused(mistake: dict[str, Any], tmp_path: Path) -> None:
    said = {"trainable": "train.py:train", **mistake}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said, schema())
    with pytest.raises(SettingError):
        check(said, source="c.yaml", directory=tmp_path).arguments()
