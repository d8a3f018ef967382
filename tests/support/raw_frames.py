"""Raw frames on the ports of hosts: where does light really come out? And a fabric with our controller."""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from mininet.topo import Topo

from controllers.northbound.client import ChannelClient
from experiments.controller_process import ControllerFiles, ControllerProcess
from experiments.rest_access import RestAccess
from railyard.timeline import Event, read_events
from topos.kernel import namespaces
from topos.kernel.emulation import OPENFLOW, Emulation

ETHERTYPE = 0x88B5
TOKEN = "s3cret"
EVERYBODY = "ff:ff:ff:ff:ff:ff"
PATIENCE_S = 1.0
"""How long a frame may take to its port: a machine that is busy with other tests must not lose it."""
STRAYS_S = 0.1
"""How long a frame is waited for at the other ports once it has arrived at one."""


def frame(to: str = EVERYBODY) -> bytes:
    """An Ethernet frame that only these tests send."""
    header = bytes.fromhex(to.replace(":", "")) + b"\x02\0\0\0\0\1" + struct.pack("!H", ETHERTYPE)
    return header + b"light" * 12


def wire(net: Emulation, rank: int, lane: int) -> socket.socket:
    """A raw socket on one port of a GPU."""
    with namespaces.inside(net.netns_fd(f"g{rank}")):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        sock.bind((f"g{rank}-r{lane}", ETHERTYPE))
    sock.setblocking(False)
    return sock


def arrived(sock: socket.socket) -> bool:
    """Whether a frame is waiting."""
    try:
        return b"light" in sock.recv(2048)
    except BlockingIOError:
        return False


def arrivals(sock: socket.socket, count: int) -> int:
    """How many frames arrive: ``count`` as soon as so many have, fewer after ``PATIENCE_S`` without one."""
    seen = 0
    while seen < count and select.select([sock], [], [], PATIENCE_S)[0]:
        seen += arrived(sock)
    return seen


def forget_caches(net: Emulation) -> None:
    """Empty the caches of the private Open vSwitch: what is sent from now on goes by the tables as they are.

    Caches follow a change of the tables within milliseconds, but on a busy machine there is no saying when.
    """
    control = f"{net.yard.run_dir}/ovs-vswitchd.{net.yard.pids['ovs-vswitchd']}.ctl"
    command = ["ovs-appctl", "--timeout=10", "-t", control, "revalidator/purge"]
    subprocess.run(command, check=True, capture_output=True, timeout=15)


def reaches(
    net: Emulation, sender: int, lane: int, lanes: Sequence[int] = (0, 1), to: str = EVERYBODY, but: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Where a frame from this port arrives: (rank, lane) of every port that sees it, hosts of ``but`` left out."""
    with ExitStack() as stack:
        ports = [(r, n) for r in range(net.plan.ranks) for n in lanes if (r, n) != (sender, lane) and r not in but]
        listening = {port: stack.enter_context(wire(net, *port)) for port in ports}
        stack.enter_context(wire(net, sender, lane)).send(frame(to))
        select.select(list(listening.values()), [], [], PATIENCE_S)
        time.sleep(STRAYS_S)
        return [port for port, sock in listening.items() if arrived(sock)]


class Fabric:
    """A fabric that is up, and its controller."""

    def __init__(self, net: Emulation, controller: ControllerProcess) -> None:
        self.net = net
        self.controller = controller
        self.channel = controller.files.channel

    def reaches(self, sender: int, lane: int) -> list[tuple[int, int]]:
        """Where a frame from this port arrives: (rank, lane) of every port of every host that sees it."""
        return reaches(self.net, sender, lane)

    def rest(self, path: str, verb: str = "GET", body: object = None) -> Any:
        """The answer of the REST interface to one call; ``HTTPError`` on a refusal."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{self.controller.rest_address}{path}"
        with urlopen(Request(url, data, headers, method=verb), timeout=20) as answer:
            return json.load(answer)

    def events(self) -> list[Event]:
        """The controller's timeline."""
        return read_events(self.controller.files.events)

    def client(self) -> ChannelClient:
        """A new connection to the controller."""
        return ChannelClient(self.channel, 20)


@contextmanager
def running(topology: Topo, framework: str = "os-ken", rest: bool = False, **emulation: Any) -> Iterator[Fabric]:
    """A fabric with our controller, and its REST interface if ``rest``; ``emulation``: arguments of ``Emulation``."""
    with Emulation(topology, **emulation) as net:
        folder = Path(net.yard.run_dir)
        files = ControllerFiles(folder / "plan.json", folder / "channel", folder / "events.jsonl", folder / "log")
        files.plan.write_text(json.dumps(asdict(net.plan)), encoding="utf-8")
        access = RestAccess("127.0.0.1:0", TOKEN, folder / "token") if rest else None
        exact, database = net.datapath != "ovs", net.yard.database
        with ControllerProcess(files, framework, net.yard.netns_fd, access, exact, database) as controller:
            if net.openflow in (None, OPENFLOW):
                controller.wait_ready()
            yield Fabric(net, controller)
