"""Files of two checkpoints: the first value that differs, whatever wrote them."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from tuner.tools.prove import compare_files


def safetensors(path: Path, **tensors: np.ndarray) -> None:
    header, data = {}, b""
    for name, array in tensors.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def save(directory: Path, value: float) -> Path:
    """A file of each kind that is read, and one that is not."""
    directory.mkdir()
    array = np.array([1.0, value], dtype=np.float32)
    torch.save({"model": {"weight": torch.tensor([1.0, value])}}, directory / "a.pt")
    (directory / "b.pkl").write_bytes(pickle.dumps({"step": value, "kept": array}))
    (directory / "c.json").write_text(json.dumps({"step": value}))
    np.save(directory / "d.npy", array)
    safetensors(directory / "e.safetensors", weight=array)
    (directory / "f.bin").write_bytes(b"abc" + struct.pack("<d", value))
    with zipfile.ZipFile(directory / "g.keras", "w") as archive:
        archive.writestr("metadata.json", json.dumps({"date_saved": str(directory)}))
        archive.writestr("config.json", json.dumps({"layers": [{"shared_object_id": id(directory)}]}))
        with h5py.File(directory / "inside.h5", "w") as file:
            file["layers/dense/vars/0"] = array
        archive.write(directory / "inside.h5", "model.weights.h5")
    (directory / "inside.h5").unlink()
    parameters = f"end of parameters\nparameters:\n[num_iterations: {int(value)}]\nend of parameters\n"
    (directory / "h.txt").write_text(f"tree\nversion=v4\nTree=0\nleaf_value={value}\n\n{parameters}")
    (directory / "same").write_bytes(b"abc")
    return directory


def test_of_files_the_first_value_that_differs_is_named(tmp_path: Path) -> None:
    found = list(compare_files.compare(save(tmp_path / "one", 1.0), save(tmp_path / "two", 3.0)))
    array = "(2,) float32: 1 of 2 values differ, by at most 2"
    assert [f"{one.name} {one.text}" for one in found] == [
        f"a.pt: model.weight {array}",
        "b.pkl: step 1.0, now 3.0",
        f"b.pkl: kept {array}",
        "c.json: step 1.0, now 3.0",
        f"d.npy {array}",
        f"e.safetensors: weight {array}",
        "f.bin 11 bytes, now 11; they differ from byte 9 on",
        f"g.keras: model.weights.h5.layers/dense/vars/0 {array}",
        "h.txt: line 4 'leaf_value=1.0', now 'leaf_value=3.0'",
    ]
    assert [one.tensor for one in found] == [True, False, True, False, True, True, False, True, False]


def test_equal_values_in_other_bytes_are_no_difference(tmp_path: Path) -> None:
    for name, state in (("one", {"a": 1, "b": 2}), ("two", {"b": 2, "a": 1})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.pkl").write_bytes(pickle.dumps(state))
    assert list(compare_files.compare(tmp_path / "one", tmp_path / "two")) == []


class Moody:
    """Cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_files_that_are_missing_and_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name, padding in (("one", b""), ("two", b"more")):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in" / f"{name}.bin").write_bytes(b"")
        (tmp_path / name / "moody.pkl").write_bytes(pickle.dumps(Moody()) + padding)
    found = [f"{one.name} {one.text}" for one in compare_files.compare(tmp_path / "one", tmp_path / "two")]
    assert found[:2] == ["in/one.bin the file is missing", "in/two.bin the file is new"]
    assert "could not be read: ValueError" in found[2] and len(found) == 3
