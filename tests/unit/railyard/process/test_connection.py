from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard import __version__
from railyard.errors import CircuitError, ConfigError, ControlError, MachineError, PeerLost, RailyardError
from railyard.process import connection as module
from railyard.process.connection import SSHD_VARIABLE, Connection, watch_connection
from railyard.process.parent import Parent
from railyard.protocol import to_json


def pipes(**options: Any) -> tuple[Connection, Connection]:
    """Both sides of a connection over two pipes: the head's, and that of machine b."""
    here_source, there_sink = os.pipe()
    there_source, here_sink = os.pipe()
    return (
        Connection(here_source, here_sink, "machine b", raised="on machine b: ", **options),
        Connection(there_source, there_sink, "head", patience_s=None),
    )


class Unknown(CircuitError):
    """An error of a class that the other side does not have."""


def refuse(kind: str) -> None:
    raise {
        "config": ConfigError("is wrong; leave it out", key="a.b", source="x.yaml"),
        "machine": MachineError("no room; make some"),
        "lost": PeerLost("rank 3 is gone"),
        "unknown": Unknown("port 1 twice"),
        "system": FileNotFoundError(2, "No such file or directory", "/x"),
        "bug": KeyError("k"),
    }[kind]


@contextmanager
def served(
    more: Mapping[str, Callable[..., Any]] | None = None,
    sources: Callable[[], Mapping[int, Callable[[], None]]] = dict,
    **options: Any,
) -> Iterator[tuple[Connection, Connection]]:
    """Both sides, of which that of machine b is served by a thread; the greeting has been taken."""
    here, there = pipes(**options)
    operations = {"echo": lambda value: value, "refuse": refuse, **(more or {})}
    here.tell("settings")
    parent = Parent(there)
    parent.operations = operations
    parent.ready()
    thread = threading.Thread(target=parent.serve, args=(sources,))
    thread.start()
    try:
        ready = here.next_message(5.0)
        assert ready == {"op": "ready", "version": __version__, "folder": None}
        yield here, there
    finally:
        here.close()
        thread.join(5.0)
        assert not thread.is_alive()
        there.close()


Raw = tuple[Connection, socket.socket]


@pytest.fixture
def raw() -> Iterator[Raw]:
    """A connection over one socket, and the bare other end."""
    ours, theirs = socket.socketpair()
    fd = ours.detach()
    here = Connection(fd, fd, "machine b", raised="on machine b: ")
    yield here, theirs
    here.close()
    theirs.close()


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_values_come_back_as_they_were(value: Any) -> None:
    here, there = pipes()
    number = here.begin("echo", value=value)
    (request,) = there.arrived()
    there.reply(request["id"], result=request["fields"]["value"])
    assert here.answer(number) == value
    here.close()
    there.close()


def test_fields_may_have_any_name() -> None:
    with served({"all": lambda **fields: fields}) as (here, _):
        fields = {"id": 1, "op": "x", "error": "e", "fields": {}, "self": 1}
        assert here.answer(here.begin("all", **fields, timeout_s=3)) == {**fields, "timeout_s": 3}


def test_answers_may_be_taken_in_any_order() -> None:
    with served() as (here, _):
        first, second = here.begin("echo", value=1), here.begin("echo", value=2)
        assert (here.answer(second), here.answer(first)) == (2, 1)


@pytest.mark.parametrize(
    ("kind", "expected", "said"),
    [
        ("config", ConfigError, "on machine b: x.yaml: a.b: is wrong; leave it out"),
        ("machine", MachineError, "on machine b: no room; make some"),
        ("lost", PeerLost, "on machine b: rank 3 is gone"),
        ("unknown", CircuitError, "on machine b: port 1 twice"),
        ("system", MachineError, "on machine b: /x cannot be used: No such file or directory"),
        ("bug", MachineError, "on machine b: refuse failed: KeyError: 'k'"),
    ],
)
def test_an_error_is_raised_here_as_the_same_class(kind: str, expected: type[RailyardError], said: str) -> None:
    with served() as (here, _):
        with pytest.raises(expected) as caught:
            here.call("refuse", kind=kind)
        assert type(caught.value) is expected
        assert str(caught.value) == said
        if isinstance(caught.value, ConfigError):
            assert (caught.value.key, caught.value.source) == ("a.b", "x.yaml")
        assert here.call("echo", value="goes on") == "goes on"


def test_an_operation_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with served() as (here, _), pytest.raises(ControlError, match="no operation eco; there are echo, refuse"):
        here.call("eco", value=1)


def test_a_result_that_is_no_plain_data_is_an_error_of_its_operation() -> None:
    with served({"odd": lambda: object(), "big": lambda: "x" * (65 << 20)}) as (here, _):
        with pytest.raises(MachineError, match="on machine b: odd failed: TypeError: object is no plain data"):
            here.call("odd")
        with pytest.raises(MachineError, match="longer than 64 MiB; send it in parts"):
            here.call("big")
        assert here.call("echo", value=1) == 1


def test_messages_are_carried_out_in_order_with_requests_and_told_back() -> None:
    seen: list[int] = []
    with served({"add": lambda n: seen.append(n), "seen": lambda: [*seen]}) as (here, _):
        for number in range(3):
            here.tell("add", n=number)
        assert here.call("seen") == [0, 1, 2]
        here.tell("refuse", kind="machine")
        kinds = ["MachineError", "RailyardError"]
        told = {"op": "error", "of": "refuse", "error": "no room; make some", "kinds": kinds}
        assert here.next_message(5.0) == told


def test_messages_that_come_with_an_answer_are_pending() -> None:
    with served() as (here, there):
        there.tell("event", n=1)
        assert here.call("echo", value=0) == 0
        assert here.pending
        assert not select.select([here], [], [], 0)[0]
        assert here.messages() == [{"op": "event", "n": 1}]
        assert not here.pending
        assert here.messages() == []


def test_both_sides_may_send_long_lines_at_once() -> None:
    long = "x" * (8 << 20)
    here, there = pipes(patience_s=5.0)
    came: dict[Connection, list[bool]] = {here: [], there: []}

    def exchange(side: Connection) -> None:
        for _ in range(3):
            side.tell("long", text=long)
        while len(came[side]) < 3:
            message = side.next_message(10.0)
            assert message is not None
            came[side].append(message["text"] == long)

    other = threading.Thread(target=exchange, args=(there,))
    other.start()
    exchange(here)
    other.join(10.0)
    assert came == {here: [True] * 3, there: [True] * 3}
    here.close()
    there.close()


def test_a_late_answer_can_be_asked_for_again() -> None:
    go = threading.Event()
    with served({"late": lambda: go.wait(5.0)}) as (here, _):
        number = here.begin("late")
        with pytest.raises(MachineError, match=r"machine b has not answered the request late within 0\.01 s"):
            here.answer(number, 0.01)
        go.set()
        assert here.answer(number) is True


def test_descriptors_are_served_between_requests() -> None:
    source, sink = os.pipe()
    got: list[bytes] = []
    open_ones = {source: lambda: got.append(os.read(source, 100))}
    with served({"got": lambda: b"".join(got).decode()}, lambda: open_ones) as (here, _):
        os.write(sink, b"one ")
        end = time.monotonic() + 5.0
        while here.call("got") != "one " and time.monotonic() < end:
            pass
        assert here.call("got") == "one "
    os.close(source)
    os.close(sink)


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to b",
        b"\xff\xfe",
        b"[1]",
        b"1",
        b'{"op": 1, "fields": {}}',
        b'{"op": "x"}',
        b'{"op":"x","fields":[]}',
        b'{"id": 0, "result": 1}',
        b'{"id": true, "result": 1}',
        b'{"id": [], "result": 1}',
        b"{}",
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_not_ours_ends_the_connection_with_its_beginning(raw: Raw, line: bytes) -> None:
    here, theirs = raw
    theirs.sendall(b'{"op":"good","fields":{"n":1}}\n' + line + b"\n" + b'{"op":"after","fields":{}}\n')
    assert here.messages() == [{"op": "good", "n": 1}]
    for _ in range(2):
        with pytest.raises(MachineError, match=r"machine b has sent a line that Railyard does not know: .{1,110}"):
            here.messages()
    with pytest.raises(MachineError, match="does not know"):
        here.begin("echo")


def test_a_second_answer_to_a_request_ends_the_connection(raw: Raw) -> None:
    here, theirs = raw
    number = here.begin("echo")
    theirs.sendall(b'{"id":0,"result":1}\n{"id":0,"result":2}\n')
    assert here.answer(number) == 1
    with pytest.raises(MachineError, match="does not know"):
        here.messages()


@pytest.mark.parametrize("answer", [b'{"id":0,"error":1,"kinds":7}', b'{"id":0,"error":"x","kinds":["os",{}]}'])
def test_an_error_of_no_known_class_is_a_machine_error(raw: Raw, answer: bytes) -> None:
    here, theirs = raw
    number = here.begin("echo")
    theirs.sendall(answer + b"\n")
    with pytest.raises(MachineError, match="on machine b: "):
        here.answer(number)


def test_a_line_without_end_is_given_up_at_its_bound(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES", 1 << 20)
    here, theirs = raw
    writer = threading.Thread(target=lambda: theirs.sendall(b"x" * (1 << 20) + b"yy"))
    writer.start()
    with pytest.raises(MachineError, match="machine b has sent a line longer than 1 MiB"):
        here.next_message(5.0)
    with pytest.raises(MachineError, match="longer than 1 MiB"):
        here.tell("x")
    writer.join(5.0)


def test_messages_that_nobody_takes_are_bounded(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES", 1 << 20)
    here, theirs = raw
    number = here.begin("echo")
    line = to_json({"op": "x", "fields": {"text": "x" * 1000}}) + b"\n"
    thread = threading.Thread(target=lambda: theirs.sendall(line * 1050))
    thread.start()
    with pytest.raises(MachineError, match="more than 1 MiB that nobody has taken"):
        here.answer(number, 5.0)
    thread.join(5.0)


def test_a_request_that_is_too_long_is_refused_before_it_is_sent() -> None:
    with served() as (here, _):
        with pytest.raises(
            MachineError, match="the request echo for machine b is longer than 64 MiB; send it in parts"
        ):
            here.begin("echo", value="x" * (64 << 20))
        assert here.call("echo", value=1) == 1


def test_what_came_before_the_end_is_delivered_and_then_the_end_with_its_cause() -> None:
    here, there = pipes(last_words=lambda: "Killed")
    number = here.begin("echo", value=1)
    there.tell("event", n=1)
    there.reply(number, result="done")
    there.close()
    assert here.answer(number) == "done"
    assert here.ended
    assert here.messages() == [{"op": "event", "n": 1}]
    for act in (here.messages, lambda: here.begin("echo"), lambda: here.tell("x"), lambda: here.next_message(1.0)):
        with pytest.raises(
            MachineError, match=r"^the connection to machine b has ended; the last that it said: Killed$"
        ):
            act()
    here.close()


def test_the_end_is_noticed_while_a_line_is_sent_and_in_the_middle_of_one(raw: Raw) -> None:
    here, there = pipes()
    there.tell("event", n=1)
    there.close()
    with pytest.raises(MachineError, match="the connection to machine b has ended"):
        here.tell("long", text="x" * (1 << 20))
    assert here.messages() == [{"op": "event", "n": 1}]
    here.close()
    here, theirs = raw
    theirs.sendall(b'{"op":"half')
    theirs.close()
    with pytest.raises(MachineError, match="the connection to machine b has ended"):
        here.next_message(5.0)


def test_a_peer_that_takes_nothing_is_given_up() -> None:
    here, there = pipes(patience_s=0.01)
    with pytest.raises(MachineError, match=r"machine b has taken nothing for 0\.01 s"):
        here.tell("long", text="x" * (1 << 20))
    here.close()
    there.close()


def test_closing_waits_for_the_other_side_and_is_done_once() -> None:
    here, there = pipes()
    here.tell("settings")

    def serve() -> None:
        Parent(there).serve()
        there.close()

    threading.Thread(target=serve).start()
    assert here.close(5.0) is True
    assert here.close() is True
    with pytest.raises(MachineError, match="was closed here"):
        here.tell("x")
    here, there = pipes()
    assert here.close(0.01) is False
    there.close()


def test_large_descriptor_numbers_are_served(many_open_files: None) -> None:
    with served() as (here, _):
        assert here.fileno() > 1023
        assert here.call("echo", value=1) == 1


# ---- the connection of a login -------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    """A listening socket and a client that is connected to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, socket.create_connection(listener.getsockname())


def test_the_connection_of_the_login_is_watched_by_the_kernel(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, client = pair
    monkeypatch.setenv(SSHD_VARIABLE, str(os.getpid()))
    with listener, client:
        assert watch_connection()
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
    assert SSHD_VARIABLE not in os.environ


@pytest.mark.parametrize("given", [None, "", "x", "0", "-1", "4194305"])
def test_a_process_without_a_login_watches_nothing(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SSHD_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(SSHD_VARIABLE, given)
    assert not watch_connection()
