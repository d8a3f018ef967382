"""Where the spares of a rack stand inside its torus: places by name, beside the servers outside it. Pure geometry.

Each place is a function of the torus and the chips that are rented, those of the first tenant first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from topos.torus import Torus

Chips = tuple[int, ...]


def hops(torus: Torus, a: int, b: int) -> int:
    """Links between two chips by the shortest way round each dimension."""
    apart = (abs(x - y) for x, y in zip(torus.places[a], torus.places[b], strict=True))
    return sum(min(d, n - d) for d, n in zip(apart, torus.shape, strict=True))


def free_servers(torus: Torus, rented: Sequence[int]) -> list[Chips]:
    """The chips of each server of which none is rented."""
    size = torus.chips_per_server
    servers = (tuple(range(first, first + size)) for first in range(0, torus.chips, size))
    return [chips for chips in servers if not set(chips).intersection(rented)]


def corner(torus: Torus, rented: Sequence[int]) -> Chips:
    """The free server with the highest number, in the corner across from the first."""
    return free_servers(torus, rented)[-1]


def nearest(torus: Torus, rented: Sequence[int]) -> Chips:
    """The free server whose chips have the fewest hops to those of the first server with a tenant."""
    first = [chip for chip in rented if torus.server_of(chip) == torus.server_of(rented[0])]
    return min(
        free_servers(torus, rented), key=lambda chips: sum(hops(torus, chip, job) for chip in chips for job in first)
    )


def spread(torus: Torus, rented: Sequence[int]) -> Chips:
    """The first chip of every free server."""
    return tuple(chips[0] for chips in free_servers(torus, rented))


PLACES: Mapping[str, Callable[[Torus, Sequence[int]], Chips]] = {"corner": corner, "nearest": nearest, "spread": spread}
