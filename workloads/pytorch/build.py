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
from math import prod

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

    @property
    def words(self) -> str:
        return f"{self.call.kind} of {self.bytes} bytes" + (f" from rank {r}" if (r := self.call.root) else "")

    def meets(self, other: _Asked) -> bool:
        """Whether both are the same collective, or a send and its receive."""
        mine, theirs = self.call, other.call
        if self.call.peer is not None:
            return {mine.kind, theirs.kind} == {"send", "recv"} and self.bytes == other.bytes
        sizes = self.bytes == other.bytes or bool(mine.sent or theirs.sent)
        return (mine.kind, mine.root) == (theirs.kind, theirs.root) and sizes


@dataclass(frozen=True)
class _Step:
    asked: tuple[_Asked, ...]
    end_seconds: float
    end_waits: tuple[int, ...]
    end_ahead: float

    @cached_property
    def over(self) -> Mapping[Ranks, list[_Asked]]:
        """The calls by members."""
        calls: dict[Ranks, list[_Asked]] = defaultdict(list)
        for one in self.asked:
            calls[one.members].append(one)
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
    classes: dict[RankClass, list[int]] = defaultdict(list)
    for rank, own in steps.items():
        calls = tuple(_recorded(one, role_of(one)) for one in own.asked)
        classes[RankClass((), calls, own.end_seconds, own.end_waits, own.end_ahead)] += mesh.like(rank)
    return Record(
        name,
        prod(mesh.sizes),
        roles,
        tuple(replace(same, ranks=tuple(sorted(ranks))) for same, ranks in classes.items()),
        step,
        gpus_per_server,
        uneven=uneven,
    )


def _recorded(one: _Asked, role: str) -> ClassCall:
    call = one.call
    assert call.kind != "barrier"
    name = ".".join(filter(None, (_SHORT.get(call.kind, call.kind), call.part, call.module)))
    root = 0 if call.root is None else one.members.index(call.root)
    return ClassCall(call.kind, role, one.bytes, one.seconds, one.waits, one.ahead, name, root, one.uneven)


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
                return _Step(tuple(asked), spent, tuple(waits), ahead)
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
        f"rank {trace.rank} took {taken} steps, of which none is step {step} (counted from 0): let the script take at "
        f"least {step + 1}"
    )


# -- ranks that were not traced ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mesh:
    """The ranks of a job by coordinates in a mesh of ``sizes``, the fastest first.

    ``traced`` are the traced ranks by their coordinates in the dimensions ``apart``, in which they differ. A rank is
    like the traced one that has the same ones.
    """

    sizes: tuple[int, ...]
    apart: tuple[int, ...]
    traced: Mapping[Ranks, int]

    @staticmethod
    def of(traces: Mapping[int, RankTrace]) -> _Mesh:
        worlds = {trace.world for trace in traces.values()}
        if len(worlds) != 1 or not all(0 <= rank < max(worlds) for rank in traces):
            raise ConfigError(f"the traces of ranks {some_ranks(sorted(traces))} must be of one job, and at least one")
        world = worlds.pop()
        if len(traces) == world:
            return _Mesh((world,), (0,), {(rank,): rank for rank in traces})
        bounds = sorted({1, world, *(bound for trace in traces.values() for bound in _bounds(trace))})
        if any(high % low for low, high in pairwise(bounds)):
            raise ConfigError(
                f"the groups of ranks {some_ranks(sorted(traces))} are no mesh of {world} ranks: trace all"
            )
        mesh = _Mesh(tuple(high // low for low, high in pairwise(bounds)), (), {})
        apart = mesh.differing(tuple(traces))
        mesh = _Mesh(mesh.sizes, apart, {tuple(mesh.at(rank)[d] for d in apart): rank for rank in traces})
        for rank in range(world) if len(traces) != prod(mesh.sizes[d] for d in apart) else ():
            if tuple(mesh.at(rank)[d] for d in apart) not in mesh.traced:
                raise ConfigError(
                    f"rank {rank} is like none of the traced ranks {some_ranks(sorted(traces))}: trace it too"
                )
        return mesh

    def at(self, rank: int) -> list[int]:
        place = []
        for size in self.sizes:
            rank, coordinate = divmod(rank, size)
            place.append(coordinate)
        return place

    def rank(self, place: Sequence[int]) -> int:
        rank = 0
        for coordinate, size in zip(reversed(place), reversed(self.sizes), strict=True):
            rank = rank * size + coordinate
        return rank

    def differing(self, ranks: Ranks) -> tuple[int, ...]:
        """The dimensions in which ``ranks`` differ."""
        places = zip(*map(self.at, ranks), strict=True)
        return tuple(d for d, coordinates in enumerate(places) if len(set(coordinates)) > 1)

    def traced_like(self, rank: int) -> int:
        place = self.at(rank)
        return self.traced[tuple(place[d] for d in self.apart)]

    def like(self, rank: int) -> Iterator[int]:
        """The ranks that the traced ``rank`` stands for."""
        return (to for (to,) in self.images(rank, (rank,)))

    def images(self, rank: int, members: Ranks) -> Iterator[Ranks]:
        """A group of the traced ``rank``, and the others that the ranks like it have in its place."""
        fixed = {*self.apart, *self.differing(members)}
        place = self.at(rank)
        for to in product(*([place[d]] if d in fixed else range(size) for d, size in enumerate(self.sizes))):
            yield self.moved(members, self.rank(to))

    def moved(self, members: Ranks, to: int) -> Ranks:
        """The group that rank ``to`` has in place of ``members``, a group of a rank like it."""
        if to in members:
            return members
        within, place = set(self.differing(members)), self.at(to)
        return tuple(
            self.rank([own if d in within else place[d] for d, own in enumerate(self.at(member))]) for member in members
        )

    def check(self, rank: int, members: Ranks) -> None:
        traced_all = len(self.apart) == len(self.sizes)
        if not traced_all and len(members) != prod(self.sizes[d] for d in self.differing(members)):
            raise ConfigError(
                f"the group of ranks {some_ranks(members)}, to which rank {rank} belongs, is no part of a mesh of "
                f"{' x '.join(map(str, reversed(self.sizes)))} ranks: trace all ranks"
            )


def _bounds(trace: RankTrace) -> Iterator[int]:
    """Strides of the dimensions of a mesh: those that the groups of a rank need, one inside the other."""
    for ranks in dict.fromkeys(call.ranks for call in trace.calls):
        rest = sorted(ranks)
        while len(rest) > 1:
            stride = rest[1] - rest[0]
            size = next((i for i in range(2, len(rest)) if rest[i] - rest[i - 1] != stride), len(rest))
            yield from (stride, stride * size)
            rest = rest[::size]
    yield from {abs(call.peer - trace.rank) for call in trace.calls if call.peer is not None}


# -- groups --------------------------------------------------------------------------------------------------------


def _compare(mesh: _Mesh, steps: Mapping[int, _Step], step: int) -> dict[str, Matrix]:
    """Check that the members of every group ask for the same, and return the matrices of uneven all-to-alls."""
    names: dict[Matrix, str] = {}
    for rank, own in steps.items():
        for members, mine in own.over.items():
            if mine[0].call.peer is None:
                mesh.check(rank, members)
            others = {mesh.traced_like(member): member for member in reversed(members)}
            lists = {
                member: steps[traced].over.get(mesh.moved(members, traced), []) for traced, member in others.items()
            }
            for member, theirs in lists.items() if len(others) > 1 else ():
                for one, other in zip_longest(mine, theirs) if member != rank else ():
                    if one is None or other is None or not one.meets(other):
                        raise _disagree(step, (rank, one), (member, other), members)
            for place, one in enumerate(mine):
                if one.call.kind == "all_to_all":
                    rows = [lists[member][place] for member in members if len(lists) == len(members)]
                    _level(one, rows, rank, names)
    return {name: matrix for matrix, name in names.items()}


def _disagree(
    step: int, mine: tuple[int, _Asked | None], theirs: tuple[int, _Asked | None], members: Ranks
) -> ConfigError:
    told = [
        f"rank {rank} asks for {one.words} (call {one.number})" if one else f"rank {rank} asks for nothing more"
        for rank, one in (mine, theirs)
    ]
    return ConfigError(f"the ranks {some_ranks(members)} disagree in step {step}: {', and '.join(told)}")


def _level(one: _Asked, row_of: Sequence[_Asked], rank: int, names: dict[Matrix, str]) -> None:
    """Give an all-to-all of ``rank`` the mean bytes of its members, and if they are uneven the name of its matrix.

    ``row_of`` are the calls of all members. Where it is empty the members are alike: each sends in the proportions of
    ``rank``, as much in all as it sends to ``rank``.
    """
    n, place, sent, received = len(one.members), one.members.index(rank), one.call.sent, one.call.received
    if row_of:
        matrix = tuple(other.call.sent or (other.call.bytes // n,) * n for other in row_of)
    elif sent and received and sent[place]:
        matrix = tuple(tuple(round(row * size / sent[place]) for size in sent) for row in received)
    else:
        matrix = (sent or (one.call.bytes // n,) * n,) * n
    if len({size for row in matrix for size in row}) > 1:
        one.bytes, one.uneven = -(-sum(map(sum, matrix)) // n), names.setdefault(matrix, f"uneven{len(names)}")


_Key = tuple[Ranks, bool, bool]
"""Members (of a pair the smaller rank first), whether their call is a small one, and whether they are a pair."""

_Kind = tuple[str, Dimension, bool, int, int]
"""Name, dimension, whether small, and size and stride of a group: groups that share none of their ranks are a role."""


def _key(one: _Asked, members: Ranks, front_end_below: int) -> _Key:
    pair = one.call.peer is not None
    return tuple(sorted(members)) if pair else members, one.bytes < front_end_below, pair


def _roles(
    mesh: _Mesh, steps: Mapping[int, _Step], front_end_below: int
) -> tuple[dict[str, GroupRole], Callable[[_Asked], str]]:
    """The roles of all groups by name, and the name of the role of a call."""
    labels: dict[Ranks, set[str]] = defaultdict(set)
    keys: dict[_Key, None] = {}
    for rank, own in steps.items():
        for one in {(_key(one, one.members, front_end_below), one.call.label): one for one in own.asked}.values():
            for members in mesh.images(rank, one.members):
                key = _key(one, members, front_end_below)
                keys[key] = None
                labels[key[0]].add(one.call.label)
    stages = stages_of((members for members, _, pair in keys if pair), prod(mesh.sizes))
    alike: dict[_Kind, list[dict[int, Ranks]]] = defaultdict(list)
    row_of: dict[_Key, tuple[_Kind, int]] = {}
    for key in keys:
        members, small, pair = key
        base, dimension = _named(labels[members], whole=len(members) == prod(mesh.sizes))
        if pair:
            low, high = (stages[rank] for rank in members)
            members = (
                members[::-1] if low == 0 and high > 1 else members
            )  # interleaved: the last stage sends to the first
            base, dimension = f"pp.{stages[members[0]]}-{stages[members[1]]}", "pp"
        kind = base, dimension, small, len(members), abs(members[1] - members[0])
        rows = alike[kind]
        number = next((i for i, row in enumerate(rows) if row.keys().isdisjoint(members)), len(rows))
        rows += [{}] if number == len(rows) else []
        rows[number] |= dict.fromkeys(members, members)
        row_of[key] = kind, number
    roles: dict[str, GroupRole] = {}
    names: dict[tuple[_Kind, int], str] = {}
    for kind, rows in alike.items():
        for number, row in enumerate(rows):
            plain = kind[0] + (".small" if kind[2] else "")
            name = next(name for i in count(1) if (name := plain if i == 1 else f"{plain}-{i}") not in roles)
            names[kind, number] = name
            roles[name] = GroupRole(kind[1], tuple(sorted(set(row.values()))), front_end=kind[2])
    return roles, lambda one: names[row_of[_key(one, one.members, front_end_below)]]


def _named(labels: Iterable[str], *, whole: bool) -> tuple[str, Dimension]:
    """Name and dimension of a group with these ``labels``, which has all ranks if ``whole``."""
    told = []
    for label in labels:
        mesh = label.removeprefix("mesh_")
        dimension = "edp" if "mod_ep" in mesh else _DIMENSIONS.get(mesh.partition("_")[0], "dp")
        told.append((mesh == label, _BEFORE.index(dimension), mesh))
    plain, place, mesh = min(told)
    name = ("world" if whole else _BEFORE[place]) if plain else re.sub(r"[^\w.]", "-", mesh)
    return name, _BEFORE[place]
