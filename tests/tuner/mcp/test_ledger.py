"""The records beside the experiments: whole, locked, and counted when they cannot be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tuner.error import ToolError
from tuner.mcp.ledger import Ledger, Limits, StartRecord


def _record(name: str, at: float = 1.0) -> StartRecord:
    asked = {"num_samples": 3, "space": {"lr": 0.1}}
    return StartRecord(name, "one", "c.yaml", asked, "num_samples: 3\n", "/x", "/y", 3, at, Limits(trials=4), ("/z",))


def test_a_record_is_read_as_it_was_written_the_oldest_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.records() == [] and ledger.record("a") is None and ledger.ordered() == []
    with ledger.locked():
        for name, at in (("a", 2.0), ("b", 1.0)):
            ledger.write(_record(name, at))
        ledger.will_order("c")

    assert [record.name for record in ledger.records()] == ["b", "a"]
    assert ledger.record("a") == _record("a", 2.0) and _record("a").said() == {"num_samples": 3}
    assert ledger.ordered() == ["c"]


def test_a_record_that_cannot_be_read_is_no_way_around_the_budget(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with ledger.locked():
        ledger.write(_record("a"))
    (ledger.directory / "a.started.json").write_text("{")

    with pytest.raises(ToolError, match=r"a\.started\.json cannot be read, and counts"):
        ledger.records()


def test_a_directory_in_which_nobody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".agents").write_text("")

    with pytest.raises(ToolError, match="nothing can be recorded"), Ledger(tmp_path).locked():
        pass


def test_an_experiment_is_owned_as_long_as_its_process_lives(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with ledger.locked():
        pass
    code = (
        "import sys; from pathlib import Path; from tuner.mcp.ledger import Ledger\n"
        "assert Ledger(Path(sys.argv[1])).own('a') is not None; print('owned', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdin is not None
    with owner:
        assert owner.stdout.readline() == b"owned\n"
        assert ledger.is_owned("a") and ledger.own("a") is None and not ledger.is_owned("b")
        owner.kill()
    assert not ledger.is_owned("a")
