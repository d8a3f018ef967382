"""Stock Mininet with ``TCLink`` as the baseline of benchmarks, and what is measured on any Mininet network.

Stock Mininet runs in a process and a yard of its own: in the yard's network namespace on a private Open vSwitch, which
it finds by ``OVS_RUNDIR``, so the machine's own Open vSwitch is not touched. Mininet's classes are used unchanged.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from commands.bench import NotMeasured
from measure.live.machine_benchmark import SocketPair, connected_ring, ring_goodputs
from railyard.errors import MachineError, RailyardError
from railyard.process.start import start_python
from topos.kernel import namespaces
from topos.kernel.namespaces import HostEnd, inside
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.ovs import PrivateOvs
from topos.kernel.run_registry import RegisteredRun
from topos.rails import RailTopo

_WARM_UP_S = 0.5


def ring_goodput(lanes: Sequence[SocketPair], rate_mbps: float, seconds: float) -> list[float]:
    """Goodput in Mb/s that each host sends to the next one over ``seconds``, on links of ``rate_mbps``.

    The same code measures Railyard and stock Mininet. ``NotMeasured`` if a host has no goodput.
    """
    found = ring_goodputs(lanes, rate_mbps, _WARM_UP_S, seconds)
    for number, goodput in enumerate(found):
        if not goodput:
            raise NotMeasured(f"the goodput of host {number} of a ring: nothing that it sent was received")
    return found


ECHOES, ECHO_INTERVAL_S = 300, 0.01
ECHO_WARM_UP = 20
_PAYLOAD_BYTES = 56
"""With the eight bytes of the ICMP header: 64 bytes, the default of ``ping``."""
_HEAD = struct.Struct("!BBHHH")
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_ECHO_PATIENCE_S = 1.0
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")


def echo_times(netns_fd: int, ip: str, count: int = ECHOES, interval_s: float = ECHO_INTERVAL_S) -> list[float]:
    """Round-trip times in seconds of ``count`` echo requests to ``ip``; those of a warm-up before them are left out.

    Needs root. ``NotMeasured`` if ``ip`` cannot be reached or does not answer within a second.
    """
    with inside(netns_fd):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with raw:
        raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        times = []
        try:
            raw.connect((ip, 0))
            for number in range(ECHO_WARM_UP + count):
                times.append(_echo(raw, number, ip))
                time.sleep(interval_s)
        except OSError as error:
            raise NotMeasured(f"the round-trip time: {ip} cannot be reached ({error.strerror})") from None
    return times[ECHO_WARM_UP:]


def _echo(raw: socket.socket, number: int, ip: str) -> float:
    identity = os.getpid() & 0xFFFF
    request = echo_request(identity, number)
    began_ns = time.time_ns()
    raw.send(request)
    deadline = time.monotonic() + _ECHO_PATIENCE_S
    answered = select.poll()
    answered.register(raw, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and answered.poll(left * 1e3):
        packet, control, _, _ = raw.recvmsg(2048, socket.CMSG_SPACE(_TIMESPEC.size))
        kind, _, _, ident, sequence = _HEAD.unpack_from(packet, (packet[0] & 15) * 4)
        if (kind, ident, sequence) == (_ECHO_REPLY, identity, number):
            seconds, ns = _TIMESPEC.unpack(control[0][2])
            return float(seconds * 1_000_000_000 + ns - began_ns) / 1e9
    raise NotMeasured(f"the round-trip time: {ip} did not answer echo request {number} within {_ECHO_PATIENCE_S:g} s")


def echo_request(identity: int, number: int) -> bytes:
    """An ICMP echo request of 64 bytes (RFC 792)."""
    payload = bytes(_PAYLOAD_BYTES)
    return _HEAD.pack(_ECHO_REQUEST, 0, _checksum(identity, number), identity, number) + payload


def _checksum(identity: int, number: int) -> int:
    """The checksum of an echo request whose payload is zero (RFC 1071)."""
    total = (_ECHO_REQUEST << 8) + identity + number
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


# ---- stock Mininet ---------------------------------------------------------------------------------------------------


_PATIENCE_S = 600.0


def stock(shape: dict[str, Any], ring_s: float = 0.0, pings: bool = False) -> dict[str, Any]:
    """Run ``RailTopo(**shape)`` on stock Mininet; needs root.

    Returns ``up_s`` (build and start), ``down_s`` and, with ``ring_s`` above 0, ``goodput_mbps`` of each host when all
    hosts send to the next one for ``ring_s`` seconds; with ``pings`` also ``rtt_s``, the median round-trip time
    between the first two hosts. ``MachineError`` if stock Mininet fails.
    """
    namespaces.check_root_directory()
    with RegisteredRun.open() as run:
        (yard,) = namespaces.make(1)
        try:
            with Netlink(yard) as kernel:
                kernel.run([link_up(LO_INDEX, "lo")])
            ovs = PrivateOvs(run.path, yard, on_child=run.add_child)
            try:
                ovs.start()
                options = ["--shape", json.dumps(shape), "--ring", str(ring_s), *(["--pings"] if pings else [])]
                return _in_yard(ovs, yard, options, run)
            finally:
                ovs.stop()
        finally:
            os.close(yard)


def _in_yard(ovs: PrivateOvs, yard: int, options: list[str], run: RegisteredRun) -> dict[str, Any]:
    options += ["--datapath", "user" if ovs.datapath == "netdev" else "kernel"]
    with namespaces.inside(yard):
        child: subprocess.Popen[bytes] = start_python(
            "commands.bench.stock",
            *options,
            environment=ovs.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    run.add_child(child.pid)
    try:
        output, errors = child.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise MachineError(f"stock Mininet was not done within {_PATIENCE_S:g} s") from None
    if child.returncode != 0:
        last = (errors.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise MachineError(f"stock Mininet ended with status {child.returncode}: {last}")
    result: dict[str, Any] = json.loads(output)
    return result


def measure(shape: dict[str, Any], ring_s: float, pings: bool, datapath: str) -> dict[str, Any]:
    """Bring stock Mininet up and down in the network namespace of this process; returns the result of ``stock``."""
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    Mininet.inited = True  # its limits for the whole machine are not needed here
    switch = partial(OVSSwitch, datapath=datapath, failMode="standalone")
    topo = RailTopo(**shape)
    start = time.monotonic()
    net = Mininet(topo, switch=switch, link=TCLink, controller=None)
    net.start()
    result: dict[str, Any] = {"up_s": time.monotonic() - start}
    with ExitStack() as stack:
        ends = []
        for host in net.hosts if ring_s or pings else ():
            namespace = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, namespace)
            ends.append(HostEnd(namespace, host.defaultIntf().name, host.IP()))
        if ring_s:
            lanes = stack.enter_context(connected_ring(ends))
            result["goodput_mbps"] = ring_goodput(lanes, shape["rate_mbps"], ring_s)
        if pings:
            result["rtt_s"] = statistics.median(echo_times(ends[0].netns_fd, ends[1].ip))
    start = time.monotonic()
    net.stop()
    result["down_s"] = time.monotonic() - start
    return result


def main() -> None:
    """Entry of the child process: prints the result as JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", type=json.loads, required=True)
    parser.add_argument("--ring", type=float, default=0.0)
    parser.add_argument("--pings", action="store_true")
    parser.add_argument("--datapath", default="user")
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options.shape, options.ring, options.pings, options.datapath)))
    except RailyardError as error:
        sys.exit(str(error))
