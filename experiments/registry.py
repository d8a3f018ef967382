"""All experiments by name: those of this project, and those of other packages or files.

An experiment of another package is found by its entry point in group ``railyard.experiments``, one of a file by
``FILE.py:Class``. Nothing of an experiment is imported before it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from railyard.errors import ConfigError
from railyard.plugin import entry_points, load_class

if TYPE_CHECKING:
    from experiments.experiment import Experiment

GROUP = "railyard.experiments"


@dataclass(frozen=True)
class Entry:
    """An experiment in the list: its class as ``module:Class``, and a line about it."""

    name: str
    place: str
    system: str
    shows: str
    root: bool = True


ENTRIES = (
    Entry("rails", "experiments.rails.experiment:Rails", "Opus", "step time against reconfiguration delay"),
    Entry("shared-rails", "experiments.shared_rails.experiment:SharedRails", "Opus",
          "jobs that come, go and fail on shared rails"),
    Entry("torch", "experiments.torch.experiment:Torch", "PyTorch", "a script of your own, its tensors on rails"),
    Entry("collective", "experiments.collectives.collective.experiment:Collectives", "NCCL-style",
          "16 algorithms, measured as nccl-tests does"),
    Entry("straggler", "experiments.collectives.straggler.experiment:Stragglers", "StragglAR",
          "all-reduce time with a late rank"),
    Entry("all-to-all", "experiments.collectives.all_to_all.experiment:AllToAll", "PIP, rotors",
          "all-to-all over rotating circuits"),
    Entry("failover", "experiments.racks.failover.experiment:Failover", "LUMION", "recovery from a dead accelerator"),
    Entry("server-fabric", "experiments.racks.server_fabric.experiment:ServerFabric", "MORPHLUX",
          "steered ports: iperf3, epochs, recovery"),
    Entry("propius", "experiments.propius.experiment:Propius", "Propius", "jobs that share edge clients, by policy"),
    Entry("allocation", "experiments.allocation.experiment:AllocationStudy", "MORPHLUX",
          "fragmentation and failures of 64 racks", root=False),
    Entry("opus", "experiments.opus.experiment:Opus", "Opus", "jobs of up to 16,384 GPUs on rails, computed",
          root=False),
    Entry("fabric-cost", "experiments.fabric_cost.experiment:FabricCost", "Opus",
          "cost and power of rails, by kind of switch", root=False),
    Entry("mesh", "experiments.mesh.experiment:MeshRouting", "PIP", "which matchings a photonic mesh can hold",
          root=False),
    Entry("calibrate", "commands.calibrate:Calibrate", "this machine", "the scale this machine carries"),
    Entry("bench", "commands.bench.command:Bench", "this machine", "accuracy and speed of the emulator"),
)  # fmt: skip


def entries() -> list[Entry]:
    others = [
        Entry(point.name, point.value, point.dist.name if point.dist else "", "") for point in entry_points(GROUP)
    ]
    return [*ENTRIES, *others]


def find(name: str) -> type[Experiment[Any]]:
    """The experiment ``name``: of this project, of another package, or ``FILE.py:Class``; ``ConfigError`` if none."""
    from experiments.experiment import Experiment

    for entry in ENTRIES:
        if name == entry.name:
            module, _, kind = entry.place.partition(":")
            found: type[Experiment[Any]] = getattr(import_module(module), kind)
            return found
    other = load_class(
        name,
        Experiment,  # type: ignore[type-abstract]
        GROUP,
        "an experiment",
        "experiment",
        [entry.name for entry in ENTRIES],
    )
    missing = [need for need in ("name", "Settings") if not hasattr(other, need)] + sorted(other.__abstractmethods__)
    if missing:
        raise ConfigError(f"{name} has no {missing[0]}; an experiment needs it", key="experiment")
    return other
