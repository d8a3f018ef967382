"""Receiver credits: a message waits until its receiver has reached the operation and says so.

A credit is a small ``ready`` message by the path that the payload will take, valid up to a round of the operation.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.agent.exchange import MessagePart
from workloads.agent.transport.connection import PeerKey
from workloads.agent.transport.in_flight import FlowKey, InFlight


class HeldMessage(NamedTuple):
    """A message that waits for the credit of its receiver."""

    in_flight: InFlight
    part: MessagePart
    content: memoryview


class ReceiverCredits:
    """The credits that one rank has received, and its messages that wait for one."""

    def __init__(self) -> None:
        self._rounds: dict[FlowKey, dict[PeerKey, int]] = {}
        """Round up to which a receiver takes data, by flow and path."""
        self._held: dict[tuple[PeerKey, FlowKey], list[HeldMessage]] = {}

    def has(self, path: PeerKey, flow: FlowKey, part: MessagePart) -> bool:
        """Whether the receiver takes ``part`` now."""
        return self._rounds.get(flow, {}).get(path, -1) >= part.round

    def hold(self, path: PeerKey, held: HeldMessage) -> None:
        """Keep a message until the receiver takes it."""
        self._held.setdefault((path, held.in_flight.key), []).append(held)

    def take(self, path: PeerKey, flow: FlowKey, last_round: int) -> list[HeldMessage]:
        """Record a credit up to ``last_round``; returns the held messages that may go now."""
        self._rounds.setdefault(flow, {})[path] = last_round
        held = self._held.pop((path, flow), [])
        waits = [entry for entry in held if entry.part.round > last_round]
        if waits:
            self._held[path, flow] = waits
        return [entry for entry in held if entry.part.round <= last_round]

    def forget(self, flow: FlowKey) -> None:
        """Drop the credits of an operation that is over."""
        self._rounds.pop(flow, None)
