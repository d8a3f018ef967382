"""Which ranks of a record stand for all others: two of each ring whose members are alike.

Members of a ring that have the same calls start them at the same moment, and in each of the n - 1 rounds all send and
receive one n-th part. So two of them are kept, as a ring of two whose single round moves a part of that size and stands
for n - 1 rounds (``workloads.training.fold``). This goes for rings on the rails and inside servers, not for
all-to-alls. What is folded takes as long as the whole job (tests compare them to 1e-9).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, log2

from workloads.pytorch.record import ClassCall, GroupRole, Record
from workloads.training.ranks import ELEMENT_BYTES, network_of

_KEPT = 2
_ON_RINGS = {"all_reduce", "all_gather", "reduce_scatter"}
_WITHOUT_TREES = {"all_gather", "reduce_scatter"}
"""Kinds that go along a ring on the front-end network too (``workloads.collectives.catalog.algorithm_for``)."""


def folded(record: Record) -> Record:
    """The record of the ranks that stand for all others; ``record`` itself where they are not known."""
    class_of = {rank: number for number, ranks in enumerate(record.classes) for rank in ranks.ranks}
    calls: dict[str, list[ClassCall]] = defaultdict(list)
    for ranks in record.classes:
        for call in ranks.calls:
            calls[call.role].append(call)
    kinds = {name: {call.kind for call in of_role} for name, of_role in calls.items()}
    thin = {
        name
        for name, role in record.roles.items()
        if not role.front_end
        and kinds.get(name, set()) <= _ON_RINGS
        and all(len({class_of[rank] for rank in group}) == 1 for group in role.groups)
    }
    left_out = {rank for name in thin for group in record.roles[name].groups for rank in group[_KEPT:]}
    number_of = {rank: number for number, rank in enumerate(r for r in range(record.ranks) if r not in left_out)}
    in_servers = Counter(rank // record.gpus_per_server for rank in number_of)
    gpus = max(in_servers.values())
    if not left_out or set(in_servers.values()) != {gpus}:
        return record
    roles: dict[str, GroupRole] = {}
    shrunk: dict[str, tuple[int, int]] = {}
    for name, role in record.roles.items():
        kept = {group: tuple(number_of[rank] for rank in group if rank in number_of) for group in role.groups}
        kept = {group: ranks for group, ranks in kept.items() if ranks}
        if name not in calls or not kept:
            continue
        (size, whole), *others = {(len(ranks), len(group)) for group, ranks in kept.items()}
        on_trees = role.front_end and "all_to_all" not in kinds[name] and not any(call.root for call in calls[name])
        may_shrink = size >= _KEPT and (name in thin or on_trees)
        moved = not role.front_end and any(
            network_of(group, record.gpus_per_server) != network_of(ranks, gpus) for group, ranks in kept.items()
        )
        if others or moved or (size < whole and not may_shrink):
            return record
        roles[name] = replace(role, groups=tuple(dict.fromkeys(kept.values())))
        if size < whole:
            shrunk[name] = size, whole
    return _of_kept(record, number_of, gpus, roles, shrunk)


def _of_kept(
    record: Record,
    number_of: Mapping[int, int],
    gpus: int,
    roles: dict[str, GroupRole],
    shrunk: Mapping[str, tuple[int, int]],
) -> Record:
    """The record of the ranks in ``number_of`` (their new numbers); ``shrunk`` has the kept and whole sizes of groups.

    What shares a group on the front-end network by rings has a role of its own, as its rounds stand for others.
    """
    repeats: dict[str, float] = {}

    def part(call: ClassCall) -> ClassCall:
        if call.role not in shrunk:
            return call
        (size, whole), role = shrunk[call.role], record.roles[call.role]
        if role.front_end and call.kind not in _WITHOUT_TREES:  # a tree, whose rounds grow with the logarithm
            repeats[call.role] = ceil(log2(whole)) / ceil(log2(size))
            return call
        name = f"{call.role}.ring" if role.front_end else call.role
        roles[name], repeats[name] = roles[call.role], (whole - 1) / (size - 1)
        least = max(1, min(call.bytes, ELEMENT_BYTES))
        return replace(call, role=name, bytes=max(least, round(call.bytes * size / whole)))

    classes = tuple(
        replace(
            ranks, ranks=tuple(number_of[r] for r in ranks.ranks if r in number_of), calls=tuple(map(part, ranks.calls))
        )
        for ranks in record.classes
    )
    kept = tuple(ranks for ranks in classes if ranks.ranks)
    return replace(record, ranks=len(number_of), roles=roles, classes=kept, gpus_per_server=gpus, repeats=repeats)
