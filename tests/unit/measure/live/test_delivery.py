"""The ledger of the rails and the agents' account of their payload, from made-up numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from measure.live.counters import LinkCounters
from measure.live.delivery import Payload, delivery, payload
from railyard.timeline import Event

NOTHING = LinkCounters(0, 0, 0, 0, 0, 0)


def test_a_ledger_adds_up_what_ports_sent_and_received_in_between() -> None:
    before = {(0, 0): LinkCounters(700, 500, 0, 7, 5, 2), (1, 0): LinkCounters(500, 700, 3, 5, 7, 0)}
    after = {(0, 0): LinkCounters(900, 800, 0, 9, 8, 2), (1, 0): LinkCounters(700, 900, 3, 7, 9, 0)}
    found = delivery(before, after)
    assert (found.sent_bytes, found.received_bytes, found.lost_bytes) == (500, 400, 100)
    assert (found.sent_packets, found.received_packets, found.lost_packets) == (5, 4, 1)
    assert (found.misdelivered, found.wrong_at) == (0, ())


def test_packets_at_the_wrong_host_are_counted_with_the_place() -> None:
    before = {(0, 0): NOTHING, (1, 0): NOTHING, (2, 1): NOTHING}
    after = before | {(1, 0): replace(NOTHING, otherhost=4), (2, 1): replace(NOTHING, otherhost=1)}
    found = delivery(before, after)
    assert (found.misdelivered, found.wrong_at) == (5, ((1, 0), (2, 1)))


def test_a_kernel_that_does_not_count_them_says_nothing_of_them() -> None:
    silent = {(0, 0): replace(NOTHING, otherhost=None)}
    assert delivery(silent, silent).misdelivered is None


def test_payload_is_what_senders_put_out_and_what_receivers_took_in() -> None:
    events = [
        sent(0, op=1, group="ep0", payload_bytes=300),
        sent(1, op=1, group="ep0", payload_bytes=0),
        received(1, op=1, bytes=200),
        received(1, op=1, bytes=100),
        sent(0, op=2, group="dp0", payload_bytes=50),
        sent(1, op=2, group="dp0", payload_bytes=0),
        received(1, op=2, bytes=40),
        Event(0.0, "controller", "ack", None, {"rank": 1, "bytes": 7}),
    ]
    assert payload(events) == Payload(350, 340) and not payload(events).conserved
    assert payload(events, ["ep0"]) == Payload(300, 300) and payload(events, ["ep0"]).conserved


def sent(rank: int, **fields: Any) -> Event:
    """The end of a communication."""
    return Event(0.0, "agent", "communicate", 1.0, {"rank": rank, "step": 0, **fields})


def received(rank: int, **fields: Any) -> Event:
    """A transfer that came in."""
    return Event(0.0, "agent", "transfer", 1.0, {"rank": rank, "step": 0, **fields})
