"""The runs that faults are made in: small runs of the experiments of this project, a few seconds each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.faults.fault import Fault


@dataclass(frozen=True)
class Victim:
    """A run: ``arguments`` after ``railyard run``, and the number of ``points`` that it measures."""

    name: str
    arguments: tuple[str, ...]
    points: int
    plot_arguments: tuple[str, ...] = ()
    """Further arguments of ``railyard plot`` for its results."""


_ONCE = ("--repeats", "1", "--attempts", "1")
CIRCUITS = Victim(
    "circuits",
    (
        *("collective", "--op", "all_to_all", "--algorithms", "pairwise", "--ranks", "3", "--fabric", "ocs"),
        *("--sizes", "1K,4K", "--iterations", "3", "--reconfiguration-delay", "100", "--ack-timeout", "15"),
        *_ONCE,
    ),
    points=2,
)
"""An all-to-all over circuits that change before each round, so that it is dark most of the time; two points."""
SPLICE = Victim(
    "splice",
    (
        *("failover", "--fabrics", "photonic", "--alone", "--torus", "2x2", "--server", "2x1", "--slice", "2x1@0,0"),
        *("--steps", "4", "--kill", "1@1.5", "--checkpoint-every", "1", "--time", "0.1", "--job-compute", "0.5"),
        *("--job-gradient-bytes", "1e8", "--job-state-bytes", "1e8", "--ack-timeout", "15"),
        *_ONCE,
    ),
    points=1,
)
"""A job of two chips of which one is killed: a spare chip is spliced in, and takes up the checkpoint."""
_PROBED_LINK = "experiments.faults.probed_link:ProbedLink"
PROBED = Victim("probed", (_PROBED_LINK,), points=1, plot_arguments=("--experiment", _PROBED_LINK))
"""A job over delayed links, with a train of probes beside it."""
VICTIMS: Mapping[str, Victim] = {victim.name: victim for victim in (CIRCUITS, SPLICE, PROBED)}


def victim_of(fault: Fault) -> Victim:
    """The run in which a fault is made: one that has its process and its phase."""
    if fault.place.phase == "splice":
        return SPLICE
    return PROBED if fault.place.process in ("probe", "delay relay") else CIRCUITS
