"""Domains as objects: their samplers, changed in place, and kinds of domains that users write."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.search.optuna import OptunaSearch
from tuner.search.resolve import HashDraw, Space
from tuner.search.sample import (
    BaseSampler,
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    LogUniform,
    Normal,
    NormalFloat,
    Quantized,
    Uniform,
)


@pytest.mark.parametrize(
    ("built", "called"),
    [
        (Float(0, 1).uniform(), tune.uniform(0, 1)),
        (Float(0, 1).uniform().quantized(0.1), tune.quniform(0, 1, 0.1)),
        (Float(1e-4, 1).loguniform(), tune.loguniform(1e-4, 1)),
        (Float(1, 8).loguniform().quantized(1), tune.qloguniform(1, 8, 1)),
        (Float(None, None).normal(1, 2), tune.randn(1, 2)),
        (Float(None, None).normal(1, 2).quantized(0.5), tune.qrandn(1, 2, 0.5)),
        (Integer(0, 10).uniform(), tune.randint(0, 10)),
        (Integer(0, 10).quantized(5), tune.qrandint(0, 10, 5)),
        (Integer(1, 10).loguniform(), tune.lograndint(1, 10)),
        (Integer(1, 10).loguniform().quantized(2), tune.qlograndint(1, 10, 2)),
        (Categorical(["a", "b"]).uniform(), tune.choice(["a", "b"])),
        (Function(len), tune.sample_from(len)),
    ],
    ids=lambda domain: str(domain),
)
def test_a_domain_that_is_built_is_the_one_that_its_call_makes(built: Domain, called: Domain) -> None:
    assert built == called
    assert type(built) is type(called)
    assert str(built) == str(called)


@pytest.mark.parametrize(
    ("domain", "sampler"),
    [
        (Float(0, 1), Uniform()),
        (tune.quniform(0, 1, 0.1), Quantized(Uniform(), 0.1)),
        (tune.qloguniform(1, 8, 1), Quantized(LogUniform(), 1.0)),
        (tune.randn(1, 2), Normal(1.0, 2.0)),
        (tune.qrandint(0, 10, 5), Quantized(Uniform(), 5)),
        (tune.choice([1]), Uniform()),
    ],
    ids=str,
)
def test_what_a_searcher_of_rays_reads_of_a_domain_makes_it_again(domain: Any, sampler: Any) -> None:
    assert domain.sampler == domain.get_sampler() == sampler
    assert domain.sampled_by(sampler) == domain
    if isinstance(domain, Float | Integer):
        plain = type(domain)(domain.lower, domain.upper) if not isinstance(domain, NormalFloat) else Float(None, None)
        plain.set_sampler(sampler)
        assert [plain.at(u) for u in (0.1, 0.5, 0.9)] == [domain.at(u) for u in (0.1, 0.5, 0.9)]
        with pytest.raises(SettingError, match="allow_override=True"):
            (domain if isinstance(sampler, Quantized) else tune.loguniform(1, 2)).set_sampler(sampler)


def test_a_normal_float_is_a_float_without_bounds() -> None:
    domain = tune.randn()
    assert isinstance(domain, Float)
    assert (domain.lower, domain.upper, domain.domain_str) == (-math.inf, math.inf, "(-inf, inf)")
    assert domain.cast("3") == 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(None, 1).uniform(), r"Float\.uniform: lower=-inf"),
        (lambda: Float(0, 1).loguniform(), "above 0 on a log scale"),
        (lambda: Float(0.05, 1).quantized(0.1), "lower is not a multiple of q"),
        (lambda: Float(0, 1).normal(), "a normal float has no bounds"),
        (lambda: Float(None, None).at(0.5), "lower=-inf"),
        (lambda: Float(2, 1), "lower is not below upper"),
        (lambda: Float(0, 1e308).quantized(1e-300), "upper is not a multiple of q"),
        (lambda: Integer(1, 3).quantized(5), "no multiple of q"),
        (lambda: Integer(0.5, 3), "whole number"),
        (lambda: Normal(0, 0), "sd=0"),
        (lambda: Categorical([1, 2]).grid().at(0.5), "none is drawn"),
        (lambda: Function(len).set_sampler(Uniform()), "takes no sampler"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


class Triangular(BaseSampler):
    """As users write one for Ray."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        items = random_state.triangular(domain.lower, domain.upper, domain.upper, size=size)
        return items if len(items) > 1 else domain.cast(items[0])


class Simplex(Domain):
    """Shares that add up to 1."""

    class _Dirichlet(Uniform):
        def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
            return random_state.dirichlet(np.ones(domain.n)).tolist()

    default_sampler_cls = _Dirichlet

    def __init__(self, n: int) -> None:
        self.n = n

    def is_valid(self, value: Any) -> bool:
        return len(value) == self.n


class Twice(Domain):
    """A domain that draws by itself."""

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None, *, spec: Any = None) -> Any:
        return int(random_state.integers(1, 4)) * 2


def custom_space() -> dict[str, Any]:
    triangular = Float(0, 2)
    triangular.set_sampler(Triangular())
    return {"t": triangular, "s": Simplex(3), "e": Twice(), "c": Categorical(["a", "b"]).grid()}


@given(st.text(max_size=8))
def test_domains_and_samplers_of_users_draw_the_same_from_the_same_seed(key: str) -> None:
    space = Space(custom_space())
    assert space.grid_size == 2
    drawn = [space.resolve(HashDraw(key), index) for index in (0, 1)]
    assert drawn == [Space(custom_space()).resolve(HashDraw(key), index) for index in (0, 1)]
    assert [config["c"] for config in drawn] == ["a", "b"]
    assert 0 <= drawn[0]["t"] <= 2
    assert sum(drawn[0]["s"]) == pytest.approx(1) and custom_space()["s"].is_valid(drawn[0]["s"])
    assert drawn[0]["e"] in (2, 4, 6)


def test_a_sampler_of_ones_own_gets_numpys_generator_and_the_size() -> None:
    domain = custom_space()["t"]
    assert domain.sample(random_state=3) == domain.sample(random_state=np.random.default_rng(3))
    assert domain.sample(size=4, random_state=3).shape == (4,)
    assert Triangular().sample(Float(0, 1), random_state=np.random.default_rng(1)) <= 1
    assert Uniform().sample(Integer(3, 4)) == 3
    assert LogUniform().sample(Float(1, 8), size=2, random_state=1) == tune.loguniform(1, 8).sample(None, 2, 1)


def test_the_text_of_a_users_domain_is_the_same_in_every_process() -> None:
    assert str(Simplex(3)) == "Simplex(n=3)"
    assert " at 0x" not in str(custom_space()["t"])
    assert Simplex(3) != Simplex(4)


def test_a_domain_that_does_not_say_how_it_draws_says_so() -> None:
    class Silent(Domain):
        pass

    with pytest.raises(SettingError, match="has no sampler"):
        Silent().at(0.5)

    class Nothing(BaseSampler):
        pass

    domain = Float(0, 1)
    domain.set_sampler(Nothing())
    with pytest.raises(NotImplementedError, match="defines no sample"):
        domain.at(0.5)


def test_optuna_does_not_take_another_sampler_silently() -> None:
    with pytest.raises(SettingError, match=r"cannot search 't'.*its samplers draw.*leave search_alg out"):
        OptunaSearch({"t": custom_space()["t"]}, metric="loss", mode="min").suggest("1")


OLD = (
    b"\x80\x04\x954\x01\x00\x00\x00\x00\x00\x00]\x94(\x8c\x14tuner.search.domains\x94\x8c\x06Normal\x94\x93\x94)\x81\x94"
    b"}\x94(\x8c\x04mean\x94G?\xf0\x00\x00\x00\x00\x00\x00\x8c\x02sd\x94G@\x00\x00\x00\x00\x00\x00\x00\x8c\x01q\x94G?"
    b"\xe0\x00\x00\x00\x00\x00\x00ubh\x01\x8c\x05Float\x94\x93\x94)\x81\x94}\x94(\x8c\x05lower\x94G?\xf0\x00\x00\x00\x00"
    b"\x00\x00\x8c\x05upper\x94G@ \x00\x00\x00\x00\x00\x00\x8c\x03log\x94\x88h\x08G?\xf0\x00\x00\x00\x00\x00\x00ubh\x01"
    b"\x8c\x07Integer\x94\x93\x94)\x81\x94}\x94(h\rK\x01h\x0eK\x05h\x0f\x89h\x08Nubh\x01\x8c\x0bCategorical\x94\x93\x94)"
    b"\x81\x94}\x94\x8c\ncategories\x94K\x01K\x02\x86\x94sbh\x01\x8c\x08Function\x94\x93\x94)\x81\x94}\x94(\x8c\x04func"
    b"\x94\x8c\x08builtins\x94\x8c\x03len\x94\x93\x94\x8c\x05takes\x94\x8c\x06config\x94ube."
)
"""A space as experiments of the version before hold it."""


def test_a_space_that_an_older_version_stored_is_the_same_one() -> None:
    now = [tune.qrandn(1, 2, 0.5), tune.qloguniform(1, 8, 1), tune.randint(1, 5), tune.choice([1, 2])]
    assert pickle.loads(OLD) == [*now, tune.sample_from(len)]
    assert [domain.at(0.7) for domain in pickle.loads(OLD)[:4]] == [domain.at(0.7) for domain in now]
    assert pickle.loads(pickle.dumps(now)) == now
