"""The all-to-all experiment: everybody sends to everybody, over circuits that take turns and over what they replace.

Ways of doing it, each with the same bandwidth for a rank:

============ =========================================================================================
electrical   a packet switch; pairwise exchange, one port for each rank
rotor        circuits go through the matchings in which each pair meets once, whatever the demand
valiant      the same, each pair's data in two hops over all other ranks (for uneven demand)
demand       circuits in turns that are made for the demand
multi-hop    a ring of circuits that stands; what is not for a neighbour is forwarded. Two ports of half the rate
============ =========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from controllers.circuits.rotation import Cycle, Demand
from experiments.all_to_all.demand import read_demand, whole_numbers
from experiments.all_to_all.formula import at_line_rate
from experiments.collective.settings import UnscaledSection
from experiments.settings import Settings
from experiments.trials.trial import Trial, TrialFabric
from railyard.errors import ConfigError
from railyard.scale import MTU_BYTES, goodput_share
from railyard.size import read_sizes
from workloads.agent.transport.connection import LEAST_WRITE_BYTES
from workloads.agent.transport.pacing import HEADROOM_BYTES, LATE_S
from workloads.collectives.catalog import schedule
from workloads.collectives.straight import straight_all_to_all
from workloads.collectives.valiant import valiant_all_to_all
from workloads.schedule import Schedule

Way = Literal["electrical", "rotor", "valiant", "demand", "multi-hop"]
Study = Literal["bytes", "ranks", "delay", "slot", "skew", "grid"]
STUDIES: dict[Study, str] = {
    "bytes": "time against bytes per pair",
    "ranks": "time against the number of ranks",
    "delay": "time against the reconfiguration delay",
    "slot": "duty cycle against the length of slots, each full",
    "skew": "uneven demand",
    "grid": "everything with everything",
}
FULL_CYCLES, LAST_CYCLE = 3, 0.7
"""In study ``slot`` every slot is full for so many cycles, and in the last cycle filled to so much: there is room for
what this machine left over in those before."""
TURNING: tuple[Way, ...] = ("rotor", "valiant", "demand")
"""The ways whose circuits take turns."""
_AXES: dict[Study, tuple[str, tuple[Any, ...], tuple[Way, ...]]] = {
    "bytes": ("sizes", (312_500, 625_000, 1_250_000, 2_500_000), ("electrical", "rotor", "multi-hop")),
    "ranks": ("ranks", (4, 8, 16), ("electrical", "rotor", "multi-hop")),
    "delay": ("delays_ms", (10.0, 20.0, 50.0, 100.0), ("electrical", "rotor")),
    "slot": ("slots_ms", (50.0, 100.0, 200.0, 400.0), ("rotor",)),
    "skew": ("policies", (), ("electrical", "rotor", "valiant", "demand", "multi-hop")),
    "grid": ("", (), ("electrical", "rotor")),
}
"""Which list a study goes through, its values unless others are given, and the ways it compares."""


class AllToAllExperiment(Settings):
    """``sizes`` are bytes per ordered pair (their mean where ``demand`` is uneven). ``slots_ms`` 0 stands for slots
    that end when everybody has sent its part; in study ``slot`` each pair has more to send than ``FULL_CYCLES`` slots
    take.

    ``demand``: ``uniform``, ``skewed`` (drawn with ``seed``; ``experiments.all_to_all.demand``) or a CSV file.
    ``simplex``: a rank sends to one and receives from another. ``mesh``: the photonic mesh that the switch is, as
    ``5x5``.
    """

    experiment: Literal["all-to-all"] = "all-to-all"
    studies: tuple[Study, ...] = Field(default=("bytes", "ranks", "delay", "slot", "skew"), min_length=1)
    policies: tuple[Way, ...] | None = None
    ranks: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    delays_ms: tuple[float, ...] = ()
    slots_ms: tuple[float, ...] = ()
    guard_ms: float = Field(default=2.0, ge=0, le=10_000)
    simplex: bool = False
    demand: str | None = None
    most_slots: int = Field(default=0, ge=0)
    mesh: str = ""
    port_gbps: float = Field(default=0.05, gt=0, le=3200)
    mtu: int = Field(default=MTU_BYTES, ge=1500, le=9000)
    iterations: int = Field(default=3, ge=1, le=10_000)
    scale: UnscaledSection = UnscaledSection()

    @field_validator("sizes", mode="before")
    @classmethod
    def _sizes(cls, value: Any) -> Any:
        return read_sizes(value)

    @field_validator("ranks")
    @classmethod
    def _ranks(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 2 <= n <= 128 for n in value):
            raise ValueError("must be 2 to 128 ranks")
        return value

    @field_validator("delays_ms", "slots_ms")
    @classmethod
    def _times(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for time in value:
            if not 0 <= time <= 600_000:
                raise ValueError(f"each must be between 0 and 600000 ms, not {time:g}")
        return value

    @model_validator(mode="after")
    def _slots_are_slots(self) -> AllToAllExperiment:
        if "slot" in self.studies and 0 in self.slots_ms:
            raise ValueError("study slot needs slots of a length; 0 (as long as it takes) is none")
        for slot in filter(None, self.slots_ms):
            Cycle(slot_s=slot / 1e3, guard_s=self.guard_ms / 1e3)
        return self

    @property
    def bytes_per_s(self) -> float:
        """The payload that one rank can send, in full packets."""
        return self.port_gbps * 1e9 / 8 * goodput_share(self.mtu)

    def trials(self) -> Iterator[Trial]:
        """Every case of every study; ``ConfigError`` for what cannot be."""
        for study in self.studies:
            known: set[tuple[Any, ...]] = set()
            for values in product(*self._lists(study)):
                once = values[:3] if values[0] == "electrical" else values
                if once in known:
                    continue  # a packet switch has no circuits to wait for
                known.add(once)
                trial = self._trial(study, *values)
                yield replace(trial, ideal_s=at_line_rate(trial)) if trial.cycle is not None else trial

    def _lists(self, study: Study) -> tuple[tuple[Any, ...], ...]:
        """The ways, ranks, sizes, delays and slots of a study: one of each but of what it goes through."""
        axis, values, ways = _AXES[study]
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
        return (self.policies or ways, *lists.values())

    def _trial(self, study: Study, way: Way, n: int, size: int, delay_ms: float, slot_ms: float) -> Trial:
        carries = self._slot_bytes(slot_ms) if slot_ms else 0.0
        if study == "slot":
            size = int((FULL_CYCLES + LAST_CYCLE) * carries) // 4 * 4
        demand = self._demand(study, n, size)
        cycle = Cycle(
            slot_s=slot_ms / 1e3 if slot_ms else None,
            guard_s=self.guard_ms / 1e3,
            simplex=self.simplex,
            demand=demand if way == "demand" else (),
            most_slots=self.most_slots,
        )
        turning = way in TURNING
        return Trial(
            self._schedule(way, n, demand),
            n * size if not demand else round(sum(map(sum, demand)) / n),
            self.fabric(way, n),
            delay_ms / 1e3 if way != "electrical" else 0.0,
            study=study,
            policy={"electrical": "", "multi-hop": "opus", "demand": "demand"}.get(way, "rotor"),
            cycle=cycle if turning else None,
            dimension="ep",
            labels=(
                ("policy", way),
                ("bytes_per_pair", size),
                ("slot_ms", slot_ms if turning and slot_ms else None),
                ("guard_ms", self.guard_ms if turning else None),
                ("demand", (self.demand or ("skewed" if study == "skew" else "uniform"))),
                ("mesh", self.mesh if way != "electrical" else ""),
            ),
        )

    def _demand(self, study: Study, n: int, size: int) -> Demand:
        """Bytes between positions; () where all are the same."""
        return read_demand(self.demand or ("skewed" if study == "skew" else "uniform"), n, size, self.seed)

    def fabric(self, way: Way, n: int) -> TrialFabric:
        """The fabric among ``n`` ranks."""
        share = 0.5 if way == "multi-hop" else 1.0
        return TrialFabric(
            "electrical" if way == "electrical" else "ocs",
            n,
            port_gbps=self.port_gbps * share,
            mtu=self.mtu,
            circuits=2 if way == "multi-hop" or self.simplex else 1,
            mesh=self.mesh,
        )

    def _schedule(self, way: Way, n: int, demand: Demand) -> Schedule:
        weights = whole_numbers(demand) if demand else None
        if way in ("electrical", "multi-hop"):
            found = schedule("all_to_all", n, "pairwise" if way == "electrical" else "bidirectional-ring")
            return replace(found, weights=tuple(w for row in weights for w in row)) if weights else found
        if way == "valiant":
            return valiant_all_to_all(n, weights)
        return straight_all_to_all(n, weights=weights)

    def _slot_bytes(self, slot_ms: float) -> float:
        """Bytes of the real system that a slot of fixed length takes; ``ConfigError`` if that is next to nothing."""
        scale = self.scale.scale()
        light_s = (slot_ms - self.guard_ms) / 1e3 - scale.real_s(LATE_S)
        found = light_s * self.bytes_per_s - scale.real_bytes(HEADROOM_BYTES)
        if found < scale.real_bytes(LEAST_WRITE_BYTES):
            raise ConfigError(
                f"a slot of {slot_ms:g} ms carries next to nothing beside its guard time and the "
                f"{scale.real_s(LATE_S) * 1e3:.3g} ms that this machine may be late; longer slots are right",
                key="slots_ms",
            )
        return found
