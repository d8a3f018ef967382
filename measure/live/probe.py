"""Sends a train of probes over circuits and records which of them arrive at the possible receivers.

A probe is a raw Ethernet frame with a number. A process of its own sends one every 0.3 ms from a host's namespace, or
from several in turn; it busy-waits between probes. Packet sockets on the receivers' interfaces are read when the train
is over.

A dark port drops probes; the first one to be received again shows that the circuit is up. The dark time is measured by
send times, so queues on the path do not affect it: the error is at most one interval of the train on each side.
"""

from __future__ import annotations

import errno
import math
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby

from measure.live.packets import ETHERTYPE, Tap, ethernet_frame, frame_payload, open_packets
from railyard.errors import ConfigError
from railyard.priority import set_priority, wake_in_time
from railyard.process.child import Child
from railyard.process.parent import Parent


@dataclass(frozen=True)
class DarkTime:
    """The dark time that a train measured. Times are send times of probes, monotonic seconds.

    ``first_lost_t`` is None (and ``seconds`` 0) if no probe was lost; ``up_t`` is None (and ``seconds`` infinite) if no
    circuit came up within the train. ``lost`` counts the probes of the dark interval, ``strays`` those lost at other
    times, ``misdelivered`` those received at the old receiver after the new one had received a probe, or at both.
    """

    first_lost_t: float | None
    up_t: float | None
    seconds: float
    lost: int
    strays: int = 0
    misdelivered: int = 0


def dark_time(sent: Sequence[float], received: Mapping[str, Iterable[int]], old: str = "", new: str = "") -> DarkTime:
    """The dark interval of a train: the longest sequence of consecutive probes that no receiver got.

    ``sent[k]`` is the send time of probe k in monotonic seconds, ``received`` the numbers of the probes that each
    receiver got. ``old`` and ``new`` name the receivers before and after the change. If they are equal or empty (the
    circuit returns to the same port), no probe counts as misdelivered.
    """
    at = {name: frozenset(numbers) for name, numbers in received.items()}
    arrived = frozenset().union(*at.values())
    lost = [number for number in range(len(sent)) if number not in arrived]
    gaps = [[number for _, number in gap] for _, gap in groupby(enumerate(lost), key=lambda pair: pair[1] - pair[0])]
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


INTERVAL_S = 0.0003
LEAST_INTERVAL_S = 0.00005
MAX_TRAIN_S = 30.0
_START_S = 10.0
_SETTLE_S = 0.1
_NICE = -10
"""Priority of the process, the same as for agents: a probe that is sent late measures nothing."""
_BUFFER_BYTES = 256 << 20
PROBE = struct.Struct("!4sI")
"""Payload of a probe: ``MAGIC`` and its number."""
MAGIC = b"RYpb"
"""The first bytes of the payload of a probe."""


class ProbeTrain(Child):
    """A probe train that is being sent from ``senders`` in turn, for ``seconds``. It begins when ``start`` returns.

    ``mac`` is the address to send to; that of any receiver works, since a circuit carries all packets. ``receivers``
    may receive probes; the caller chooses their names. Every ``interval_s`` so many probes leave ``together``. Between
    them the process sleeps unless ``spin``: it is less exact then, and leaves the processor to others.

    >>> with ProbeTrain([sender], mac, {"left": left, "right": right}, seconds=0.3) as train:   # doctest: +SKIP
    ...     time.sleep(0.1)
    ...     rewire()
    ...     print(train.dark_time("left", "right").seconds)
    """

    def __init__(
        self,
        senders: Sequence[Tap],
        mac: str,
        receivers: Mapping[str, Tap],
        *,
        seconds: float,
        interval_s: float = INTERVAL_S,
        together: int = 1,
        spin: bool = True,
    ) -> None:
        if not 0 < seconds <= MAX_TRAIN_S:
            raise ConfigError(f"must be above 0 and at most {MAX_TRAIN_S:g}, not {seconds:g}", key="seconds")
        if interval_s < LEAST_INTERVAL_S:
            raise ConfigError(f"must be at least {LEAST_INTERVAL_S:g}, not {interval_s:g}", key="interval_s")
        self._seconds = seconds
        self.took_s: list[float] = []
        """How long the sending of each probe took, once the train is over."""
        settings = {
            "senders": [asdict(sender) for sender in senders],
            "mac": mac,
            "receivers": {name: asdict(receiver) for name, receiver in receivers.items()},
            "count": max(2, round(seconds / interval_s)) * together,
            "interval_s": interval_s,
            "together": together,
            "spin": spin,
        }
        fds = {tap.netns_fd for tap in (*senders, *receivers.values())}
        super().__init__("measure.live.probe", settings, fds, "the probe train")

    def dark_time(self, old: str = "", new: str = "") -> DarkTime:
        """Wait for the end of the train and return the dark time (``old``, ``new``: ``measure.live.probe``).

        Raises ``MachineError`` if the process ended without a result.
        """
        return dark_time(*self.probes(), old, new)

    def probes(self) -> tuple[list[float], dict[str, list[int]]]:
        """Wait for the end of the train and return the send times (monotonic s) and the numbers that each receiver got.

        Raises ``MachineError`` if the process ended without a result.
        """
        answer = self.answer(self._seconds + _START_S, stop=False)
        self.took_s = [(ended - began) / 1e9 for began, ended in answer["sent_ns"]]
        return [began / 1e9 for began, _ in answer["sent_ns"]], answer["received"]


def _send(
    senders: Sequence[socket.socket], mac: str, count: int, interval_s: float, together: int, spin: bool
) -> list[tuple[int, int]]:
    """Send ``count`` probes; returns when the sending of each began and ended (monotonic ns).

    A late probe does not delay the next.
    """
    own = [sender.getsockname()[4].hex() for sender in senders]
    clock, interval_ns, sent = time.monotonic_ns, round(interval_s * 1e9), list[tuple[int, int]]()
    start = clock()
    while len(sent) < count:
        due = start + len(sent) // together * interval_ns
        if not spin and (left := due - clock()) > 0:
            time.sleep(left / 1e9)
        while clock() < due:
            pass
        for number in range(len(sent), len(sent) + together):
            place = number % len(senders)
            frame = ethernet_frame(mac, own[place], PROBE.pack(MAGIC, number))
            began = clock()
            try:
                senders[place].send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the port dropped it: the probe is lost like one on the way
                    raise
            sent.append((began, clock()))
    return sent


def _received_numbers(receiver: socket.socket) -> list[int]:
    numbers: list[int] = []
    while True:
        try:
            payload = frame_payload(receiver.recv(64, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return numbers
        if payload.startswith(MAGIC) and len(payload) >= PROBE.size:
            numbers.append(PROBE.unpack_from(payload)[1])


def main() -> None:
    """Run the probe process."""
    parent = Parent()
    settings = parent.settings
    set_priority(_NICE)
    wake_in_time()
    with ExitStack() as stack:
        receivers = {
            name: stack.enter_context(open_packets(Tap(**receiver), ETHERTYPE, _BUFFER_BYTES))
            for name, receiver in settings["receivers"].items()
        }
        senders = [stack.enter_context(open_packets(Tap(**sender), 0, 0)) for sender in settings["senders"]]
        parent.ready()
        train = (settings[key] for key in ("mac", "count", "interval_s", "together", "spin"))
        sent = _send(senders, *train)
        time.sleep(_SETTLE_S)
        received = {name: _received_numbers(receiver) for name, receiver in receivers.items()}
    parent.tell("result", sent_ns=sent, received=received)
