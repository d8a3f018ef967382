"""The rail fabric as a Mininet topology: hosts, switches, links and their rates.

Rail r joins the GPUs of local rank r of every server (Opus, arXiv 2507.08119, section 3). A GPU is a
host ``g{rank}``, a rail a switch ``rail{r}``. Optional are one scale-up switch per server (``srv{s}``)
and one front-end switch (``fe``).

Stock Mininet runs this topology too (optical rails, the default, are dark until a controller installs circuits)::

    sudo mn --custom topos/rails.py --topo rails,servers=4,gpus=1,fabric=electrical --switch fabric --controller none
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

try:
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo
except ImportError:  # run by ``mn --custom``: ``__file__`` is not set, and this project is not on ``sys.path``
    sys.dont_write_bytecode = True  # root would leave files in the checkout of a user
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))
    from topos.fabric import MOST_PORTS_PER_SWITCH, FabricTopo

import re
from collections.abc import Callable

from railyard.errors import ConfigError, shortened
from railyard.scale import shared_burst_bytes
from topos.fabric import StockSwitch
from topos.mesh import Mesh, evenly_spaced
from topos.options import flag, number, one_of, rate, whole
from topos.plan import MeshPlan

CHOOSE = "choose"
_WRITTEN = re.compile(r"([0-9]{1,4})x([0-9]{1,4})(?:@(.+))?")
_MOST_LATENCY_US, _MOST_GATES = 1e6, 100_000


ChoosePorts = Callable[[Mesh, int], tuple[int, ...]]
"""(mesh, number of ports) -> ports between which every matching of an all-to-all can be routed."""


def mesh_plan(
    value: object,
    ports: int,
    gate_latency_us: object,
    choose_ports: ChoosePorts | None = None,
    most_gates: object = None,
) -> MeshPlan | None:
    """The mesh that option ``value`` gives for a switch of ``ports`` ports; None where the value is None or ``none``.

    The numbers after ``@`` are the mesh ports behind the switch's ports 1, 2, ...; without ``@`` the ports are evenly
    spaced. For ``@choose`` the function ``choose_ports`` (``controllers.mesh.ports.choose_ports``) searches them.
    ``gate_latency_us`` is in microseconds. Raises ``ConfigError`` naming the option.
    """
    latency_us = number("gate_latency_us", gate_latency_us, 0, _MOST_LATENCY_US, "microseconds")
    most = None if most_gates is None else whole("most_gates", most_gates, 1, _MOST_GATES)
    if value is None or str(value).lower() in ("", "none"):
        for key in (["gate_latency_us"] if latency_us else []) + (["most_gates"] if most else []):
            raise ConfigError("needs a mesh; name one, as in mesh=5x5", key=key)
        return None
    written = _WRITTEN.fullmatch(str(value))
    if written is None:
        raise ConfigError(
            f"must be a mesh as in 7x3, 7x3@0/5/11/16 or 7x3@{CHOOSE}, not {shortened(str(value))}", key="mesh"
        )
    try:
        mesh = Mesh.of(int(written[1]), int(written[2]))
        return MeshPlan(mesh.width, mesh.height, _ports(mesh, ports, written[3], choose_ports), latency_us, most)
    except ConfigError as error:
        raise ConfigError(str(error), key="mesh") from None


def _ports(mesh: Mesh, count: int, written: str | None, choose_ports: ChoosePorts | None) -> tuple[int, ...]:
    """The mesh ports behind the ``count`` ports of a switch, as ``written`` after the ``@``."""
    size = f"a mesh of {mesh.width}x{mesh.height}"
    if count > len(mesh.ports):
        raise ConfigError(
            f"{size} has {len(mesh.ports)} ports, too few for the {count} of a rail (servers x ports per GPU); take a "
            "larger mesh or fewer servers"
        )
    if written is None:
        return evenly_spaced(mesh, count)
    if written == CHOOSE:
        if choose_ports is None:
            raise ConfigError(
                f"@{CHOOSE} works in Railyard's own runs only; name the ports, as scripts/pip_mesh.py "
                f"--width {mesh.width} --height {mesh.height} --ports {count} --choose prints them"
            )
        return choose_ports(mesh, count)
    parts = written.split("/")
    if len(parts) != count:
        raise ConfigError(f"must name {count} mesh ports, one for each port of a rail, not {len(parts)}")
    ports: list[int] = []
    for part in parts:
        if not re.fullmatch("[0-9]{1,9}", part) or int(part) >= len(mesh.ports):
            last = len(mesh.ports) - 1
            raise ConfigError(f"port {shortened(part)} is not on {size}, which has {len(mesh.ports)}: 0 to {last}")
        if int(part) in ports:
            raise ConfigError(f"port {int(part)} is named twice; each port of a rail needs a mesh port of its own")
        ports.append(int(part))
    return tuple(ports)


RAIL_FABRICS = ("ocs", "electrical", "one-shot")
ONE_SHOT_PORTS = 4
"""Lanes 0 and 1 carry the DP ring, lanes 2 and 3 the PP chain."""
RAIL_DPID, SCALE_UP_DPID = 0x10000, 0x20000
_RAIL_KIND, _SCALE_UP_KIND = 1, 2
_MOST_RAILS = 120


def _lane_rates(value: object, ports: int, rate_mbps: float, share: float) -> tuple[float, ...]:
    """One rate per lane in Mb/s; text has the form ``25/25/75/75``, None gives each lane ``share`` of the rate."""
    if value is None:
        return (rate_mbps * share,) * ports
    parts = value.split("/") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != ports:
        raise ConfigError(f"must give {ports} rates, one for each port of a GPU, not {value}", key="lane_rates")
    return tuple(rate("lane_rates", part) for part in parts)


def _slow_links(value: object, ranks: int) -> dict[int, float]:
    """Share of the rate by rank; text has the form ``3:0.5/7:0.25``, None slows no rank."""
    if value is None:
        return {}
    pairs = list(value.items()) if isinstance(value, Mapping) else [p.split(":") for p in str(value).split("/")]
    slow: dict[int, float] = {}
    for pair in pairs:
        try:
            rank, share = int(str(pair[0])), float(str(pair[1]))
        except (IndexError, ValueError):
            rank, share = -1, 0.0
        if len(pair) != 2 or rank in slow or not (0 <= rank < ranks and 0 < share <= 1):
            wrong = ":".join(str(part) for part in pair)
            raise ConfigError(
                f"must give a rank from 0 to {ranks - 1}, once, and a share of the rate above 0 and at most 1, "
                f"as in 0:0.5, not {wrong}",
                key="slow",
            )
        slow[rank] = share
    return slow


class RailTopo(FabricTopo):
    """A rail-optimized fabric of ``servers`` x ``gpus`` GPUs.

    Options (all may come as text, from ``mn``):

    - ``ports``: ports per GPU on its rail; ``rate_mbps``: rate of each such port, Mb/s; ``mtu``: in bytes;
      ``overhead``: bytes that rates count for each packet beside its headers (24: preamble, CRC and gap of Ethernet);
    - ``fabric``: ``ocs``, ``electrical`` or ``one-shot`` (static circuits, 4 ports per GPU; each port has half of
      ``rate_mbps`` unless ``lane_rates`` says otherwise, so that a GPU has the same total);
    - ``scale_up``: add a switch per server with ports of ``scale_up_mbps``; ``front_end``: add a switch for all GPUs
      with ports of ``front_end_mbps``;
    - ``lane_rates``: one rate per port of a GPU (``25/25/75/75`` in text);
    - ``slow``: share of the rate that the rail ports of single ranks have, in both directions (``{3: 0.5}``, in text
      ``3:0.5/7:0.25``), to emulate degraded links;
    - ``delay_ms``, ``jitter_ms``, ``loss``: propagation delay, its jitter (ms) and random loss (percent) of each link
      of a rail, one way;
    - ``mesh``: the programmable photonic mesh inside every rail of an ``ocs`` fabric, which limits its matchings
      (``7x3``: ports evenly spaced; ``7x3@0/5/11/16``: these ports; ``7x3@choose``: ports that ``choose_ports`` finds
      for an all-to-all); ``gate_latency_us``: latency of one gate of it, in emulated microseconds;
      ``most_gates``: the most gates that a path of it may cross (more would lose its light);
    - ``spare_servers``: how many of the servers, the last ones, are kept free to replace failed ones.

    Raises ``ConfigError`` naming the option for a fabric that cannot be built.
    """

    def build(
        self,
        servers: int = 4,
        gpus: int = 4,
        ports: int = 2,
        rate_mbps: float = 100.0,
        fabric: str = "ocs",
        scale_up: bool = False,
        front_end: bool = False,
        scale_up_mbps: float = 1000.0,
        front_end_mbps: float = 100.0,
        mtu: int = 9000,
        lane_rates: Sequence[float] | str | None = None,
        slow: Mapping[int, float] | str | None = None,
        mesh: str | None = None,
        gate_latency_us: float = 0.0,
        choose_ports: ChoosePorts | None = None,
        most_gates: int | None = None,
        delay_ms: float = 0.0,
        jitter_ms: float = 0.0,
        loss: float = 0.0,
        spare_servers: int = 0,
        overhead: int = 0,
    ) -> None:
        self.fabric = one_of("fabric", fabric, RAIL_FABRICS)
        self.servers = whole("servers", servers, 1, 16000)
        self.spare_servers = whole("spare_servers", spare_servers, 0, self.servers - 1)
        self.gpus = whole("gpus", gpus, 1, _MOST_RAILS)
        self.ports_per_gpu = self._port_count(ports)
        self.set_frames(mtu, overhead)
        self.set_link_options(delay_ms, jitter_ms, loss)
        if self.servers * self.ports_per_gpu > MOST_PORTS_PER_SWITCH:
            raise ConfigError(
                f"with {self.ports_per_gpu} ports per GPU a rail switch has room for "
                f"{MOST_PORTS_PER_SWITCH // self.ports_per_gpu} servers, not {servers}",
                key="servers",
            )
        share = 2 / ONE_SHOT_PORTS if fabric == "one-shot" else 1.0
        self.lane_rates = _lane_rates(lane_rates, self.ports_per_gpu, rate("rate_mbps", rate_mbps), share)
        self.slow = _slow_links(slow, self.servers * self.gpus)
        self.burst = shared_burst_bytes(sum(self.lane_rates) * self.servers * self.gpus)
        self.mesh = mesh_plan(mesh, self.servers * self.ports_per_gpu, gate_latency_us, choose_ports, most_gates)
        if self.mesh is not None and self.fabric != "ocs":
            raise ConfigError(f"needs fabric=ocs; leave it out with fabric={fabric}", key="mesh")
        self._add_hosts()
        self._add_rails()
        if flag("scale_up", scale_up):
            self._add_scale_up(rate("scale_up_mbps", scale_up_mbps))
        if flag("front_end", front_end):
            self.add_front_end(self.servers * self.gpus, front_end_mbps, "front_end_mbps")

    def _port_count(self, ports: object) -> int:
        count = whole("ports", ports, 1, 16)
        if self.fabric != "one-shot":
            return count
        if count not in (2, ONE_SHOT_PORTS):
            raise ConfigError(f"a one-shot fabric has {ONE_SHOT_PORTS} ports per GPU, not {ports}", key="ports")
        return ONE_SHOT_PORTS

    def _add_hosts(self) -> None:
        for rank in range(self.servers * self.gpus):
            self.add_rank(rank, self._rail_ip(rank, 0))

    def _rail_port(self, rank: int, lane: int) -> int:
        return rank // self.gpus * self.ports_per_gpu + lane + 1

    def _rail_ip(self, rank: int, lane: int) -> str:
        port = self._rail_port(rank, lane)
        return f"10.{rank % self.gpus + 1}.{port >> 8}.{port & 255}/16"

    def _add_rails(self) -> None:
        kind = "electrical" if self.fabric == "electrical" else "ocs"
        for rail in range(self.gpus):
            self.add_switch(f"rail{rail}", RAIL_DPID + rail, kind, "rail")
        for rank in range(self.servers * self.gpus):
            for lane in range(self.ports_per_gpu):
                self.plug(
                    rank,
                    f"rail{rank % self.gpus}",
                    number=self._rail_port(rank, lane),
                    interface=f"g{rank}-r{lane}",
                    ip=self._rail_ip(rank, lane),
                    lane=lane,
                    macs=(_RAIL_KIND, rank % self.gpus),
                    rate_mbps=self.lane_rates[lane] * self.slow.get(rank, 1.0),
                    **self.link_options,
                )

    def _add_scale_up(self, rate_mbps: float) -> None:
        for server in range(self.servers):
            name = f"srv{server}"
            self.add_switch(name, SCALE_UP_DPID + server, "electrical", "scale-up")
            for local in range(self.gpus):
                rank = server * self.gpus + local
                self.plug(
                    rank,
                    name,
                    number=local + 1,
                    interface=f"g{rank}-up",
                    ip=f"10.{128 + (server >> 8)}.{server & 255}.{local + 1}/24",
                    macs=(_SCALE_UP_KIND, server),
                    rate_mbps=rate_mbps,
                )


topos = {"rails": RailTopo}
switches = {"fabric": StockSwitch}
