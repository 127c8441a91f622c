"""Resources as scripts of Ray 1.13 give them."""

from __future__ import annotations

import json

import pytest

from tuner.compat.ray_1_resources import Resources, json_to_resources, resources_to_json
from tuner.error import SettingError
from tuner.resources import parse_resources

ASKED = Resources(cpu=1, gpu=0.5, extra_cpu=2, custom_resources={"tpu": 1}, extra_custom_resources={"tpu": 2})


def test_resources_ask_for_their_sum() -> None:
    assert parse_resources(ASKED) == {"cpu": 3.0, "gpu": 0.5, "tpu": 3.0}
    assert (ASKED.cpu_total(), ASKED.gpu_total(), ASKED.get_res_total("tpu"), ASKED.get("tpu")) == (3, 0.5, 3, 1)
    assert ASKED.summary_string() == "cpu=3, gpu=0.5, tpu=3"


def test_resources_are_json_and_back() -> None:
    assert json_to_resources(json.dumps(resources_to_json(ASKED))) == ASKED
    assert json_to_resources({"gpu": 1}) == Resources(1, 1)
    assert json_to_resources(None) is json_to_resources("null") is resources_to_json(None) is None
    with pytest.raises(SettingError, match="unknown resource 'cpus'; did you mean 'cpu'"):
        json_to_resources({"cpus": 1})
