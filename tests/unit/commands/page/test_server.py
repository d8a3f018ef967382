"""The page's server on real sockets: who is answered, with what, and that hostile and vanished clients harm nobody."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from watch.fake_view import FakeView

from commands.page import server as server_module
from commands.page import stream
from commands.page.control import Control, Refused
from commands.page.server import STRICT, WatchServer
from commands.page.serving import listen, page_address, url
from commands.page.stream import MOST_PAGES
from commands.page.watched import Watched
from controllers.northbound import http_server

TOKEN = "s3cret-token"
PATIENCE_S = 10.0


class FakeControl(Control):
    """Keeps acts, or refuses them."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.acts: list[bytes] = []
        self.refusal: Refused | None = None

    def act(self, body: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.acts.append(body)


class Site:
    """A server of a fake view, and calls of it."""

    def __init__(self, view: FakeView, control: Control | None = None) -> None:
        self.view = view
        self.port_socket = listen(page_address("0"), "--port")
        self.url = url(self.port_socket, TOKEN)
        self.port = self.port_socket.getsockname()[1]
        self.server = WatchServer(self.port_socket, TOKEN, Watched(view), control)
        self.server.start()

    def get(self, path: str, verb: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, headers and body (of JSON: what it says) of the answer to ``path`` below the token."""
        return self.raw(f"/{TOKEN}/{path}", verb, body, **headers)

    def raw(self, path: str, verb: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        """The same for a whole path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(verb, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        kind = answer.headers["Content-Type"]
        return answer.status, answer.headers, json.loads(data) if kind == "application/json" else data

    def bytes(self, sent: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        made.sendall(sent)
        return made

    def stream(self) -> Stream:
        return Stream(self.bytes(f"GET /{TOKEN}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))

    def wait_for_pages(self, number: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(self.server.audience) != number:
            assert time.monotonic() < end, f"{len(self.server.audience)} pages are open, not {number}"
            time.sleep(0.01)


class Stream:
    """The stream of one page."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.file = connection.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = http.client.parse_headers(self.file)

    def next(self) -> tuple[str, Any]:
        """Kind and data of the next message that is no comment; an empty kind at the end."""
        kind = ""
        for line in iter(self.file.readline, b""):
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, json.loads(value)
        return "", None

    def close(self) -> None:
        self.file.close()
        self.connection.close()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(server_module, "LAST_S", 0.1)
    with ExitStack() as stack:

        def made(view: FakeView | None = None, control: Control | None = None) -> Site:
            site = Site(view or FakeView(), control)
            stack.callback(site.server.close, "the test has ended")
            return site

        yield made


@pytest.fixture
def site(make: Callable[..., Site]) -> Site:
    return make()


# ---- who is answered -------------------------------------------------------------------------------------------------


def test_every_answer_has_the_strict_headers(site: Site) -> None:
    for path in ("overview.json", "nosuch", "timeline.json?point=x", "stream/", "figures/x.png", "control"):
        headers = site.get(path)[1]
        assert [headers.get_all(name) for name, _ in STRICT] == [[value] for _, value in STRICT]
    for path in ("/", "/guess/overview.json", f"/{TOKEN}", "/\xff"):
        headers = site.raw(path.encode("latin-1").decode("latin-1").replace("\xff", "%ff"))[1]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/", "/overview.json", "/s3cret/overview.json", "/x/s3cret-token/",
                                  "/S3CRET-TOKEN/", "/%ff%fe/", "/s3cret-token%00/", "/favicon.ico"])  # fmt: skip
def test_without_the_token_there_is_nothing(site: Site, path: str) -> None:
    status, _, said = site.raw(path)
    assert status == 404
    assert said == {"error": "there is nothing here; take the whole address that railyard watch printed"}
    assert site.view.refreshed <= 1


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "", "localhost:x", "\xff"])
def test_other_names_of_the_host_are_refused(site: Site, host: str) -> None:
    status, _, said = site.get("overview.json", Host=host)
    assert (status, "Host header" in said["error"]) == (403, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "localhost:8000", "[::1]:5"])
def test_loopback_names_with_any_port_are_served_as_over_a_tunnel(site: Site, host: str) -> None:
    assert site.get("overview.json", Host=host)[0] == 200


def test_the_address_without_its_slash_is_completed(site: Site) -> None:
    status, headers, _ = site.raw(f"/{TOKEN}")
    assert (status, headers["Location"]) == (308, f"/{TOKEN}/")


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_verbs_are_refused(site: Site, verb: str) -> None:
    assert site.get("overview.json", verb)[0] == 405


# ---- data ------------------------------------------------------------------------------------------------------------


def test_data_is_what_the_view_says(site: Site) -> None:
    assert site.get("overview.json")[2]["name"] == "<b>fake</b>"
    window = {"start": 0.25, "end": 1.5, "px": 300}
    for what in ("timeline", "strips"):
        found = site.get(f"{what}.json?point=1&from=0.25&to=1.5&px=300")[2]
        assert found == {"what": what, "point": 1, **window}
        assert site.get(f"{what}.json?point=1")[2] == {"what": what, "point": 1, "start": None, "end": None, "px": 1200}
    assert site.get("state.json?point=0&t=-1e3")[2] == {"what": "state", "point": 0, "t": -1000.0}
    assert site.get("state.json?point=0&t=")[2]["t"] == 2.5


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("timeline.json?point=x", "point: must be a whole number from 0 to 1000000000, not 'x'"),
        ("timeline.json?point=-1", "point: must be a whole number"),
        ("timeline.json?point=1e3", "point: must be a whole number"),
        ("timeline.json?point=" + "9" * 5000, "point: must be a whole number"),
        ("timeline.json?px=0", "px: must be a whole number from 1 to 8192, not '0'"),
        ("timeline.json?px=8193", "px: must be"),
        ("strips.json?from=nan", "from: must be a number of seconds such as 1.25, not 'nan'"),
        ("strips.json?from=inf&to=1", "from: must be"),
        ("strips.json?to=1e400", "to: must be"),
        ("strips.json?to=" + "1" * 50, "to: must be"),
        ("strips.json?from=2&to=1", "from: must be before to, not 2 with to 1"),
        ("strips.json?from=2&to=2", "from: must be before to"),
        ("strips.json?from=3&to=%00", "to: must be"),
        ("state.json?t=%3Cscript%3E", "t: must be a number of seconds such as 1.25, not '<script>'"),
        ("state.json?t=\xff", "t: must be"),
    ],
)
def test_numbers_of_a_query_are_checked(site: Site, query: str, sentence: str) -> None:
    status, _, said = site.get(query.replace("\xff", "%ff"))
    assert status == 400 and said["error"].startswith(sentence) and len(said["error"]) < 250


def test_a_point_that_is_not_there(site: Site) -> None:
    assert site.get("timeline.json?point=7")[::2] == (404, {"error": "the run has no point 7"})


def test_errors_are_sentences(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    site.view.overview = lambda: {"rate": float("nan")}  # type: ignore[method-assign]
    status, _, said = site.get("overview.json")
    assert (status, said["rate"]) == (200, None)
    site.view.overview = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert site.get("overview.json")[::2] == (500, {"error": "the server failed; see its terminal"})
    assert "Traceback" in capfd.readouterr().err


def test_large_answers_are_packed_for_those_who_take_it(site: Site) -> None:
    assert site.get("overview.json", Accept_Encoding="gzip, deflate, br")[1]["Content-Encoding"] is None
    site.view.big = 100_000
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE_S)
    connection.request("GET", f"/{TOKEN}/overview.json", headers={"Accept-Encoding": "br;q=1.0, gzip;q=0.8"})
    answer = connection.getresponse()
    packed = answer.read()
    assert answer.headers["Content-Encoding"] == "gzip" and int(answer.headers["Content-Length"]) == len(packed) < 2000
    assert len(json.loads(gzip.decompress(packed))["big"]) == 100_000
    connection.close()
    assert len(site.get("overview.json", Accept_Encoding="identity")[2]["big"]) == 100_000


def test_a_folder_that_cannot_be_read_is_a_sentence(site: Site) -> None:
    site.view.overview = Path("/nonexistent/events.jsonl").read_text  # type: ignore[method-assign,assignment]
    status, _, said = site.get("overview.json")
    assert (status, said["error"]) == (503, "/nonexistent/events.jsonl cannot be used: No such file or directory")


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("../server.py", "..%2fserver.py", "%2e%2e/server.py", "%2e%2e%2fserver.py", "./.", "..\\server.py"),
        *("page.css/../../server.py", "server.py%00.css", "%00", "//etc/passwd", "/etc/passwd", "\xc3x"),
        *("figures/../manifest.json", "figures/..%2fmanifest.json", "figures/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        *("figures/x%00.png", "figures/.png", "figures/", "figures/a/b.png"),
    ],
)
def test_hostile_paths_are_not_found(make: Callable[..., Site], tmp_path: Path, path: str) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    site = make(FakeView(tmp_path))
    status, _, said = site.get(path.replace("\xc3", "%c3"))
    assert status in (400, 404) and "error" in said and str(tmp_path) not in said["error"]


def test_figures_are_those_that_the_folder_lists(make: Callable[..., Site], tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "step time.png").write_bytes(b"\x89PNG")
    (figures / "notes.txt").write_text("no figure")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (figures / "link.png").symlink_to(tmp_path / "secret.png")
    (figures / "folder.png").mkdir()
    os.mkfifo(figures / "pipe.png")
    site = make(FakeView(tmp_path))
    status, headers, content = site.get("figures/step%20time.png")
    assert (status, headers["Content-Type"], content) == (200, "image/png", b"\x89PNG")
    for name in ("notes.txt", "link.png", "folder.png", "pipe.png", "other.png"):
        assert site.get(f"figures/{name}")[0] == 404
    figures.rename(tmp_path / "elsewhere")
    assert site.get("figures/step%20time.png")[0] == 404
    figures.symlink_to(tmp_path / "elsewhere")
    assert site.get("figures/step%20time.png")[0] == 404


# ---- stream ----------------------------------------------------------------------------------------------------------


def test_a_page_is_told_what_is_new(site: Site) -> None:
    page = site.stream()
    assert (page.status, page.headers["Content-Type"]) == (200, "text/event-stream")
    parts = ["circuits", "overview", "timeline"]
    first = {"revision": 0, "point": 1, "now": 2.5, "live": True, "parts": parts}
    assert page.next() == ("tick", first)
    view = site.view
    view.moment, view.new = 2.75, ["timeline"]
    assert page.next() == ("tick", first | {"revision": 1, "now": 2.75, "parts": ["timeline"]})
    view.live, view.new = False, ["overview"]
    assert page.next() == ("tick", first | {"revision": 2, "now": 2.75, "live": False, "parts": ["overview"]})
    page.close()


def test_files_are_not_read_without_a_page(site: Site) -> None:
    page = site.stream()
    page.next()
    page.close()
    site.view.new = ["timeline"]  # the next message finds that the page is gone
    site.wait_for_pages(0)
    time.sleep(0.3)
    before = site.view.refreshed
    time.sleep(0.7)
    assert site.view.refreshed == before


def test_twenty_pages_at_once_and_at_most_thirty_two(site: Site) -> None:
    pages = [site.stream() for _ in range(20)]
    assert [page.next()[0] for page in pages] == ["tick"] * 20
    answered: list[int] = []
    threads = [
        threading.Thread(target=lambda: answered.append(site.get("timeline.json?point=0")[0])) for _ in range(20 * 6)
    ]
    for thread in threads:
        thread.start()
    site.view.new = ["timeline"]
    assert [page.next()[1]["parts"] for page in pages] == [["timeline"]] * 20
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answered == [200] * len(threads)
    pages += [site.stream() for _ in range(MOST_PAGES - 20)]
    assert [page.status for page in pages] == [200] * MOST_PAGES
    assert site.get("stream")[::2] == (503, {"error": f"{MOST_PAGES} pages are open; close one of them"})
    for page in pages:
        page.close()
    site.wait_for_pages(0)
    more = site.stream()
    assert more.next()[0] == "tick"
    more.close()


def test_a_page_that_goes_away_harms_nobody(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    pages = [site.stream() for _ in range(3)]
    for page in pages:
        page.next()
    pages[1].connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pages[1].close()  # with a reset
    pages[2].close()
    for revision in range(1, 4):
        site.view.new = ["timeline"]
        assert pages[0].next()[1]["revision"] == revision
    site.wait_for_pages(1)
    pages[0].close()
    assert capfd.readouterr().err == ""


def test_a_page_that_never_reads_is_cut_and_delays_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_server, "WRITE_S", 0.3)
    silent, reader = site.stream(), site.stream()
    reader.next()
    parts = [f"{number:0>4000}" for number in range(500)]  # 2 MB a tick, so that no buffer holds many
    slowest, end = 0.0, time.monotonic() + PATIENCE_S
    while len(site.server.audience) == 2 and time.monotonic() < end:
        site.view.new, began = list(parts), time.monotonic()
        assert reader.next()[0] == "tick"
        slowest = max(slowest, time.monotonic() - began)
    assert len(site.server.audience) == 1 and slowest < 2.0
    silent.close()
    reader.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_folder_that_vanishes_is_said_once_and_pages_stay(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    page = site.stream()
    page.next()
    view = site.view
    view.error = FileNotFoundError(2, "No such file or directory", "events.jsonl")
    count = view.refreshed
    end = time.monotonic() + PATIENCE_S
    while view.refreshed < count + 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    view.error, view.new = None, ["timeline"]
    assert page.next()[1]["parts"] == ["timeline"]
    page.close()
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "railyard: /nowhere cannot be read now: [Errno 2]" in said


def test_the_end_of_the_server_is_told_with_the_last_news() -> None:
    site = Site(FakeView())
    page = site.stream()
    page.next()
    site.view.live, site.view.new = False, ["overview"]
    closing = threading.Thread(target=site.server.close, args=("the run has ended",))
    closing.start()
    kind, tick = page.next()
    assert (kind, tick["live"], tick["parts"]) == ("tick", False, ["overview"])
    assert site.get("overview.json")[0] == 200  # it can still be fetched
    assert page.next() == ("over", {"says": "the run has ended"})
    assert page.next() == ("", None)
    page.close()
    closing.join(PATIENCE_S)
    assert not closing.is_alive() and site.view.closed
    with pytest.raises(ConnectionRefusedError):
        site.bytes(b"")


def test_the_end_of_a_server_without_pages_is_at_once() -> None:
    site = Site(FakeView())
    began = time.monotonic()
    site.server.close("")
    assert time.monotonic() - began < server_module.LAST_S


# ---- acts ------------------------------------------------------------------------------------------------------------

JSON = {"Content_Type": "application/json"}


def test_acting_is_off_unless_it_is_asked_for(site: Site) -> None:
    status, _, said = site.get("control", "POST", b"{}", **JSON)
    assert (status, said["error"]) == (403, "acting is off; railyard watch FOLDER --control shows a live run with it")
    assert site.get("overview.json")[2]["control"] is False


def test_acts_of_the_page_are_done_and_those_of_others_are_not(make: Callable[..., Site]) -> None:
    control = FakeControl()
    site = make(control=control)
    assert site.get("overview.json")[2]["control"] is True
    assert site.get("control", "POST", b'{"act": 1}', **JSON)[::2] == (200, {"ok": True})
    own = f"http://127.0.0.1:{site.port}"
    assert site.get("control", "POST", b"2", Origin=own, Content_Type="application/json; charset=utf-8")[0] == 200
    assert control.acts == [b'{"act": 1}', b"2"]
    for headers, status in (
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": "multipart/form-data"}, 415),
        ({}, 415),
        (JSON | {"Origin": "http://evil.example"}, 403),
        (JSON | {"Origin": "null"}, 403),
        (JSON | {"Origin": "http://localhost:1"}, 403),
        (JSON | {"Host": "evil.example"}, 403),
    ):
        assert site.get("control", "POST", b"{}", **headers)[0] == status
    assert site.raw("/guess/control", "POST", b"{}", **JSON)[0] == 404
    assert site.get("control", "GET")[0] in (404, 405)
    assert len(control.acts) == 2
    control.refusal = Refused(409, "rail9 is no switch")
    assert site.get("control", "POST", b"{}", **JSON)[::2] == (409, {"error": "rail9 is no switch"})
    site.view.live, site.view.new = False, ["overview"]
    time.sleep(0.6)  # the next call reads again
    assert site.get("overview.json")[2]["control"] is False


def test_a_body_without_end_is_cut(make: Callable[..., Site]) -> None:
    site = make(control=FakeControl())
    head = f"POST /{TOKEN}/control HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with site.bytes(f"{head}Content-Length: 99999999\r\n\r\n".encode() + b"x" * 100_000) as client:
        assert b" 413 " in client.makefile("rb").readline()
