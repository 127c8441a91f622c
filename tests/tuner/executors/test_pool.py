"""What a machine has, and what is taken of it."""

from __future__ import annotations

import pytest

from tuner.error import ResourceError
from tuner.executors.pool import Pool, check_fits, declared, detect, visible_gpus


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpu": 64}, r"asks for 64 cpu, available are 2 "),
        ({"cpu": 1, "gpu": 1}, r"asks for 1 gpu, available are 0 "),
        ({"licence": 1}, r"asks for 1 licence, available are 0 .*LocalExecutor\(resources="),
    ],
)
def test_f41_asking_for_more_than_there_is_names_both_numbers(asked: dict[str, float], message: str) -> None:
    total, _ = detect(cpus=2, gpus=0)
    with pytest.raises(ResourceError, match=message):
        check_fits(asked, total)


def test_what_there_is() -> None:
    total, gpus = detect(cpus=3, gpus=2, resources={"licence": 4})
    assert (total["cpu"], total["gpu"], total["licence"], len(gpus)) == (3, 2, 4, 2)
    assert total["memory"] > 1e6
    assert detect(resources={"GPU": 2, "CPU": 8})[0]["gpu"] == 2
    with pytest.raises(ResourceError, match=r"gpus=0\.5"):
        detect(gpus=0.5)


@pytest.mark.parametrize(
    ("value", "ids"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 3", ["2", "3"]), ("1,-1,2", ["1"]), ("GPU-a,MIG-b", ["GPU-a", "MIG-b"])],
)
def test_cuda_visible_devices_is_believed(monkeypatch: pytest.MonkeyPatch, value: str, ids: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_gpus() == ids


def test_thirds_and_tenths_add_up() -> None:
    pool = Pool({"cpu": 1.0})
    for _ in range(100):
        shares = [pool.take({"cpu": 0.1}) for _ in range(10)]
        assert not pool.fits({"cpu": 0.1})
        for share in shares:
            pool.give_back(share)
    assert pool.fits({"cpu": 1.0})


def test_a_fraction_goes_to_the_fullest_gpu_so_that_whole_ones_stay_free() -> None:
    pool = Pool({"gpu": 2.0}, ["a", "b"])
    first = pool.take({"gpu": 0.5})
    assert pool.take({"gpu": 0.5}).gpus == first.gpus == ("a",)
    assert pool.take({"gpu": 1}).gpus == ("b",)
    assert not pool.fits({"gpu": 0.1})


def test_two_halves_of_different_gpus_are_not_one() -> None:
    pool = Pool({"gpu": 2.0}, ["a", "b"])
    pool.take({"gpu": 0.6})
    pool.take({"gpu": 0.6})
    assert not pool.fits({"gpu": 0.5}) and not pool.fits({"gpu": 1}) and pool.fits({"gpu": 0.4})


def test_what_nobody_has_declared_limits_nothing_where_it_is_let_pass(caplog: pytest.LogCaptureFixture) -> None:
    total, asked = {"cpu": 2.0, "licence": 1.0}, {"cpu": 1.0, "licence": 1.0, "licences": 9.0}
    for _ in range(2):
        assert declared(asked, total) == {"cpu": 1.0, "licence": 1.0}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "'licences', which nobody has declared" in line and "did you mean 'licence'?" in line
    pool = Pool(total)
    share = pool.take(asked)
    assert not pool.fits({"licence": 1.0, "licences": 1.0}) and pool.fits({"cpu": 1.0, "licences": 1000.0})
    pool.give_back(share)
    assert pool.fits({"cpu": 2.0, "licence": 1.0})
