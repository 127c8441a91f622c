"""What a notebook shows of a result and a checkpoint: short, and text whatever is in it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainables import Checkpoint, html_tables
from trainables.result import Result

NASTY = "</td><script>alert(1)</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


OURS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(NASTY))


@given(
    st.dictionaries(st.text() | st.just(NASTY), VALUES | st.dictionaries(st.text(), VALUES, max_size=20), max_size=5)
)
def test_whatever_is_told_is_text(found: dict[str, object]) -> None:
    made = html_tables.facts(NASTY, found) + html_tables.table(list(found), [list(found.values())])

    assert Tags(made).tags <= OURS


class Rude:
    def __str__(self) -> str:
        raise ValueError("no")


def test_a_value_that_cannot_be_told_says_so() -> None:
    assert html_tables.cell(Rude()) == "(ValueError in __str__)"


def test_of_a_result_what_was_reported_comes_first_and_a_result_of_a_failure_says_why() -> None:
    metrics = {"pid": 3, "training_iteration": 2, "eval": {"loss": 0.123456789}, NASTY: NASTY, "config": {"lr": 1}}
    shown = Tags(Result(metrics=metrics, error=ValueError(NASTY), path="/nowhere", config={"lr": 0.5})._repr_html_())

    assert shown.tags <= OURS
    assert "eval/loss=0.12346" in shown.text and "pid" not in shown.text and "lr=0.5" in shown.text
    assert shown.text.index("eval/loss") < shown.text.index("training_iteration=2")
    assert "ValueError: </td><script>" in shown.text


def test_a_result_of_nothing_is_shown_too() -> None:
    assert "Result" in Tags(Result()._repr_html_()).text


def test_a_checkpoint_says_what_it_is_and_one_elsewhere_is_not_connected_to(tmp_path: Path) -> None:
    assert "epoch" in Tags(Checkpoint.from_dict({"epoch": 3})._repr_html_()).text
    assert str(tmp_path) in Tags(Checkpoint(tmp_path)._repr_html_()).text
    assert str(tmp_path / "gone") in Tags(Checkpoint(tmp_path / "gone")._repr_html_()).text
    assert "s3://nobody/has/this" in Tags(Checkpoint("s3://nobody/has/this")._repr_html_()).text


def test_a_damaged_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / ".manifest.json").write_text("{")

    assert "unusable" in Tags(Checkpoint(tmp_path)._repr_html_()).text
