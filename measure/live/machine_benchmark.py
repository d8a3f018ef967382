"""The machine benchmark: measures timers, streams and small messages over sockets that the caller opened."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from measure.live.calibration import TimerError
from measure.metrics.quantiles import Quantiles, quantiles
from railyard.errors import MachineError
from railyard.priority import set_priority
from railyard.process.start import end_child, start_program
from topos.kernel.namespaces import HostEnd, connect

_SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))\n"
_STREAM = Path(__file__).with_name("goodput_host.py")
_BUFFER_S = 0.04
_LEAST_BUFFER_BYTES = 1 << 18
_NICE = -10
"""Priority of the processes of hosts, the same as for agents."""
_PATIENCE_S = 30.0
_SLEEPS_S = (0.0005, 0.001, 0.002, 0.005)


def timer_error(seconds: float) -> TimerError:
    """Measure for about ``seconds`` how late ``select`` wakes from sleeps of 0.5 to 5 ms."""
    late: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sleep_s = _SLEEPS_S[len(late) % len(_SLEEPS_S)]
        due = time.monotonic() + sleep_s
        select.select([], [], [], sleep_s)
        late.append(max(0.0, time.monotonic() - due))
    sample = sample_of(late, "timers")
    return TimerError(sample.p50, sample.p99, sample.high, sample.count)


def sample_of(sample: list[float], what: str) -> Quantiles:
    """The quantiles of ``sample``; ``MachineError`` naming ``what`` was measured if it is empty."""
    found = quantiles(sample)
    if found is None:
        raise MachineError(f"measuring {what} gave no sample; the machine is too busy, so try again when it is idle")
    return found


@contextmanager
def busy_processors(count: int | None = None) -> Iterator[None]:
    """Keep ``count`` processors (None: all) busy with computing processes until the block, or this process, ends."""
    with ExitStack() as stack:
        for _ in range((os.cpu_count() or 1) if count is None else count):
            command = [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid())]
            stack.callback(end_child, start_program(command))
        time.sleep(0.2)
        yield


def message_times(sender: socket.socket, receiver: socket.socket, count: int) -> Quantiles:
    """One-way times, in seconds, of ``count`` messages of 64 bytes sent 1 ms apart on one connection."""
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    receiver.settimeout(5)
    message = bytes(64)
    times: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        sender.sendall(message)
        missing = len(message)
        while missing:
            got = len(receiver.recv(missing))
            if not got:
                raise MachineError("the connection that measures small messages was closed")
            missing -= got
        times.append(time.monotonic() - began)
        time.sleep(0.001)
    return sample_of(times, "small messages")


class SocketPair(NamedTuple):
    """The two ends of one directed connection."""

    sender: socket.socket
    receiver: socket.socket


@contextmanager
def connected_ring(ends: Sequence[HostEnd]) -> Iterator[list[SocketPair]]:
    """A TCP connection from each host to the next, from the last one to the first; ``MachineError`` if one fails."""
    with ExitStack() as stack:
        pairs = zip(ends, [*ends[1:], *ends[:1]], strict=True)
        yield [SocketPair(*map(stack.enter_context, connect(source, target))) for source, target in pairs]


def ring_goodputs(lanes: Sequence[SocketPair], rate_mbps: float, warm_up_s: float, window_s: float) -> list[float]:
    """Payload rate in Mb/s received on each lane while all hosts send; one process per host, as in a real run.

    Lane i goes from host i to host i + 1, so the process of host i sends on lane i and receives on lane i - 1. The
    rate of the links, ``rate_mbps``, sets the send buffers, since an endless stream would otherwise fill a queue of a
    second. Raises ``MachineError`` naming a host whose process stops early.
    """
    buffer_bytes = max(_LEAST_BUFFER_BYTES, int(rate_mbps * 1e6 / 8 * _BUFFER_S))
    start = time.monotonic() + 0.2 + 0.03 * len(lanes)
    workers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        for host, lane in enumerate(lanes):
            ends = (lane.sender.fileno(), lanes[host - 1].receiver.fileno())
            arguments = [*map(str, ends), repr(start), repr(warm_up_s), repr(window_s), str(buffer_bytes)]
            command = [sys.executable, "-I", "-S", str(_STREAM), *arguments]
            workers.append(start_program(command, pass_fds=ends, stdout=subprocess.PIPE))
            stack.callback(end_child, workers[-1])
            set_priority(_NICE, workers[-1].pid)
        deadline = start + warm_up_s + window_s + _PATIENCE_S
        received = [_received(host, worker, deadline) for host, worker in enumerate(workers)]
    # Worker i counted lane i - 1.
    counted = received[1:] + received[:1]
    return [8 * count / window_s / 1e6 for count in counted]


def _received(host: int, worker: subprocess.Popen[bytes], deadline: float) -> int:
    try:
        return int(worker.communicate(timeout=max(0.0, deadline - time.monotonic()))[0])
    except (ValueError, subprocess.TimeoutExpired):
        raise MachineError(f"the process that measures the goodput of host {host} ended without a result") from None


class HighestRate(NamedTuple):
    """The highest rate that passed (``value``), and whether a higher one failed."""

    value: float
    limited: bool


def highest_rate(passes: Callable[[float], bool], start: float, ceiling: float, halvings: int) -> HighestRate:
    """Search the highest rate for which ``passes`` holds: double ``start`` until it fails, then bisect.

    ``start`` is halved, at most three times, if it fails itself; raises ``MachineError`` if the lowest fails too. Stops
    at ``ceiling``; ``halvings`` is the number of bisection steps.
    """
    low, high = start, None
    while not passes(low):
        if low < start / 4:
            raise MachineError(f"this machine does not carry {low:g} Mb/s; try again when it is idle")
        high, low = low, low / 2
    while high is None and low < ceiling:
        following = min(low * 2, ceiling)
        if passes(following):
            low = following
        else:
            high = following
    for _ in range(halvings if high is not None else 0):
        middle = (low * (high or low)) ** 0.5
        if passes(middle):
            low = middle
        else:
            high = middle
    return HighestRate(low, high is not None)
