"""Circuits and matchings, the configurations of an optical circuit switch.

A circuit joins two ports in both directions. A matching is a set of circuits that share no port. All classes here are
immutable values: no switch, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from railyard.errors import CircuitError


@dataclass(frozen=True, order=True)
class Circuit:
    """A circuit between two ports of one switch; ``Circuit(5, 2) == Circuit(2, 5)``."""

    a: int
    b: int

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise CircuitError(f"circuit {self.a}-{self.b} joins port {self.a} to itself; a circuit needs two ports")
        if self.a > self.b:
            low, high = self.b, self.a
            object.__setattr__(self, "a", low)
            object.__setattr__(self, "b", high)

    @property
    def ports(self) -> tuple[int, int]:
        return self.a, self.b

    def __str__(self) -> str:
        return f"{self.a}-{self.b}"


_ENDS = attrgetter("a", "b")


class Matching:
    """An immutable set of circuits that share no port.

    Raises ``CircuitError`` naming a port that is in two circuits.
    """

    __slots__ = ("_circuits", "_peer")

    def __init__(self, circuits: Iterable[Circuit | tuple[int, int]] = ()) -> None:
        peer: dict[int, int] = {}
        kept: set[Circuit] = set()
        for item in circuits:
            circuit = item if isinstance(item, Circuit) else Circuit(*item)
            if circuit in kept:
                continue
            for port in circuit.ports:
                if port in peer:
                    raise CircuitError(
                        f"port {port} is in circuit {Circuit(port, peer[port])} and in circuit {circuit}; "
                        "a port can hold one circuit"
                    )
            peer[circuit.a], peer[circuit.b] = circuit.b, circuit.a
            kept.add(circuit)
        self._circuits = frozenset(kept)
        self._peer = peer

    @property
    def circuits(self) -> frozenset[Circuit]:
        return self._circuits

    @property
    def ports(self) -> frozenset[int]:
        return frozenset(self._peer)

    def peer(self, port: int) -> int | None:
        return self._peer.get(port)

    def without_ports(self, ports: Iterable[int]) -> Matching:
        """The matching less every circuit that touches one of ``ports``."""
        gone = set(ports)
        return Matching(c for c in self._circuits if not gone.intersection(c.ports))

    def replaced_by(self, wanted: Matching) -> Matching:
        """The matching with ``wanted`` in place of all circuits that share a port with it (mode ``update``)."""
        return Matching([*self.without_ports(wanted.ports), *wanted])

    def changed_ports(self, after: Matching) -> frozenset[int]:
        """Ports whose peer differs between this matching and ``after``: the only ones that go dark."""
        return frozenset(p for p in self.ports | after.ports if self.peer(p) != after.peer(p))

    def __iter__(self) -> Iterator[Circuit]:
        return iter(sorted(self._circuits, key=_ENDS))

    def __len__(self) -> int:
        return len(self._circuits)

    def __contains__(self, circuit: object) -> bool:
        return circuit in self._circuits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matching) and self._circuits == other._circuits

    def __hash__(self) -> int:
        return hash(self._circuits)

    def __repr__(self) -> str:
        return f"Matching({', '.join(map(str, self))})"


SwitchCircuit = tuple[str, Circuit]
"""Name of a switch, and one of its circuits."""
