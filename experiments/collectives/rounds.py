"""Closed forms for a collective whose circuits follow its rounds, and the delays at which one kind overtakes another.

A *stage* is a run of rounds on the same circuits; it takes as long as its longest transfers, one round after the other.
D is the reconfiguration delay, 0 for a stage whose circuits stand since an earlier stage or step:

- on demand, a stage asks for its circuits when the one before it is over: T = sum (t + D);
- provisioned, stages take turns on two ports of half the rate, and the circuits of a stage are set up while the one
  before it is sent: T = D of the first + sum max(t, D of the next) over all stages but the last + t of the last;
- static circuits serve all rounds: T = sum t.

These follow from the rules of ``workloads.collectives.circuits`` and ``workloads.rank.circuit_client``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations

from experiments.collectives.trial import OCS_PORTS, Trial
from measure.metrics.critical import round_bytes
from measure.metrics.estimate import crossing
from measure.results.estimates import crossing_of
from measure.results.row import Row
from railyard.size import in_words
from workloads.collectives.circuits import End, Ends, circuit_uses
from workloads.rank.exchange import elements_of

Law = Callable[[Trial], float]
"""The time of a trial after the last arrival, in seconds."""
Kind = tuple[str, int, int, str, str]
"""Study, ranks, bytes, policy or algorithm, and kind of circuits."""
_LONG_S = 1e6


@dataclass(frozen=True)
class Stage:
    """Rounds on the same circuits: their time in seconds, and whether other circuits stand there before."""

    first_round: int
    seconds: float
    changes: bool


def stages(trial: Trial) -> tuple[Stage, ...]:
    """The stages of a step that is not the first: circuits may stand since the step before."""
    fabric, plan = trial.fabric, trial.schedule
    rails, inside = fabric.bytes_per_s(), fabric.bytes_per_s(fabric.scale_up_gbps)
    rounds = sorted({t.round for t in plan.transfers if not t.local})
    sizes = round_bytes(plan, elements_of(trial.bytes), OCS_PORTS)
    seconds = {r: max(s.scale_out / rails, s.scale_up / inside) for r, s in zip(rounds, sizes, strict=True)}
    circuits: dict[int, set[Ends]] = defaultdict(set)
    for use in circuit_uses(plan):
        for number in use.transfers:
            circuits[plan.transfers[number].round].add(use.ends)
    runs = [(ends, list(run)) for ends, run in groupby(rounds, key=lambda number: circuits[number])]
    standing: dict[End, Ends] = {}
    found: list[Stage] = []
    for ends, run in runs * 2:
        by_port = {end: pair for pair in ends for end in pair}
        changes = any(standing.get(end) != pair for end, pair in by_port.items())
        found.append(Stage(run[0], sum(seconds[number] for number in run), changes))
        standing |= by_port
    return tuple(found[len(runs) :])


def has_law(trial: Trial) -> bool:
    """Whether the law gives the time of ``trial``: one collective on circuits, late by no other rank or cause."""
    plan = trial.schedule
    one = not (trial.then or plan.pause_s or trial.varies) and trial.groups == 1 and trial.study != "injection"
    expected = None in (plan.straggler, trial.late_rank) or plan.straggler == trial.late_rank
    return one and expected and trial.circuits not in ("", "in-slots")


def after_arrival_s(trial: Trial) -> float:
    """The law of a trial whose circuits follow its schedule, from the last rank's arrival on."""
    every = stages(trial)
    early = [stage for stage in every if stage.first_round < trial.schedule.first_phase]
    late = every[len(early) :]
    return max(0.0, _elapsed_s(trial, early) - trial.straggler_delay_s) + _elapsed_s(trial, late)


def _elapsed_s(trial: Trial, of: Sequence[Stage]) -> float:
    dark_s = [trial.reconfiguration_delay_s * stage.changes for stage in of]
    if not trial.schedule.provisioned:
        return sum(stage.seconds for stage in of) + sum(dark_s)
    hidden = zip(of, dark_s[1:], strict=False)
    return sum(dark_s[:1]) + sum(max(stage.seconds, dark) for stage, dark in hidden) + sum(s.seconds for s in of[-1:])


def overtakes_s(law: Law, first: Trial, second: Trial) -> float | None:
    """The reconfiguration delay from which on ``second`` is faster than ``first`` by their law; None if it never is.

    Laws are straight between the times of stages.
    """
    knees = {stage.seconds for trial in (first, second) if trial.cycle is None for stage in stages(trial)}
    delays = sorted({0.0, *knees, _LONG_S})
    return crossing(delays, *([law(replace(t, reconfiguration_delay_s=d)) for d in delays] for t in (first, second)))


def crossings(rows: Sequence[Row], trials: Callable[[], Iterable[Trial]], law: Law) -> Iterator[str]:
    """Sentences on the delays from which provisioned and static circuits are faster, measured and by ``law``.

    ``trials`` are those of the settings of ``rows``.
    """
    rows = [row for row in rows if row.get("circuits")]
    kinds: dict[Kind, Trial] = {}
    for t in trials() if len({row["reconfiguration_delay_ms"] for row in rows}) > 1 else ():
        name = dict(t.tags).get("policy", t.schedule.algorithm)
        kinds.setdefault((t.study, t.schedule.n, t.bytes, name, t.circuits), t)
    for one, other in filter(_are_compared, permutations(kinds, 2)):
        first, second = ([row for row in rows if _kind(row) == kind] for kind in (one, other))
        if min(len(first), len(second)) > 1:
            at = crossing_of(first, second, "reconfiguration_delay_ms", "after_arrival_s")
            least_s = min(row["reconfiguration_delay_ms"] for row in first) / 1e3
            measured = _from_on(None if at is None else at.median / 1e3, least_s, "reconfiguration delays")
            yield (
                f"{one[1]} ranks, {in_words(one[2])}: {_words(other)} is faster than {_words(one)} at {measured}; "
                f"law: at {_from_on(overtakes_s(law, kinds[one], kinds[other]), 0.0, 'delays')}."
            )


def _kind(row: Row) -> Kind:
    return row["study"], row["n"], row["bytes"], row.get("policy") or row["algorithm"], row["circuits"]


def _words(kind: Kind) -> str:
    *_, name, circuits = kind
    return name if circuits in (name, "in-slots") else f"{circuits} {name}"


def _are_compared(pair: tuple[Kind, Kind]) -> bool:
    """Circuits that follow with provisioned ones of the same algorithm, and both with static ones, in one study."""
    (*place, name, circuits), (*others, other_name, other_circuits) = pair
    if other_circuits == "provisioned":
        return place == others and (circuits == "in-slots" or (circuits == "on-demand" and name == other_name))
    return place == others and other_circuits == "static" and circuits not in ("", "static")


def _from_on(delay_s: float | None, least_s: float, delays: str) -> str:
    if delay_s is None:
        return f"none of the {delays}"
    return f"all {delays}" if delay_s <= least_s else f"{delays} from {delay_s * 1e3:.1f} ms on"
