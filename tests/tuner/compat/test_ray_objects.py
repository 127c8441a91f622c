"""Small classes, constants and registries of Ray's, used as scripts use them."""

from __future__ import annotations

import pytest

import tuner as tune
from trainables.config import FailureConfig
from tuner import registry
from tuner.compat.ray_objects import ensure_only_allowed_dataclass_keys_updated
from tuner.error import SettingError
from tuner.search import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, UNRESOLVED_SEARCH_SPACE
from tuner.testing.mock_trainable import MyTrainableClass


def test_messages_for_searchers_take_what_rays_do() -> None:
    assert "metric=None" in UNDEFINED_METRIC_MODE.format(cls="Mine", metric=None, mode="max")
    assert "space=" in UNDEFINED_SEARCH_SPACE.format(cls="Mine", space="space")
    assert "Mine(par=" in UNRESOLVED_SEARCH_SPACE.format(cls="Mine", par="par")


def test_a_field_that_may_not_be_changed_is_named() -> None:
    ensure_only_allowed_dataclass_keys_updated(FailureConfig(max_failures=2), ["max_failures"])
    with pytest.raises(
        SettingError, match=r"FailureConfig\(max_failures=...\) is not accepted here; accepted: fail_fast"
    ):
        ensure_only_allowed_dataclass_keys_updated(FailureConfig(max_failures=2), ["fail_fast"])


def test_what_is_registered_is_found_and_told_apart() -> None:
    def train(config: dict[str, int]) -> int:
        return 1

    tune.register_trainable("for a test", train)
    assert registry.get_trainable_cls("for a test") is train and registry.is_function_trainable("for a test")
    assert not registry.is_function_trainable(MyTrainableClass)
    registry.validate_trainable("for a test")
    with pytest.raises(SettingError, match="did you mean 'for a test'"):
        registry.validate_trainable("for a tes")
    assert not registry.registry_contains_input("reader")
    registry.register_input("reader", len)
    assert registry.registry_contains_input("reader") and registry.registry_get_input("reader") is len
    with pytest.raises(SettingError, match="accepted is a callable"):
        registry.register_input("reader", 3)  # type: ignore[arg-type]
