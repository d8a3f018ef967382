"""The server of the page: on loopback alone, with a random token as the first part of every path.

====== ============================================ ==================================================
verb   path after the token                         answer
====== ============================================ ==================================================
GET    (nothing), FILE                              the page and its files
GET    overview.json                                the run as a whole
GET    timeline.json?point=N&from=&to=&px=          bars and marks of a window of a point
GET    strips.json?point=N&from=&to=&px=            rates of links, times of steps
GET    state.json?point=N&t=                        what stood at a moment
GET    figures/NAME.png                             a figure of the results folder
GET    stream                                       Server-Sent Events ``tick`` and ``over``
POST   control                                      an act on the live run (``commands.page.control``)
====== ============================================ ==================================================

Moments are seconds of the real system since the start of the point. Errors are ``{"error": "one sentence"}``.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import bottle

from commands.page import answers
from commands.page.control import MOST_BYTES, Control, Refused
from commands.page.run_view import RunView
from commands.page.stream import Audience
from commands.page.watched import Follower, Watched
from controllers.northbound.http_server import REFUSED, Application, HttpServer, check_json, errors_as_json, host_of
from railyard.errors import MachineError, RailyardError, from_os_error

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names in the Host header that are served: over an SSH tunnel the port is another one."""
STRICT = (
    ("Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)  # fmt: skip
"""Headers of every answer."""
PAGE_FILES = answers.page_files()
"""The files of the page, read now: a process that becomes another user may not be able to read them afterwards."""
MOST_CALLS = 64
"""Calls that are served at once, streams apart; more wait."""
CALL_S = 20.0
"""How long a call waits until it is served."""
LAST_S = 0.7
"""How long open pages have, at the end of a server, to fetch what is new."""
TAKEN_S = 2.0
"""How long they then have to take their last message, on a machine where all cores are busy."""


class AccessCheck:
    """The WSGI application ``app`` behind the checks of every call; it gets paths without the token."""

    def __init__(self, app: Application, token: str) -> None:
        self._app = app
        self._token = token.encode()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], error: Any = None) -> Any:
            return start_response(status, [*headers, *STRICT], error)

        def refused(status: str, sentence: str, *headers: tuple[str, str]) -> Iterable[bytes]:
            start(status, [("Content-Type", "application/json"), *headers])
            return [answers.as_json({"error": sentence})]

        if host_of(environ) not in HOSTS:
            return refused("403 Forbidden", "the Host header must name the loopback address that this server has")
        token, slash, rest = environ.get("PATH_INFO", "").removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("latin-1", "replace"), self._token):
            return refused("404 Not Found", "there is nothing here; take the whole address that railyard watch printed")
        if not slash:
            return refused("308 Permanent Redirect", "the address ends with /", ("Location", f"/{token}/"))
        if REFUSED in environ:
            error = environ[REFUSED]
            return refused(error.status_line, str(error.body))
        environ["SCRIPT_NAME"], environ["PATH_INFO"] = f"/{token}", f"/{rest}"
        return self._app(environ, start)


class Site:
    """The answers of the server of ``run``. ``control`` acts on it while it is live; None: nothing does."""

    def __init__(self, run: Watched, audience: Audience, control: Control | None = None) -> None:
        self._run, self._audience, self._control = run, audience, control
        self._free = threading.BoundedSemaphore(MOST_CALLS)

    def app(self) -> bottle.Bottle:
        app = bottle.Bottle()
        for path, payload in {
            "overview": self._overview,
            "timeline": self._timeline,
            "strips": self._strips,
            "state": self._state,
        }.items():
            app.route(f"/{path}.json", "GET", self._limited(partial(self._json, payload)))
        app.route("/figures/<name>", "GET", self._limited(self._figure))
        app.route("/stream", "GET", self._stream)
        app.route("/control", "POST", self._limited(self._act))
        app.route("/", "GET", self._limited(partial(self._file, "index.html")))
        app.route("/<name:path>", "GET", self._limited(self._file))
        app.default_error_handler = errors_as_json("the server failed; see its terminal")
        return app

    def _limited(self, handler: Callable[..., bytes]) -> Callable[..., bytes]:
        """``handler`` as soon as a call is free, with its errors as those of HTTP."""

        def call(**arguments: str) -> bytes:
            if not self._free.acquire(timeout=CALL_S):
                raise _error(503, f"{MOST_CALLS} calls are being served; try again later")
            try:
                return handler(**arguments)
            except (RailyardError, OSError) as error:
                found = from_os_error(error) if isinstance(error, OSError) else error
                raise _error(503 if isinstance(found, MachineError) else 400, str(found)) from None
            finally:
                self._free.release()

        return call

    # ---- data ----------------------------------------------------------------------------------------------------

    def _json(self, payload: Callable[[Mapping[str, str]], dict[str, Any]]) -> bytes:
        return _body(answers.as_json(payload(bottle.request.query)), "application/json")

    def _overview(self, query: Mapping[str, str]) -> dict[str, Any]:
        overview = self._run.ask(lambda view: view.overview())
        return overview | {"control": self._control is not None and self._run.live}

    def _timeline(self, query: Mapping[str, str]) -> dict[str, Any]:
        return self._of_window(query, lambda view, *window: view.timeline(*window))

    def _strips(self, query: Mapping[str, str]) -> dict[str, Any]:
        return self._of_window(query, lambda view, *window: view.strips(*window))

    def _of_window(self, query: Mapping[str, str], find: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        window = answers.window(query)

        return self._of_point(query, lambda view, point: find(view, point, window.start, window.end, window.px))

    def _state(self, query: Mapping[str, str]) -> dict[str, Any]:
        t = answers.moment(query, "t")
        return self._of_point(query, lambda view, point: view.state(point, view.now(point) if t is None else t))

    def _of_point(self, query: Mapping[str, str], find: Callable[[RunView, int], dict[str, Any]]) -> dict[str, Any]:
        point = answers.whole(query, "point", 0, 0, answers.MOST_POINT)
        try:
            return self._run.ask(lambda view: find(view, point))
        except LookupError:
            raise _error(404, f"the run has no point {point}") from None

    # ---- files, stream and acts ----------------------------------------------------------------------------------

    def _file(self, name: str) -> bytes:
        content = PAGE_FILES.get(name)
        if content is None:
            raise _error(404, "the page has no such file")
        return _body(content, answers.TYPES[f".{name.rpartition('.')[2]}"])

    def _figure(self, name: str) -> bytes:
        content = answers.figure(self._run.folder, name)
        if content is None:
            raise _error(404, "the results folder has no such figure")
        return _body(content, answers.TYPES[".png"], pack=False)

    def _stream(self) -> Iterator[bytes]:
        try:
            page = self._audience.join()
        except MachineError as error:
            raise _error(503, str(error)) from None
        try:
            page.give(self._run.tick())
            bottle.response.content_type = "text/event-stream"
            yield from page.messages()
        finally:
            self._audience.leave(page)

    def _act(self) -> bytes:
        request = bottle.request
        if self._control is None:
            raise _error(403, "acting is off; railyard watch FOLDER --control shows a live run with it")
        if (
            request.get_header("Origin", f"http://{request.get_header('Host')}")
            != f"http://{request.get_header('Host')}"
        ):
            raise _error(403, "only the page itself may act")
        check_json(request.environ)
        body: bytes = request.environ["wsgi.input"].read(MOST_BYTES + 1)
        try:
            self._control.act(body)
        except Refused as refused:
            raise _error(refused.status, str(refused)) from None
        return _body(answers.as_json({"ok": True}), "application/json")


def _body(content: bytes, kind: str, *, pack: bool = True) -> bytes:
    response = bottle.response
    response.content_type = kind
    found = answers.packed(content, bottle.request.get_header("Accept-Encoding", "")) if pack else None
    if pack:
        response.set_header("Vary", "Accept-Encoding")
    if found is None:
        return content
    response.set_header("Content-Encoding", "gzip")
    return found


def _error(status: int, sentence: str) -> bottle.HTTPError:
    return bottle.HTTPError(status, sentence)


class WatchServer:
    """The server on a socket that listens already, in threads of its own from ``start`` to ``close``."""

    def __init__(self, listening: socket.socket, token: str, run: Watched, control: Control | None = None) -> None:
        self._run = run
        self.audience = Audience()
        self._follower = Follower(run, self.audience)
        self._http = HttpServer(listening, "railyard watch")
        self._http.set_app(AccessCheck(Site(run, self.audience, control).app(), token))
        self._thread = threading.Thread(target=self._http.serve, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._follower.start()

    def close(self, sentence: str) -> None:
        """Read the folder once more, tell the pages all that is new and then the ``sentence``, and end."""
        self._follower.stop()
        if len(self.audience):
            self._follower.look()
            time.sleep(LAST_S)
        self.end_pages(sentence)
        with suppress(OSError):
            self._http.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._http.server_close()
        self._run.close()

    def end_pages(self, sentence: str) -> None:
        """Tell the pages the ``sentence`` as the last; a second call tells those that have not taken it yet."""
        self.audience.end(sentence, TAKEN_S)
