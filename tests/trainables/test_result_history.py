"""Histories of results: what is read of a file that was written twice."""

from __future__ import annotations

from pathlib import Path

from trainables import tagged


def test_t03_a_row_that_was_reached_before_voids_what_follows(tmp_path: Path) -> None:
    """Also where nobody cut the file: a copy that was taken in between."""
    from trainables.result_history import read_history

    lines = [{"training_iteration": n, "life": 1} for n in (1, 2, 3, 4)]
    lines += [{"training_iteration": n, "life": 2} for n in (3, 4, 5)]
    file = tmp_path / "result.json"
    file.write_bytes(b"\n".join(map(tagged.dumps, lines)) + b"\n" + b'{"training_iteration": 6, "li')

    assert [(row["training_iteration"], row["life"]) for row in read_history(file)] == [
        (1, 1), (2, 1), (3, 2), (4, 2), (5, 2)
    ]  # fmt: skip
