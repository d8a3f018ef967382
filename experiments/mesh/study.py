"""Can the mesh of a photonic switch hold the matchings of an all-to-all, and over how many cells?

Nothing is emulated: every matching is laid on the mesh, its light followed from both ends, and what cannot be laid is
proved so where that is asked. Source: PIP, arXiv 2501.18136.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import mean
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from controllers.circuits.circuits import Matching
from controllers.circuits.matchings import perfect_matchings
from controllers.mesh.corners import dead_end
from controllers.mesh.exact import route_exact
from controllers.mesh.light_paths import Infeasible, Pair, Routed, check, flips, path_latency_s, path_loss_db, settled
from controllers.mesh.negotiation import route
from controllers.mesh.ports import choose
from experiments.settings import Section
from railyard.errors import CircuitError, ConfigError
from topos.mesh import Mesh, evenly_spaced

DEFAULT_PORTS = 8
MOST_SHOWN = 4
"""Circuits of a matching that are named where all would be too many."""
FAST_SHARE, FAST_S = 0.25, 2.0
"""How much of the time of a matching the fast search may take before the exact one: a share, and at most so long."""
FEWER_SHARE = 0.2
"""How much of the time of a matching the search for fewer ports may take, where so many have no way."""
WITHOUT_S = 0.5
"""How long to look whether an infeasible matching works without one circuit (seconds for each)."""
STATES = ("bar", "cross")
EVENLY, NAMED = "evenly spaced", "named"


class MeshStudy(Section):
    """A mesh of ``width`` x ``height`` hexagons and the matchings to lay on it, ``time_s`` seconds for each.

    ``ports``: how many of its external ports are used, or which (``used_ports``). Without ``matching`` all of a
    1-factorization are laid, or number ``only`` of them, otherwise that one: pairs of the mesh's ports. ``exact``: the
    fewest cells, or the proof that there is no way. A cell costs light ``cell_loss_db`` and ``cell_latency_ps``.
    """

    experiment: Literal["pip-mesh"] = "pip-mesh"
    width: int = 7
    height: int = 3
    ports: int | tuple[int, ...] | None = None
    choose: bool | None = None
    matching: tuple[tuple[int, int], ...] | None = None
    only: int | None = None
    exact: bool = False
    time_s: float = Field(default=10.0, gt=0, le=86_400)
    seed: int = Field(default=0, ge=0)
    cell_loss_db: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    cell_latency_ps: float = Field(default=10.0, ge=0, allow_inf_nan=False)

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
        except (ConfigError, CircuitError) as error:
            raise ValueError(str(error)) from None
        return self

    def _check(self) -> None:
        """``ConfigError`` or ``CircuitError`` for ports and matchings that do not fit each other or the mesh."""
        if isinstance(self.ports, tuple):
            self.mesh.check_ports(self.ports)
            for port in self.ports:
                if self.ports.count(port) > 1:
                    raise ConfigError(f"port {port} stands there twice; name each port once", key="ports")
        if self.choose and (isinstance(self.ports, tuple) or self.matching is not None):
            raise ConfigError("looks for ports, and these are named; leave out one of the two", key="choose")
        if self.matching is not None:
            self._check_matching(self.matching)
        else:
            evenly_spaced(self.mesh, self.n)
            if self.n % 2:
                raise ConfigError(
                    f"{self.n} ports have no perfect matching, one is always left out; take an even number", key="ports"
                )
        count = 1 if self.matching is not None else len(perfect_matchings(self.n))
        if self.only is not None and self.only not in range(count):
            raise ConfigError(f"there is no matching {self.only}; they are 0 to {count - 1}", key="only")

    def _check_matching(self, pairs: Sequence[Pair]) -> None:
        self.mesh.check_ports((port for pair in pairs for port in pair), "matching")
        Matching(pairs)
        if self.ports is None:
            return
        used = self.ports if isinstance(self.ports, tuple) else evenly_spaced(self.mesh, self.ports)
        for port in (port for pair in pairs for port in pair):
            if port not in used:
                known = ", ".join(map(str, used))
                raise ConfigError(f"port {port} is not one of those used, which are {known}", key="matching")

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh; ``ConfigError`` for a size that there cannot be."""
        return Mesh.of(self.width, self.height)

    @property
    def n(self) -> int:
        """How many ports are used."""
        if isinstance(self.ports, tuple):
            return len(self.ports)
        if self.ports is not None:
            return self.ports
        return DEFAULT_PORTS if self.matching is None else 2 * len(self.matching)


def read_ports(text: str) -> int | tuple[int, ...]:
    """``8`` as a number of ports, ``0,5,11,16`` as the ports; ``ValueError`` says what would be right."""
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", text, re.ASCII):
        raise ValueError(f"must be a number of ports, or ports as in 0,5,11,16, not {text!r}")
    numbers = tuple(int(part) for part in text.split(",") if part.strip())
    return numbers if "," in text else numbers[0]


def read_matching(text: str) -> tuple[Pair, ...]:
    """``0-3,1-2`` as pairs of ports; ``ValueError`` says what would be right."""
    parts = [re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", part, re.ASCII) for part in text.split(",")]
    if None in parts:
        raise ValueError(f"must be pairs of ports as in 0-3,1-2, not {text!r}")
    return tuple((int(part[1]), int(part[2])) for part in parts if part)


@dataclass(frozen=True)
class Used:
    """The mesh ports in use, in the order of the positions of the 1-factorization, and how they were come by."""

    ports: tuple[int, ...]
    how: str


def used_ports(study: MeshStudy) -> Used:
    """The ports that are named, those of the matching, or so many of them.

    Of a number, the k-th is ``floor(k P / n)`` of P ports. ``choose``: others where these do not carry every matching;
    ``ConfigError`` if none were found. Unless it says something else, others are looked for where no proof is asked.
    """
    if isinstance(study.ports, tuple):
        return Used(study.ports, NAMED)
    if study.matching is not None and study.ports is None:
        return Used(tuple(sorted(port for pair in study.matching for port in pair)), NAMED)
    even = Used(evenly_spaced(study.mesh, study.n), EVENLY)
    if study.choose is False or study.matching is not None or (study.choose is None and study.exact):
        return even
    chosen = choice(study.mesh, study.n, study.seed, study.time_s)
    if chosen is None and study.choose:
        raise ConfigError(
            f"no {study.n} ports of a mesh of {study.width} x {study.height} were found in {study.time_s:g} s between "
            "which every matching has a way; take fewer ports, a larger mesh or more --time",
            key="ports",
        )
    return chosen or even


@lru_cache(maxsize=64)
def choice(mesh: Mesh, n: int, seed: int, time_s: float) -> Used | None:
    """``n`` ports between which every matching has a way, the evenly spaced before others; None if none were found in
    ``time_s`` seconds.
    """
    try:
        found = choose(mesh, n, seed=seed, time_s=time_s)
    except ConfigError:
        return None
    return Used(found.ports, found.how)


@dataclass(frozen=True)
class Answer:
    """What was found of one matching: ``routed``, or None; ``infeasible``: proved that there is no way.

    ``flips``: cells that change their state from the matching laid before (None: there was none). ``seconds``: of
    searching.
    """

    number: int
    pairs: tuple[Pair, ...]
    routed: Routed | None
    infeasible: bool
    seconds: float
    flips: int | None = None

    @property
    def routable(self) -> bool | None:
        """True; False when that is proved; None when no way was found in time."""
        return True if self.routed is not None else (False if self.infeasible else None)

    @property
    def proved(self) -> bool:
        """Whether there is a proof: of the fewest cells, or that there is no way."""
        return self.infeasible if self.routed is None else self.routed.proved

    @property
    def lengths(self) -> tuple[int, ...]:
        """Cells crossed by each path, in the order of ``pairs``; nothing without a way."""
        return () if self.routed is None else tuple(len(self.routed.paths[pair]) for pair in self.pairs)


def matchings(study: MeshStudy, used: Used) -> tuple[tuple[Pair, ...], ...]:
    """The matchings of a study as pairs of mesh ports, the lower first."""
    if study.matching is not None:
        turns: Sequence[Sequence[Pair]] = [study.matching]
    else:
        turns = [[(used.ports[a], used.ports[b]) for a, b in turn] for turn in perfect_matchings(study.n)]
    return tuple(tuple((min(pair), max(pair)) for pair in turn) for turn in turns)


def answers(study: MeshStudy, used: Used) -> Iterator[Answer]:
    """Lay one matching after the other. The light of every path is followed from both ends; ``CircuitError`` if it
    did not come out at its partner.
    """
    states: tuple[bool, ...] | None = None
    for number, pairs in enumerate(matchings(study, used)):
        if study.only not in (None, number):
            continue
        began = time.monotonic()
        found = search(study, pairs)
        seconds = time.monotonic() - began
        if not isinstance(found, Routed):
            yield Answer(number, pairs, None, isinstance(found, Infeasible), seconds)
            continue
        check(study.mesh, found, pairs)
        turned = None if states is None else flips(states, found)
        states = found.states if states is None else settled(states, found).states
        yield Answer(number, pairs, found, False, seconds, turned)


def search(study: MeshStudy, pairs: Sequence[Pair]) -> Routed | Infeasible | None:
    """A way for ``pairs``, the proof that there is none, or None. What a corner forbids is seen without a solver."""
    if dead_end(study.mesh, pairs):
        return Infeasible(tuple(pairs))
    if not study.exact:
        return route(study.mesh, pairs, seed=study.seed, time_s=study.time_s)
    until = time.monotonic() + study.time_s
    hint = route(study.mesh, pairs, seed=study.seed, time_s=min(FAST_S, FAST_SHARE * study.time_s))
    return route_exact(study.mesh, pairs, time_s=max(0.01, until - time.monotonic()), hint=hint) or hint


# -- what is said of it ----------------------------------------------------------------------------


def as_json(study: MeshStudy, used: Used, found: Sequence[Answer]) -> dict[str, Any]:
    """For other programs: the mesh, and each matching with its pairs, paths and states, in mesh ports and cells."""
    return {
        "width": study.width,
        "height": study.height,
        "cells": len(study.mesh.cells),
        "ports": len(study.mesh.ports),
        "used_ports": list(used.ports),
        "used_ports_are": used.how,
        "matchings": [_matching_json(study, answer) for answer in found],
    }


def _matching_json(study: MeshStudy, answer: Answer) -> dict[str, Any]:
    routed = answer.routed
    return {
        "pairs": [list(pair) for pair in answer.pairs],
        "routable": answer.routable,
        "cells": None if routed is None else routed.cells,
        "paths": None if routed is None else [list(routed.paths[pair]) for pair in answer.pairs],
        "states": None if routed is None else [STATES[state] for state in routed.states],
        "flips": answer.flips,
        "seconds": round(answer.seconds, 4),
        "proved": answer.proved,
        **costs(study, answer),
    }


def costs(study: MeshStudy, answer: Answer) -> dict[str, float | None]:
    """Of an answer: cells of its shortest, mean and longest path, loss (dB) and latency (ps) of the longest."""
    if answer.routed is None:
        return dict.fromkeys(("path_min", "path_mean", "path_max", "loss_db", "latency_ps"))
    longest = max(answer.routed.paths.values(), key=len)
    return {
        "path_min": min(answer.lengths),
        "path_mean": mean(answer.lengths),
        "path_max": len(longest),
        "loss_db": path_loss_db(longest, study.cell_loss_db),
        "latency_ps": path_latency_s(longest, study.cell_latency_ps * 1e-12) * 1e12,
    }


def what_works(study: MeshStudy, found: Sequence[Answer]) -> str:
    """Why the first matching without a way has none, and what would do instead: one sentence, or nothing."""
    missing = [answer for answer in found if answer.routable is not True]
    if not missing:
        return ""
    first = min(missing, key=lambda answer: answer.routable is None)
    more = f" (nor for {len(missing) - 1} others)" if len(missing) > 1 else ""
    shown = f"{_circuits(first)}{more} on a mesh of {study.width} x {study.height}"
    if first.routable is None:
        return f"no way was found for {shown} in {study.time_s:g} s, which proves nothing; {_try(study)}"
    lost = dead_end(study.mesh, first.pairs)
    why = "" if lost is None else f": light of port {lost[0]} can only come out at port {lost[1]}"
    return f"there is no way for {shown} (proved{why}); {_instead(study, first.pairs)}"


def _circuits(answer: Answer) -> str:
    """The circuits of a matching, so many as can be read."""
    shown = ", ".join(f"{a}-{b}" for a, b in answer.pairs[:MOST_SHOWN])
    more = len(answer.pairs) - MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _try(study: MeshStudy) -> str:
    proof = "" if study.exact else "--exact may prove that there is none, "
    return f"{proof}--time gives it longer, other --ports may do"


def _instead(study: MeshStudy, pairs: Sequence[Pair]) -> str:
    without = _without(study, pairs)
    found = [] if without is None else [f"without {without[0]}-{without[1]} there is one"]
    for n in range(2 * len(pairs), 1, -2):
        share = 1.0 if n == 2 * len(pairs) else FEWER_SHARE
        if chosen := choice(study.mesh, n, study.seed, share * study.time_s):
            found.append(f"all matchings have one with --ports {','.join(map(str, chosen.ports))}")
            break
    return ", and ".join(found) or "a larger mesh may do"


def _without(study: MeshStudy, pairs: Sequence[Pair]) -> Pair | None:
    """One circuit without which the others have a way."""
    for pair in reversed(pairs):
        rest = [other for other in pairs if other != pair]
        if rest and route(study.mesh, rest, seed=study.seed, time_s=WITHOUT_S) is not None:
            return pair
    return None
