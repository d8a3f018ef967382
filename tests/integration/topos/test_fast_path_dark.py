"""The fast path keeps the dark time of optical switches for a client that knows nothing of it."""

from __future__ import annotations

import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from mininet.topo import SingleSwitchTopo, Topo
from openflow.decoding import connection
from openflow.twins import EMPTY, ETHERTYPES, Message, Twin, Twins, flow, frame

from railyard.errors import ConfigError, MachineError
from topos.kernel.emulation import Emulation

pytestmark = pytest.mark.root

PARSER = connection("1.4").ofproto_parser
TO, FROM = "02:00:00:00:ff:02", "02:00:00:00:ff:01"
DARK_S, PRECISION_S = 0.2, 0.003
EVERY_S = 0.0003


class Optical(SingleSwitchTopo):  # type: ignore[misc]
    def addSwitch(self, name: str, **options: object) -> str:
        return str(Topo.addSwitch(self, name, kind="ocs", **options))


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with ExitStack() as stack:
        net = stack.enter_context(Emulation(Optical(3), openflow=None, datapath="bpf"))
        yield Twin(net, stack)


def circuit(port: int, out: int) -> Message:
    return flow(0, 5, {"in_port": port}, [PARSER.OFPInstructionActions(4, [PARSER.OFPActionOutput(out)])])


def passed(twin: Twin, seconds: float, said: list[tuple[str, float]]) -> list[tuple[float, int]]:
    """When frames that port 1 got for ``seconds`` were sent, and out of which port each came (0: out of none)."""
    sent: list[float] = []
    out: dict[int, int] = {}
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end + 0.02:
        if now < end:
            twin.sockets[1].send(frame(len(sent), TO, FROM, ETHERTYPES[0]))
            sent.append(now)
        until = now + EVERY_S
        while select.select([twin.sockets[2], twin.sockets[3]], [], [], max(0.0, until - time.monotonic()))[0]:
            for port in (2, 3):
                while data := _received(twin, port):
                    if data[14:18] == b"twin":
                        out[struct.unpack_from("!I", data, 18)[0]] = port
    said.append(("end", time.monotonic()))
    return [(t, out.get(number, 0)) for number, t in enumerate(sent)]


def _received(twin: Twin, port: int) -> bytes:
    try:
        return twin.sockets[port].recv(4096)
    except BlockingIOError:
        return b""


def rewired(twin: Twin, *messages: Message) -> tuple[list[tuple[float, int]], float, float]:
    """What passed while a client changed circuits (``passed``), when it did, and when its barrier's reply came."""
    said: list[tuple[str, float]] = []

    def change() -> None:
        time.sleep(0.1)
        said.append(("asked", time.monotonic()))
        client = twin.client
        client.send(*(getattr(client.parser, name)(client.link, **arguments) for name, arguments in messages))
        client.barrier()
        said.append(("replied", time.monotonic()))

    thread = threading.Thread(target=change)
    thread.start()
    found = passed(twin, 0.5, said)
    thread.join()
    times = dict(said)
    return found, times["asked"], times["replied"]


def start(twin: Twin, *circuits: Message, dark_s: float) -> None:
    twin.net.keep_dark(0.0)
    Twins([twin]).tell(EMPTY, *circuits)
    twin.net.keep_dark(dark_s)


@pytest.mark.timed
@pytest.mark.parametrize("first", [False, True], ids=["another circuit", "the first circuit"])
def test_a_changed_circuit_is_dark_for_the_time_and_the_barrier_tells_of_light(twin: Twin, first: bool) -> None:
    start(twin, *([] if first else [circuit(1, 2), circuit(2, 1)]), dark_s=DARK_S)
    found, asked, replied = rewired(twin, circuit(1, 3), circuit(3, 1))
    assert {port for t, port in found if t < asked} == {0 if first else 2}
    lit = next(t for t, port in found if t > asked and port == 3)
    dark = [t for t, port in found if asked + PRECISION_S < t < lit]
    assert {port for t, port in found if asked + PRECISION_S < t < lit} == {0}, "no frame passes in the dark"
    assert {port for t, port in found if t >= lit} == {3}
    begun = next(t for t, port in found if port == 0 and t >= asked - EVERY_S)
    assert len(dark) > 100 and lit - begun == pytest.approx(DARK_S, abs=PRECISION_S)
    assert replied == pytest.approx(lit, abs=PRECISION_S)


@pytest.mark.timed
def test_without_a_dark_time_it_is_as_ever(twin: Twin) -> None:
    start(twin, circuit(1, 2), dark_s=0.0)
    found, asked, replied = rewired(twin, circuit(1, 3))
    assert replied - asked < 0.1 and {port for _, port in found} == {2, 3}
    assert {port for t, port in found if t > replied} == {3}


@pytest.mark.beside
def test_a_bundle_s_commit_waits_and_dark_times_that_are_ended_do_not_go_on(twin: Twin) -> None:
    start(twin, circuit(1, 2), dark_s=60.0)
    threading.Timer(0.2, lambda: twin.net.keep_dark(0.0)).start()
    began = time.monotonic()
    twin.client.bundle([circuit(1, 3), circuit(3, 1)])
    assert 0.19 < time.monotonic() - began < 2.0
    found = passed(twin, 0.05, [])
    assert {port for _, port in found} == {3}


@pytest.mark.beside
def test_what_cannot_be_kept_is_refused(twin: Twin) -> None:
    for seconds in (-1, 1e9, float("nan")):
        with pytest.raises(ConfigError, match="seconds"):
            twin.net.keep_dark(seconds)
    with Emulation(Optical(2), openflow=None, datapath="ovs") as net:
        net.keep_dark(0.0)
        with pytest.raises(MachineError, match="needs datapath bpf"):
            net.keep_dark(0.1)
    with pytest.raises(ConfigError, match="while the net is up"):
        net.keep_dark(0.0)


@pytest.mark.timed
def test_echoes_are_answered_while_a_barrier_waits(twin: Twin) -> None:
    """Ryu and os-ken send one every 15 s, and close the connection of a switch that does not answer."""
    start(twin, circuit(1, 2), dark_s=0.5)
    client = twin.client
    name, arguments = circuit(1, 3)
    client.send(getattr(client.parser, name)(client.link, **arguments))
    barrier, began = client.send(client.parser.OFPBarrierRequest(client.link)), time.monotonic()
    client.reply_to(client.send(client.parser.OFPEchoRequest(client.link, b"are you there")))
    answered = time.monotonic() - began
    client.reply_to(barrier)
    assert answered < 0.1 and time.monotonic() - began > 0.4
