"""Bytes sent to S3 for 20 checkpoints of which 90 % of the content never changes, of the bytes of all of them.

Ten files of 1 MB each, of which one is another in every checkpoint; all are kept. Counted by the server (s3_sink.py):
bodies of every request, the journal, results and manifests too.
"""

from __future__ import annotations

import urllib.request
from typing import Any

from measuring import main, s3, sink, timed_script

COUNT, MB = 20, 1_000_000
SOURCE = """
import json, os, random, sys, tempfile
from pathlib import Path
import tuner as tune

def train(config):
    never = [random.Random(name).randbytes(1_000_000) for name in range(9)]
    for number in range(config["count"]):
        directory = Path(tempfile.mkdtemp())
        for name, content in enumerate([*never, os.urandom(1_000_000)]):
            (directory / f"{name}.bin").write_bytes(content)
        tune.report({"loss": 1 / (number + 1)}, checkpoint=tune.Checkpoint.from_directory(directory, move=True))

tune.run(train, config={"count": int(sys.argv[2])}, storage_path=sys.argv[1], verbose=0,
         sync_config=tune.SyncConfig(upload_dir="s3://bench/bytes"))
"""


def _ours() -> dict[str, Any]:
    with sink() as port:
        timed_script(SOURCE, str(COUNT), environment=s3(port))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/sent") as answer:
            sent = int(answer.read())
    return {"sent_of_whole": sent / (COUNT * 10 * MB), "sent_bytes": sent}


if __name__ == "__main__":
    main({"ours": _ours})
