"""Containers of a space are made again as their own classes would make them: derived fields, factories, attributes."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.spaces import LR, Attributes, drawn, trial_config
from tuner.error import SettingError
from tuner.search.containers import close, lay_open
from tuner.search.domains import Domain


@dataclasses.dataclass
class Derived:
    lr: Any
    name: str = dataclasses.field(init=False)
    steps: Any = dataclasses.field(default=3, init=False)

    def __post_init__(self) -> None:
        self.name = f"lr {self.lr}"


@dataclasses.dataclass
class Checked:
    lr: Any

    def __post_init__(self) -> None:
        if not isinstance(self.lr, Domain) and self.lr > 0.5:
            raise ValueError("too large")


def derived() -> Derived:
    made = Derived(LR)
    made.steps = tune.choice([7])
    return made


def test_a_dict_with_attributes_has_the_value_under_both() -> None:
    found = trial_config({"args": Attributes(lr=LR)})["args"]
    assert found.lr == found["lr"] == drawn()


def test_a_default_dict_keeps_its_factory() -> None:
    assert trial_config({"args": collections.defaultdict(list, lr=LR)})["args"]["new"] == []


def test_fields_that_post_init_derives_fit_the_value() -> None:
    found = trial_config({"args": Derived(LR)})["args"]
    assert (found.lr, found.name, found.steps) == (drawn(), f"lr {drawn()}", 3)
    found = trial_config({"args": derived()})["args"]
    assert (found.name, found.steps) == (f"lr {drawn()}", 7)
    constant = Derived(LR)
    constant.steps = 5
    assert trial_config({"args": constant})["args"].steps == 5


def test_a_dataclass_that_refuses_a_value_names_its_key() -> None:
    laid_open = lay_open({"args": Checked(LR)})
    assert close(laid_open, {"args": {"lr": 0.4}}) == {"args": Checked(0.4)}
    with pytest.raises(SettingError, match=r"args: Checked cannot be made of \{'lr': 0.9\}: ValueError: too large"):
        close(laid_open, {"args": {"lr": 0.9}})
