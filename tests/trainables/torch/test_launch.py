"""The torch framework of a group, without its launcher: what is decided of ranks, names and errors."""

from __future__ import annotations

import logging
import socket
import threading
from collections import OrderedDict
from typing import Any

import psutil
import pytest

from trainables.errors import InvalidSettingError, RanksError
from trainables.group.launcher import NodeRanks
from trainables.torch import (
    TorchConfig,
)
from trainables.torch.launch import ElasticLauncher, TorchBackend, _bare, _interface, _is_native, _Quiet

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_ranks_with_a_gpu_each_talk_over_nccl_and_those_that_share_one_cannot() -> None:
    names = [TorchBackend(TorchConfig(), gpus).name for gpus in (2, 1, 0.5, 0)]

    assert names == ["nccl", "nccl", "gloo", "gloo"]
    assert TorchBackend(TorchConfig(backend="nccl"), 0.5).name == "nccl"


def state(**values: Any) -> OrderedDict[str, Any]:
    made = OrderedDict(values)
    made._metadata = OrderedDict({"": {"version": 1}, "module": {"version": 2}, "module.inner": {"version": 3}})  # type: ignore[attr-defined]
    return made


def test_states_lose_the_prefix_wherever_they_are_and_other_dicts_keep_theirs() -> None:
    given_ = {
        "model": state(**{"module.a": 1, "module.inner.b": 2}),
        "list": [state(**{"module.a": 1})],
        "tuple": (state(**{"module.a": 1}), 3),
        "nested": {"deep": state(**{"module.a": 1})},
        "mixed": {"module.a": 1, "b": 2},
        "numbers": {1: "module.a"},
        "empty": {},
        "module.own": 5,
    }

    found = {key: _bare(value) for key, value in given_.items()}

    assert found == {
        "model": {"a": 1, "inner.b": 2},
        "list": [{"a": 1}],
        "tuple": ({"a": 1}, 3),
        "nested": {"deep": {"a": 1}},
        "mixed": {"module.a": 1, "b": 2},
        "numbers": {1: "module.a"},
        "empty": {},
        "module.own": 5,
    }
    assert type(found["model"]) is OrderedDict
    assert found["model"]._metadata == {"": {"version": 2}, "inner": {"version": 3}}
    assert list(given_["model"]) == ["module.a", "module.inner.b"], "what was given stays"  # type: ignore[call-overload]


def test_a_dict_of_one_process_stays_as_it_is() -> None:
    data = {"model": {"module.a": 1}}

    assert TorchBackend(TorchConfig(), 0).clean(data) is data


def test_an_error_of_native_code_is_told_from_one_that_python_raised() -> None:
    def caught(call: Any) -> BaseException:
        try:
            call()
        except BaseException as error:
            return error
        raise AssertionError

    def raises() -> None:
        raise RuntimeError("by hand")

    assert _is_native(caught(lambda: torch.ones(2) @ torch.ones(3)))
    assert _is_native(caught(lambda: [][1]))
    assert not _is_native(caught(raises))
    assert not _is_native(RuntimeError("never raised"))


def test_the_interface_of_an_address_is_found() -> None:
    assert _interface("127.0.0.1") == _interface("127.0.0.7") == "lo"
    assert _interface("192.0.2.1") is None
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and not each.address.startswith("127."):
                assert _interface(each.address) == name


def test_a_process_with_threads_of_its_own_is_not_forked_and_they_are_named() -> None:
    over, launcher = threading.Event(), ElasticLauncher()
    thread = threading.Thread(target=over.wait, name="of the user")
    thread.start()
    try:
        with pytest.raises(RanksError, match=r"cannot be forked .*threads are running in it \(.*of the user.*\)"):
            launcher.start(2, lambda rank: True, over.set, NodeRanks(2))
    finally:
        over.set()
        thread.join()
    assert launcher.join() is None and launcher.status(0) is None


def test_a_back_end_that_torch_lacks_is_refused_before_any_rank_starts() -> None:
    if torch.distributed.is_nccl_available():
        pytest.skip("this torch has nccl")
    with pytest.raises(InvalidSettingError, match="backend='nccl' needs a torch that was built with it"):
        TorchBackend(TorchConfig(backend="nccl"), 0).launcher(2)


def test_the_launchers_own_words_are_kept_back_while_it_runs_only() -> None:
    logger = logging.getLogger("torch.distributed.elastic.agent.server.api")
    quiet, record = _Quiet(), logging.LogRecord("x", logging.ERROR, "", 0, "failed", None, None)

    with quiet.listening():
        assert not logger.filter(record)
    assert logger.filter(record)
