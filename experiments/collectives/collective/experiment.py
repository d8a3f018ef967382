"""The collective experiment: algorithms over buffer sizes on one fabric, measured as nccl-tests does."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console

from experiments.collectives.collective.settings import CollectiveSettings
from experiments.collectives.experiment import TrialExperiment
from experiments.collectives.row import TrialRow
from experiments.experiment import Action
from workloads.collectives.catalog import ALGORITHMS


def list_algorithms(experiment: Collectives, console: Console) -> int:
    """Print the algorithms with their collectives."""
    for name, algorithm in ALGORITHMS.items():
        print(f"{name:<27} {', '.join(algorithm.kinds)}")
    return 0


class Collectives(TrialExperiment[CollectiveSettings]):
    """Collectives on real packets, in the manner of nccl-tests, beside the model."""

    name = "collective"
    Settings = CollectiveSettings
    rows = (TrialRow,)
    quick: ClassVar = {"iterations": 1, "sizes": ["64K", "1M"]}
    examples = (
        "                          # ring all-reduce, 8 ranks, 1M",
        "--algorithms ring,stragglar,direct --sizes 4M --verify",
        "--algorithms my_schedule.xml                          # MSCCL XML",
        "--op all_to_all --algorithms pairwise --ranks 16",
        "--fabric ocs --algorithms stragglar --reconfiguration-delay 10",
        "--predict --sizes 1M,16M    # the model alone; needs no root",
    )
    actions: ClassVar = {"list": Action("list of the algorithms; nothing is measured", list_algorithms)}
