"""Assigns rounds to ordered nodes: the longest path, and the cycles that atomic transfers form.

Constraints require that one node comes at least 0 or 1 rounds after another. Nodes in a cycle of zeros share a round; a
cycle with a one in it has no rounds.
"""

from __future__ import annotations

Edge = tuple[int, int]
"""(later node, least distance in rounds: 0 or 1)."""


def rounds(after: list[list[Edge]]) -> tuple[list[int], list[list[int]]]:
    """The earliest round of every node, and the cycles that have none (the rounds are then meaningless).

    ``after[u]`` are the constraints on the nodes that come after u.
    """
    component, members = _components(after)
    cycles = [nodes for nodes in members if _advances(nodes, after, component)]
    start = [0] * len(members)
    # Tarjan's algorithm finds a component after all of its successors
    for number in range(len(members) - 1, -1, -1):
        for u in members[number]:
            for v, weight in after[u]:
                other = component[v]
                if other != number:
                    start[other] = max(start[other], start[number] + weight)
    return [start[component[u]] for u in range(len(after))], cycles


def _advances(nodes: list[int], after: list[list[Edge]], component: list[int]) -> bool:
    """Whether a component has a constraint of one round inside."""
    own = component[nodes[0]]
    return any(weight and component[v] == own for u in nodes for v, weight in after[u])


def _components(after: list[list[Edge]]) -> tuple[list[int], list[list[int]]]:
    """Strongly connected components (Tarjan 1972, with an explicit stack): that of each node, and the nodes of each."""
    component = [-1] * len(after)
    index = [-1] * len(after)
    low = [0] * len(after)
    members: list[list[int]] = []
    path: list[int] = []
    count = 0
    for root in range(len(after)):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            u, first = work.pop()
            if index[u] < 0:
                index[u] = low[u] = count
                count += 1
                path.append(u)
            for position in range(first, len(after[u])):
                v = after[u][position][0]
                if index[v] < 0:
                    work += [(u, position), (v, 0)]
                    break
                if component[v] < 0:
                    low[u] = min(low[u], low[v])
            else:
                if low[u] == index[u]:
                    members.append(_take(path, u))
                    for v in members[-1]:
                        component[v] = len(members) - 1
    return component, members


def _take(path: list[int], root: int) -> list[int]:
    """Remove the nodes down to ``root`` from the end of ``path``."""
    taken = [path.pop()]
    while taken[-1] != root:
        taken.append(path.pop())
    return taken
