"""Who may read, and who may order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.ui.served import client, serving
from tuner.error import SettingError
from tuner.ui.guard import Access, host_name
from tuner.ui.served_places import Places
from tuner.ui.ui_server import UiOptions, UiServer

ADDRESSES = ("", "experiments.json", "e/first/", "e/first/overview.json", "e/first/events", "static/app.js", "none")
ORDER = {"order": "note", "trial": "0", "text": "seen"}


@pytest.fixture
def strangers(server: UiServer) -> Iterator[httpx.Client]:
    with client(server, token=False) as made:
        yield made


@pytest.mark.parametrize("address", ADDRESSES)
def test_without_a_token_nothing_is_told(strangers: httpx.Client, address: str) -> None:
    answer = strangers.get(address)
    assert answer.status_code == 403 and "token is missing" in answer.json()["error"]
    assert strangers.get(address, headers={"Authorization": "Bearer wrong"}).status_code == 403
    assert strangers.get(f"{address}?token=wrong").status_code == 403
    assert strangers.get(address, headers={"Cookie": f"tuner-ui-{strangers.base_url.port}=wrong"}).status_code == 403


@pytest.mark.parametrize(
    "address", ["e/first/overview.json", "e/first/trials.json?columns=id&x=a b", "experiments.json"]
)
def test_the_token_is_exchanged_for_a_cookie_at_any_address(
    server: UiServer, strangers: httpx.Client, address: str
) -> None:
    sign = "&" if "?" in address else "?"
    first = strangers.get(f"{address}{sign}token={server.access.token}")
    assert first.status_code == 303 and not first.headers["location"].startswith(("/", "http"))
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"tuner-ui-{server.access.port}=") and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    followed = strangers.get(str(first.url.join(first.headers["location"])))
    assert followed.status_code == 200 and "token" not in str(followed.url)
    assert dict(followed.url.params) == {key: value for key, value in first.url.params.items() if key != "token"}
    assert strangers.get("e/first/overview.json").status_code == 200


def test_every_answer_has_the_headers(server: UiServer, strangers: httpx.Client) -> None:
    with client(server) as pages:
        for answer in (strangers.get(""), pages.get(""), pages.get("none"), pages.get("e/first/overview.json")):
            assert answer.headers["content-security-policy"] == "default-src 'self'"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1:x", ""]
)
def test_a_name_that_is_not_ours_is_not_served(server: UiServer, host: str) -> None:
    with client(server, Host=host) as pages:
        assert pages.get("e/first/overview.json").status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1", "127.1.2.3:1", "[::1]:80", "LOCALHOST"])
def test_loopback_has_many_names(server: UiServer, host: str) -> None:
    with client(server, Host=host) as pages:
        assert pages.get("e/first/overview.json").status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, 403), ("null", 403), ("http://evil.example", 403), ("http://127.0.0.1:1", 403), ("own", 409)],
)
def test_an_order_by_cookie_comes_from_a_page_of_ours(
    server: UiServer, strangers: httpx.Client, origin: str | None, status: int
) -> None:
    strangers.get(f"?token={server.access.token}")
    own = f"http://127.0.0.1:{server.access.port}"
    headers = {} if origin is None else {"Origin": own if origin == "own" else origin}
    answer = strangers.post("e/first/orders", json={**ORDER, "order": "stop"} | {}, headers=headers)
    assert answer.status_code in (status, 400 if status == 409 else status), answer.text


def test_a_read_only_server_takes_no_orders(experiment: Path) -> None:
    with serving([experiment], read_only=True) as one, client(one) as pages:
        assert pages.get("e/first/overview.json").json()["read_only"]
        answer = pages.post("e/first/orders", json=ORDER)
        assert answer.status_code == 403 and "read-only" in answer.json()["error"]


def test_without_a_token_everybody_reads_and_nobody_orders(experiment: Path) -> None:
    with serving([experiment], token=False) as one, client(one, token=False) as pages:
        assert "token" not in one.address
        assert pages.get("e/first/overview.json").json()["orders"] is False
        own = {"Origin": one.address.rstrip("/")}
        assert pages.post("e/first/orders", json=ORDER, headers=own).status_code == 403
        with client(one, token=False, Host="evil.example") as rebound:
            assert rebound.get("e/first/overview.json").status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_without_a_token_only_this_machine_is_served(host: str, experiment: Path) -> None:
    with pytest.raises(SettingError, match=f"host={host!r}".replace("[", "\\[")) as refused:
        UiServer(Places([str(experiment)]), UiOptions(host=host, token=False))
    assert "Leave out --no-token" in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7"])
def test_without_a_token_every_address_of_loopback_is_served(host: str, experiment: Path) -> None:
    server = UiServer(Places([str(experiment)]), UiOptions(host=host, token=False))
    assert server.access.token is None
    server.run(lambda address: server.stop())


def test_a_proxys_name_is_served_where_it_is_allowed(experiment: Path) -> None:
    with serving([experiment], allow_hosts=["Hub.example"]) as one, client(one, Host="hub.example:443") as pages:
        assert pages.get("e/first/overview.json").status_code == 200
        cookie = {f"tuner-ui-{one.access.port}": str(one.access.token)}
        with client(one, token=False, Host="127.0.0.1", Origin="https://hub.example") as behind:
            behind.cookies.update(cookie)
            assert behind.post("e/first/orders", json={"order": "x"}).status_code == 400


def test_the_names_by_which_a_server_is_called() -> None:
    assert UiOptions(host="0.0.0.0").names == {"0.0.0.0"}, "as in the address that it prints"
    assert UiOptions(host="[::]", allow_hosts=["Hub.example.", "fd00::1"]).names == {"::", "hub.example", "fd00::1"}
    for never in ("http://hub.example", "hub.example:443", "hub.example/", "*", "", "a@b", "a b"):
        with pytest.raises(SettingError, match="allow_host="):
            _ = UiOptions(allow_hosts=[never]).names


def test_other_methods_are_none(server: UiServer) -> None:
    with client(server) as pages:
        assert pages.put("e/first/overview.json").status_code in (404, 405)
        refused = pages.delete("e/first/")
        assert refused.status_code == 405 and "GET" in refused.headers["allow"]


@given(st.text(max_size=40))
def test_no_text_is_taken_for_a_name_that_it_is_not(text: str) -> None:
    access = Access("t" * 32, 1)
    if access.is_ours(text):
        name = host_name(text)
        assert name is not None and (name in ("localhost", "::1") or name.startswith("127."))
