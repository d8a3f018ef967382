"""From what the ranks of a PyTorch script asked for, to the record of one step of all ranks.

The traces are of all ranks, or of one rank for each class of equal ones. Then the groups of these ranks make a mesh,
and a rank that was not traced is a traced one moved along those dimensions of the mesh in which no two traced ranks
differ (those of data and tensor parallelism, in a pipeline of which one rank a stage was traced).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise, product, zip_longest
from typing import Any

import numpy

from railyard.errors import ConfigError
from workloads.program import Dimension
from workloads.pytorch.record import ClassCall, GroupRole, Matrix, RankClass, Record, stages_of
from workloads.pytorch.trace import Call, RankTrace, Wait, Work
from workloads.training.ranks import some_ranks

Ranks = tuple[int, ...]

_SHORT = {"all_reduce": "ar", "all_gather": "ag", "reduce_scatter": "rs", "all_to_all": "a2a"}
"""Beginnings of the names of calls; those of other kinds begin with the kind."""
_DIMENSIONS: dict[str, Dimension] = {"edp": "edp", "efsdp": "edp", "ep": "ep", "tp": "tp", "cp": "cp", "pp": "world"}
"""Dimension of a group by the first word of its label, else ``dp``; what a whole pipeline shares is no pair of it."""
_BEFORE: tuple[Dimension, ...] = ("dp", "edp", "ep", "tp", "cp", "world")
"""Of several labels that one set of ranks has, that of the dimension named first here is taken."""


@dataclass
class _Asked:
    """Call number ``number`` of a step of a traced rank, over ``members``: of a pair its two ranks, the sender first.

    The other fields are those of ``ClassCall``; ``bytes`` and ``uneven`` are so once the members were compared.
    """

    number: int
    call: Call
    members: Ranks
    seconds: float
    waits: tuple[int, ...]
    ahead: float
    bytes: int
    uneven: str = ""

    def meets(self, other: _Asked) -> bool:
        """Whether both are the same collective, or a send and its receive."""
        mine, theirs = self.call, other.call
        uneven = mine.kind == "all_to_all" and bool(mine.sent or theirs.sent)
        kinds = {mine.kind, theirs.kind} == ({mine.kind} if mine.peer is None else {"send", "recv"})
        return kinds and mine.root == theirs.root and (uneven or self.bytes == other.bytes)


@dataclass(frozen=True)
class _Step:
    """The calls of a traced rank in the step; ``end`` is its class without ranks and calls."""

    asked: tuple[_Asked, ...]
    end: RankClass

    @cached_property
    def over(self) -> Mapping[Ranks, list[_Asked]]:
        """The calls by members."""
        calls: dict[Ranks, list[_Asked]] = defaultdict(list)
        for asked in self.asked:
            calls[asked.members].append(asked)
        return calls


def record_of(
    traces: Mapping[int, RankTrace],
    name: str,
    step: int = 2,
    *,
    seconds: Callable[[Work], float],
    front_end_below: int,
    gpus_per_server: int = 1,
) -> Record:
    """The record of ``step`` (from 0) of the job of these ``traces``, by rank.

    ``seconds`` is the time of what a rank computes between two events. A communication of fewer bytes than
    ``front_end_below`` is on the front-end network; barriers are left out. Raises ``ConfigError`` for a rank without
    that step, ranks that disagree about a communication, or a rank that no traced one stands for.
    """
    mesh = _Mesh.of(traces)
    steps = {rank: _step_of(trace, step, seconds) for rank, trace in sorted(traces.items())}
    uneven = _compare(mesh, steps, step)
    roles, role_of = _roles(mesh, steps, front_end_below)
    classes: dict[RankClass, list[int]] = {}
    for rank, own in steps.items():
        alike = replace(own.end, calls=tuple(_recorded(asked, role_of(asked)) for asked in own.asked))
        classes.setdefault(alike, []).extend(like for like, traced in enumerate(mesh.traced) if traced == rank)
    in_order = tuple(replace(alike, ranks=tuple(sorted(ranks))) for alike, ranks in classes.items())
    return Record(name, len(mesh.traced), roles, in_order, step, gpus_per_server, uneven=uneven)


def _recorded(asked: _Asked, role: str) -> ClassCall:
    call = asked.call
    assert call.kind != "barrier"
    name = ".".join(filter(None, (_SHORT.get(call.kind, call.kind), call.part, call.module)))
    root = 0 if call.root is None else asked.members.index(call.root)
    return ClassCall(call.kind, role, asked.bytes, asked.seconds, asked.waits, asked.ahead, name, root, asked.uneven)


def _step_of(trace: RankTrace, step: int, seconds: Callable[[Work], float]) -> _Step:
    asked: list[_Asked] = []
    waits: dict[int, None] = {}
    spent, ahead, count, number_of = 0.0, 0.0, 0, dict[int, int]()
    for event in trace.events:
        if event.step == step:
            spent += seconds(event.work)
            if isinstance(event, Wait):
                if event.call in number_of:  # else of a barrier, or of a step before
                    ahead, spent = (ahead, spent) if waits else (spent, 0.0)
                    waits[number_of[event.call]] = None
            elif not isinstance(event, Call):
                return _Step(tuple(asked), RankClass((), (), spent, tuple(waits), ahead))
            elif event.kind != "barrier":
                number_of[count] = number = len(asked)
                members = event.ranks
                if event.peer is not None:
                    members = (trace.rank, event.peer) if event.kind == "send" else (event.peer, trace.rank)
                asked.append(_Asked(number, event, members, spent, tuple(waits), ahead, event.bytes))
                spent, ahead, waits = 0.0, 0.0, {}
        count += isinstance(event, Call)
    taken = len({event.step for event in trace.events if not isinstance(event, Call | Wait)})
    raise ConfigError(
        f"rank {trace.rank} took {taken} steps, and step {step + 1} is to be recorded; a step is one of the first "
        "optimizer that steps after init_process_group"
    )


# -- ranks that were not traced ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mesh:
    """The ranks of a job as a mesh of ``sizes``, the fastest first; ``traced`` is the traced rank that each is like.

    That is the one with the same coordinates in the dimensions ``apart``, in which traced ranks differ.
    """

    sizes: tuple[int, ...]
    apart: frozenset[int]
    traced: Ranks

    @staticmethod
    def of(traces: Mapping[int, RankTrace]) -> _Mesh:
        ranks, worlds = sorted(traces), {trace.world for trace in traces.values()}
        if len(worlds) != 1 or not 0 <= ranks[0] <= ranks[-1] < max(worlds):
            raise ConfigError(f"the traces of ranks {some_ranks(ranks)} must be of one job, and at least one")
        world = worlds.pop()
        if len(ranks) == world:
            return _Mesh((world,), frozenset([0]), tuple(ranks))
        bounds = sorted({1, world, *(bound for trace in traces.values() for bound in _bounds(trace))})
        if any(high % low for low, high in pairwise(bounds)):
            raise ConfigError(f"the groups of ranks {some_ranks(ranks)} make no mesh of {world} ranks; trace all")
        sizes = tuple(high // low for low, high in pairwise(bounds))
        places = numpy.array(numpy.unravel_index(range(world), sizes, order="F"))
        apart = [d for d, place in enumerate(places) if len({*place[ranks].tolist()}) > 1]
        like = {tuple(places[apart, rank]): rank for rank in ranks}
        for rank in range(world):
            if tuple(places[apart, rank]) not in like:
                raise ConfigError(f"rank {rank} is like none of the traced ranks {some_ranks(ranks)}; trace it too")
        return _Mesh(sizes, frozenset(apart), tuple(like[tuple(places[apart, rank])] for rank in range(world)))

    def _at(self, ranks: Ranks) -> Any:
        """The coordinates of ``ranks``: a row for each dimension."""
        return numpy.array(numpy.unravel_index(ranks, self.sizes, order="F"))

    def _moved(self, places: Any) -> Ranks:
        return tuple(numpy.ravel_multi_index(tuple(places), self.sizes, order="F").tolist())

    def images(self, members: Ranks) -> Iterator[Ranks]:
        """A group of a traced rank, and the others that the ranks like it have in its place."""
        places = self._at(members)
        free = [d for d, place in enumerate(places) if d not in self.apart and (place == place[0]).all()]
        for to in product(*(range(self.sizes[d]) for d in free)):
            places[free] = numpy.array(to, int)[:, None]
            yield self._moved(places)

    def moved(self, members: Ranks, to: int) -> Ranks:
        """The group that rank ``to`` has in place of ``members``, a group of a rank like it."""
        places = self._at(members)
        same = (places == places[:, :1]).all(axis=1)
        places[same] = self._at((to,))[same]
        return self._moved(places)


def _bounds(trace: RankTrace) -> Iterator[int]:
    """Strides of the dimensions of a mesh: those that the groups of a rank need, and that of its nearest peer."""
    for ranks in dict.fromkeys(call.ranks for call in trace.calls):
        rest = sorted(ranks)
        while len(rest) > 1:
            stride = rest[1] - rest[0]
            size = next((i for i in range(2, len(rest)) if rest[i] - rest[i - 1] != stride), len(rest))
            yield from (stride, stride * size)
            rest = rest[::size]
    yield from sorted({abs(call.peer - trace.rank) for call in trace.calls if call.peer is not None})[:1]


# -- groups --------------------------------------------------------------------------------------------------------


def _compare(mesh: _Mesh, steps: Mapping[int, _Step], step: int) -> dict[str, Matrix]:
    """Check that the members of every group ask for the same, and return the matrices of uneven all-to-alls."""
    names: dict[Matrix, str] = {}
    for rank, own in steps.items():
        for members, mine in own.over.items():
            member_of = {mesh.traced[member]: member for member in reversed(members)}
            lists = {traced: steps[traced].over.get(mesh.moved(members, traced), []) for traced in member_of}
            for traced, theirs in lists.items():
                for asked, other in zip_longest(mine, theirs) if traced != rank else ():
                    if asked is None or other is None or not asked.meets(other):
                        words = f"{_words(rank, asked)}, and {_words(member_of[traced], other)}"
                        raise ConfigError(f"the ranks {some_ranks(members)} disagree in step {step}: {words}")
            for place, asked in enumerate(mine):
                if asked.call.kind == "all_to_all":
                    rows = [lists[member][place] for member in members if len(lists) == len(members)]
                    _level(asked, rows, rank, names)
    return {name: matrix for matrix, name in names.items()}


def _words(rank: int, asked: _Asked | None) -> str:
    if asked is None:
        return f"rank {rank} asks for nothing more"
    root = "" if asked.call.root is None else f" of root {asked.call.root}"
    return f"rank {rank} asks for {asked.call.kind} of {asked.bytes} bytes{root} (call {asked.number})"


def _level(asked: _Asked, row_of: Sequence[_Asked], rank: int, names: dict[Matrix, str]) -> None:
    """Give an all-to-all of ``rank`` the mean bytes of its members, and if they are uneven the name of its matrix.

    ``row_of`` are the calls of all members. Where it is empty the members are alike: each sends in the proportions of
    ``rank``, as much in all as it sends to ``rank``.
    """
    n, place, sent, received = len(asked.members), asked.members.index(rank), asked.call.sent, asked.call.received
    if row_of:
        matrix = tuple(other.call.sent or (other.call.bytes // n,) * n for other in row_of)
    elif sent and received and sent[place]:
        matrix = tuple(tuple(round(row * size / sent[place]) for size in sent) for row in received)
    else:
        matrix = (sent or (asked.call.bytes // n,) * n,) * n
    if len({size for row in matrix for size in row}) > 1:
        asked.bytes, asked.uneven = -(-sum(map(sum, matrix)) // n), names.setdefault(matrix, f"uneven{len(names)}")


_Key = tuple[Ranks, bool, bool]
"""Members (of a pair the smaller rank first), whether their call is a small one, and whether they are a pair."""


def _key(asked: _Asked, members: Ranks, front_end_below: int) -> _Key:
    pair = asked.call.peer is not None
    return tuple(sorted(members)) if pair else members, asked.bytes < front_end_below, pair


def _roles(
    mesh: _Mesh, steps: Mapping[int, _Step], front_end_below: int
) -> tuple[dict[str, GroupRole], Callable[[_Asked], str]]:
    """The roles of all groups by name, and the name of the role of a call.

    Groups of the same name, size and stride have one role as far as they share no rank.
    """
    labels: dict[Ranks, set[str]] = defaultdict(set)
    keys: dict[_Key, None] = {}
    for own in steps.values():
        for asked in {
            (_key(asked, asked.members, front_end_below), asked.call.label): asked for asked in own.asked
        }.values():
            for members in mesh.images(asked.members):
                key = _key(asked, members, front_end_below)
                keys[key] = None
                labels[key[0]].add(asked.call.label)
    ranks = len(mesh.traced)
    stages = stages_of((members for members, _, pair in keys if pair), ranks)
    placed: dict[str, tuple[object, set[int], list[Ranks]]] = {}
    roles: dict[str, GroupRole] = {}
    role_of: dict[_Key, str] = {}
    for key in keys:
        members, small, pair = key
        base, dimension = _named(labels[members], whole=len(members) == ranks)
        if pair:
            if stages[members[0]] == 0 and stages[members[1]] > 1:  # interleaved: the last stage sends to the first
                members = members[::-1]
            base, dimension = f"pp.{stages[members[0]]}-{stages[members[1]]}", "pp"
        kind = dimension, small, len(members), abs(members[1] - members[0])
        for number in count(1):
            name = base + (".small" if small else "") + (f"-{number}" if number > 1 else "")
            of, taken, groups = placed.setdefault(name, (kind, set(), []))
            if of == kind and taken.isdisjoint(members):
                break
        taken.update(members)
        groups.append(members)
        role_of[key], roles[name] = name, GroupRole(dimension, (), front_end=small)
    whole = {name: replace(role, groups=tuple(sorted(placed[name][2]))) for name, role in roles.items()}
    return whole, lambda asked: role_of[_key(asked, asked.members, front_end_below)]


def _named(labels: Iterable[str], *, whole: bool) -> tuple[str, Dimension]:
    """Name and dimension of a group with these ``labels``, which has all ranks if ``whole``."""
    known = []
    for label in labels:
        mesh = label.removeprefix("mesh_")
        dimension = "edp" if "mod_ep" in mesh else _DIMENSIONS.get(mesh.partition("_")[0], "dp")
        known.append((mesh == label, _BEFORE.index(dimension), mesh))
    plain, place, mesh = min(known)
    name = ("world" if whole else _BEFORE[place]) if plain else re.sub(r"[^\w.]", "-", mesh)
    return name, _BEFORE[place]
