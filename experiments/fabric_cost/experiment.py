"""The fabric-cost experiment: the parts of a fabric, and from them its cost and power (Opus).

Every GPU has one network port. All fabrics carry what all ports send at once. Parts are counted in two ways:

- **formula**: that of the authors of Opus, whose prices and watts these are. Rails of packet switches have three tiers
  of switches with k = round(sqrt(4 S)) ports for S servers: such a rail has 2 S / k first switches and as many above,
  each joined to each, and a top tier. A GPU then takes 1 + 2 (4 S / k^2) + 2 ports of switches, which is 5 where
  k^2 = 4 S, and there is an optic for each of them and one for the GPU itself. How a k that is rounded enters the
  ports is our reading, which gives the ratios that theirs gives. A GPU of photonic rails takes 2 ports of circuit
  switches and one optic. Unused ports cost nothing.
- **whole switches**: ours. Switches have a given number of ports and are bought whole, in as few tiers as do.

Fabrics:

- **fat-tree**: one folded Clos network of switches with r ports joins all GPUs (Al-Fares et al., SIGCOMM'08). It has
  the fewest tiers t with 2 (r/2)^t >= GPUs, so 1, 2 or 3 for up to 64, 2,048 or 65,536 GPUs with r = 64. A GPU takes
  2 t - 1 ports of switches (two in every tier but the top one) and 2 t optics (one at each end of t links).
- **rail-optimized**: the same network, but each first switch joins GPUs of one local rank of up to r/2 servers. It has
  the parts of a fat tree, and more switches where the servers do not fill the first ones.
- **photonic**: Opus. A rail is one optical circuit switch, or several where one has too few ports, and a GPU has p
  ports of it. Light passes the switch, so that there are optics at the ends of the GPUs only.

    cost = switch ports * C_s + circuit switch ports * C_o + optics * C_x,    power likewise

Where k^2 = 4 S the ratio is (5 C_s + 6 C_x) / (2 C_o + C_x) by the formula. Cables, fibres, hosts and their network
cards are left out; they are about the same in all fabrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from experiments.experiment import Experiment
from experiments.settings import Option, Settings
from measure.published import published
from measure.results.row import ResultRow

if TYPE_CHECKING:
    from experiments.runner import Runner


Fabric = Literal["fat-tree", "rail-optimized", "photonic"]
Count = Literal["formula", "whole switches"]
COUNTED: Mapping[Count, tuple[Fabric, ...]] = {
    "formula": ("rail-optimized", "photonic"),
    "whole switches": ("fat-tree", "rail-optimized", "photonic"),
}
"""Way to count -> the fabrics of which it says the parts."""


@dataclass(frozen=True)
class ClusterDesign:
    """A cluster and the devices that its fabrics are made of.

    ``radix`` is the number of ports of a packet switch, ``ocs_ports`` that of a circuit switch; a GPU of photonic rails
    has ``ports_per_gpu`` ports of it and ``optics_per_gpu`` optics.
    """

    gpus: int
    gpus_per_server: int = 8
    radix: int = 64
    ocs_ports: int = 576
    ports_per_gpu: int = 2
    optics_per_gpu: int = 1

    @property
    def servers(self) -> int:
        """Number of servers, which is also that of the GPUs on a rail."""
        return self.gpus // self.gpus_per_server


@dataclass(frozen=True)
class Parts:
    """The parts of a fabric: packet switches in ``tiers`` and their ports, circuit switches and theirs, and optics.

    By the formula ports and optics are no whole numbers, and there is no number of switches: it is 0.
    """

    tiers: int
    switches: int
    switch_ports: float
    circuit_switches: int
    ocs_ports: int
    optics: float

    def sum(self, each: Mapping[str, float]) -> float:
        """Cost or power of all parts; ``each`` has that of an ``ocs port``, a ``switch port`` and an ``optic``."""
        ports = self.switch_ports * each["switch port"] + self.ocs_ports * each["ocs port"]
        return ports + self.optics * each["optic"]


def parts(count: Count, fabric: Fabric, cluster: ClusterDesign) -> Parts:
    """The parts of a fabric of ``cluster``; ``KeyError`` for one that the formula is not about."""
    if count == "formula":
        return {"rail-optimized": _rails_by_formula, "photonic": _photonic_by_formula}[fabric](cluster)
    if fabric == "photonic":
        return _photonic(cluster)
    half = cluster.radix // 2
    if fabric == "fat-tree":
        return _clos(cluster, ceil(cluster.gpus / half))
    return _clos(cluster, cluster.gpus_per_server * ceil(cluster.servers / half))


def _rails_by_formula(cluster: ClusterDesign) -> Parts:
    joined = 4 * cluster.servers / round(sqrt(4 * cluster.servers)) ** 2
    ports = cluster.gpus * (1 + 2 * joined + 2)
    return Parts(3, 0, ports, 0, 0, cluster.gpus + ports)


def _photonic_by_formula(cluster: ClusterDesign) -> Parts:
    return Parts(0, 0, 0, 0, cluster.gpus * cluster.ports_per_gpu, cluster.gpus * cluster.optics_per_gpu)


def _photonic(cluster: ClusterDesign) -> Parts:
    switches = cluster.gpus_per_server * ceil(cluster.servers * cluster.ports_per_gpu / cluster.ocs_ports)
    return Parts(0, 0, 0, switches, switches * cluster.ocs_ports, cluster.gpus * cluster.optics_per_gpu)


def _clos(cluster: ClusterDesign, leaves: int) -> Parts:
    """A folded Clos network with ``leaves`` first switches, half of whose ports go to GPUs; one switch if it fits."""
    gpus, radix = cluster.gpus, cluster.radix
    tiers = 1 if gpus <= radix else 2
    while tiers > 1 and leaves > 2 * (radix // 2) ** (tiers - 1):
        tiers += 1
    switches = 1 if tiers == 1 else (tiers - 1) * leaves + ceil(leaves / 2)
    return Parts(tiers, switches, switches * radix, 0, 0, 2 * tiers * gpus)


class FabricCostSettings(Settings):
    """Clusters of GPUs with one network port each, and the switches that may join them."""

    gpus: Annotated[tuple[Annotated[int, Field(ge=2, le=1_000_000)], ...], Option(metavar="N,...")] = Field(
        default=(256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
        min_length=1,
        description="numbers of GPUs of a cluster",
    )
    gpus_per_server: int = Field(default=8, ge=1, le=1024, description="GPUs per server, joined by a scale-up switch")
    radix: int = Field(default=64, ge=4, le=4096, description="ports of a whole packet switch, an even number")
    ocs_ports: int = Field(default=576, ge=2, le=100_000, description="ports of a whole optical circuit switch")
    ports_per_gpu: int = Field(
        default=2, ge=1, le=16, description="ports of a GPU at its circuit switch; a ring needs 2"
    )
    optics_per_gpu: int = Field(default=1, ge=1, le=16, description="optics of a GPU on photonic rails")

    @field_validator("gpus")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fits(self) -> FabricCostSettings:
        if self.radix % 2:
            raise ValueError(f"radix must be an even number, not {self.radix}")
        for gpus in self.gpus:
            if gpus % self.gpus_per_server:
                raise ValueError(f"gpus must be whole servers of {self.gpus_per_server} GPUs, not {gpus}")
        return self

    def clusters(self) -> list[ClusterDesign]:
        return [ClusterDesign(**{**self.model_dump(), "gpus": gpus}) for gpus in self.gpus]


@dataclass(kw_only=True)
class FabricCostRow(ResultRow):
    """The parts of one fabric for one number of GPUs, and its cost and power beside those of photonic rails."""

    fabric: Annotated[str, "fat-tree, rail-optimized or photonic"]
    gpus: Annotated[int, "number of GPUs"]
    tiers: Annotated[int, "tiers of packet switches"]
    switches: Annotated[int, "packet switches; 0 by the formula, which counts ports"]
    switch_ports: Annotated[float, "ports of packet switches that are paid for"]
    circuit_switches: Annotated[int, "optical circuit switches; 0 by the formula"]
    ocs_ports: Annotated[int, "ports of circuit switches that are paid for"]
    optics: Annotated[float, "optical transceivers"]
    cost_usd: Annotated[float, "cost of all parts, in US dollars"]
    power_w: Annotated[float, "power of all parts, in watts"]
    cost_ratio: Annotated[float, "cost over that of photonic rails"]
    power_ratio: Annotated[float, "power over that of photonic rails"]
    count: Annotated[str, "how parts are counted: formula (that of the authors of Opus) or whole switches"] = (
        "whole switches"
    )


class FabricCost(Experiment[FabricCostSettings]):
    """Cost and power of photonic rails, of fat trees and of rail-optimized packet switches; no packets, no root."""

    name = "fabric-cost"
    Settings = FabricCostSettings
    rows = (FabricCostRow,)
    examples = (
        "                         # clusters of 256 to 32,768 GPUs",
        "--gpus 8192 --optics-per-gpu 2   # an optic for each port",
        "--ocs-ports 320 --radix 128",
    )
    packets = root = False

    def points(self) -> int:
        return len(self.settings.gpus) * sum(map(len, COUNTED.values()))

    def run(self, runner: Runner) -> None:
        for cluster in self.settings.clusters():
            runner.add(*fabric_rows(cluster))


def fabric_rows(cluster: ClusterDesign) -> Iterator[FabricCostRow]:
    """The rows of all fabrics of a cluster, with the published cost and power of parts."""
    price, power = published("opus-part-cost").values, published("opus-part-power").values
    for count, fabrics in COUNTED.items():
        photonic = parts(count, "photonic", cluster)
        for fabric in fabrics:
            needed = parts(count, fabric, cluster)
            yield FabricCostRow(
                count=count,
                fabric=fabric,
                gpus=cluster.gpus,
                **vars(needed),
                cost_usd=needed.sum(price),
                power_w=needed.sum(power),
                cost_ratio=needed.sum(price) / photonic.sum(price),
                power_ratio=needed.sum(power) / photonic.sum(power),
            )
