"""Trains of numbered frames: which tap received which frame, and when. Dark time, delay, loss, reach are read off them.

A frame is a raw Ethernet frame with the token of its train and a number. A process of its own sends them from the
namespaces of the hosts, from several taps in turn, and notes when; between them it busy-waits or sleeps. Packet sockets
at the receivers' interfaces are read when the train is over; the kernel has stamped when each frame came. All
namespaces of a machine have the same clocks, so arrival less sending is the one-way delay.

A dark port drops frames; the first one to be received again shows that the circuit is up. Dark times are measured by
times of sending, so queues on the path do not affect them: the error is at most one interval on each side.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import struct
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise

from measure.live.packets import ETHERTYPE, ethernet_frame
from railyard.errors import ConfigError, MachineError
from railyard.loop import READ, Poller
from railyard.priority import set_priority, set_real_time, wake_in_time
from railyard.process.child import Child
from railyard.process.parent import Parent
from topos.kernel.packet_sockets import Tap, missed, open_packets, received
from topos.plan import FabricPlan

INTERVAL_S = 0.0003
_START_S, _SETTLE_S = 60.0, 0.3
_NICE = -10
"""Priority of the process, the same as for agents: a frame that is sent late measures nothing. One that busy-waits runs
in real time as well, so that what changes the circuits, which does too, wakes up on another processor. Else that held
frames back on both sides of a change: dark times of 0.5 ms were seen as 0.43, of 100 ms as 99.8."""
_BUFFER_BYTES = 256 << 20
_TOKEN_BYTES = 8
_PROBE = struct.Struct("!14x8sI")
"""The head of a frame: addresses and type, the token of its train, and its number."""


def probe_frame(to: str, sender: str, token: bytes, number: int, size: int = 0) -> bytes:
    """A frame from one MAC address to another, filled up to ``size`` bytes; never shorter than Ethernet's shortest."""
    return ethernet_frame(to, sender, token + number.to_bytes(4, "big")).ljust(size, b"\0")


def arrivals(tapped: socket.socket, token: bytes) -> array[int]:
    """Number and time of arrival (monotonic ns) of the frames with ``token`` that wait in a packet socket, in turn.

    ``MachineError`` if there was no room for some.
    """
    found, buffer = array("q"), memoryview(bytearray(_PROBE.size))
    before_ns, real_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    offset_ns = (before_ns + after_ns) // 2 - real_ns
    for size, t_ns, *_ in received(tapped, buffer):
        if size == _PROBE.size:
            of, number = _PROBE.unpack(buffer)
            if of == token:
                found.extend((number, t_ns + offset_ns))
    if missed(tapped):
        raise MachineError("a receiver of probes had no room for all of them")
    return found


# ---- what became of the frames ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DarkTime:
    """The dark time that a train measured. Times are send times of frames, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no frame was lost; ``up_t`` is None (and ``seconds`` infinite) if no
    circuit came up within the train. ``lost`` counts the frames of the dark interval, ``strays`` those lost at other
    times, ``misdelivered`` those received at the old receiver after the new one had received a frame, or at both.
    """

    first_lost_t: float | None
    up_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


@dataclass(frozen=True)
class Frames:
    """The frames of a train, by number: when each was ``sent`` (monotonic s), and how long its sending took.

    ``received`` are the numbers that each receiver got, ``delays_s`` the one-way delays of the same frames. Those of a
    train that busy-waits are wrong in its first second: it keeps a processor from the kernel's work that switches time
    stamps on, and frames without one get that of their reading.
    """

    sent: Sequence[float]
    received: Mapping[str, Sequence[int]]
    took_s: Sequence[float] = ()
    delays_s: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def split(self, moments: Sequence[float]) -> Iterator[Frames]:
        """The frames from the last one before each of ``moments`` to the next moment, numbered from 0."""
        bounds = [*(bisect_left(self.sent, moment) for moment in moments), len(self.sent)]
        for place, last in pairwise(bounds):
            first = max(0, place - 1)
            got = {name: [n - first for n in numbers if first <= n < last] for name, numbers in self.received.items()}
            yield Frames(self.sent[first:last], got)

    def dark_time(self, old: str = "", new: str = "") -> DarkTime:
        """The dark interval: the longest sequence of consecutive frames that no receiver got.

        ``old`` and ``new`` name the receivers before and after a change. If they are equal or empty (the circuit
        returns to the same port), no frame counts as misdelivered.
        """
        sent, at = self.sent, {name: frozenset(numbers) for name, numbers in self.received.items()}
        arrived = frozenset().union(*at.values())
        lost = [number for number in range(len(sent)) if number not in arrived]
        gaps = [[number for _, number in gap] for _, gap in groupby(enumerate(lost), key=lambda n: n[1] - n[0])]
        longest = max(gaps, key=len, default=[])
        wrong = 0
        if old and new and old != new:
            moved = min(at.get(new, ()), default=len(sent))
            wrong = sum(number >= moved for number in at.get(old, ()))
        if not longest:
            return DarkTime(None, None, 0.0, 0, 0, wrong)
        began, after = sent[longest[0]], longest[-1] + 1
        up_t = sent[after] if after < len(sent) else None
        seconds = math.inf if up_t is None else up_t - began
        return DarkTime(began, up_t, seconds, len(longest), len(lost) - len(longest), wrong)

    def unsure_s(self, seen: DarkTime) -> float:
        """How far the dark time ``seen`` may be off: the times without a frame at its ends.

        If no frame was lost, the longest time without a frame; infinity if the first or the last frame was.
        """
        gaps = [after - before for before, after in pairwise(self.sent)]
        if seen.first_lost_t is None:
            return max(gaps, default=math.inf)
        if seen.up_t is None:
            return math.inf
        ends = bisect_left(self.sent, seen.first_lost_t), bisect_left(self.sent, seen.up_t)
        return sum(gaps[end - 1] if end else math.inf for end in ends)


# ---- a train ---------------------------------------------------------------------------------------------------------


class ProbeTrain(Child):
    """``count`` frames that are being sent from ``senders`` in turn. The train begins when ``start`` returns.

    ``macs`` are the addresses to send to, one a sender; over a circuit that of any receiver works. ``receivers`` may
    receive frames; the caller chooses their names. Every ``interval_s`` so many frames leave ``together`` (0: all as
    fast as they can). Between them the process sleeps unless ``spin``: it is less exact then, and leaves the processor
    to others. ``size`` is the length of a frame in bytes, without its checksum.

    >>> with ProbeTrain([sender], [mac], {"left": left, "right": right}, count=1000) as train:   # doctest: +SKIP
    ...     time.sleep(0.1)
    ...     rewire()
    ...     print(train.frames().dark_time("left", "right").seconds)
    """

    def __init__(
        self,
        senders: Sequence[Tap],
        macs: Sequence[str],
        receivers: Mapping[str, Tap],
        *,
        count: int,
        interval_s: float = INTERVAL_S,
        together: int = 1,
        spin: bool = True,
        size: int = 0,
    ) -> None:
        self._longest_s = _START_S + count / together * interval_s
        self._receivers = tuple(receivers)
        self._file = os.fdopen(os.memfd_create("probes"), "r+b")
        settings = {
            "senders": [asdict(sender) for sender in senders],
            "macs": [*macs],
            "receivers": [asdict(receiver) for receiver in receivers.values()],
            "count": count,
            "interval_s": interval_s,
            "together": together,
            "spin": spin,
            "size": size,
            "file": self._file.fileno(),
        }
        fds = {self._file.fileno(), *(tap.netns_fd for tap in (*senders, *receivers.values()))}
        super().__init__(__name__, settings, fds, "the probe train")

    def frames(self) -> Frames:
        """Wait for the end of the train; ``MachineError`` if the process ended without a result."""
        counts = self.answer(self._longest_s, stop=False)["counts"]
        self._file.seek(0)
        columns = []
        for count in counts:
            both = array("q", self._file.read(2 * 8 * count))
            columns.append((both[::2], both[1::2]))
        (began, ended), *got = columns
        got_by = dict(zip(self._receivers, got, strict=True))
        return Frames(
            [t / 1e9 for t in began],
            {name: numbers.tolist() for name, (numbers, _) in got_by.items()},
            [(after - before) / 1e9 for before, after in zip(began, ended, strict=True)],
            {
                name: [(t - began[number]) / 1e9 for number, t in zip(*pair, strict=True)]
                for name, pair in got_by.items()
            },
        )

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._file.close()


def _send(
    senders: Sequence[socket.socket],
    macs: Sequence[str],
    token: bytes,
    *,
    count: int,
    interval_s: float,
    together: int,
    spin: bool,
    size: int,
) -> array[int]:
    """Send ``count`` frames; returns when the sending of each began and ended (monotonic ns), in turn.

    A late frame does not delay the next.
    """
    ways = []
    for place, sender in enumerate(senders):
        frame = probe_frame(macs[place % len(macs)], sender.getsockname()[4].hex(), token, 0, size)
        ways.append((sender.send, frame[: _PROBE.size - 4], frame[_PROBE.size :]))
    clock, interval_ns, sent = time.monotonic_ns, round(interval_s * 1e9), array("q")
    start = clock()
    for number in range(count):
        if number % together == 0:
            due = start + number // together * interval_ns
            if not spin and (left := due - clock()) > 0:
                time.sleep(left / 1e9)
            while clock() < due:
                pass
        send, head, rest = ways[number % len(ways)]
        frame = head + number.to_bytes(4, "big") + rest
        began = clock()
        try:
            send(frame)
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # the port dropped it: the frame is lost like one on the way
                raise
        sent.extend((began, clock()))
    return sent


def main() -> None:
    parent = Parent()
    settings = dict(parent.settings)
    token = os.urandom(_TOKEN_BYTES)
    set_priority(_NICE)
    wake_in_time()
    if settings["spin"]:
        set_real_time()
    with ExitStack() as stack:
        receivers, senders = (
            [stack.enter_context(open_packets(Tap(**tap), ethertype, _BUFFER_BYTES)) for tap in settings.pop(taps)]
            for taps, ethertype in (("receivers", ETHERTYPE), ("senders", 0))
        )
        with os.fdopen(settings.pop("file"), "wb") as out:
            parent.ready()
            columns = [_send(senders, settings.pop("macs"), token, **settings)]
            time.sleep(_SETTLE_S)
            columns += [arrivals(receiver, token) for receiver in receivers]
            for column in columns:
                column.tofile(out)
    parent.tell("result", counts=[len(column) // 2 for column in columns])


# ---- which port reaches which ----------------------------------------------------------------------------------------


Port = tuple[int, int]
"""(rank, lane) of a port on the rails."""
QUIET_S, LONGEST_S = 0.05, 0.5
_ROOM_BYTES = 4 << 20


class PingMatrix:
    """Which ports and ranks reach each other on the rails of a live fabric; sockets on every port, within a ``with``.

    Every port sends a frame to each other port of its switch. The result is the port that receives it: on an optical
    switch the other end of the circuit, whatever the destination address; on an electrical switch the port with that
    MAC. ``netns_fds`` are descriptors of the ranks' namespaces, by rank. A test ends when no frame has arrived for
    ``quiet_s`` seconds, after ``longest_s`` at the latest; a machine too busy to deliver a frame within ``quiet_s``
    reports fewer pairs than there are. Needs root.

    >>> with PingMatrix(session.plan, session.netns_fds()) as matrix:   # doctest: +SKIP
    ...     matrix.reach()
    frozenset({(0, 1), (1, 0)})
    """

    def __init__(
        self, plan: FabricPlan, netns_fds: Sequence[int], *, quiet_s: float = QUIET_S, longest_s: float = LONGEST_S
    ) -> None:
        self._quiet_s, self._longest_s = quiet_s, longest_s
        self._switches = plan.network("rail")
        self._fds = tuple(netns_fds)
        self._stack = ExitStack()
        self._sockets: dict[Port, socket.socket] = {}

    def __enter__(self) -> PingMatrix:
        with ExitStack() as opening:
            for port in (port for switch in self._switches for port in switch.ports):
                opened = open_packets(Tap(self._fds[port.rank], port.interface), ETHERTYPE, _ROOM_BYTES)
                self._sockets[port.rank, port.lane] = opening.enter_context(opened)
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reach_ports(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[Port, Port]]:
        """(sending port, receiving port) of frames sent from ``lanes``; frames are received on every lane."""
        token = os.urandom(_TOKEN_BYTES)
        sent: list[Port] = []
        known = {port.lane for switch in self._switches for port in switch.ports}
        if not known.intersection(lanes):
            raise ConfigError(
                f"no rail port has lane {', '.join(map(str, lanes))}; there are {sorted(known)}", key="lanes"
            )
        for switch in self._switches:
            for port in (port for port in switch.ports if port.lane in lanes):
                for to in (to for to in switch.ports if to.rank != port.rank):
                    self._sockets[port.rank, port.lane].send(probe_frame(to.mac, port.mac, token, len(sent)))
                    sent.append((port.rank, port.lane))
        return frozenset((sent[number], port) for number, port in self._gather(token))

    def reach(self, lanes: Sequence[int] = (0,)) -> frozenset[tuple[int, int]]:
        """(sending rank, receiving rank) of frames sent from ``lanes``."""
        return frozenset((src, dst) for (src, _), (dst, _) in self.reach_ports(lanes))

    def _gather(self, token: bytes) -> Iterator[tuple[int, Port]]:
        """The number and the receiver of the frames with ``token`` until none has come for ``quiet_s``."""
        ports = {receiver: port for port, receiver in self._sockets.items()}
        with Poller() as poller:
            for receiver in ports:
                poller.watch(receiver, READ)
            end = time.monotonic() + self._longest_s
            while (now := time.monotonic()) < end and (ready := poller.wait(math.inf, min(now + self._quiet_s, end))):
                for receiver, _ in ready:
                    yield from ((number, ports[receiver]) for number in arrivals(receiver, token)[::2])
