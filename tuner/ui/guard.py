"""Who may read and who may order: checked before anything else looks at a request.

A page of another site may make a browser send requests here, and may give its own name this machine's address. So a
request names a host that is ours, carries the token or the cookie that the token was exchanged for, and, where a cookie
lets it change something, comes from a page of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import orjson

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"content-security-policy", b"default-src 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"SAMEORIGIN"),
)
"""Of every answer. The token stands in the first address: no other site is told of it as the referrer."""
REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>tuner ui</title><main><h1>Not let in</h1><p>{why}</p></main>"""
_SECRET = "token"


@dataclass(frozen=True, slots=True)
class Access:
    """What is let in.

    Args:
        token: None: everybody may read, and nobody may order.
        port: the cookie's name has it: servers of one user on one machine share its cookies.
        hosts: names by which it is called besides loopback.
        origins: those of them, by proxies, whose pages may order.
        read_only: nobody may order.
    """

    token: str | None
    port: int
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    read_only: bool = False

    @property
    def takes_orders(self) -> bool:
        return self.token is not None and not self.read_only

    @property
    def cookie(self) -> str:
        return f"tuner-ui-{self.port}"

    def is_ours(self, host: str) -> bool:
        """Whether a host, with or without a port, is one by which this server is called."""
        name = host_name(host)
        return name is not None and (name in self.hosts or is_loopback(name))

    def is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())


def host_name(host: str) -> str | None:
    """The name in a Host header, without a port; None: it is none."""
    try:
        split = urlsplit(f"//{host}")
        _ = split.port
    except ValueError:
        return None
    plain = split.hostname if split.netloc == host and "@" not in host else None
    return plain.rstrip(".") if plain else None


def is_loopback(name: str) -> bool:
    """Whether that is this machine, by a name or an address."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through what may pass, and puts the headers on every answer."""

    def __init__(self, app: App, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        kept = b"no-cache" if scope["path"].startswith("/static/") else b"no-store"  # data: never on a disk

        async def told(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(header for header in HEADERS if header[0] not in given),
                    *([] if b"cache-control" in given else [(b"cache-control", kept)]),
                ]
            await send(message)

        refused = self._refusal(scope)
        if isinstance(refused, str):
            await self._refuse(told, refused, dict(scope["headers"]))
        elif refused is not None:
            await answer(told, 303, b"", headers=refused)
        else:
            await self._app(scope, receive, told)

    async def _refuse(self, send: Send, why: str, headers: dict[bytes, bytes]) -> None:
        """As data, or, where a person stands before it, as a page."""
        if b"text/html" in headers.get(b"accept", b""):
            await answer(send, 403, REFUSED.format(why=why).encode(), kind="text/html; charset=utf-8")
        else:
            await answer(send, 403, orjson.dumps({"error": why}))

    def _refusal(self, scope: Scope) -> str | list[tuple[bytes, bytes]] | None:
        """Why a request does not pass; the headers of a redirect; None: it passes."""
        access = self._access
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or not access.is_ours(hosts[0]):
            return "this host is not served: tuner ui --allow-host NAME serves it"
        reads = scope["method"] in ("GET", "HEAD")
        if access.token is not None:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = [value for name, value in query if name == _SECRET]
            if given and reads:
                if not access.is_token(given[-1]):
                    return "the token is not that of this server: the address that tuner ui printed has it"
                return self._exchange(scope, [pair for pair in query if pair[0] != _SECRET])
            bearer = self._bears(headers)
            if not bearer and not self._has_cookie(headers):
                return "the token is missing: open the address that tuner ui printed"
        if reads:
            return None
        if not access.takes_orders:
            return "this server is read-only"
        if not bearer and not self._from_here(headers):
            return "orders are taken from pages of this server only; of a proxy's, after tuner ui --allow-host NAME"
        return None

    def _exchange(self, scope: Scope, query: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
        """The same address without the token, and the cookie; as a relative one, for there may be a proxy before it."""
        last = scope["path"].rpartition("/")[2]
        target = f"./{quote(last, safe='')}" + (f"?{urlencode(query)}" if query else "")
        cookie = f"{self._access.cookie}={self._access.token}; Path=/; HttpOnly; SameSite=Strict"
        return [(b"location", target.encode("latin-1")), (b"set-cookie", cookie.encode("latin-1"))]

    def _bears(self, headers: list[tuple[str, str]]) -> bool:
        given = [value for name, value in headers if name == "authorization"]
        kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return kind.lower() == "bearer" and self._access.is_token(token.strip())

    def _has_cookie(self, headers: list[tuple[str, str]]) -> bool:
        pairs = (pair for name, value in headers if name == "cookie" for pair in value.split(";"))
        split = (pair.strip().partition("=") for pair in pairs)
        return any(name == self._access.cookie and self._access.is_token(value) for name, _, value in split)

    def _from_here(self, headers: list[tuple[str, str]]) -> bool:
        """Whether a page of this server sends it: its origin is the host, or a name that was allowed."""
        origins = [value for name, value in headers if name == "origin"]
        host = next(value for name, value in headers if name == "host")
        if len(origins) != 1:
            return False
        scheme, _, place = origins[0].partition("://")
        if scheme not in ("http", "https") or not place:
            return False
        return place == host or host_name(place) in self._access.origins


async def answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """A whole answer."""
    sent = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})
