"""Slices of a rack of 4 x 4 x 4 chips, as MORPHLUX's allocator gives them, with the law of their rings. Pure.

On an electrical torus the egress of a chip is split over x, y and z for good. A ring goes out in one direction and in
by another, so it has two of the six ports of a chip: a collective costs three times what it does with all of them
(3 beta and 1 beta, beta being the time of a byte at the whole egress of a chip). On the photonic fabric every port is
steered to the rings of its chip. Source: MORPHLUX, arXiv 2508.03674, sections 3 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from controllers.allocation.allocator import Allocation, Allocator, Refusal
from controllers.circuits.fibres import fibres_used
from controllers.policies.catalog import load_policy
from controllers.policies.lumion import ports_needed
from controllers.policies.morphlux import MorphluxPolicy
from experiments.racks.forecast import link_loads
from experiments.racks.server_fabric.row import SLICE_MEASURES, Measure
from experiments.racks.setting import Setting
from railyard.errors import ConfigError
from topos.torus import Extents, Torus
from workloads.program import Program

RACK = Torus((4, 4, 4), (2, 2, 1))
REQUESTS = "4x1x2/16*2x2x1,-1,-8,4x1x2"
"""A slice of an empty rack, and one of a full rack of which two servers that are no neighbours were given back."""
MOST_CHIPS = 16
"""Largest slice whose chips all send on a machine of two cores; the other hosts of the rack stand idle."""
_LIMIT_S = 10.0
"""For the search for a slice: long, since a machine with other work is to give the same slices as a quiet one."""
DIMENSION: Mapping[Measure, str] = {"reduce-scatter": "dp", "TP all-reduce": "tp", "DP all-reduce": "dp"}
"""Dimension of the groups whose collective is measured."""
_REQUEST = re.compile(r"(?:(?P<times>\d{1,3})\*)?(?P<extents>\d{1,3}(?:x\d{1,3}){0,2})|-(?P<back>\d{1,3})")


@dataclass(frozen=True)
class RackSlice:
    """The slice that the last of several requests got, in ring order, and the slices that ``others`` hold then.

    ``electrical``: the answer of an allocator without a photonic fabric in the same state of the rack.
    """

    name: str
    kind: str
    chips: tuple[int, ...]
    others: tuple[tuple[int, ...], ...]
    electrical: str

    def options(self, *, photonic: bool) -> dict[str, Any]:
        """The rack as options of ``RackTopo``: the slice first, and the others, whose rings need fibres too."""
        common = {"torus": RACK.shape, "server": RACK.server}
        if photonic:
            return {**common, "tenants": "/".join(map(_written, (self.chips, *self.others)))}
        spare = min(set(range(RACK.chips)).difference(self.chips))
        return {**common, "tenants": _written(self.chips), "reserve": _written([spare])}


def _written(chips: Sequence[int]) -> str:
    return "+".join("1x1x1@" + ",".join(map(str, RACK.places[chip])) for chip in chips)


@dataclass(frozen=True)
class SliceJob:
    """The job of a slice: one ring of all chips, or with ``tensor_parallel`` above 1 two rings of each chip at once."""

    slice: RackSlice
    tensor_parallel: int = 1

    @property
    def measures(self) -> tuple[Measure, ...]:
        return SLICE_MEASURES[:1] if self.tensor_parallel == 1 else SLICE_MEASURES[1:]

    @property
    def members(self) -> tuple[int, ...]:
        """The ring, begun where its first tensor-parallel ring lies in the smallest block: a row, if there is one."""
        chips, size = self.slice.chips, self.tensor_parallel

        def block(ring: tuple[int, ...]) -> int:
            return prod(len(set(at)) for at in zip(*(RACK.places[chip] for chip in ring[:size]), strict=True))

        return min((chips[first:] + chips[:first] for first in range(len(chips))), key=block)


@lru_cache(maxsize=64)
def measured_slices(requests: str) -> tuple[RackSlice, ...]:
    """The last slice of each list of requests, the lists being separated by ``/``, each for an empty rack.

    A request is a block (``4x1x2``) or a number of chips (``8``); ``16*2x2x1`` are 16 of them, and ``-3`` gives the
    third slice back. ``ConfigError`` (key ``requests``) for other text, for a slice that is refused, and for a measured
    one that has more than ``MOST_CHIPS`` chips.
    """
    try:
        slices = tuple(_last_slice([word.strip() for word in part.split(",")]) for part in requests.split("/"))
        if len({rack_slice.name for rack_slice in slices}) < len(slices):
            names = ", ".join(rack_slice.name for rack_slice in slices)
            raise ConfigError(f"measures {names}; leave out a list whose slice has the name of another")
    except ConfigError as error:
        raise ConfigError(error.message, key="requests") from None
    return slices


def _last_slice(words: Sequence[str]) -> RackSlice:
    rack, served = Allocator(RACK, photonic=True, limit_s=_LIMIT_S), 0
    for word in words[:-1]:
        times, request, back = _read(word)
        for _ in range(times):
            served += 1
            _allocated(rack, request, str(served), word)
        if back:
            rack.release(back)
    times, request, _ = _read(words[-1])
    if times != 1:
        raise ConfigError(f"ends with {words[-1]}; end with the one slice to measure, such as 4x1x2")
    others = tuple(allocation.chips for allocation in rack.allocations.values())
    plain = rack.copy(photonic=False).find(request)
    mine = _allocated(rack, request, "measured", words[-1])
    if not 2 <= len(mine.chips) <= MOST_CHIPS:
        raise ConfigError(f"measures {len(mine.chips)} chips; a machine carries slices of 2 to {MOST_CHIPS} on packets")
    electrical = f"refused ({plain.reason})" if isinstance(plain, Refusal) else plain.kind
    return RackSlice(f"{words[-1]} {mine.kind}", mine.kind, mine.chips, others, electrical)


def _allocated(rack: Allocator, request: int | Extents, name: str, word: str) -> Allocation:
    answer = rack.allocate(request, name)
    if isinstance(answer, Refusal):
        raise ConfigError(f"asks for {word}, which does not fit ({answer.reason}); ask for less or give slices back")
    return answer


def _read(word: str) -> tuple[int, int | Extents, str]:
    """A word of a list: the number of equal slices, their request, and the slice that is given back (empty: none)."""
    found = _REQUEST.fullmatch(word)
    if found is None:
        raise ConfigError(f"has {word!r}; write 4x1x2, 8, 16*2x2x1 or, to give the third slice back, -3")
    extents = [int(extent) for extent in (found["extents"] or "0").split("x")]
    x, y, z = (*extents, 1, 1)[:3]
    times = 0 if found["back"] else int(found["times"] or 1)
    return times, x if len(extents) == 1 else (x, y, z), found["back"] or ""


def ring_fields(setting: Setting, program: Program, measure: Measure) -> dict[str, Any]:
    """Fields ``ports``, ``fibres`` and ``law`` of a row, which follow from the circuits or routes of a collective.

    The law is the time of N bytes on a ring of n chips: (n - 1)/n of N leave each chip in a reduce-scatter, twice that
    in an all-reduce, at the goodput of the ports that are steered to the ring. On a torus the link with the most hops
    of the ring takes longest; there is no law where rings share a link, as it matters how they share it.
    """
    groups = tuple(program.groups.values())
    mine = [group for group in groups if group.dimension == DIMENSION[measure]]
    count = len(mine[0].members)
    size = next(op.bytes for op in program.communications(mine[0].members[0]) if op.group == mine[0].name)
    leaving = (count - 1) / count * size * (1 if measure == "reduce-scatter" else 2)
    port_s = leaving / (setting.port_gbps * 1e9 / 8 * setting.plan.goodput_share)
    policy = load_policy(setting.policy, setting.plan)
    if isinstance(policy, MorphluxPolicy):
        policy.start(groups)
        ports, fibres = setting.lanes(groups)[mine[0].name], fibres_used(policy.own_routes.values())
        return {"ports": ports, "fibres": max(fibres.values(), default=0), "law": port_s / ports}
    names = {group.name for group in mine}
    crossed = [rings for rings in link_loads(setting.plan, groups).values() if names & rings.keys()]
    alone = all(len(rings) == 1 for rings in crossed)
    hops = max(max(rings.values()) for rings in crossed)
    return {"ports": ports_needed(mine[0]), "law": port_s * hops / 2 if alone else None}
