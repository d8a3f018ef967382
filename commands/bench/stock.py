"""Stock Mininet with ``TCLink`` as the baseline of benchmarks, in a separate process and yard.

The child process runs in the yard's network namespace on a private Open vSwitch, which it finds by ``OVS_RUNDIR``, so
the machine's own Open vSwitch is not touched. Mininet's classes are used unchanged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Any

from commands.bench.echo import echo_times
from commands.bench.rings import ring_goodput
from railyard.child import start_python
from railyard.errors import MachineError, RailyardError
from topos.kernel import namespaces
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.ovs import PrivateOvs
from topos.kernel.run_registry import RegisteredRun
from topos.rails import RailTopo

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
    if ring_s:
        result["goodput_mbps"] = ring_goodput(net.hosts, shape["rate_mbps"], ring_s)
    if pings:
        result["rtt_s"] = _round_trip_s(*net.hosts[:2])
    start = time.monotonic()
    net.stop()
    result["down_s"] = time.monotonic() - start
    return result


def _round_trip_s(host: Any, other: Any) -> float:
    namespace = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return statistics.median(echo_times(namespace, other.IP()))
    finally:
        os.close(namespace)


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


if __name__ == "__main__":
    main()
