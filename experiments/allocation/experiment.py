"""The allocation experiment: fragmentation of racks, and what a photonic fabric in the servers saves (MORPHLUX)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from experiments.allocation.row import AllocationRow
from experiments.allocation.settings import AllocationSettings
from experiments.experiment import Experiment

if TYPE_CHECKING:
    from experiments.runner import Runner


class AllocationStudy(Experiment[AllocationSettings]):
    """The cost of fragmentation in racks of accelerators, and the savings of a photonic fabric; no packets, no root."""

    name = "allocation"
    Settings = AllocationSettings
    rows = (AllocationRow,)
    quick: ClassVar = {"clusters": 1}
    examples = (
        "                 # all studies: 8 clusters, 64 racks each",
        "--quick          # one cluster",
        "--study protocols                     # requests as MORPHLUX describes them",
        "--mix 4:4,8:2,16:1                    # sizes of slices and weights",
        "--torus 4x4x2 --server 2x2x1",
    )
    packets = False

    def needs_root(self) -> bool:
        """False: the study computes and sends no packets."""
        return False

    def run(self, runner: Runner) -> None:
        """Compute the rows of all studies and add them to the results."""
        from experiments.allocation.studies import study_rows

        runner.progress.begin("computing the studies")
        for row in study_rows(self.settings):
            runner.add(row)
