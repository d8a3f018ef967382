"""Claims about collectives, StragglAR, rotating circuits and photonic meshes (PIP), and the trunk of Propius."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims.claim import Claim, Tolerance
from experiments.claims.numbers import fields, furthest, in_repeats, ratio, share, total, where
from experiments.straggler.findings import break_even
from experiments.straggler.law import StragglerLaw
from experiments.straggler.report import laws
from measure.published import published
from measure.results.row import Row

_RING, _LATE = where(algorithm="ring"), where(algorithm="stragglar")
_AFTER_ARRIVAL = ratio("after_arrival_s", _RING, _LATE)


def _speedup_by_law(rows: Sequence[Row]) -> float:
    return laws(rows)[0].speedup


def _critical_delay_s(rows: Sequence[Row]) -> float:
    return laws(rows)[0].critical_delay_s


def _speedup(n: int, name: str, says: str, source: str, tolerance: Tolerance, why: str = "") -> Claim:
    """The claim that StragglAR is faster than Ring by a ratio, after the straggler's arrival on ``n`` ranks."""
    simulated = published(source).values.get(n) if source == "stragglar-simulated" else None
    return Claim(
        name=name,
        system="StragglAR",
        says=says,
        run="straggler-ranks",
        rows=where(n=n),
        number=_AFTER_ARRIVAL,
        source=source,
        expected=in_repeats(_speedup_by_law) if source == "law" else simulated,
        tolerance=tolerance,
        unit="x",
        form=".3g" if source == "stragglar-measured" else ".3f",
        why=why,
    )


_MEASURED, _CRITICAL, _RATE = (
    published(key) for key in ("stragglar-measured", "stragglar-critical-delay", "h100-rate")
)
_LAW = StragglerLaw(8, 4 << 30, 0.0, _RATE.value * 1e9)
_ROUND_COST = (_LAW.ring_s / _MEASURED.bounds[1] - _LAW.second_phase_s) / _LAW.rounds / _LAW.wire_s
"""What a round of StragglAR must cost for the law to give the ratio of the hardware, in times of the whole buffer."""


def _critical_ms(round_cost: float) -> float:
    """T_crit if each round of StragglAR costs so much, in times of the whole buffer, and those of Ring nothing."""
    rounds = _LAW.n - 2 + _LAW.rounds
    return (_LAW.critical_delay_s + rounds * round_cost * _LAW.wire_s) * 1e3


_NEAR = Tolerance(share=0.03)

COLLECTIVES: tuple[Claim, ...] = (
    Claim(
        name="collective-model",
        system="Collectives",
        says="All-reduces of 1 and 4 MB take as long as predicted; the worst measured / predicted is shown",
        run="collective",
        number=furthest("time_s", "predicted_time_s"),
        source="model",
        expected=1.0,
        tolerance=Tolerance(share=0.02),
        form=".3f",
    ),
)

LATE_RANK: tuple[Claim, ...] = (
    *(
        _speedup(
            n,
            f"stragglar-law-{n}",
            f"After the arrival of a late rank StragglAR beats Ring of {n} ranks as its law says",
            "law",
            _NEAR,
        )
        for n in (4, 8, 16)
    ),
    _speedup(
        16,
        "stragglar-simulated",
        "After the arrival of a late rank of sixteen StragglAR beats Ring as in the authors' simulation",
        "stragglar-simulated",
        _NEAR,
    ),
    _speedup(
        8,
        "stragglar-hardware",
        "After the arrival of a late rank of eight StragglAR beats Ring as the authors measured it on GPUs",
        "stragglar-measured",
        Tolerance(share=0.02),
        why="law, simulation and emulator are 9 to 12 % above the hardware: they know latency and bytes. One cost for "
        f"each round of the algorithm, {_ROUND_COST:.4f} of the time of the whole buffer on a link, lowers the law to "
        f"{_MEASURED.bounds[1]:g}, and the same cost moves T_crit of 4 GiB on GPUs of {_RATE.value:g} {_RATE.unit} "
        f"from {_critical_ms(0.0):.2f} to {_critical_ms(_ROUND_COST):.2f} ms, where {_CRITICAL.value:g} ms were "
        f"measured ({_CRITICAL.where}).",
    ),
    Claim(
        name="stragglar-break-even",
        system="StragglAR",
        says="StragglAR is faster than Ring from that lateness of a rank on that its law gives",
        run="straggler",
        number=break_even,
        source="law",
        expected=in_repeats(_critical_delay_s),
        tolerance=Tolerance(share=0.05),
        unit="s",
    ),
    Claim(
        name="stragglar-loses",
        system="StragglAR",
        says="Where no rank is late an all-reduce of StragglAR takes longer than one of Ring",
        run="straggler",
        rows=where(algorithm=("ring", "stragglar"), straggler_delay_s=0.0),
        number=ratio("time_s", _LATE, _RING),
        source="limit",
        expected=1.0,
        tolerance=Tolerance(side="least"),
        unit="x",
        form=".3f",
    ),
    Claim(
        name="stragglar-model",
        system="StragglAR",
        says="With a late rank every all-reduce takes as long as predicted; the worst measured / predicted is shown",
        run="straggler",
        number=furthest("time_s", "predicted_time_s"),
        source="model",
        expected=1.0,
        tolerance=Tolerance(share=0.02),
        form=".3f",
    ),
)

ROTATION: tuple[Claim, ...] = (
    Claim(
        name="pip-formula",
        system="PIP",
        says="An all-to-all of 8 ranks over rotating circuits takes (n - 1)(D / B + T), here for T = 100 ms; the "
        "measured time over that is shown",
        run="all-to-all",
        rows=where(study="delay", policy="rotor", slot_ms=None, reconfiguration_delay_ms=100.0),
        number=fields("time_s", "formula_s"),
        source="law",
        expected=1.0,
        tolerance=_NEAR,
        form=".3f",
        note="Slots are as long as their bytes take, as the formula has them.",
    ),
    Claim(
        name="pip-duty",
        system="PIP",
        says="In slots of 200 ms ranks send for the share of the time that dark and guard times leave",
        run="all-to-all",
        rows=where(study="slot", slot_ms=200.0),
        number=fields("duty_cycle", "ideal_duty_cycle"),
        source="law",
        expected=1.0,
        tolerance=Tolerance(share=0.01),
        form=".3f",
    ),
    Claim(
        name="pip-once",
        system="PIP",
        says="While circuits rotate no packet arrives at a host that it is not for",
        run="all-to-all",
        number=total("misdelivered"),
        source="law",
        expected=0.0,
        tolerance=Tolerance(),
        unit="packets",
    ),
    Claim(
        name="pip-matchings",
        system="PIP",
        says="A mesh of 3 x 3 holds all 7 matchings in which 8 evenly spaced ports meet pairwise",
        run="mesh",
        number=share(where(routable=True, proved=True)),
        source="law",
        expected=1.0,
        tolerance=Tolerance(),
        note="Each with the fewest gates, proved. The mesh is of our geometry, not the authors' device.",
    ),
    Claim(
        name="pip-32",
        system="PIP",
        says="A mesh of 9 x 9 can switch 32 ports: it holds all matchings in which they meet pairwise",
        run="mesh-32",
        rows=where(routable=True),
        number=lambda rows: float(len(rows) + 1),
        source="pip-most-ports",
        tolerance=Tolerance(),
        unit="ports",
        note="Shown are the ports whose 31 matchings fit. They are chosen; of evenly spaced ones none fits.",
    ),
)

TRUNK: tuple[Claim, ...] = (
    Claim(
        name="propius-trunk",
        system="Propius",
        says="A round over an optical trunk takes as long as the formula says; the worst measured / formula is shown",
        run="propius-trunk",
        number=furthest("time_s", "predicted_time_s"),
        source="law",
        expected=1.0,
        tolerance=Tolerance(share=0.05),
        form=".3f",
        note="The optical trunk is ours.",
    ),
    Claim(
        name="propius-turns",
        system="Propius",
        says="Regions that take turns on an optical trunk without a delay end a round before those that share one",
        run="propius-trunk",
        rows=lambda row: (
            row.get("policy") == "electrical" or (row.get("policy"), row.get("delay_ms")) == ("phase", 0.0)
        ),
        number=ratio("time_s", where(policy="electrical"), where(policy="phase")),
        source="limit",
        expected=1.0,
        tolerance=Tolerance(side="least"),
        unit="x",
    ),
)
