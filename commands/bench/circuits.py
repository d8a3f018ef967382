"""Benchmarks of circuits: how soon all of a switch change, how long a moved one is dark, when members are ready.

A rewiring uses the whole control path of a run: job channel, engine, OpenFlow to a real Open vSwitch and its barrier
reply, which the switch sends when its tables are changed. The controller answers when the caches of Open vSwitch have
followed as well, so that packets take the new circuits. It cannot see the caches, so it waits
(``controllers.openflow.datapaths``); not where the kernel forwards. In a swap the benchmark itself is the controller,
and frames say when packets follow. All need root.
"""

from __future__ import annotations

import itertools
import math
import os
import socket
import struct
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from commands.bench import Measurement, NotMeasured, at_most
from commands.bench.bed import Bed, Rail, matching
from controllers.engine.jobs import Job
from controllers.openflow.datapaths import OPEN_VSWITCH
from controllers.openflow.flows import TYPE_BARRIER_REPLY, TYPE_ERROR, VERSION, bundle, circuit_flow, header
from measure.live.machine_benchmark import sample_of
from measure.live.probes import DarkTime, Frames, ProbeTrain
from railyard.errors import ControlError
from railyard.loop import READ, Poller
from topos.kernel import namespaces
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.rules import OUT, KernelPort, PortRules, Rule
from topos.kernel.namespaces import inside
from topos.kernel.netlink import Netlink, VethEnd, veth
from topos.kernel.packet_sockets import Tap
from topos.rails import RailTopo
from workloads.agent.job_channel import JobChannel
from workloads.program import Group

PORTS = 64
_PATIENCE_S = 10.0

REWIRE_LIMIT_S = 0.004
"""Largest median time from the request to the barrier reply, in seconds."""
ANSWER_LIMITS_S = REWIRE_LIMIT_S, REWIRE_LIMIT_S + OPEN_VSWITCH.settle_s + OPEN_VSWITCH.revalidation_s
"""Largest median time from the request to the answer, in seconds, if one rewiring follows the other, with bpf (there
are no caches to wait for) and with other datapaths."""
QUIET_ANSWER_LIMITS_S = REWIRE_LIMIT_S + 0.002, REWIRE_LIMIT_S + OPEN_VSWITCH.settle_s + 0.002
"""The same after ``QUIET_S`` without a change; processes that have slept so long need up to two milliseconds more."""
QUIET_S = 0.05
REWIRES, QUIET_REWIRES = 60, 30


def rewire_64(bed: Bed) -> list[Measurement]:
    """Seconds from request to barrier reply, and to answer, when all circuits of a 64-port switch are replaced.

    The reconfiguration delay is 0. ``NotMeasured`` if the controller's events lack rewirings.
    """
    with bed.rail(servers=PORTS // 2, ports=2) as rail:
        busy, rested = rail.swaps(REWIRES), rail.swaps(QUIET_REWIRES, QUIET_S)
        replied = [event.t + event.seconds for event in rail.changes()][:REWIRES]
    if len(replied) < REWIRES:
        raise NotMeasured(f"the controller noted {len(replied)} of {REWIRES} rewirings; its log says why")
    barrier = [reply - began for (began, _), reply in zip(busy, replied, strict=True)]
    answer, rested_answer = ([ended - began for began, ended in swaps] for swaps in (busy, rested))
    return [
        *_median_and_worst(bed, "rewire_64_barrier", barrier, (REWIRE_LIMIT_S, REWIRE_LIMIT_S)),
        *_median_and_worst(bed, "rewire_64_answer", answer, ANSWER_LIMITS_S),
        *_median_and_worst(bed, "rewire_64_answer_after_quiet", rested_answer, QUIET_ANSWER_LIMITS_S),
    ]


def _median_and_worst(
    bed: Bed, name: str, took: list[float], limits_s: tuple[float, float | None]
) -> list[Measurement]:
    """The median of ``took`` with its limits in seconds, with bpf and with other datapaths, and the longest."""
    found = sample_of(took, name)
    return [bed.at_most(f"{name}_median", found.p50, "s", *limits_s), Measurement(f"{name}_worst", found.high, "s")]


# ---- members that are ready ------------------------------------------------------------------------------------------


BARRIER_LIMITS_S = {64: (0.001, 0.015), 512: (0.006, None)}
"""By number of members: the largest median with bpf and with other datapaths."""
BARRIERS = 60


def barrier(bed: Bed, count: int) -> list[Measurement]:
    """Seconds from first request to last ack when ``count`` members request a ring that is up."""
    with bed.rail(servers=count, ports=2) as rail:
        group = Group("ring", "dp", tuple(range(count)))
        rail.client.register(Job("barrier", (group,), "on-demand"), "opus")
        took = barriers(rail.controller.files.channel, group)
        rail.client.call("finish", job="barrier")
    return _median_and_worst(bed, f"barrier_{count}", took, BARRIER_LIMITS_S[count])


BARRIER = tuple(partial(barrier, count=count) for count in BARRIER_LIMITS_S)


def barriers(channel: Path, group: Group, patience_s: float = _PATIENCE_S) -> list[float]:
    """Seconds of ``BARRIERS`` barriers of ``group`` of job ``barrier``.

    This process sends the messages of all, those of as many agent processes as there are processors. ``NotMeasured``
    if an answer takes over ``patience_s``, or is a refusal.
    """
    count, processes = len(group.members), len(os.sched_getaffinity(0))
    ranks = [group.members[process::processes] for process in range(processes)]
    channels = [JobChannel(str(channel), "barrier", own, patience_s, [group]) for own in ranks if own]
    try:
        with Poller() as poller:
            for one in channels:
                poller.watch(one, READ)

            def all_say(op: str, **fields: object) -> float:
                began = time.monotonic()
                for one, own in zip(channels, ranks, strict=False):
                    for rank in own:
                        one.request(op, rank, group=group.name, **fields)
                waiting = count
                while waiting:
                    heard = poller.wait(math.inf, time.monotonic() + patience_s)
                    if not heard:
                        raise NotMeasured(f"{waiting} of {count} members got no answer to {op} within {patience_s:g} s")
                    for answer in (answer for one, _ in heard for answer in one.receive()):
                        answer.check()
                        waiting -= 1
                return time.monotonic() - began

            all_say("checkin")
            took = []
            for index in range(BARRIERS):
                took.append(all_say("request", index=index))
                all_say("release", index=index)
            return took
    except ControlError as error:
        raise NotMeasured(f"the barrier of {count} members: {error}") from None
    finally:
        for one in channels:
            one.close()


# ---- a circuit that is dark while it is moved ------------------------------------------------------------------------


DELAYS_MS = (0.2, 0.5, 1.0, 10.0, 100.0)
MEDIAN_LIMITS_MS = 0.05, 1.0
WORST_LIMITS_MS = 1.0, 8.0
"""Limits with bpf and with other datapaths; those of the others are for delays of at least ``_OTHERS_MS``."""
_OTHERS_MS = 10.0
LOSS_LIMIT_MS = 5.0
"""Longest loss of packets in a move with delay 0, in ms."""
MOVES = 50
INTERVAL_S = 0.00005
"""Between probes. Dark time is from the first that no receiver got to the first that one got again, when sent."""
_MBPS = 1000.0
"""Rate of the links, at which no probe waits for another one."""
_UNSURE_S, _LEAST_SEEN = 0.001, 0.2
"""A move counts if its dark time is known to ``_UNSURE_S``: the process that sends probes may have to wait for a
processor. If fewer than ``_LEAST_SEEN`` of all moves count, nothing was measured."""
_LEAD_S, _GAP_S = 0.06, 0.03
"""Time before the first request, and between the answer to a move and the next request; the gap grows to the double, so
that moves do not keep step with probes."""
_ANSWER_S = 0.02
"""Time for an answer beside the delay, for which the train is long enough; a slower controller is not measured."""
_ENDS = (2, 4)
"""Ports to which a circuit of port 1 leads in the two matchings of four ports."""


def dark_times(bed: Bed) -> list[Measurement]:
    """Median and worst |measured - configured| dark time in ms for each delay, and the loss of a move with delay 0."""
    found, wrong = [], 0
    with _four_hosts(bed) as rail:
        for delay_ms in (*DELAYS_MS, 0.0):
            seen, misdelivered = _moves(rail, delay_ms / 1e3, MOVES)
            wrong += misdelivered
            errors = sample_of([abs(one.seconds * 1e3 - delay_ms) for one in seen], "dark times")
            name = f"dark_{delay_ms:g}ms"
            if not delay_ms:
                found.append(at_most(f"{name}_swap_median", errors.p50, "ms", LOSS_LIMIT_MS))
                found.append(Measurement(f"{name}_swap_worst", errors.high, "ms"))
                continue
            found.append(Measurement(f"{name}_seen_of_{MOVES}", len(seen), "moves"))
            for what, error_ms, (bpf, others) in (
                ("median", errors.p50, MEDIAN_LIMITS_MS),
                ("worst", errors.high, WORST_LIMITS_MS),
            ):
                limit = others if delay_ms >= _OTHERS_MS else None
                found.append(bed.at_most(f"{name}_error_{what}", error_ms, "ms", bpf, limit))
    return [*found, at_most("dark_misdelivered", wrong, "probes", 0)]


@contextmanager
def _four_hosts(bed: Bed) -> Iterator[Rail]:
    with bed.rail(servers=4, ports=1, rate_mbps=_MBPS) as rail:
        rail.swap()
        yield rail


def _moves(rail: Rail, delay_s: float, count: int) -> tuple[list[DarkTime], int]:
    """Dark times of ``count`` moves of the circuit of port 1 under one train of probes, and how many went astray."""
    ports = {port.number: port for port in rail.net.plan.switches[0].ports}
    taps = {number: Tap(rail.net.netns_fd(ports[number].host), ports[number].interface) for number in (1, *_ENDS)}
    seconds = _LEAD_S + count * (delay_s + 1.5 * _GAP_S + _ANSWER_S)
    receivers, what = {str(number): taps[number] for number in _ENDS}, f"the dark time at {delay_s * 1e3:g} ms"
    asked, ends, frames = [], [], round(seconds / INTERVAL_S)
    with ProbeTrain([taps[1]], [ports[2].mac], receivers, count=frames, interval_s=INTERVAL_S) as train:
        train_ends = time.monotonic() + seconds
        time.sleep(_LEAD_S)
        for number in range(count):
            if time.monotonic() > train_ends - delay_s - _GAP_S:
                raise NotMeasured(f"{what}: the controller was too slow for it")
            ends.append([str(_ENDS[shift % 2]) for shift in (rail.shift - 1, rail.shift)])
            asked.append(rail.swap(delay_s)[0])
            time.sleep(_GAP_S * (1 + number / count))
        parts = [*train.frames().split(asked)]
    moves = [(part, part.dark_time(*between)) for part, between in zip(parts, ends, strict=True)]
    found = [seen for part, seen in moves if part.unsure_s(seen) <= _UNSURE_S]
    if len(found) < _LEAST_SEEN * count:
        late = count - len(found)
        raise NotMeasured(f"{what}: in {late} of {count} moves the probes had to wait for a processor, or stayed away")
    return found, sum(seen.misdelivered for _, seen in moves)


# ---- a swap of all circuits ------------------------------------------------------------------------------------------


SWAPS = CHANGES = 200
SWAP_LIMIT_MS, SWAP_P99_LIMIT_MS = 1.5, 4.0
MAP_LIMIT_MS = 0.1
_CONTROLLER = ("127.0.0.1", 6653)
_SWAP_LEAD_S, _SWAP_GAP_S = 0.2, 0.015
BATCH_INTERVAL_S, BATCH = 0.00025, 4
"""Frames leave every other port in turn, so many each quarter of a millisecond. So exactly is it known when packets
follow if the ports of the switch change at once, else to two milliseconds."""
_MOST_S = 0.0002
"""Longest time that the sending of a frame may take."""
_SWITCH, _MTU = "s", 1500


class Probe(NamedTuple):
    """One frame: its time of sending (monotonic s), the number of its sender, and that of its receiver (-1: lost)."""

    sent: float
    sender: int
    receiver: int


class Followed(NamedTuple):
    """A change in-band: seconds until packets followed, frames lost, and frames that did not follow after the reply."""

    seconds: float
    lost: int
    late: int


def peers(shift: int) -> tuple[int, ...]:
    """The number of the receiver of each sender; sender i is at port 2 i + 1, receiver i at port 2 i + 2."""
    count = PORTS // 2
    return tuple((number - shift % 2) % count for number in range(count))


def followed(probes: Sequence[Probe], began: float, replied: float, shift: int) -> Followed:
    """The change to the circuits of ``shift`` that was asked for at ``began``; ``probes`` are those after it.

    Packets follow from the first frame on after which no frame of any port went the old way. ``NotMeasured`` if the
    last did.
    """
    new = peers(shift)
    astray = [number for number, probe in enumerate(probes) if probe.receiver != new[probe.sender]]
    after = astray[-1] + 1 if astray else 0
    if after >= len(probes):
        raise NotMeasured("the swap of 64 ports: packets did not follow before the next swap")
    lost = sum(probes[number].receiver < 0 for number in astray)
    return Followed(probes[after].sent - began, lost, sum(probes[number].sent > replied for number in astray))


def swap_64(bed: Bed) -> list[Measurement]:
    """Time from the OpenFlow request (a bundle of 64 flow-mods) until packets follow in all circuits."""
    topo = RailTopo(servers=PORTS, gpus=1, ports=1, rate_mbps=10, fabric="ocs")
    with (
        bed.make(topo, openflow=_CONTROLLER) as net,
        OpenFlowPeer(net.yard.netns_fd, _CONTROLLER) as controller,
    ):
        controller.wait()
        ports = {port.number: port for port in net.plan.switches[0].ports}
        taps = [Tap(net.netns_fd(ports[n].host), ports[n].interface) for n in range(1, PORTS + 1)]
        _swap(controller, 0)
        count = round((2 * _SWAP_LEAD_S + SWAPS * 2 * _SWAP_GAP_S) / BATCH_INTERVAL_S) * BATCH
        receivers = {str(number): tap for number, tap in enumerate(taps[1::2])}
        with ProbeTrain(
            taps[::2],
            [ports[2].mac],
            receivers,
            count=count,
            interval_s=BATCH_INTERVAL_S,
            together=BATCH,
            spin=False,
        ) as train:
            time.sleep(_SWAP_LEAD_S)
            times = []
            for shift in range(1, SWAPS + 1):
                times.append(_swap(controller, shift))
                time.sleep(_SWAP_GAP_S * (1 + shift % 7 / 20))
            probes = _probes(train.frames())
    return _swap_rows(bed, times, probes)


def _probes(frames: Frames) -> list[Probe]:
    """The frames in the order of sending, without those whose sending took so long that its time is not known."""
    at = {number: int(receiver) for receiver, numbers in frames.received.items() for number in numbers}
    times = enumerate(zip(frames.sent, frames.took_s, strict=True))
    return [Probe(t, number % (PORTS // 2), at.get(number, -1)) for number, (t, took_s) in times if took_s <= _MOST_S]


def _ways(shift: int) -> Iterator[tuple[int, int]]:
    """The circuits of all ports in both directions."""
    for a, b in matching(PORTS, shift):
        yield from ((a, b), (b, a))


def _swap(controller: OpenFlowPeer, shift: int) -> tuple[float, float]:
    return controller.change(circuit_flow(a, b) for a, b in _ways(shift))


def _swap_rows(bed: Bed, times: Sequence[tuple[float, float]], probes: Sequence[Probe]) -> list[Measurement]:
    starts = [bisect_left(probes, (began,)) for began, _ in times]
    found = []
    for shift, (first, last) in enumerate(zip(starts, [*starts[1:], len(probes)], strict=True), 1):
        found.append(followed(probes[first:last], *times[shift - 1], shift))
    took = sample_of([one.seconds * 1e3 for one in found], "swaps of circuits")
    replies = sample_of([(replied - began) * 1e3 for began, replied in times], "replies to swaps")
    name = f"swap_{PORTS}"
    return [
        bed.at_most(f"{name}_following_median", took.p50, "ms", SWAP_LIMIT_MS),
        bed.at_most(f"{name}_following_p99", took.p99, "ms", SWAP_P99_LIMIT_MS),
        Measurement(f"{name}_barrier_median", replies.p50, "ms"),
        bed.at_most(f"{name}_old_way_after_reply", sum(one.late for one in found), "frames", 0),
        Measurement(f"{name}_lost_per_swap", sum(one.lost for one in found) / len(found), "frames"),
    ]


def map_change(bed: Bed) -> list[Measurement]:
    """Median and longest time in which the rules of 64 ports change, in ms; nothing with ``ovs``."""
    if bed.used != "bpf":
        return []
    with _ports() as (netns_fd, ports), closing(BpfForwarder(netns_fd, PORTS)) as forwarder:
        forwarder.add(ports)
        flows = [forwarder.new_flow() for _ in ports]
        took = []
        for shift in range(CHANGES):
            rules = {a: PortRules(Rule(OUT, b, flows[a - 1])) for a, b in _ways(shift)}
            began = time.perf_counter()
            forwarder.set(_SWITCH, rules)
            took.append((time.perf_counter() - began) * 1e3)
    found = sample_of(took, "changes of the map")
    return [
        bed.at_most("swap_64_map_change_median", found.p50, "ms", MAP_LIMIT_MS),
        Measurement("swap_64_map_change_worst", found.high, "ms"),
    ]


@contextmanager
def _ports() -> Iterator[tuple[int, list[KernelPort]]]:
    """A namespace with 64 ports, each a pair of interfaces of which one is the link and one stands for the tap."""
    (fd,) = namespaces.make(1)
    try:
        ports = [KernelPort(_SWITCH, number, 1000 + number, 2000 + number) for number in range(1, PORTS + 1)]
        with Netlink(fd) as kernel:
            kernel.run(veth(VethEnd(f"l{p.number}", p.link), VethEnd(f"t{p.number}", p.tap), _MTU) for p in ports)
        yield fd, ports
    finally:
        os.close(fd)


_HEADER = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY = 0, 2, 3


class OpenFlowPeer(ExitStack):
    """The controller of a swap: listens at ``address`` in the namespace for a switch, which ``wait`` then awaits."""

    def __init__(self, netns_fd: int, address: tuple[str, int], patience_s: float = _PATIENCE_S) -> None:
        super().__init__()
        with inside(netns_fd):
            self._listener = self.enter_context(socket.create_server(address))
        self._listener.settimeout(patience_s)
        self._patience_s = patience_s
        self._xids = itertools.count(1)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def wait(self) -> None:
        """Wait until the switch has connected; ``NotMeasured`` if it takes too long."""
        try:
            self._socket = self.enter_context(self._listener.accept()[0])
        except TimeoutError:
            raise NotMeasured(f"no switch connected to its controller within {self._patience_s:g} s") from None
        self._socket.settimeout(self._patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.enter_context(self._socket.makefile("rb"))
        self._socket.sendall(header(_HELLO, next(self._xids), 0))

    def change(self, bodies: Iterable[bytes]) -> tuple[float, float]:
        """Send flow-mods as one bundle; the monotonic times of the request and of the barrier reply.

        ``NotMeasured`` if the switch refuses it or does not answer.
        """
        xid = next(self._xids)
        message = bundle(bodies, xid)
        began = time.monotonic()
        try:
            self._socket.sendall(message)
            while True:
                kind, of, body = self._receive()
                if kind == TYPE_BARRIER_REPLY and of == xid:
                    return began, time.monotonic()
                if kind == TYPE_ERROR:
                    raise NotMeasured(f"the switch refused a change with error {body[:4].hex()}")
                if kind == _ECHO_REQUEST:
                    self._socket.sendall(header(_ECHO_REPLY, of, len(body)) + body)
        except TimeoutError:
            raise NotMeasured(f"the switch did not answer a change within {self._patience_s:g} s") from None

    def _receive(self) -> tuple[int, int, bytes]:
        """Type, xid and body of the next message."""
        version, kind, length, xid = _HEADER.unpack(self._read(_HEADER.size))
        body = self._read(length - _HEADER.size)
        if version != VERSION and kind != _HELLO:
            raise NotMeasured(f"the switch speaks version {version} of OpenFlow, not {VERSION}")
        return kind, xid, body

    def _read(self, count: int) -> bytes:
        found = self._stream.read(count)
        if len(found) < count:
            raise NotMeasured("the switch closed the connection to its controller")
        return found
