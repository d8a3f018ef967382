"""The all-to-all experiment (PIP): every rank sends to every other, over circuits in slots and over alternatives.

The variants, each with the same bandwidth for a rank:

============ =========================================================================================
electrical   a packet switch; pairwise exchange, one port for each rank
rotor        slots of a fixed cycle of matchings, in which each pair has a circuit once
valiant      the slots of rotor, with each pair's data in two hops over all other ranks (for uneven demand)
demand       slots computed for the demand
provisioned  pairwise exchange in matchings that take turns on two ports of half the rate, each set up a round ahead
multi-hop    a static ring of circuits on which ranks forward data; two ports of half the rate
============ =========================================================================================
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from rich.console import Console

from controllers.circuits.decomposition import check_demand
from controllers.circuits.matchings import Pairs
from controllers.circuits.rotation import Cycle, Demand, Slot
from controllers.mesh.cover import cover
from controllers.policies.policy import slots_alone
from controllers.policies.rotor import RotorPolicy
from experiments.collectives.all_to_all.formula import at_line_rate
from experiments.collectives.all_to_all.routes import ROUTE, RouteRow, RouteTrial, measure_routes, rows_of
from experiments.collectives.all_to_all.row import AllToAllRow
from experiments.collectives.experiment import TrialExperiment, TrialSettings
from experiments.collectives.trial import FOLLOW, Trial, TrialFabric
from experiments.experiment import Action
from experiments.job_point import with_guard
from experiments.repeats import Piece
from experiments.settings import (
    Delay,
    GateLoss,
    GuardMs,
    LossBudget,
    Mtu,
    Option,
    PacketSettings,
    PortGbps,
    Sizes,
    most_gates,
)
from measure.results.row import MeasuredRow
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, shortened
from railyard.reading import read_text
from railyard.scale import MTU_BYTES, Scale, goodput_bytes_per_s
from topos.mesh import Mesh
from topos.plan import FabricPlan
from workloads.agent.transport.connection import LEAST_WRITE_BYTES
from workloads.collectives.algorithms import straight_all_to_all, valiant_all_to_all
from workloads.collectives.catalog import check_members, schedule
from workloads.program import Group
from workloads.rank.slot_sender import HEADROOM_BYTES, LATE_S
from workloads.schedule import Schedule

if TYPE_CHECKING:
    from experiments.runner import Runner

SKEW = 1.2
"""Exponent of the Zipf weights of ``skewed``: a few receivers are popular, as experts of a model are."""
COVER_S = 20.0
"""Time limit of the search for the cover of a mesh."""
_UNIT_BYTES = 4
_MOST_BYTES = 4 << 20


def read_demand(name: str, n: int, mean_bytes: float, seed: int) -> Demand:
    """The demand matrix ``name``: n x n bytes, a row per sender, ``mean_bytes`` on average over the pairs.

    ``uniform`` gives (). ``skewed`` gives each sender Zipf weights (exponent ``SKEW``) for its receivers, in a random
    order per sender drawn with ``seed``. Any other name is a CSV file of ``n`` rows of ``n`` numbers, of which only the
    proportions count. ``ConfigError`` for a file that cannot be read or is no demand.
    """
    if name == "uniform":
        return ()
    shares = check_demand(_skewed(n, Random(seed)) if name == "skewed" else _read(Path(name)), n)
    largest = max(map(max, shares))  # entries are scaled by the largest, so that any unit works without overflow
    factor = mean_bytes * n * (n - 1) / sum(entry / largest for row in shares for entry in row)
    return tuple(tuple(_round(entry / largest * factor) for entry in row) for row in shares)


def whole_numbers(demand: Demand) -> tuple[tuple[int, ...], ...]:
    """A demand in bytes as whole numbers, for weights of chunks."""
    return tuple(tuple(round(entry) for entry in row) for row in demand)


def _round(size: float) -> float:
    """``size`` rounded to whole elements, at least one unless it is 0."""
    return float(max(_UNIT_BYTES, round(size / _UNIT_BYTES) * _UNIT_BYTES)) if size else 0.0


def _skewed(n: int, random: Random) -> list[list[float]]:
    rows = []
    for i in range(n):
        order = [j for j in range(n) if j != i]
        random.shuffle(order)
        row = [0.0] * n
        for place, j in enumerate(order):
            row[j] = (place + 1) ** -SKEW
        rows.append(row)
    return rows


def _read(path: Path) -> list[list[float]]:
    if not os.path.isfile(path):
        why = "is no file" if os.path.exists(path) else "does not exist"
        raise ConfigError(f"must be uniform, skewed or a CSV file; {shortened(str(path))} {why}", key="demand")
    try:
        text = read_text(path, _MOST_BYTES, "a CSV file")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error:
        raise ConfigError("is not a CSV file; write one row of numbers for each sender", source=str(path)) from None
    try:
        return [[float(entry) for entry in row] for row in rows]
    except ValueError as error:
        raise ConfigError(f"must hold numbers only ({error})", source=str(path)) from None


Variant = Literal["electrical", "rotor", "valiant", "demand", "provisioned", "multi-hop"]
Study = Literal["bytes", "ranks", "delay", "slot", "skew", "grid", "route"]
STUDIES: dict[Study, str] = {
    "bytes": "time against bytes per pair",
    "ranks": "time against the number of ranks",
    "delay": "time against the reconfiguration delay",
    "slot": "duty cycle against the length of full slots",
    "skew": "uneven demand",
    "grid": "all combinations of the lists",
    "route": "round trip against the gates of a circuit on a mesh",
}
FULL_CYCLES, LAST_CYCLE = 3, 0.7
"""Cycles of full slots in study ``slot``, and the share to which slots of the last cycle are filled; the rest is room
for data that this machine did not send in time before."""
MOST_DEMAND_RANKS = 40
"""The computation of slots for a demand takes time as the fourth power of the ranks: a second for these."""
SLOT_VARIANTS: tuple[Variant, ...] = ("rotor", "valiant", "demand")
"""The variants with slots."""
_POLICY_OF: dict[Variant, str] = {"electrical": "", "multi-hop": "opus", "demand": "demand", "provisioned": FOLLOW}
_AXES: dict[Study, tuple[str, tuple[Any, ...], tuple[Variant, ...]]] = {
    "bytes": ("sizes", (312_500, 625_000, 1_250_000, 2_500_000), ("electrical", "rotor", "multi-hop")),
    "ranks": ("ranks", (4, 8, 16), ("electrical", "rotor", "multi-hop")),
    "delay": ("delays_ms", (10.0, 20.0, 50.0, 100.0), ("electrical", "rotor")),
    "slot": ("slots_ms", (50.0, 100.0, 200.0, 400.0), ("rotor",)),
    "skew": ("policies", (), ("electrical", "rotor", "valiant", "demand", "multi-hop")),
    "grid": ("", (), ("electrical", "rotor")),
}
"""Study -> the list that it varies, the default values of the list, and the variants that it compares."""


class AllToAllSettings(TrialSettings):
    """Settings of the all-to-all experiment, in real units."""

    read_by: ClassVar[Mapping[str, str]] = {"gate_us": ROUTE}

    studies: Annotated[tuple[Study, ...], Option("--study")] = Field(
        default=("bytes", "ranks", "delay", "slot", "skew"),
        min_length=1,
        description="studies to measure (" + "; ".join(f"{name}: {what}" for name, what in STUDIES.items()) + ")",
    )
    policies: tuple[Variant, ...] | None = Field(default=None, description="policies to compare (default by study)")
    ranks: tuple[int, ...] = Field(default=(), description="number of ranks (default 8; study ranks 4,8,16)")
    sizes: Annotated[Sizes, Option(metavar="BYTES,...")] = Field(
        default=(),
        description="bytes from each rank to each other, on average (default 1250000; study bytes "
        "312500,625000,1250000,2500000)",
    )
    delays_ms: Annotated[tuple[Delay, ...], Option("--delays", "MS,...")] = Field(
        default=(), description="reconfiguration delays, in ms (default 10; study delay 10,20,50,100)"
    )
    slots_ms: Annotated[tuple[Delay, ...], Option("--slots", "MS,...")] = Field(
        default=(),
        description="up times of slots, in ms; 0: until all ranks have sent (default 0; study slot 50,100,200,400 "
        "and never 0)",
    )
    guard_ms: GuardMs = 2.0
    demand: Annotated[str | None, Option(metavar="NAME|FILE")] = Field(
        default=None,
        description="demand matrix: uniform, skewed (drawn with the seed), or a CSV file with a row for each sender "
        "(default uniform; study skew skewed)",
    )
    simplex: bool = Field(
        default=False, description="circuits in one direction: a rank sends to one rank and receives from another"
    )
    most_slots: Annotated[int, Option(metavar="K")] = Field(
        default=0, ge=0, description="largest number of slots for a demand; 0: no limit"
    )
    mesh: Annotated[str, Option(metavar="WxH")] = Field(
        default="", description="size of a photonic mesh as the optical switch, in hexagons (default none)"
    )
    cover: bool = Field(
        default=False,
        description="the fewest partial matchings that join every two of the ports once; each is a slot",
    )
    gate_us: Annotated[float, Option("--gate-latency", "US")] = Field(
        default=500.0,
        ge=100,
        le=100_000,
        description="latency of a gate (study route; us of the wire, long enough to be seen)",
    )
    gate_loss_db: GateLoss = 0.5
    loss_budget_db: LossBudget = None
    port_gbps: PortGbps = 0.05
    mtu: Mtu = MTU_BYTES

    @field_validator("ranks")
    @classmethod
    def _ranks(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 2 <= n <= 128 for n in value):
            raise ValueError("must be 2 to 128 ranks")
        return value

    @model_validator(mode="after")
    def _slots_are_slots(self) -> AllToAllSettings:
        if "slot" in self.studies and self.slots_ms and not any(self.slots_ms):
            raise ConfigError("study slot needs slots of fixed length; 0 stands for slots without one", key="slots_ms")
        if (self.cover or ROUTE in self.studies) and (not self.mesh or self.simplex):
            key, subject = ("cover", "") if self.cover else ("studies", "route ")
            needs = "needs a photonic mesh, whose light goes both ways; name one, as in mesh 5x5, and leave out simplex"
            raise ConfigError(subject + needs, key=key)
        if most_gates(self.loss_budget_db, self.gate_loss_db) and not self.mesh:
            raise ConfigError("is of the gates of a photonic mesh; name one, as in mesh 5x5", key="loss_budget_db")
        for slot in filter(None, self.slots_ms):
            Cycle(slot_s=slot / 1e3, guard_s=self.guard_ms / 1e3)
        return self

    @property
    def bytes_per_s(self) -> float:
        """Payload bytes per second that one rank can send in full packets."""
        return goodput_bytes_per_s(self.port_gbps, self.mtu)

    def trials(self) -> Iterator[Trial]:
        for study in (study for study in self.studies if study != ROUTE):
            known: set[tuple[Any, ...]] = set()
            for values in product(*self._lists(study)):
                once = values[:3] if values[0] == "electrical" else values
                if once in known:
                    continue  # delays and slots do not matter to a packet switch
                known.add(once)
                trial = self._trial(study, *values)
                yield replace(trial, ideal_s=at_line_rate(trial)) if trial.cycle is not None else trial

    def _lists(self, study: Study) -> tuple[tuple[Any, ...], ...]:
        """The variants, ranks, sizes, delays and slots of a study: one value of each, except of the varied list."""
        axis, values, variants = _AXES[study]
        lists: dict[str, tuple[Any, ...]] = {
            "ranks": self.ranks or (8,),
            "sizes": self.sizes or (1_250_000,),
            "delays_ms": self.delays_ms or (10.0,),
            "slots_ms": self.slots_ms or (0.0,),
        }
        if study != "grid":
            lists = {key: found[:1] for key, found in lists.items()}
        if values:
            lists[axis] = getattr(self, axis) or values
        if study == "slot":
            lists["slots_ms"] = tuple(filter(None, lists["slots_ms"]))
        return (self.policies or variants, *lists.values())

    def _trial(self, study: Study, variant: Variant, n: int, size: int, delay_ms: float, slot_ms: float) -> Trial:
        slot_bytes = self._slot_bytes(slot_ms) if slot_ms else 0.0
        if study == "slot":
            size = int((FULL_CYCLES + LAST_CYCLE) * slot_bytes) // 4 * 4
        name = self.demand or ("skewed" if study == "skew" else "uniform")
        demand = read_demand(name, n, size, self.seed)
        if variant == "demand" and demand and n > MOST_DEMAND_RANKS:
            raise ConfigError(
                f"slots for an uneven demand are computed for at most {MOST_DEMAND_RANKS} ranks, not {n}; take fewer "
                "ranks, or another policy",
                key="ranks",
            )
        cycle = Cycle(
            slot_s=slot_ms / 1e3 if slot_ms else None,
            guard_s=self.guard_ms / 1e3,
            simplex=self.simplex,
            demand=demand if variant == "demand" else (),
            most_slots=self.most_slots,
            matchings=self.matchings(n) if variant in ("rotor", "valiant") else (),
        )
        in_slots = variant in SLOT_VARIANTS
        return Trial(
            self._schedule(variant, n, demand),
            n * size if not demand else round(sum(map(sum, demand)) / n),
            self.fabric(variant, n),
            delay_ms / 1e3 if variant != "electrical" else 0.0,
            study=study,
            policy=_POLICY_OF.get(variant, "rotor"),
            cycle=cycle if in_slots else None,
            dimension="ep",
            tags=(
                ("policy", variant),
                ("bytes_per_pair", size),
                ("slot_ms", slot_ms if in_slots and slot_ms else None),
                ("guard_ms", self.guard_ms if in_slots else None),
                ("demand", name),
                ("mesh", self.mesh if variant != "electrical" else ""),
            ),
        )

    def matchings(self, n: int) -> tuple[Pairs, ...]:
        """The matchings of ranks that a rotor takes instead of its own: those of the cover of the mesh, if wanted."""
        return cover_of_ranks(self.fabric("rotor", n)) if self.cover else ()

    def fabric(self, variant: Variant, n: int) -> TrialFabric:
        two_ports = variant in ("multi-hop", "provisioned")
        return TrialFabric(
            "electrical" if variant == "electrical" else "ocs",
            n,
            port_gbps=self.port_gbps / (2 if two_ports else 1),
            mtu=self.mtu,
            circuits=2 if two_ports or self.simplex else 1,
            mesh=self.mesh,
            most_gates=most_gates(self.loss_budget_db, self.gate_loss_db) if self.mesh else None,
        )

    def routes(self) -> Iterator[RouteTrial]:
        """The trials of study route: the circuits of a rotor, for each number of ranks."""
        for n in (self.ranks or (8,)) if ROUTE in self.studies else ():
            fabric, cycle = self.fabric("rotor", n), Cycle(matchings=self.matchings(n))
            yield RouteTrial(fabric, rotor_slots(fabric.plan(Scale(1.0)), cycle), self.gate_us, self.gate_loss_db)

    def _schedule(self, variant: Variant, n: int, demand: Demand) -> Schedule:
        weights = whole_numbers(demand) if demand else None
        if variant not in SLOT_VARIANTS:
            if variant == "provisioned" and n & (n - 1):
                raise ConfigError(
                    f"rounds of pairwise exchange are matchings for a power of two, not {n}; provisioned circuits take "
                    "4, 8 or 16 ranks",
                    key="ranks",
                )
            found = schedule("all_to_all", n, "bidirectional-ring" if variant == "multi-hop" else "pairwise")
            found = replace(found, provisioned=variant == "provisioned", lockstep=variant == "provisioned")
            return replace(found, weights=tuple(w for row in weights for w in row)) if weights else found
        if variant == "valiant":
            check_members("all_to_all", variant, n)
            return valiant_all_to_all(n, weights)
        return straight_all_to_all(n, weights=weights)

    def _slot_bytes(self, slot_ms: float) -> float:
        """Real bytes that a slot of fixed length carries; ``ConfigError`` for a slot that is too short."""
        scale = self.scale.scale()
        up_s = (slot_ms - self.guard_ms) / 1e3 - scale.real_s(LATE_S)
        found = up_s * self.bytes_per_s - scale.real_bytes(HEADROOM_BYTES)
        if found < scale.real_bytes(LEAST_WRITE_BYTES):
            raise ConfigError(
                f"a slot of {slot_ms:g} ms is too short: it must exceed its guard time and the "
                f"{scale.real_s(LATE_S) * 1e3:.3g} ms that this machine may be late; use longer slots",
                key="slots_ms",
            )
        return found


@lru_cache(maxsize=16)
def cover_of_ranks(fabric: TrialFabric) -> tuple[Pairs, ...]:
    """Matchings of the ranks of ``fabric``, one port each, that the mesh of its rail can hold and that join all pairs.

    ``ConfigError`` if two ranks cannot be joined.
    """
    plan = fabric.plan(Scale(1.0)).network("rail")[0].mesh
    assert plan is not None
    rank_of = {port: rank for rank, port in enumerate(plan.ports)}
    found = cover(Mesh.of(plan.width, plan.height), plan.ports, most=plan.most_gates, time_s=COVER_S)
    most = "" if plan.most_gates is None else f" over {plan.most_gates} gates or fewer"
    for a, b in found.apart or found.unlaid:
        raise ConfigError(
            f"ranks {rank_of[a]} and {rank_of[b]} cannot be joined: on a mesh of {fabric.mesh} nothing leads from port "
            f"{a} to port {b}{most} ({'proved' if found.apart else 'nothing was found'}); name other ports, as in "
            f"{plan.width}x{plan.height}@choose",
            key="mesh",
        )
    return tuple(
        tuple(sorted((min(rank_of[a], rank_of[b]), max(rank_of[a], rank_of[b])) for a, b in routed.paths))
        for routed in found.matchings
    )


RankPairs = frozenset[tuple[int, int]]
"""Ordered pairs (sender, receiver)."""


@dataclass(frozen=True)
class SlotReach:
    """One slot among ``n`` ranks: the pairs that should reach each other (``expected``), and those that did."""

    n: int
    slot: int
    expected: RankPairs
    reached: RankPairs

    @property
    def as_expected(self) -> bool:
        return self.expected == self.reached


def slot_reach(settings: PacketSettings, fabric: TrialFabric, cycle: Cycle) -> Iterator[SlotReach]:
    """Set the slots of a rotor on ``fabric`` one after another and ping between all ranks in each; needs root."""
    from experiments.session import Session  # with the emulator, which a prediction does without
    from measure.live.probes import PingMatrix

    with Session(settings, fabric.topology(Scale(1.0))) as session:
        slots = rotor_slots(session.plan, cycle)
        with PingMatrix(session.plan, session.netns_fds()) as matrix:
            for number, slot in enumerate(slots):
                for name, matching in slot.wiring.items():
                    circuits = [list(circuit.ports) for circuit in matching]
                    session.call("rewire", switch=name, circuits=circuits, update="overwrite", delay_s=0.0)
                lanes = sorted({path[1] for path in slot.paths})
                expected = {(a, b) for a, _, b, _ in slot.paths}
                if not cycle.simplex:
                    expected |= {(b, a) for a, b in expected}
                yield SlotReach(fabric.ranks, number, frozenset(expected), matrix.reach(lanes))


def rotor_slots(plan: FabricPlan, cycle: Cycle) -> tuple[Slot, ...]:
    return slots_alone(RotorPolicy(plan), Group("all", "ep", tuple(range(plan.ranks))), cycle)


def meetings(found: list[SlotReach]) -> Counter[tuple[int, int]]:
    """In how many slots each sender reached each receiver."""
    return Counter(pair for one in found for pair in one.reached)


def reach(experiment: AllToAll, console: Console) -> int:
    """Test by pings which ranks reach each other in every slot of a rotor; returns the exit status."""
    settings, status = experiment.settings, 0
    for n in settings.ranks or (8, 16):
        cycle = Cycle(simplex=settings.simplex, matchings=settings.matchings(n))
        found = list(slot_reach(settings, settings.fabric("rotor", n), cycle))
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
    rows = (AllToAllRow, RouteRow)
    quick: ClassVar = {"iterations": 1, "studies": ["ranks", "slot"], "ranks": [4, 8], "sizes": ["625000"]}
    examples = (
        "                     # bytes, ranks, delay, slot, skew",
        "--quick              # two studies, one iteration",
        "--study slot --slots 50,100,200            # duty cycle",
        "--study grid --policies rotor,electrical --ranks 8 --sizes 625000 --delays 10,50",
        "--study skew --demand demand.csv           # a matrix of your own",
        "--reach --ranks 8,16                       # test the circuits by pings",
        "--mesh 5x5 --study delay                   # on a mesh (docs/mesh.md)",
        "--mesh 5x5 --study route                   # round trips by gates",
        "--predict            # the model alone; needs no root",
    )
    actions: ClassVar = {"reach": Action("test of the rotor's circuits by pings in every slot", reach, root=True)}

    def predict(self) -> Iterator[Any]:
        yield from super().predict()
        for route in self.settings.routes():
            yield from rows_of(route)

    def points(self) -> int:
        return super().points() + sum(len(slot.paths) for route in self.settings.routes() for slot in route.slots)

    def pieces(self) -> list[Piece]:
        routes = (Piece(f"round trips, {route.fabric.ranks} ranks", route) for route in self.settings.routes())
        return [*super().pieces(), *routes]

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        if isinstance(piece.of, RouteTrial):
            return measure_routes(runner, piece.of, seed=self.settings.seed)
        return super().measure(runner, piece)

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        return with_guard(values)
