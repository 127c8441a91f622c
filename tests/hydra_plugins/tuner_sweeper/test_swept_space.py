"""Hydra's overrides as a search space, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException

import tuner as tune
from hydra_plugins.tuner_sweeper.swept_space import SweptSpace, overrides_of


def space(*lines: str, grids: bool = True) -> SweptSpace:
    return SweptSpace(OverridesParser.create().parse_overrides(list(lines)), grids=grids)


@pytest.mark.parametrize(
    ("line", "grids", "expected"),
    [
        ("lr=interval(1,2)", True, tune.uniform(1.0, 2.0)),
        ("lr=tag(log,interval(1e-4,1))", True, tune.loguniform(1e-4, 1.0)),
        ("n=int(interval(1,8))", True, tune.randint(1, 9)),
        ("n=int(tag(log,interval(1,8)))", False, tune.lograndint(1, 9)),
        ("a=1,2", True, tune.grid_search([1, 2])),
        ("a=choice(x,'y z',[1,{a:b}])", True, tune.grid_search(["x", "y\\ z", "[1,{a:b}]"])),
        ("a=sort(3,1,2)", True, tune.grid_search([1, 2, 3])),
        ("a=bool(choice(1,0))", True, tune.grid_search([True, False])),
        ("a=range(1,5)", True, tune.grid_search([1, 2, 3, 4])),
        ("a=x,y", False, tune.choice(["x", "y"])),
        ("a=range(1,5)", False, tune.randint(1, 5)),
        ("a=range(5,1,-1)", False, tune.randint(2, 6)),
        ("a=tag(log,range(1,9))", False, tune.lograndint(1, 9)),
        ("a=range(0,10,2)", False, tune.qrandint(0, 8, 2)),
        ("a=range(1,9,2)", False, tune.choice([1, 3, 5, 7])),
        ("a=range(0,1,0.25)", False, tune.quniform(0.0, 0.75, 0.25)),
        ("a=range(0.1,1,0.25)", False, tune.choice([0.1, 0.35, 0.6, 0.85])),
    ],
)
def test_a_sweep_is_a_domain(line: str, grids: bool, expected: Any) -> None:
    (found,) = space(line, grids=grids).space.values()
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a=shuffle(1,2)", r"shuffle\(\) draws another order"),
        ("a=tag(foo,interval(1,2))", "the tag 'foo' means nothing here; accepted is log"),
        ("a=tag(log,choice(1,2))", "the tag log needs an interval"),
        ("a=interval(2,1)", "the first bound has to be less"),
        ("a=tag(log,interval(0,1))", "bounds above 0"),
        ("a=range(5,5)", "nothing to choose from"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(line: str, said: str) -> None:
    with pytest.raises(OverrideParseException, match=said) as caught:
        space(line)
    assert line in str(caught.value)


LINES = [
    "x=",
    "x='a b'",
    'x="1"',
    "x=a\\,b",
    "x=${lr}",
    "x=1",
    "x=1e-05",
    "x=null",
    "x=true",
    "+y={a:[1,b]}",
    "++z=null",
    "~db",
    "~db=mysql",
    "db@src=pg",
]


@pytest.mark.parametrize("line", LINES)
def test_an_override_without_a_sweep_reaches_the_job_as_it_is(line: str) -> None:
    parse = OverridesParser.create().parse_overrides
    (before,), (after,) = parse([line]), parse(overrides_of(space(line).space))
    assert (after.get_key_element(), after.value()) == (before.get_key_element(), before.value())


def test_of_one_key_the_last_holds_and_each_value_is_tried_once() -> None:
    found = space("a=1,2,3", "b=x", "a=4,5", "c=interval(0,1)")
    assert [overrides_of(config) for config in found.samples] == [
        ["a=4", "b=x", "c=0.0"],
        ["a=5", "b=x", "c=0.0"],
    ]
    assert found.drawn and not space("a=1,2").drawn and space("a=1,2", grids=False).drawn
