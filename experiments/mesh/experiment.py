"""The mesh experiment: which matchings a photonic mesh can route, over how many gates, and on which paths.

Nothing is emulated. Every matching is routed on the mesh and its light is traced from both ends; with ``exact``, the
fewest gates or the absence of a route is proved. Source: PIP, arXiv 2501.18136.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator, model_validator

from controllers.circuits.circuits import Matching
from controllers.circuits.matchings import one_factorization
from controllers.mesh.corners import dead_end
from controllers.mesh.cover import Cover, cover
from controllers.mesh.exact import route_exact
from controllers.mesh.light_paths import Infeasible, Pair, Routed, check, flips, settled
from controllers.mesh.negotiation import route, without_one
from controllers.mesh.ports import choose
from controllers.mesh.switch import STATES
from experiments.experiment import Experiment
from experiments.mesh.row import MeshRow
from experiments.settings import GateLoss, LossBudget, Option, Settings, most_gates
from measure.results.row import Row
from railyard.errors import CircuitError, ConfigError
from topos.mesh import Mesh, evenly_spaced

if TYPE_CHECKING:
    from experiments.runner import Runner

DEFAULT_PORTS = 8
MOST_SHOWN = 4
"""Most circuits of a matching that are listed in a table or a sentence."""
FAST_SHARE, FAST_S = 0.25, 2.0
"""Time limit of the fast search before the exact one: a share of the matching's time, and at most this many seconds."""
FEWER_SHARE = 0.2
"""Share of a matching's time that the search for fewer ports may take, after no route was found for all ports."""
WITHOUT_S = 0.5
"""Seconds of search per circuit, to find out whether an infeasible matching is routable without that circuit."""
FORMS = ("svg", "png")
EVENLY, NAMED = "evenly spaced", "named"


class MeshStudy(Settings):
    """A mesh of hexagons and the matchings to route on it: one, or all of a 1-factorization of the ports in use."""

    width: int = Field(default=7, description="columns of hexagons, an odd number")
    height: int = Field(default=3, description="hexagons in the first column; every second column has one less")
    ports: Annotated[int | tuple[int, ...] | None, Option(metavar="N|0,5,...")] = Field(
        default=None, description=f"number of ports, or the ports themselves (default {DEFAULT_PORTS})"
    )
    choose: bool | None = Field(
        default=None,
        description="other ports than evenly spaced ones if these do not route every matching (default on without "
        "--exact)",
    )
    matching: Annotated[tuple[tuple[int, int], ...] | None, Option(metavar="0-3,1-2")] = Field(
        default=None, description="one matching of mesh ports, instead of all of a 1-factorization"
    )
    only: Annotated[int | None, Option("--matching-number", "K")] = Field(
        default=None, description="number of the only matching to route, from 0 (default all)"
    )
    exact: bool = Field(default=False, description="fewest gates, or the proof that there is no route")
    cover: bool = Field(
        default=False, description="the fewest partial matchings that join every two of the ports once; with a bound"
    )
    time_s: Annotated[float, Option("--time-limit", "S")] = Field(
        default=10.0, gt=0, le=86_400, description="time limit for each matching, or for a whole cover, in s"
    )
    seed: int = Field(default=0, ge=0, description="seed of payloads and of all that is drawn")
    gate_loss_db: GateLoss = 0.5
    gate_latency_ps: float = Field(default=10.0, ge=0, allow_inf_nan=False, description="latency of a gate (ps)")
    loss_budget_db: LossBudget = None
    draw: Annotated[Path | None, Option(metavar="FILE")] = Field(
        default=None,
        description=f"file for a figure of the mesh with a panel for each matching ({' or '.join(FORMS)})",
    )

    @field_validator("draw")
    @classmethod
    def _form(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix[1:] not in FORMS:
            raise ValueError(f"must end in {' or '.join('.' + form for form in FORMS)}, not {value}")
        if value is not None and not value.parent.is_dir():
            raise ValueError(f"{value.parent} is not a folder; make it first")
        return value

    @field_validator("ports", mode="before")
    @classmethod
    def _ports(cls, value: Any) -> Any:
        return read_ports(value) if isinstance(value, str) else value

    @field_validator("matching", mode="before")
    @classmethod
    def _matching(cls, value: Any) -> Any:
        return read_matching(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> MeshStudy:
        try:
            self._check()
        except CircuitError as error:
            raise ConfigError(str(error), key="matching") from None
        return self

    def _check(self) -> None:
        """Raise ``ConfigError`` or ``CircuitError`` for ports and matchings that do not fit each other or the mesh."""
        if isinstance(self.ports, tuple):
            self.mesh.check_ports(self.ports)
            for port in self.ports:
                if self.ports.count(port) > 1:
                    raise ConfigError(f"port {port} is listed twice; name each port once", key="ports")
        if self.choose and (isinstance(self.ports, tuple) or self.matching is not None):
            raise ConfigError("searches for ports, but the ports are named; leave out one of the two", key="choose")
        most_gates(self.loss_budget_db, self.gate_loss_db)  # refuses a budget that no gate is within
        if self.cover:
            self._check_cover()
        elif self.matching is not None:
            self._check_matching(self.matching)
        else:
            evenly_spaced(self.mesh, self.n)
            if self.n % 2:
                raise ConfigError(f"{self.n} ports have no perfect matching; use an even number", key="ports")
        count = 1 if self.matching is not None else len(one_factorization(self.n))
        if self.only is not None and self.only not in range(count):
            raise ConfigError(f"there is no matching {self.only}; use 0 to {count - 1}", key="only")

    @property
    def most_gates(self) -> int | None:
        """The most gates that a path may cross; ``ConfigError`` for a budget below the loss of one gate."""
        return most_gates(self.loss_budget_db, self.gate_loss_db)

    def _check_cover(self) -> None:
        evenly_spaced(self.mesh, self.n)
        if self.n < 2:
            raise ConfigError(f"{self.n} port has no pairs to cover; use at least 2", key="ports")
        for key in ("matching", "only", "exact", "choose"):
            if getattr(self, key) not in (None, False):
                raise ConfigError(f"makes the matchings of the given ports itself; leave out {key}", key="cover")

    def _check_matching(self, pairs: Sequence[Pair]) -> None:
        self.mesh.check_ports((port for pair in pairs for port in pair), "matching")
        Matching(pairs)
        if self.ports is None:
            return
        used = self.ports if isinstance(self.ports, tuple) else evenly_spaced(self.mesh, self.ports)
        for port in (port for pair in pairs for port in pair):
            if port not in used:
                known = ", ".join(map(str, used))
                raise ConfigError(f"port {port} is not in use; the ports in use are {known}", key="matching")

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh of the study; ``ConfigError`` for an impossible size."""
        return Mesh.of(self.width, self.height)

    @property
    def n(self) -> int:
        if isinstance(self.ports, tuple):
            return len(self.ports)
        if self.ports is not None:
            return self.ports
        return DEFAULT_PORTS if self.matching is None else 2 * len(self.matching)


def read_ports(text: str) -> int | tuple[int, ...]:
    """Parse ``8`` as a number of ports, ``0,5,11,16`` as the ports; ``ValueError`` for any other form."""
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", text, re.ASCII):
        raise ValueError(f"must be a number of ports, or ports as in 0,5,11,16, not {text!r}")
    numbers = tuple(int(part) for part in text.split(",") if part.strip())
    return numbers if "," in text else numbers[0]


def read_matching(text: str) -> tuple[Pair, ...]:
    """Parse ``0-3,1-2`` as pairs of ports; ``ValueError`` for any other form."""
    parts = [re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", part, re.ASCII) for part in text.split(",")]
    if None in parts:
        raise ValueError(f"must be pairs of ports as in 0-3,1-2, not {text!r}")
    return tuple((int(part[1]), int(part[2])) for part in parts if part)


@dataclass(frozen=True)
class Used:
    """The mesh ports in use, in the order of the positions of the 1-factorization, and how they were chosen."""

    ports: tuple[int, ...]
    how: str


def used_ports(study: MeshStudy) -> Used:
    """The mesh ports of a study: the named ports, those of its matching, or a number of ports.

    For a number n of P mesh ports, port k is ``floor(k P / n)``. With ``choose`` other ports are taken where these do
    not route every matching; ``ConfigError`` if none are found. Without a value, ``choose`` is on unless ``exact`` is.
    """
    if isinstance(study.ports, tuple):
        return Used(study.ports, NAMED)
    if study.matching is not None and study.ports is None:
        return Used(tuple(sorted(port for pair in study.matching for port in pair)), NAMED)
    even = Used(evenly_spaced(study.mesh, study.n), EVENLY)
    if study.cover or study.choose is False or study.matching is not None or (study.choose is None and study.exact):
        return even
    chosen = choice(study.mesh, study.n, study.seed, study.time_s)
    if chosen is None and study.choose:
        raise ConfigError(
            f"no {study.n} ports of a mesh of {study.width} x {study.height} were found in {study.time_s:g} s that can "
            "route every matching; use fewer ports, a larger mesh or more --time-limit",
            key="ports",
        )
    return chosen or even


@lru_cache(maxsize=64)
def choice(mesh: Mesh, n: int, seed: int, time_s: float) -> Used | None:
    """``n`` ports between which every matching is routable, preferably evenly spaced.

    None if no such ports were found in ``time_s`` seconds.
    """
    try:
        found = choose(mesh, n, seed=seed, time_s=time_s)
    except ConfigError:
        return None
    return Used(found.ports, found.how)


def matchings(study: MeshStudy, used: Used, covered: Cover | None = None) -> tuple[tuple[Pair, ...], ...]:
    """The matchings of a study, or of its cover, as pairs of mesh ports, the lower first."""
    if covered is not None:
        return tuple(tuple(routed.paths) for routed in covered.matchings)
    if study.matching is not None:
        chosen: Sequence[Sequence[Pair]] = [study.matching]
    else:
        chosen = [[(used.ports[a], used.ports[b]) for a, b in matching] for matching in one_factorization(study.n)]
    return tuple(tuple((min(pair), max(pair)) for pair in matching) for matching in chosen)


def answers(study: MeshStudy, used: Used) -> Iterator[MeshRow]:
    """Route the matchings of a study one after the other, and yield the row of each.

    The light of every path is traced from both ends; ``CircuitError`` if it does not come out at the partner port.
    """
    states: tuple[bool, ...] | None = None
    began = time.monotonic()
    covered = covered_by(study, used) if study.cover else None
    for number, pairs in enumerate(matchings(study, used, covered)):
        if study.only not in (None, number):
            continue
        found = covered.matchings[number] if covered else search(study, pairs)
        seconds = time.monotonic() - began
        row = MeshRow(
            width=study.width,
            height=study.height,
            mesh_gates=len(study.mesh.gates),
            mesh_ports=len(study.mesh.ports),
            used_ports=used.ports,
            used_ports_are=used.how,
            number=number,
            pairs=pairs,
            routable=None if found is None else isinstance(found, Routed),
            proved=found.proved if isinstance(found, Routed) else found is not None,
            seconds=round(seconds, 4),
        )
        if covered is not None:
            row.cover, row.cover_bound, row.cover_bound_is = len(covered.matchings), covered.bound, covered.why
            row.apart = covered.apart
        if isinstance(found, Routed):
            check(study.mesh, found, pairs)
            row.flips = None if states is None else flips(states, found)
            states = found.states if states is None else settled(states, found).states
            _add_route(row, study, found)
        yield row
        began = time.monotonic()


def covered_by(study: MeshStudy, used: Used) -> Cover:
    """The cover of the ports in use; ``CircuitError`` if nothing can be joined, or a pair got no answer in time."""
    found = cover(study.mesh, used.ports, most=study.most_gates, seed=study.seed, time_s=study.time_s)
    if found.unlaid or not found.matchings:
        a, b = (found.unlaid or found.apart)[0]
        why = "neither a path nor the proof that there is none was found in time" if found.unlaid else "proved"
        raise CircuitError(f"ports {a} and {b} of {study.mesh} cannot be joined ({why}); take other --ports")
    return found


def _add_route(row: MeshRow, study: MeshStudy, found: Routed) -> None:
    row.paths = [found.paths[a, b] for a, b in row.pairs]
    lengths = [len(path) for path in row.paths]
    row.gates, row.states = found.gates, [STATES[state] for state in found.states]
    row.path_min, row.path_mean, row.path_max = min(lengths), mean(lengths), max(lengths)
    row.loss_db = row.path_max * study.gate_loss_db
    row.latency_ps = row.path_max * study.gate_latency_ps


def search(study: MeshStudy, pairs: Sequence[Pair]) -> Routed | Infeasible | None:
    """A route for ``pairs``, the proof that there is none, or None; dead ends in corners are found without a solver."""
    if dead_end(study.mesh, pairs):
        return Infeasible(tuple(pairs))
    if not study.exact:
        return route(study.mesh, pairs, most=study.most_gates, seed=study.seed, time_s=study.time_s)
    until = time.monotonic() + study.time_s
    most, fast_s = study.most_gates, min(FAST_S, FAST_SHARE * study.time_s)
    hint = route(study.mesh, pairs, most=most, seed=study.seed, time_s=fast_s)
    return route_exact(study.mesh, pairs, most=most, time_s=max(0.01, until - time.monotonic()), hint=hint) or hint


def what_works(study: MeshStudy, found: Sequence[MeshRow]) -> str:
    """One sentence about the first matching without a route: why, and what would work; empty if all have a route."""
    first = found[0]
    if first.cover is not None and first.cover_bound is not None and first.cover > first.cover_bound:
        return (
            f"the search ended at its limit of {study.time_s:g} s with a cover of {first.cover} matchings; that none "
            f"has fewer than {first.cover_bound} is proved, and nothing in between; use a longer --time-limit"
        )
    missing = [answer for answer in found if answer.routable is not True]
    if not missing:
        return ""
    first = min(missing, key=lambda answer: answer.routable is None)
    more = f" (nor for {len(missing) - 1} others)" if len(missing) > 1 else ""
    shown = f"{some_pairs(first.pairs, ', ')}{more} on a mesh of {study.width} x {study.height}"
    if study.most_gates is not None:
        shown += f" with at most {study.most_gates} gates a path"
    if first.routable is None:
        return f"no route was found for {shown} in {study.time_s:g} s, which proves nothing; {_try(study)}"
    pairs = [(a, b) for a, b in first.pairs]
    lost = dead_end(study.mesh, pairs)
    why = "" if lost is None else f": light of port {lost[0]} can only come out at port {lost[1]}"
    return f"there is no route for {shown} (proved{why}); {_instead(study, pairs)}"


def some_pairs(pairs: Sequence[Sequence[int]], between: str) -> str:
    """The pairs of ports of a matching as text with ``between`` them, at most ``MOST_SHOWN`` of them."""
    shown = between.join(f"{a}-{b}" for a, b in pairs[:MOST_SHOWN])
    more = len(pairs) - MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _try(study: MeshStudy) -> str:
    proof = "" if study.exact else "use --exact for a proof that there is none, "
    return f"{proof}a longer --time-limit, or other --ports"


def _instead(study: MeshStudy, pairs: Sequence[Pair]) -> str:
    without = without_one(study.mesh, pairs[::-1], most=study.most_gates, seed=study.seed, time_s=WITHOUT_S)
    found = [] if without is None else [f"without {without[0]}-{without[1]} there is one"]
    if study.most_gates is not None:
        return ", and ".join([*found, "a larger --loss-budget may do"])
    for n in range(2 * len(pairs), 1, -2):
        share = 1.0 if n == 2 * len(pairs) else FEWER_SHARE
        if chosen := choice(study.mesh, n, study.seed, share * study.time_s):
            found.append(f"all matchings have one with --ports {','.join(map(str, chosen.ports))}")
            break
    return ", and ".join(found) or "a larger mesh may have one"


NOT_FOUND_EXIT_STATUS = 1
_OF_MESH = ("width", "height", "used_ports", "used_ports_are")
_OF_COVER = ("cover", "cover_bound", "cover_bound_is", "apart")
_OF_MATCHING = (
    *("pairs", "routable", "gates", "paths", "states", "flips", "seconds", "proved"),
    *("path_min", "path_mean", "path_max", "loss_db", "latency_ps"),
)


class MeshRouting(Experiment[MeshStudy]):
    """The matchings that a photonic mesh can route, over how many gates, and on which paths; no packets, no root.

    A matching is routable: yes, no (proved), or not found: no route was found in time, which proves nothing (use
    --exact). The exit status is 1 if a matching got no answer in time, else 0.
    """

    name = "mesh"
    Settings = MeshStudy
    rows = (MeshRow,)
    examples = (
        "                       # matchings of 8 ports, 7 x 3 mesh",
        "--width 3 --height 3 --ports 8 --exact            # fewest gates",
        "--width 9 --height 9 --ports 32                   # suitable ports",
        "--width 9 --height 9 --ports 32 --no-choose       # even spacing",
        "--width 3 --height 3 --matching 0-14,7-21 --draw one.svg",
        "--width 5 --height 5 --ports 0,5,11,16,22,27 --draw all.png",
        "--width 3 --height 3 --ports 12 --cover           # fewest matchings",
        "--exact --json         # for other programs",
    )
    packets = keeps = root = False

    def points(self) -> int | None:
        if self.settings.cover:
            return None
        one = self.settings.matching is not None or self.settings.only is not None
        return 1 if one else self.settings.n - 1

    def run(self, runner: Runner) -> None:
        """Route every matching, draw the figure if one is wanted, and say what would work where there is no route."""
        study, found = self.settings, list[MeshRow]()
        runner.progress.begin("searching")
        used = used_ports(study)
        for row in answers(study, used):
            found.append(row)
            runner.add(row)
        if study.draw is not None:
            from experiments.mesh.figure import write_figure

            write_figure(study.draw, runner.rows)
        runner.progress.begin("searching for alternatives")
        advice = what_works(study, found)
        runner.progress.done()
        if advice:
            print(f"railyard: {advice}", file=sys.stderr)

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a matching got no answer in time, or a cover no proof that it has the fewest; else 0."""
        open_ones = (row["routable"] is None or row.get("cover") != row.get("cover_bound") for row in rows)
        return NOT_FOUND_EXIT_STATUS if any(open_ones) else 0

    def as_json(self, rows: Sequence[Row]) -> Any:
        first = rows[0]
        return {
            **{key: first[key] for key in _OF_MESH},
            "gates": first["mesh_gates"],
            "ports": first["mesh_ports"],
            **{key: first[key] for key in _OF_COVER if first.get("cover") is not None},
            "matchings": [{key: row[key] for key in _OF_MATCHING} for row in rows],
        }
