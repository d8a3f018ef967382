"""Who may send now: receivers that have reached an operation welcome what is sent to them, everything else waits.

A welcome is a small ``ready`` message by the path that the payload will take, up to a round of the operation.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.agent.exchange import MessagePart
from workloads.agent.transport.connection import PeerKey
from workloads.agent.transport.in_flight import FlowKey, InFlight


class HeldMessage(NamedTuple):
    """What waits for its welcome."""

    in_flight: InFlight
    part: MessagePart
    content: memoryview


class ReceiverCredits:
    """The welcomes that one rank has heard, and what of its own waits for others."""

    def __init__(self) -> None:
        self._rounds: dict[FlowKey, dict[PeerKey, int]] = {}
        """Up to which round a receiver takes what comes by a path."""
        self._held: dict[tuple[PeerKey, FlowKey], list[HeldMessage]] = {}

    def has(self, path: PeerKey, flow: FlowKey, part: MessagePart) -> bool:
        """Whether the receiver takes ``part`` now."""
        return self._rounds.get(flow, {}).get(path, -1) >= part.round

    def hold(self, path: PeerKey, held: HeldMessage) -> None:
        """``held`` waits until the receiver takes it."""
        self._held.setdefault((path, held.in_flight.key), []).append(held)

    def take(self, path: PeerKey, flow: FlowKey, last_round: int) -> list[HeldMessage]:
        """The receiver takes everything up to ``last_round``: what may go of what waited."""
        self._rounds.setdefault(flow, {})[path] = last_round
        held = self._held.pop((path, flow), [])
        waits = [entry for entry in held if entry.part.round > last_round]
        if waits:
            self._held[path, flow] = waits
        return [entry for entry in held if entry.part.round <= last_round]

    def forget(self, flow: FlowKey) -> None:
        """An operation is over."""
        self._rounds.pop(flow, None)
