"""What one machine does for a fabric: it makes a part of it, or all of it, and reads, samples and breaks that part.

Where one machine makes all of a fabric, the run itself calls the part. Otherwise a process on each machine serves one
(``experiments.spread.server``), by the same operations.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from mininet.topo import Topo

from measure.live.delivery import PortCounters
from measure.live.readings import Readings
from measure.live.sampler import Sampler
from railyard.ownership import naming
from railyard.timeline import Event
from topos.kernel.emulation import OPENFLOW, Emulation, PortSpeed
from topos.kernel.fastpath.offload import Forwarding
from topos.kernel.iperf import IperfLane, iperf_clients, iperf_servers
from topos.kernel.links import WHOLE, Part
from topos.kernel.namespaces import HostEnd
from topos.kernel.relay import Relay, connect_unix, listener_in
from topos.kernel.run_registry import RegisteredRun
from topos.kernel.transport import Transport
from topos.plan import FabricPlan

CHUNK_BYTES = 8 << 20


class FabricPart:
    """The part of this machine in one fabric after another.

    ``folder`` is that of a machine that the head of the run has a process on: what is written and what represents
    disks is there instead of at the paths of the head, and its switches reach the controller by the socket ``openflow``
    in it.
    """

    net: Emulation
    """The network, while the part is up."""
    run: RegisteredRun

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.is_up = False
        self._stack = ExitStack()
        self._iperf = ExitStack()
        self._readings: Readings | None = None
        self._sampler: Sampler | None = None
        self._given: dict[str, int] = {}
        """How many bytes of each file of events were given to the head."""

    def up(
        self,
        topology: Topo,
        plan: FabricPlan,
        part: Part = WHOLE,
        datapath: Forwarding = "auto",
        packet_ins: bool = False,
        transport: Transport | None = None,
        port_speed: PortSpeed | None = None,
        rate_scale: float = 1.0,
    ) -> dict[str, str]:
        """Make ``part`` of the fabric ``plan``; how it forwards packets and delays links."""
        with ExitStack() as stack:
            self.run = stack.enter_context(RegisteredRun.open())
            self.net = Emulation(
                topology,
                self.run.path,
                datapath,
                OPENFLOW,
                part=part,
                packet_ins=packet_ins,
                transport=transport,
                port_speed=port_speed,
                rate_scale=rate_scale,
            )
            stack.callback(self.net.stop)
            if self.folder is not None:
                openflow = self.folder / "openflow"
                stack.enter_context(
                    Relay(listener_in(self.net.yard.netns_fd, OPENFLOW), lambda: connect_unix(openflow))
                )
            self.net.start()
            self.plan, self.is_up = plan, True
            self._stack = stack.pop_all()
        return {**self.net.forwarding, "link_delay": self.net.delays.method}

    def down(self) -> None:
        """Take the part down, with what is on the disks of its ranks on this machine."""
        self.is_up, self._readings = False, None
        with self._stack, self._iperf:
            self.end_sampling()
        if self.folder is not None:
            shutil.rmtree(self.folder / "disks", ignore_errors=True)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the network and of the sampler; ``check`` names one that has ended."""
        sampler = () if self._sampler is None else self._sampler.pids
        return (*self.net.pids, *sampler) if self.is_up else ()

    def check(self) -> None:
        """Raise ``MachineError`` if a process of the network, or the sampler, has ended."""
        if self.is_up:
            self.net.check()
        if self._sampler is not None:
            self._sampler.check()

    def netns_fd(self, host: str) -> int:
        """Descriptor of the namespace of a host; -1 for one on another machine."""
        return self.net.netns_fd(host) if self.net.part.has(host) else -1

    # ---- counters and samples ----------------------------------------------------------------------------------------

    def begin_readings(self) -> None:
        self._readings = Readings(self.net, self.plan)

    def read(self) -> tuple[list[Event], PortCounters]:
        """Events with the counters of queues and switches, and the counters of the rail ports, of this part."""
        assert self._readings is not None
        return self._readings.read()

    def begin_sampling(self, log: str) -> None:
        """Sample links and processors into the file ``log`` until ``end_sampling``."""
        assert self._readings is not None
        self._sampler = self._readings.sampler(self.own(log)).start()

    def end_sampling(self) -> None:
        if self._sampler is not None:
            sampler, self._sampler = self._sampler, None
            sampler.close()

    # ---- files -------------------------------------------------------------------------------------------------------

    def own(self, path: str) -> Path:
        """Where a file of events of the head is here."""
        return Path(path) if self.folder is None else self.folder / Path(path).name

    def disk(self, path: str) -> Path:
        """Where the folder that represents the disk of a rank is here."""
        return Path(path) if self.folder is None else self.folder / "disks" / Path(path).name

    def read_disk(self, store: str, name: str, offset: int) -> str:
        """Up to 8 MiB of a file on a disk from ``offset`` on, as base64; empty at its end."""
        path = self.disk(store) / Path(name).name
        with naming(path), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            file.seek(offset)
            return b64encode(file.read(CHUNK_BYTES)).decode()

    def events(self) -> tuple[str, str] | None:
        """The name of a file of events in ``folder`` and its next lines; None when all have been given.

        Each is given once: its file is removed.
        """
        assert self.folder is not None
        for path in sorted(self.folder.glob("*.jsonl")):
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                file.seek(self._given.get(path.name, 0))
                text = file.read(CHUNK_BYTES)
                text += file.readline()
                self._given[path.name] = file.tell()
            if text:
                return path.name, text.decode(errors="replace")
            path.unlink()
            self._given.pop(path.name)
        return None

    # ---- faults, and traffic beside ----------------------------------------------------------------------------------

    def cut(self, host: str) -> None:
        self.net.cut(host)

    def begin_iperf(self, servers: Sequence[tuple[int, str, str, str]], seconds: float) -> None:
        """Start iperf3 servers for ``seconds``, each by the number of its lane, host, interface and address."""
        ends = {number: HostEnd(self.net.netns_fd(host), *place) for number, host, *place in servers}
        self._iperf.enter_context(iperf_servers(ends, seconds))

    def iperf(
        self, clients: Sequence[tuple[int, str, str, str, str]], seconds: float, omit_s: float
    ) -> list[tuple[int, float, int, float]]:
        """Measure by clients, each by lane, host, interface, address and that of its server: ``iperf_clients``."""
        lanes = {
            number: IperfLane(HostEnd(self.net.netns_fd(host), interface, ip), HostEnd(-1, "", server))
            for number, host, interface, ip, server in clients
        }
        return [(number, *found) for number, found in iperf_clients(lanes, seconds, omit_s).items()]

    def end_iperf(self) -> None:
        self._iperf.close()
