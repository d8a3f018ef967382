"""The fabric-cost experiment: cost and power of photonic rails against electrical fabrics (Opus)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from experiments.experiment import Experiment
from experiments.fabric_cost.law import Cluster, Fabric, parts
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
        "                         # clusters of 512 to 32,768 GPUs",
        "--gpus 8192 --no-whole       # only the ports that are used",
        "--gpus 8192 --optics-per-gpu 2   # an optic for each port",
        "--ocs-ports 320 --radix 128",
    )
    packets = False

    def needs_root(self) -> bool:
        """False: the experiment computes and sends no packets."""
        return False

    def points(self) -> int:
        """One row for every fabric of every cluster."""
        return len(self.settings.gpus) * len(get_args(Fabric))

    def run(self, runner: Runner) -> None:
        """Compute the rows of all clusters and add them to the results."""
        for cluster in self.settings.clusters():
            runner.add(*fabric_rows(cluster))


def fabric_rows(cluster: Cluster) -> Iterator[FabricCostRow]:
    """The rows of all fabrics of a cluster, with the published cost and power of parts."""
    price, power = published("opus-part-cost").values, published("opus-part-power").values
    found = {fabric: parts(fabric, cluster) for fabric in get_args(Fabric)}
    base_usd, base_w = (found["photonic"].sum(each) for each in (price, power))
    for fabric, each in found.items():
        cost_usd, power_w = each.sum(price), each.sum(power)
        yield FabricCostRow(
            fabric=fabric,
            gpus=cluster.gpus,
            **vars(each),
            cost_usd=cost_usd,
            power_w=power_w,
            cost_ratio=cost_usd / base_usd,
            power_ratio=power_w / base_w,
        )
