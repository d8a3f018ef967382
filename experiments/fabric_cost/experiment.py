"""The fabric-cost experiment: cost and power of photonic rails against electrical fabrics (Opus)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from experiments.experiment import Experiment
from experiments.fabric_cost.law import COUNTED, Cluster, parts
from experiments.fabric_cost.row import FabricCostRow
from experiments.fabric_cost.settings import FabricCostSettings
from measure.published import published

if TYPE_CHECKING:
    from experiments.runner import Runner


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
    packets = False

    def needs_root(self) -> bool:
        """False: the experiment computes and sends no packets."""
        return False

    def points(self) -> int:
        """One row for every fabric of every cluster, in both ways to count parts."""
        return len(self.settings.gpus) * sum(map(len, COUNTED.values()))

    def run(self, runner: Runner) -> None:
        """Compute the rows of all clusters and add them to the results."""
        for cluster in self.settings.clusters():
            runner.add(*fabric_rows(cluster))


def fabric_rows(cluster: Cluster) -> Iterator[FabricCostRow]:
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
