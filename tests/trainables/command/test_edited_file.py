"""Config files with some values replaced, in three formats."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainables.command.edited_file import EditedFile
from trainables.errors import InvalidSettingError

BASE = {"optimizer": {"name": "sgd", "lr": 0.1}, "layers": [{"width": 8}, {"width": 16}], "note": "a: b # c"}


def written(directory: Path, suffix: str, content: Any = BASE) -> Path:
    path = directory / f"base{suffix}"
    if suffix == ".toml":
        import tomlkit

        path.write_text(tomlkit.dumps(content))
    else:
        path.write_text(json.dumps(content) if suffix == ".json" else yaml.safe_dump(content))
    return path


def read(path: Path) -> Any:
    text = path.read_text("utf-8")
    return {".json": json.loads, ".toml": tomllib.loads}.get(path.suffix, yaml.safe_load)(text)


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ".toml"])
def test_places_get_their_values_and_the_rest_stays(tmp_path: Path, suffix: str) -> None:
    changes = {"optimizer.lr": "lr", "layers.1.width": "net[width]"}
    edited = EditedFile({"file": str(written(tmp_path, suffix)), "set": changes})
    target = tmp_path / f"made{suffix}"

    edited.write(target, {"lr": 1e-5, "net": {"width": 32}})

    expected = {**BASE, "optimizer": {"name": "sgd", "lr": 1e-5}, "layers": [{"width": 8}, {"width": 32}]}
    assert read(target) == expected
    assert read(tmp_path / f"base{suffix}") == BASE


def test_the_file_is_taken_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, ".json")
    edited = EditedFile({"file": str(path), "set": {"optimizer.lr": "lr"}})
    path.write_text("changed since")
    edited.write(tmp_path / "made.json", {"lr": 2})
    assert read(tmp_path / "made.json")["optimizer"]["lr"] == 2


_PLAIN = st.one_of(
    st.text(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)


@given(_PLAIN)
def test_any_value_comes_back_from_each_format(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    directory = tmp_path_factory.mktemp("edited")
    for suffix in (".yaml", ".json", ".toml"):
        if suffix == ".toml" and isinstance(value, str) and any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            continue
        edited = EditedFile({"file": str(written(directory, suffix)), "set": {"note": "v"}})
        edited.write(directory / f"made{suffix}", {"v": value})
        assert read(directory / f"made{suffix}")["note"] == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"file": "absent.yaml", "set": {"a": "lr"}}, "absent.yaml.*cannot be read"),
        ({"file": "base.ini", "set": {"a": "lr"}}, "ends with"),
        ({"file": "base.json", "set": {}}, "at least one place"),
        ({"file": "base.json"}, "is not accepted"),
        ({"file": "base.json", "set": {"optimizer.ir": "lr"}}, "did you mean 'lr'"),
        ({"file": "base.json", "set": {"optimiser.lr": "lr"}}, "did you mean 'optimizer'"),
        ({"file": "base.json", "set": {"layers.7.width": "lr"}}, "has no '7'"),
        ({"file": "base.json", "set": {"optimizer.lr": 3}}, "a name"),
        ({"file": "broken.json", "set": {"a": "lr"}}, "not JSON"),
        ({"file": "broken.yaml", "set": {"a": "lr"}}, "not YAML"),
        ({"file": "broken.toml", "set": {"a": "lr"}}, "not TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ".json")
    (tmp_path / "base.ini").touch()
    for suffix in ("json", "yaml", "toml"):
        (tmp_path / f"broken.{suffix}").write_text("{]: = [")
    with pytest.raises(InvalidSettingError, match=said):
        EditedFile(given)
