"""What tests of more than one module of the store use."""

from __future__ import annotations

from pathlib import Path

import orjson


def rewrite(path: Path, **changes: object) -> None:
    data = orjson.loads((path / ".manifest.json").read_bytes())
    (path / ".manifest.json").write_bytes(orjson.dumps(data | changes))
