"""The searches that were measured, one JSON line each in a file that grows over days and machines.

A line has a search's regret at `KEPT` shares of the time, its CPU seconds and trials, and the version of its method's
code (`search_methods.VERSIONS`): a line of another version counts for nothing, and that search is measured again. Lines
are only ever appended, so that a kill costs the line being written at most, and files of two branches merge by
taking the lines of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_tables import Key, Results, regret_at

KEPT = (
    0.02, 0.03, 0.05, 0.07, 0.10, 0.13, 0.16, 0.20, 0.25, 0.30, 0.35, 0.40,
    0.45, 0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.00,
)  # fmt: skip
"""Shares of the time of which a line has the regret; those of the tables are among them."""
NAMES = ("method", "dataset", "seed", "workers")


class Kept:
    """The results in a file of JSON lines.

    Args:
        path: it is made with the first line.
        versions: of the methods' code, by name; of others 1.
    """

    def __init__(self, path: Path, versions: Mapping[str, int] | None = None) -> None:
        self._path, self._versions = path, versions or {}
        self.results = Results()
        text = path.read_text("utf-8") if path.exists() else ""
        self._torn = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            self._read(line)

    def _read(self, line: str) -> None:
        try:
            found = json.loads(line)
        except ValueError:  # torn by a kill
            return
        method, dataset, seed, workers = (found[name] for name in NAMES)
        if found["version"] == self._versions.get(method, 1):
            steps = list(zip(KEPT, found["regrets"], strict=True))
            entry = {"steps": steps, "trials": found["trials"], "cpu_s": found["cpu_s"]}
            self.results.runs[method, dataset, seed, workers] = entry

    def add(self, key: Key, entry: Mapping[str, Any]) -> None:
        """Append a search: `steps` of (share of the time, regret), `trials`, `cpu_s`."""
        regrets = [round(regret_at(entry["steps"], share), 4) for share in KEPT]
        found = {**dict(zip(NAMES, key, strict=True)), "version": self._versions.get(key[0], 1)}
        found |= {"trials": entry["trials"], "cpu_s": round(entry["cpu_s"], 1), "regrets": regrets}
        line = json.dumps(found, separators=(",", ":"))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._torn + line + "\n")
        self._torn = False
        self._read(line)
