from __future__ import annotations

from pathlib import Path

import pytest

from trainables.errors import InvalidAddressError
from tuner.error import SettingError
from tuner.opening.restore import RemoteSource, experiment_to_restore


@pytest.mark.parametrize(
    ("restore", "place", "name"),
    [
        ("s3://bucket/runs/exp/", "s3://bucket/runs", "exp"),
        ("s3://bucket/exp", "s3://bucket", "exp"),
        ("me@host:~/exp", "me@host:~", "exp"),
        ("me@host:/exp", "me@host:/", "exp"),
        ("host:runs/exp", "host:runs", "exp"),
    ],
)
def test_an_experiment_to_restore_is_a_place_and_a_name(restore: str, place: str, name: str) -> None:
    found = experiment_to_restore(restore)
    assert isinstance(found, RemoteSource)
    assert (found.config.upload_dir, found.name) == (place, name)


@pytest.mark.parametrize(
    "restore",
    ["s3://bucket", "s3://bucket/", "host:exp", "me@host:exp/", "memory://exp", "host:", "host:/"],
)
def test_a_place_without_a_name_is_no_experiment_to_restore(restore: str) -> None:
    with pytest.raises(SettingError) as caught:
        experiment_to_restore(restore)
    for part in (f"restore={restore!r}", "scheme://bucket/path/experiment", "host:/path/experiment"):
        assert part in str(caught.value)


def test_a_uri_with_dots_for_a_name_is_refused() -> None:
    with pytest.raises(InvalidAddressError, match=r"'s3://bucket/a/\.\.' has '\.' or '\.\.' in it"):
        experiment_to_restore("s3://bucket/a/..")


@pytest.mark.parametrize("restore", ["s3://bucket/exp/T_1/checkpoint_000003", "host:exp/T_1/checkpoint_000003", None])
def test_a_checkpoint_is_no_experiment_to_restore(restore: str | None, tmp_path: Path) -> None:
    assert experiment_to_restore(restore) is None
    assert experiment_to_restore(tmp_path) is None
