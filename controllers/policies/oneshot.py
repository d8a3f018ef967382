"""One-shot circuits ("Ideal" in Opus, arXiv 2602.12521, baselines): every dimension has its own circuits at once.

A GPU has four ports: lanes 0 and 1 for the data-parallel ring, lanes 2 and 3 for the pipeline chain. The bandwidth of
the GPU is the same as with two ports; it is split between the two by the square root of their traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum, sqrt

from controllers.policies.static import StaticPolicy
from railyard.errors import ConfigError
from workloads.program import Group


class OneShotPolicy(StaticPolicy):
    """Rings on lanes 0 and 1, pipeline pairs on lanes 2 and 3."""

    def lanes(self, group: Group) -> tuple[int, int]:
        """The (low, high) lanes of the dimension of ``group``."""
        return (2, 3) if group.dimension == "pp" else (0, 1)


def split_bandwidth(total: float, traffic: Mapping[str, float]) -> dict[str, float]:
    """Shares of ``total`` (any unit of rate) in proportion to the square root of each entry's traffic (bytes).

    The square root minimises the time of phases that follow one another: minimise sum(t_i / b_i) for a given sum(b_i).
    An entry without traffic gets 0; ``ConfigError`` for traffic below 0 or if no entry has traffic.

    >>> split_bandwidth(300.0, {"dp": 4.0, "pp": 1.0})
    {'dp': 200.0, 'pp': 100.0}
    """
    for name, size in traffic.items():
        if not size >= 0:
            raise ConfigError(f"traffic of {name} is {size:g} bytes; it must be 0 or more")
    roots = {name: sqrt(size) for name, size in traffic.items()}
    root_sum = fsum(roots.values())
    if not root_sum > 0:
        raise ConfigError("no dimension has traffic to split the bandwidth by; at least one must")
    return {name: total * root / root_sum for name, root in roots.items()}
