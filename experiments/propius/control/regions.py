"""The regions of IRS: which group of jobs has the first right to a client. Pure arithmetic on counts.

Jobs with identical bounds are a group. A *cell* is the set of groups whose bounds a client meets, as a sorted tuple of
their indices; clients of one cell are alike to every job. A *region* is the set of cells that a group owns. Each cell
has one owner, so the regions are a partition of the clients that meet the bounds of any group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from experiments.propius.data.attributes import Attributes

Cell = tuple[int, ...]


def cells_of(clients: Sequence[Attributes], bounds: Sequence[Attributes]) -> Counter[Cell]:
    """How many of ``clients`` are in each cell."""
    return Counter(cell_of(client, bounds) for client in clients)


def cell_of(client: Attributes, bounds: Sequence[Attributes]) -> Cell:
    """The groups whose bounds a client meets, by index."""
    return tuple(index for index, least in enumerate(bounds) if client.meets(least))


def shares(cells: Mapping[Cell, int], groups: int) -> list[float]:
    """For each group, the share of all clients that meet its bounds; 0 without clients."""
    known = max(1, sum(cells.values()))
    return [sum(count for cell, count in cells.items() if group in cell) / known for group in range(groups)]


def owners(cells: Mapping[Cell, int], demands: Sequence[Sequence[int]]) -> dict[Cell, int]:
    """The owner of each cell that has a group, by IRS (Venn, arXiv 2312.08298, as in the authors' public code).

    ``demands[g]`` has the round demands of group g's jobs in the order in which they are served. First, from the
    scarcest group on, each takes what it can use of the cells that are left. Then, from the most abundant group on,
    group g takes from the next scarcer group h the cells that both can use, while m / a_g > |J_h| / a_h, where a is the
    share of the clients in a group's region after the first step and m is the number of g's jobs that are served before
    h's demand is; where that no longer holds, g stops. The authors' code lets g claim cells of E_g and E_h that belong
    to a third group, too; here g takes only what h owns, so that a cell never has two owners.
    """
    eligible = shares(cells, len(demands))
    scarce = scarcest_first(eligible)
    owner = {cell: next(group for group in scarce if group in cell) for cell in cells if cell}
    known = max(1, sum(cells.values()))
    region = [sum(cells[cell] for cell, by in owner.items() if by == group) / known for group in range(len(demands))]
    abundant = scarce[::-1]
    for place, group in enumerate(abundant):
        for scarcer in abundant[place + 1 :]:
            waiting = jobs_before(demands[group], eligible[group], demands[scarcer], eligible[scarcer])
            if not _over(waiting, region[group]) > _over(len(demands[scarcer]), region[scarcer]):
                break
            owner.update({cell: group for cell, by in owner.items() if by == scarcer and group in cell})
    return owner


def scarcest_first(eligible: Sequence[float]) -> list[int]:
    """Groups by the share of clients that they can use, lowest first; of equals the later group first."""
    return sorted(range(len(eligible)), key=lambda group: (eligible[group], -group))


def jobs_before(mine: Sequence[int], my_share: float, others: Sequence[int], their_share: float) -> int:
    """How many of my jobs come to their turn before the others' demand is served, the last of them included.

    A demand D takes D / share of time, in units of one client's arrival.
    """
    until = _over(sum(others), their_share)
    time = 0.0
    for count, demand in enumerate(mine, start=1):
        time += _over(demand, my_share)
        if time > until:
            return count
    return len(mine)


def _over(number: float, share: float) -> float:
    return number / share if share else math.inf if number else 0.0
