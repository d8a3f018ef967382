"""Circuits of one rank in one collective as a state machine: what to request, which transfers may go, what to release.

Pure. Each port serves its uses in the order of rounds: it requests the next circuit when everything on the one before
is sent, acknowledged and received. So both ends of a circuit request it equally often and in the same order, and no
deadlock can arise (a use waits only for transfers of earlier rounds). In a provisioned schedule a port also waits until
the circuit of the round before, on the other port, is up: one matching is set up while the one before it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, Sequence

from workloads.collectives.circuits import CircuitUse, End, circuit_name
from workloads.program import Group
from workloads.rank.executor import ReleaseCircuits, RequestCircuits


class _Use:
    """One use of a circuit, by its group, with the transfers that are not over."""

    def __init__(self, group: str, lanes: tuple[int, int], use: CircuitUse) -> None:
        self.group = group
        self.lanes = lanes
        self.first = use.first
        self.index = -1
        self.transfers = use.transfers
        self.left = set(self.transfers)
        self.up = False


class CircuitClient:
    """The circuit client of one position of ``group``.

    ``next_index`` counts the requests of each circuit group of this rank over all collectives and steps. ``in_turn``:
    a port waits for the circuit of an earlier round on the other one (``Schedule.provisioned``).
    """

    def __init__(
        self,
        group: Group,
        uses: Iterable[CircuitUse],
        position: int,
        next_index: MutableMapping[str, int],
        *,
        in_turn: bool = False,
    ) -> None:
        self._next_index, self._in_turn = next_index, in_turn
        self._queues: dict[End, list[_Use]] = {}
        self._use_of: dict[int, tuple[End, _Use]] = {}
        for use in uses:
            for end, far in (use.ends, use.ends[::-1]):
                if end[0] == position:
                    mine = _Use(circuit_name(group, use.ends), (end[1], far[1]), use)
                    self._queues.setdefault(end, []).append(mine)
                    self._use_of.update(dict.fromkeys(use.transfers, (end, mine)))

    @property
    def finished(self) -> bool:
        return not any(self._queues.values())

    @property
    def circuits(self) -> Collection[int]:
        return self._use_of.keys()

    def lanes(self, transfer: int) -> tuple[int, int]:
        return self._use_of[transfer][1].lanes

    def is_up(self, transfer: int) -> bool:
        return self._use_of[transfer][1].up

    def begin(self) -> list[RequestCircuits]:
        return self._requests()

    def acknowledged(self, group: str, index: int) -> tuple[int, ...]:
        """Mark the circuit of request ``index`` of ``group`` as up; returns the transfers that may go.

        ``over`` may have been called for all of them (the peer's acknowledgement was faster); the caller then calls
        ``release``.
        """
        use = next(q[0] for q in self._queues.values() if q and (q[0].group, q[0].index) == (group, index))
        use.up = True
        return use.transfers

    def over(self, transfer: int) -> list[RequestCircuits | ReleaseCircuits]:
        """End ``transfer``: it has arrived, or the peer's kernel has acknowledged all of it."""
        self._use_of[transfer][1].left.discard(transfer)
        return self.release(transfer)

    def release(self, transfer: int) -> list[RequestCircuits | ReleaseCircuits]:
        """Release the circuit of ``transfer`` if its use is over, and request the next one on its port."""
        end, use = self._use_of[transfer]
        released = []
        if use.up and not use.left:
            self._queues[end].pop(0)
            released.append(ReleaseCircuits(use.group, use.index))
        return [*released, *self._requests()]

    def _requests(self) -> list[RequestCircuits]:
        """Request the next circuit of each port that is free for it."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        free = [use for use in heads if use.index < 0]
        if self._in_turn:
            free = [use for use in free if all(other.up for other in heads if other.first < use.first)]
        for use in free:
            use.index = self._next_index.get(use.group, 0)
            self._next_index[use.group] = use.index + 1
        return [RequestCircuits(use.group, use.index) for use in free]


def circuit_client_of(
    group: Group,
    uses: Sequence[CircuitUse],
    rank: int,
    requesting: Collection[str],
    next_index: MutableMapping[str, int],
    *,
    in_turn: bool = False,
) -> CircuitClient | None:
    """The circuit client of ``rank`` in a collective of ``group``; None where the rank requests no circuits for it."""
    position = group.members.index(rank)
    mine = [use for use in uses if position in (use.ends[0][0], use.ends[1][0])]
    if not mine or not all(circuit_name(group, use.ends) in requesting for use in mine):
        return None
    return CircuitClient(group, mine, position, next_index, in_turn=in_turn)
