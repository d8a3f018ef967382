"""Can the mesh of a photonic switch hold the matchings of an all-to-all, and over how many cells?

Nothing is emulated: every matching is laid on the mesh, its light followed from both ends, and what cannot be laid is
proved so where that is asked. Source: PIP, arXiv 2501.18136.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from controllers.circuits import Matching
from controllers.matchings import perfect_matchings
from controllers.mesh import Mesh, evenly_spaced
from controllers.pip_light import Infeasible, Pair, Routed, check, flips, path_latency_s, path_loss_db, settled
from controllers.pip_routing import route
from railyard.errors import CircuitError, ConfigError
from railyard.settings import Section

DEFAULT_PORTS = 8
FAST_SHARE, FAST_S = 0.25, 2.0
"""How much of the time of a matching the fast search may take before the exact one: a share, and at most so long."""
WITHOUT_S = 0.5
"""How long to look whether an infeasible matching works without one circuit (seconds for each)."""
STATES = ("bar", "cross")


class MeshStudy(Section):
    """A mesh of ``width`` x ``height`` hexagons and the matchings to lay on it, ``time_s`` seconds for each.

    ``ports``: how many of its external ports are used, evenly spaced (with ``choose``: such that every matching has a
    way), or which. Without ``matching`` all of a 1-factorization are laid, or number ``only`` of them, otherwise that
    one: pairs of the mesh's ports. ``exact``: the fewest cells, or the proof that there is no way. A cell costs light
    ``cell_loss_db`` and ``cell_latency_ps``.
    """

    experiment: Literal["pip-mesh"] = "pip-mesh"
    width: int = 7
    height: int = 3
    ports: int | tuple[int, ...] | None = None
    choose: bool = False
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

    def used_ports(self) -> tuple[int, ...]:
        """The ports, in the order of the positions of the 1-factorization. With ``choose`` they are searched for."""
        if isinstance(self.ports, tuple):
            return self.ports
        if self.choose:
            return choice(self.mesh, self.n)
        if self.ports is None and self.matching is not None:
            return tuple(sorted(port for pair in self.matching for port in pair))
        return evenly_spaced(self.mesh, self.n)


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


def choice(mesh: Mesh, n: int) -> tuple[int, ...]:
    """``n`` ports between which every matching of the 1-factorization has a way; ``ConfigError`` if none were found."""
    from controllers.pip import choose_ports  # loads a solver, which few ever need

    return tuple(choose_ports(mesh, n))


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


def matchings(study: MeshStudy, used: Sequence[int]) -> tuple[tuple[Pair, ...], ...]:
    """The matchings of a study as pairs of mesh ports, the lower first."""
    if study.matching is not None:
        turns: Sequence[Sequence[Pair]] = [study.matching]
    else:
        turns = [[(used[a], used[b]) for a, b in turn] for turn in perfect_matchings(study.n)]
    return tuple(tuple((min(pair), max(pair)) for pair in turn) for turn in turns)


def answers(study: MeshStudy, used: Sequence[int]) -> Iterator[Answer]:
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
    """A way for ``pairs``, the proof that there is none, or None."""
    if not study.exact:
        return route(study.mesh, pairs, seed=study.seed, time_s=study.time_s)
    from controllers.pip import route_exact  # loads a solver, which few ever need

    until = time.monotonic() + study.time_s
    hint = route(study.mesh, pairs, seed=study.seed, time_s=min(FAST_S, FAST_SHARE * study.time_s))
    return route_exact(study.mesh, pairs, time_s=max(0.01, until - time.monotonic()), hint=hint) or hint


# -- what is said of it ----------------------------------------------------------------------------


def as_json(study: MeshStudy, used: Sequence[int], found: Sequence[Answer]) -> dict[str, Any]:
    """For other programs: the mesh, and each matching with its pairs, paths and states, in mesh ports and cells."""
    return {
        "width": study.width,
        "height": study.height,
        "cells": len(study.mesh.cells),
        "ports": len(study.mesh.ports),
        "used_ports": list(used),
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


def what_works(study: MeshStudy, answer: Answer) -> str:
    """Why a matching was not laid, and what would do instead: one sentence."""
    circuits = ", ".join(f"{a}-{b}" for a, b in answer.pairs)
    size = f"a mesh of {study.width} x {study.height}"
    if answer.routable is None:
        return f"no way was found for {circuits} on {size} in {study.time_s:g} s, which proves nothing; {_try(study)}"
    found = []
    if without := _without(study, answer.pairs):
        found.append(f"without {without[0]}-{without[1]} it works")
    try:
        ports = ",".join(map(str, choice(study.mesh, 2 * len(answer.pairs))))
        found.append(f"all matchings work with --ports {ports}")
    except ConfigError:
        found.append("a larger mesh may do")
    return f"{size} has no way for {circuits} (proved); {', and '.join(found)}"


def _try(study: MeshStudy) -> str:
    proof = "" if study.exact else "--exact may prove that there is none, "
    ports = "" if study.choose else "--choose looks for ports that carry all matchings, "
    return f"{proof}{ports}--time gives it longer"


def _without(study: MeshStudy, pairs: Sequence[Pair]) -> Pair | None:
    """One circuit without which the others have a way."""
    for pair in reversed(pairs):
        rest = [other for other in pairs if other != pair]
        if rest and route(study.mesh, rest, seed=study.seed, time_s=WITHOUT_S) is not None:
            return pair
    return None
