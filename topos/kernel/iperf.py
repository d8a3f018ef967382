"""Runs iperf3 between network namespaces: one server and one client per lane, all lanes at the same time.

iperf3 (ESnet) is the usual tool to measure a link, so its result is reported next to Railyard's own. No process is
waited for longer than the measurement can take, and each is ended by its process id in any case.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from railyard.errors import ConfigError, MachineError
from railyard.process.start import end_child, start_program
from railyard.signals import held_back
from railyard.tools import TOOLS, how_to_install
from topos.kernel.namespaces import HostEnd, inside

PROGRAM = "iperf3"
FIRST_PORT = 5201
"""Default port of iperf3; lane k uses the k-th port from here."""
_START_S = 10.0
_SLACK_S = 10.0
_CONNECT_MS = 3000
_MOST_S = 3600.0
_UDP_RATE = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?[kKmMgG]?")


@dataclass(frozen=True)
class IperfLane:
    """A lane to measure: bytes go from ``client`` to ``server``."""

    client: HostEnd
    server: HostEnd


@dataclass(frozen=True)
class IperfResult:
    """Result per lane: payload received, in Mb/s of the emulated link, and number of retransmitted segments.

    ``sent_mbps`` is what the senders passed to their sockets.
    """

    lane_mbps: tuple[float, ...]
    retransmits: tuple[int, ...]
    seconds: float
    sent_mbps: tuple[float, ...] = ()

    @property
    def mbps(self) -> float:
        return sum(self.lane_mbps)


def answers(lanes: Sequence[IperfLane], wait_s: float = 1.0) -> Iterator[bool]:
    """Whether a ping on each of ``lanes`` is answered within ``wait_s`` seconds; all are sent at once."""
    with ExitStack() as stack:
        children = []
        for lane in lanes:
            words = ["ping", "-n", "-q", "-c1", f"-W{wait_s:g}", "-I", lane.client.interface, lane.server.ip]
            children.append(_start(lane.client, words, stack))
        yield from (child.wait() == 0 for child in children)


def measure_iperf(
    lanes: Sequence[IperfLane], seconds: float = 5.0, *, omit_s: float = 0.0, udp_rate: str | None = None
) -> IperfResult:
    """Run iperf3 over all ``lanes`` at once for ``omit_s + seconds``, of which the first ``omit_s`` are not counted.

    With ``udp_rate``, as ``10M`` (bits per second), it sends datagrams at that rate instead of all that TCP can.

    Needs root (namespaces). Raises ``MachineError`` if iperf3 is missing, does not start or gives no result on a lane;
    ``ConfigError`` for no lanes, or unless ``seconds`` is from 1 to 3600 and ``omit_s`` from 0 to 60, and for a rate
    of datagrams that is none.
    """
    if not 1 <= seconds <= _MOST_S or not 0 <= omit_s <= 60:
        raise ConfigError(
            f"must be from 1 to {_MOST_S:g}, and omit_s from 0 to 60, not {seconds:g} and {omit_s:g}", key="seconds"
        )
    if not lanes:
        raise ConfigError("names no lane; give at least one", key="lanes")
    if udp_rate is not None and not (_UDP_RATE.fullmatch(udp_rate) and udp_rate.strip("0.kKmMgG")):
        raise ConfigError(f"must be bits per second above 0, as in 10M, not {udp_rate}", key="bw")
    numbered = dict(enumerate(lanes))
    with iperf_servers({number: lane.server for number, lane in numbered.items()}, seconds + omit_s):
        return result_of(iperf_clients(numbered, seconds, omit_s, udp_rate), seconds)


@contextmanager
def iperf_servers(ends: Mapping[int, HostEnd], seconds: float) -> Iterator[None]:
    """Servers for one measurement of ``seconds`` on lanes, by number, which listen while the context lasts."""
    with ExitStack() as stack:
        servers = {}
        for number, end in ends.items():
            servers[number] = _start(end, [PROGRAM, *_server_words(end, number, seconds)], stack)
        deadline = time.monotonic() + _START_S
        for number, server in servers.items():
            _wait_listening(server, f"the server of lane {number}", deadline)
        yield


def iperf_clients(
    lanes: Mapping[int, IperfLane], seconds: float, omit_s: float, udp_rate: str | None = None
) -> dict[int, tuple[float, int, float]]:
    """Measure from clients on lanes, by number, whose servers listen: Mb/s received, retransmits and Mb/s sent."""
    with ExitStack() as stack:
        clients = {}
        for number, lane in lanes.items():
            words = _client_words(lane, number, seconds, omit_s, udp_rate)
            clients[number] = _start(lane.client, [PROGRAM, *words], stack)
        deadline = time.monotonic() + seconds + omit_s + _SLACK_S
        answers = {number: _answer(client, lanes[number], number, deadline) for number, client in clients.items()}
    return {
        number: (
            answer["sum_received"]["bits_per_second"] / 1e6,
            int(answer["sum_sent"].get("retransmits", 0)),
            answer["sum_sent"]["bits_per_second"] / 1e6,
        )
        for number, answer in answers.items()
    }


def result_of(lanes: Mapping[int, Sequence[float]], seconds: float) -> IperfResult:
    """The result of what ``iperf_clients`` measured, on one machine or on several."""
    received, again, sent = zip(*(lanes[number] for number in sorted(lanes)), strict=True)
    return IperfResult(received, tuple(map(int, again)), seconds, sent)


def _bound(end: HostEnd) -> str:
    """Address and device in iperf3's notation, ``address%device``."""
    return f"{end.ip}%{end.interface}"


def _server_words(end: HostEnd, number: int, seconds: float) -> list[str]:
    """Arguments of a server for one measurement, which ends by itself if no client connects."""
    idle_s = str(int(seconds + _START_S + _SLACK_S))
    once = ["-s", "-1", "-i", "0", "--forceflush", "--idle-timeout", idle_s]
    return [*once, "-B", _bound(end), "-p", str(FIRST_PORT + number)]


def _client_words(lane: IperfLane, number: int, seconds: float, omit_s: float, udp_rate: str | None) -> list[str]:
    words = ["-c", lane.server.ip, "-B", _bound(lane.client), "-p", str(FIRST_PORT + number), "--json"]
    words += ["-t", f"{seconds:g}", "--connect-timeout", str(_CONNECT_MS)]
    words += [] if udp_rate is None else ["-u", "-b", udp_rate]
    return [*words, "-O", f"{omit_s:g}"] if omit_s else words


def _start(end: HostEnd, words: Sequence[str], stack: ExitStack) -> subprocess.Popen[str]:
    """Start a program in the namespace of ``end``, which a child inherits from the thread that starts it.

    It ends with ``stack``, also where Ctrl-C comes just when it has started.
    """
    try:
        with held_back(), inside(end.netns_fd):
            process: subprocess.Popen[str] = start_program(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=False
            )
            stack.callback(end_child, process)
            return process
    except FileNotFoundError:
        raise MachineError(f"{words[0]} is not installed; {how_to_install(TOOLS.get(words[0], words[0]))}") from None


def _wait_listening(server: subprocess.Popen[str], what: str, deadline: float) -> None:
    """Read the output of a server until it listens; unbuffered, so that ``poll`` sees all remaining output."""
    assert server.stdout
    more = select.poll()  # select() has no room for descriptors above 1023
    more.register(server.stdout, select.POLLIN)
    output = b""
    while time.monotonic() < deadline:
        ready = more.poll(max(0.0, deadline - time.monotonic()) * 1e3)
        piece = os.read(server.stdout.fileno(), 4096) if ready else b""
        output += piece
        if b"listening on" in output.lower():
            return
        if not piece:
            break
    words = " ".join(output.decode(errors="replace").replace("-", " ").split())
    raise MachineError(f"{PROGRAM} did not start: {what} printed {words[:200]!r}")


def _answer(client: subprocess.Popen[str], lane: IperfLane, number: int, deadline: float) -> dict[str, Any]:
    """The section ``end`` of a client's JSON, which includes the server's results."""
    where = f"lane {number} ({lane.client.interface} to {lane.server.ip})"
    try:
        out, _ = client.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise MachineError(f"{PROGRAM} gave no answer on {where} in time") from None
    try:
        result = json.loads(out)
    except ValueError:
        raise MachineError(f"{PROGRAM} ended without a result on {where}: {out.strip()[:200]!r}") from None
    if result.get("error"):
        raise MachineError(f"{PROGRAM} failed on {where}: {result['error']}")
    end: dict[str, Any] = result.get("end", {})
    if "sum_received" not in end:
        raise MachineError(f"{PROGRAM} ended without the receiver's number on {where}")
    return end
