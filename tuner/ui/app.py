"""The addresses of `tuner ui`: a page for each view, its data under the same address with `.json`, a stream, files."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from trainables.errors import TrainablesError
from tuner.error import ExperimentNotFoundError, SettingError, TuneError
from tuner.experiment.hostile import said
from tuner.orders.mailbox import MAX_BYTES
from tuner.ui import served_files
from tuner.ui.caught import Caught
from tuner.ui.event_stream import events
from tuner.ui.guard import Guard, is_loopback
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import Seen, as_json
from tuner.ui.served import Served
from tuner.ui.views.orders import give_order
from tuner.ui.views.overview import brief
from tuner.ui.views.verification import verification_of

STATIC = Path(__file__).parent / "static"
VIEWS = ("", "trials", "curves", "parameters", "lineage", "machines", "compare")
_PART = 1_000_000
"""Bytes of an answer that are sent at once."""
WAIT_S = 60.0
"""So long a request for data waits for the first reading."""
BODY_S = 15.0
"""So long an order may take to come."""
LIST_S = 0.5
"""So long the list of experiments waits for their first reading, of all together."""
NO_CLIENT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>tuner ui</title>
<p>This copy of the package has no page: <code>make web</code> in its directory brings the libraries that it needs.
The data is at these addresses with <code>.json</code>."""


def application(served: Served) -> Guard:
    """The whole of it, behind its guard."""
    routes = [
        Route("/", _shell),
        Route("/experiments.json", _experiments),
        Route("/e/{name}", _with_slash),
        *(Route(f"/e/{{name}}/{view}", _shell) for view in VIEWS),
        Route("/e/{name}/events", _events),
        Route("/e/{name}/orders", _order, methods=["POST"]),
        Route("/e/{name}/verify/{trial:path}.json", _verified),
        Route("/e/{name}/trial/{trial:path}.json", partial(_data, view="trial")),
        Route("/e/{name}/trial/{trial:path}", _shell),
        Route("/e/{name}/files/{trial:path}/{file}", _file),
        Route("/e/{name}/checkpoints/{trial:path}/{checkpoint}.tar", _checkpoint),
        Route("/e/{name}/{view}.json", _data),
        Mount("/static", GZipMiddleware(StaticFiles(directory=STATIC, check_dir=False))),
    ]
    handlers: dict[Any, Callable[[Request, Any], Any]] = {
        HTTPException: _failed_http,
        TuneError: _failed,
        TrainablesError: _failed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(Caught)])
    app.state.served = served
    app.router.redirect_slashes = False
    return Guard(app, served.access)


def _served(request: Request) -> Served:
    served: Served = request.app.state.served
    return served


def json(value: Any, status: int = 200) -> Response:
    return Response(as_json(value), status, media_type="application/json")


async def _failed_http(request: Request, error: Any) -> Response:
    answer = json({"error": str(error.detail)}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Any) -> Response:
    """Whatever cannot be read is an answer that says so, and never the end of the server."""
    if isinstance(error, ExperimentNotFoundError):
        return json({"error": str(error), **getattr(error, "told", {})}, 404)
    return json({"error": said(error)}, 400 if isinstance(error, SettingError) else 503)


# --- pages --------------------------------------------------------------------------------------------------


async def _shell(request: Request) -> Response:
    """One page for every view: what it shows, it finds by its address; of what is not here it says so."""
    status = 200
    if "name" in request.path_params:
        try:
            _served(request).places.get(request.path_params["name"])
        except ExperimentNotFoundError:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            status = 404
    shell = STATIC / "shell.html"
    if not shell.is_file() or not (STATIC / "vendor").is_dir():
        return HTMLResponse(NO_CLIENT)
    path = request.scope.get("raw_path", b"/").split(b"?")[0]
    base = "../" * (path.count(b"/") - 1) or "./"
    text = shell.read_text("utf-8").replace("{{base}}", base)
    return HTMLResponse(text, status, headers={"cache-control": "no-cache"})


async def _with_slash(request: Request) -> Response:
    last = request.scope.get("raw_path", b"").rpartition(b"/")[2].decode("latin-1")
    return RedirectResponse(f"./{last}/", 307)


# --- data ---------------------------------------------------------------------------------------------------


async def _experiments(request: Request) -> Response:
    served = _served(request)
    return Response(await run_in_threadpool(_listed, served), media_type="application/json")


def _listed(served: Served) -> bytes:
    columns: dict[str, list[Any]] = {
        name: [] for name in ("name", "path", "state", "error", "trials", "started_at", "loading")
    }
    every = served.places.all()
    until = time.monotonic() + LIST_S
    for live in every:
        live.start()
    for live in every:
        live.ready.wait(max(until - time.monotonic(), 0))  # what is small is read meanwhile
        live.check_silence()
        row: dict[str, Any] = {"name": live.name, "path": live.source.address, "error": live.error, "loading": None}
        row |= {"state": None, "trials": None, "started_at": None}
        with live.lock:
            if live.is_read:
                row |= brief(Seen(live, live.picture))
            elif live.error is None:
                row["loading"] = live.done
        for name, values in columns.items():
            values.append(row[name])
    told = {
        "experiments": columns,
        "problems": served.places.problems(),
        "read_only": not served.access.takes_orders,
        "version": version("tuner"),
    }
    return as_json(told)


async def _data(request: Request, view: str = "") -> Response:
    served = _served(request)
    query = {**request.query_params, **{key: value for key, value in request.path_params.items() if key == "trial"}}
    live = served.places.get(request.path_params["name"])
    live.start()
    refusal = await _ready(live, query.pop("wait", ""))
    if refusal is not None:
        return refusal
    return await run_in_threadpool(_answered, request, view or request.path_params["view"], live, query)


def _answered(request: Request, view: str, live: LiveExperiment, query: Mapping[str, str]) -> Response:
    made = _served(request).data(live, view, query)
    headers = {"vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", "") and made.worth_packing(far=_is_far(request)):
        return _sent(made.packed(), headers | {"content-encoding": "gzip"})
    return _sent(made.body(), headers)


def _sent(body: bytes, headers: Mapping[str, str]) -> Response:
    """JSON; what is large goes in parts, each when the one before has gone: whole it would be copied for each page."""
    if len(body) <= _PART:
        return Response(body, headers=headers, media_type="application/json")

    async def parts() -> AsyncIterator[memoryview]:
        for begin in range(0, len(body), _PART):
            yield memoryview(body)[begin : begin + _PART]

    whole = {**headers, "content-length": str(len(body))}
    return StreamingResponse(parts(), headers=whole, media_type="application/json")


def _is_far(request: Request) -> bool:
    """It comes from another machine, or by a proxy; what comes through an ssh tunnel looks as if it were near."""
    peer = request.client
    return peer is None or not is_loopback(peer.host) or "x-forwarded-for" in request.headers


async def _ready(live: LiveExperiment, given: str) -> Response | None:
    """Wait until it has been read; what to answer if that takes too long, or cannot be."""
    try:
        patience = min(float(given or WAIT_S), WAIT_S)
    except ValueError:
        raise SettingError(f"wait={given!r:.80} is not accepted; accepted are seconds") from None
    if not live.ready.is_set():
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            loop.call_soon_threadsafe(news.set)

        live.listen(told)
        try:
            until = loop.time() + patience
            while not live.ready.is_set() and loop.time() < until:
                news.clear()
                if not live.ready.is_set():
                    await _within(news, min(until - loop.time(), 1.0))
        finally:
            live.unlisten(told)
    if live.is_read:
        return None
    if live.error is not None:
        return json({"error": live.error, "loading": None}, 503)
    return json({"error": "it is being read", "loading": {"done": live.done, "said": f"reading {live.done:.0%}"}}, 503)


async def _within(news: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(news.wait(), max(seconds, 0.001))
    except TimeoutError:
        pass  # looked again


async def _events(request: Request) -> Response:
    served = _served(request)
    live = served.places.get(request.path_params["name"])
    live.start()
    given = request.headers.get("last-event-id") or request.query_params.get("since")
    try:
        since = int(given) if given else None
    except ValueError:
        since = -1  # no number of ours: a reset
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")  # a stream that nobody takes would never end
    stream = events(live, served.deltas(live), since, served.closing)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _verified(request: Request) -> Response:
    live = await _read(request)
    named = request.path_params["trial"], request.query_params.get("checkpoint", "")
    return Response(await run_in_threadpool(verification_of, live, *named), media_type="application/json")


# --- orders -------------------------------------------------------------------------------------------------


async def _order(request: Request) -> Response:
    served = _served(request)
    live = served.places.get(request.path_params["name"])
    try:
        body = await asyncio.wait_for(_body(request), BODY_S)
    except (TimeoutError, ClientDisconnect):
        return Response(status_code=400, headers={"connection": "close"})
    if len(body) > MAX_BYTES:
        return json({"id": None, "state": "refused", "why": f"an order has at most {MAX_BYTES:,} bytes"}, 400)
    status, answer = await served.beside(live, give_order, live.source.place, body)
    live.look_now()
    return json(answer, status)


async def _body(request: Request) -> bytes:
    """As much of it as says whether that is too much."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            break
    return body


# --- files --------------------------------------------------------------------------------------------------


async def _file(request: Request) -> Response:
    served, live, name = _served(request), await _read(request), request.path_params["file"]
    if name not in served_files.NAMES:
        raise ExperimentNotFoundError(f"of a trial's files {', '.join(served_files.NAMES)} are served")
    with live.lock:
        trial = _known(live, request.path_params["trial"])
    fd = await served.beside(live, live.source.open_log, trial, name)
    size = os.fstat(fd).st_size
    start, status = 0, 200
    tail, asked = request.query_params.get("tail", ""), request.headers.get("range", "")
    if tail.isdecimal():
        start = max(size - int(tail), 0)
    elif asked.startswith("bytes=") and asked.endswith("-") and asked[6:-1].isdecimal():
        start, status = int(asked[6:-1]), 206
        if start >= size:
            os.close(fd)
            return Response(status_code=416, headers={"x-size": str(size), "content-range": f"bytes */{size}"})
    headers = {"x-size": str(size)}
    if status == 206:
        headers["content-range"] = f"bytes {start}-{size - 1}/{size}"
    pieces = served.streamed(live, served_files.pieces(fd, start, size))
    return StreamingResponse(pieces, status, headers, media_type="text/plain; charset=utf-8")


async def _checkpoint(request: Request) -> Response:
    served, live, name = _served(request), await _read(request), request.path_params["checkpoint"]
    with live.lock:
        trial = _known(live, request.path_params["trial"])
    if request.method == "HEAD":
        return Response(media_type="application/x-tar")
    packed = await served.beside(live, live.source.packed, trial, name)
    called = f'attachment; filename="{name}.tar"'
    pieces = served.streamed(live, packed)
    return StreamingResponse(pieces, media_type="application/x-tar", headers={"content-disposition": called})


async def _read(request: Request) -> LiveExperiment:
    live = _served(request).places.get(request.path_params["name"])
    live.start()
    if await _ready(live, "") is not None:
        raise ExperimentNotFoundError(live.error or "it is being read")
    return live


def _known(live: LiveExperiment, trial_id: str) -> Any:
    if not live.picture.state.has(trial_id):
        raise ExperimentNotFoundError(f"there is no trial {trial_id!r:.200}")
    return live.picture.state.trial(trial_id)
