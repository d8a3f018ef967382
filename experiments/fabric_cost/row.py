"""The row of the fabric-cost experiment: one fabric of one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from measure.results.row import ResultRow


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
