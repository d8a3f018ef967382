"""Runs iperf3 between network namespaces: one server and one client per lane, all lanes at the same time.

iperf3 (ESnet) is the usual tool to measure a link, so its result is reported next to Railyard's own. No process is
waited for longer than the measurement can take, and each is ended by its process id in any case.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from measure.metrics.checks import Check, Limits, Verdict
from measure.metrics.load import cores_check, datapath_check, fast_path_check, interference_checks
from measure.metrics.records import fabric_checks
from railyard.child import end_child, marked_environment
from railyard.errors import ConfigError, MachineError
from railyard.timeline import Event
from railyard.tools import how_to_install
from topos.kernel.namespaces import HostEnd, inside
from topos.plan import FabricPlan

PROGRAM = "iperf3"
FIRST_PORT = 5201
"""Default port of iperf3; lane k uses the k-th port from here."""
_START_S = 10.0
_SLACK_S = 10.0
_CONNECT_MS = 3000
_MOST_S = 3600.0


@dataclass(frozen=True)
class IperfLane:
    """A lane to measure: bytes go from ``client`` to ``server``."""

    client: HostEnd
    server: HostEnd


@dataclass(frozen=True)
class IperfResult:
    """Result per lane: payload received, in Mb/s of the emulated link, and number of retransmitted segments."""

    lane_mbps: tuple[float, ...]
    retransmits: tuple[int, ...]
    seconds: float

    @property
    def mbps(self) -> float:
        """Payload received on all lanes together, in Mb/s."""
        return sum(self.lane_mbps)


def measure_iperf(lanes: Sequence[IperfLane], seconds: float = 5.0, *, omit_s: float = 0.0) -> IperfResult:
    """Run iperf3 over all ``lanes`` at once for ``omit_s + seconds``, of which the first ``omit_s`` are not counted.

    Needs root (namespaces). Raises ``MachineError`` if iperf3 is missing, does not start or gives no result on a lane;
    ``ConfigError`` for no lanes, or unless ``seconds`` is from 1 to 3600 and ``omit_s`` from 0 to 60.
    """
    if not 1 <= seconds <= _MOST_S or not 0 <= omit_s <= 60:
        raise ConfigError(
            f"must be from 1 to {_MOST_S:g}, and omit_s from 0 to 60, not {seconds:g} and {omit_s:g}", key="seconds"
        )
    if not lanes:
        raise ConfigError("names no lane; give at least one", key="lanes")
    with ExitStack() as stack:
        servers = []
        for number, lane in enumerate(lanes):
            servers.append(_start(lane.server, _server_words(lane.server, number, seconds + omit_s)))
            stack.callback(end_child, servers[-1])
        deadline = time.monotonic() + _START_S
        for number, server in enumerate(servers):
            _wait_listening(server, f"the server of lane {number}", deadline)
        clients = []
        for number, lane in enumerate(lanes):
            clients.append(_start(lane.client, _client_words(lane, number, seconds, omit_s)))
            stack.callback(end_child, clients[-1])
        deadline = time.monotonic() + seconds + omit_s + _SLACK_S
        pairs = zip(clients, lanes, strict=True)
        answers = [_answer(client, lane, number, deadline) for number, (client, lane) in enumerate(pairs)]
    rates = tuple(answer["sum_received"]["bits_per_second"] / 1e6 for answer in answers)
    again = tuple(int(answer["sum_sent"].get("retransmits", 0)) for answer in answers)
    return IperfResult(rates, again, seconds)


def iperf_verdict(share: float, events: Sequence[Event], plan: FabricPlan, limits: Limits | None = None) -> Verdict:
    """Verdict on an iperf3 result: ``share`` is what it reached of the line rate, ``events`` are of the time it took.

    Faithful if it reached enough, neither the processors nor what forwards packets was saturated, and nothing that was
    to be sampled on ``plan`` is missing.
    """
    limits = limits or Limits()
    limit = limits.line_rate_share
    says = f"iperf3 reached {share:.1%} of the line rate, {'at least' if share >= limit else 'under'} {limit:.0%}"
    rate = Check("link rate", share, limit, "of line rate", share >= limit, says)
    checks = (
        *interference_checks(events, limits),
        rate,
        cores_check(events, limits),
        datapath_check(events, rate, limits),
        fast_path_check(events, limits),
        *fabric_checks(events, plan, limits),
    )
    return Verdict(all(check.ok for check in checks), checks)


def _bound(end: HostEnd) -> str:
    """Address and device in iperf3's notation, ``address%device``."""
    return f"{end.ip}%{end.interface}"


def _server_words(end: HostEnd, number: int, seconds: float) -> list[str]:
    """Arguments of a server for one measurement, which ends by itself if no client connects."""
    idle_s = str(int(seconds + _START_S + _SLACK_S))
    once = ["-s", "-1", "-i", "0", "--forceflush", "--idle-timeout", idle_s]
    return [*once, "-B", _bound(end), "-p", str(FIRST_PORT + number)]


def _client_words(lane: IperfLane, number: int, seconds: float, omit_s: float) -> list[str]:
    words = ["-c", lane.server.ip, "-B", _bound(lane.client), "-p", str(FIRST_PORT + number), "--json"]
    words += ["-t", f"{seconds:g}", "--connect-timeout", str(_CONNECT_MS)]
    return [*words, "-O", f"{omit_s:g}"] if omit_s else words


def _start(end: HostEnd, words: Sequence[str]) -> subprocess.Popen[str]:
    """Start iperf3 in the namespace of ``end``, which a child inherits from the thread that starts it."""
    try:
        with inside(end.netns_fd):
            return subprocess.Popen(
                [PROGRAM, *words],
                env=marked_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
    except FileNotFoundError:
        raise MachineError(f"{PROGRAM} is not installed; {how_to_install(PROGRAM)}") from None


def _wait_listening(server: subprocess.Popen[str], what: str, deadline: float) -> None:
    """Read the output of a server until it listens; unbuffered, so that ``poll`` sees all remaining output."""
    assert server.stdout
    more = select.poll()  # select() has no room for descriptors above 1023
    more.register(server.stdout, select.POLLIN)
    said = b""
    while time.monotonic() < deadline:
        ready = more.poll(max(0.0, deadline - time.monotonic()) * 1e3)
        piece = os.read(server.stdout.fileno(), 4096) if ready else b""
        said += piece
        if b"listening on" in said.lower():
            return
        if not piece:
            break
    words = " ".join(said.decode(errors="replace").replace("-", " ").split())
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
