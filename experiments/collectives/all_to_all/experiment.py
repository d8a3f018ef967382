"""The all-to-all experiment: rotors, demand-aware circuits, rings and packet switches (PIP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.console import Console

from experiments.collectives.all_to_all.row import AllToAllRow
from experiments.collectives.all_to_all.settings import AllToAllSettings
from experiments.collectives.experiment import TrialExperiment
from experiments.experiment import Action
from experiments.job_point import with_guard
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS


def reach(experiment: AllToAll, console: Console) -> int:
    """Test by pings which ranks reach each other in every slot of a rotor; returns the exit status."""
    from experiments.collectives.all_to_all.slot_reach import meetings, slot_reach

    settings, status = experiment.settings, 0
    for n in settings.ranks or (8, 16):
        found = list(slot_reach(settings, settings.fabric("rotor", n), settings.simplex))
        wrong = [one.slot for one in found if not one.as_expected]
        once = set(meetings(found).values()) == {1} and len(meetings(found)) == n * (n - 1)
        text = f"{n} ranks: {len(found)} slots; exactly the matched ranks reach each other in "
        text += "all slots" if not wrong else f"all slots but {', '.join(map(str, wrong))}"
        console.print(f"{text}; each pair has a circuit {'once' if once else 'NOT exactly once'}", soft_wrap=True)
        status = status if once and not wrong else NOT_FAITHFUL_EXIT_STATUS
    return status


class AllToAll(TrialExperiment[AllToAllSettings]):
    """An all-to-all over circuits in slots, beside packet switches and static circuits, the formula and the model."""

    name = "all-to-all"
    files = ("demand",)
    Settings = AllToAllSettings
    row = AllToAllRow
    rows = (AllToAllRow,)
    quick: ClassVar = {"iterations": 1, "studies": ["ranks", "slot"], "ranks": [4, 8], "sizes": ["625000"]}
    examples = (
        "                     # bytes, ranks, delay, slot, skew",
        "--quick              # two studies, one iteration",
        "--study slot --slots 50,100,200            # duty cycle",
        "--study grid --policies rotor,electrical --ranks 8 --sizes 625000 --delays 10,50",
        "--study skew --demand demand.csv           # a matrix of your own",
        "--reach --ranks 8,16                       # test the circuits by pings",
        "--mesh 5x5 --study delay                   # on a mesh (docs/mesh.md)",
        "--predict            # the model alone; needs no root",
    )
    actions: ClassVar = {"reach": Action("test of the rotor's circuits by pings in every slot", reach, root=True)}

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The guard time is what this machine needs, unless one is given."""
        return with_guard(values)
