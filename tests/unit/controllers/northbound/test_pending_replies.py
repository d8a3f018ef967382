"""Who is answered, and how often: one request in a rotation gets an answer for each slot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.engine.actions import Ack, Refuse
from controllers.northbound.pending_replies import MOST_WATCHES, PendingReplies
from railyard.errors import ControlError
from railyard.protocol import Hop, SlotWindow

PATHS = (Hop(0, 0, 1, 0),)


class Somebody:
    """A connection that is never used: answers are looked at before they are sent."""

    trusted = True

    def answer(self, request_id: object, answer: bytes) -> None:
        raise AssertionError


def waiting(*ranks: int) -> tuple[PendingReplies, Somebody]:
    pending_replies, requester = PendingReplies(lambda job, seen: None), Somebody()
    for rank in ranks:
        pending_replies.waiting[rank, "ep", 0] = requester, rank
    return pending_replies, requester


def said(pending_replies: PendingReplies) -> list[tuple[object, dict[str, Any]]]:
    """What came for which request, in order."""
    found = [(reply_to[1], json.loads(answer)) for reply_to, answer in pending_replies.answers]
    pending_replies.answers.clear()
    return found


def test_the_same_turn_of_two_groups_is_told_to_each_as_its_own() -> None:
    pending_replies, requester = waiting(0)
    pending_replies.waiting[1, "other", 3] = requester, 1
    pending_replies.report(Ack(0, "ep", 0, PATHS, SlotWindow(0, 1.0, 2.0)))
    pending_replies.report(Ack(1, "other", 3, (), SlotWindow(0, 1.0, 2.0)))
    assert [
        (number, answer["group"], answer["index"], answer["paths"]) for number, answer in said(pending_replies)
    ] == [
        (0, "ep", 0, [[0, 0, 1, 0]]),
        (1, "other", 3, []),
    ]


def test_a_refusal_is_the_last_answer() -> None:
    pending_replies, _ = waiting(0)
    pending_replies.report(Ack(0, "ep", 0, PATHS, SlotWindow(0, 1.0)))
    pending_replies.report(Refuse(0, "ep", 0, "a port has failed"))
    pending_replies.report(Ack(0, "ep", 0, PATHS, SlotWindow(1, 1.0)))
    assert [answer["ok"] for _, answer in said(pending_replies)] == [True, False]


def test_a_connection_that_has_ended_is_told_nothing() -> None:
    pending_replies, requester = waiting(0, 1)
    other = Somebody()
    pending_replies.waiting[1, "ep", 0] = other, 1
    pending_replies.forget(requester)
    for rank in (0, 1):
        pending_replies.report(Ack(rank, "ep", 0, PATHS, SlotWindow(0, 1.0)))
    assert [number for number, _ in said(pending_replies)] == [1]


def test_a_connection_cannot_wait_for_a_job_any_number_of_times() -> None:
    pending_replies, requester = waiting()
    other = Somebody()
    for number in range(MOST_WATCHES):
        pending_replies.watch("j", 0, (requester, number))
    with pytest.raises(ControlError, match="100 requests of this connection wait for job j already; one is enough"):
        pending_replies.watch("j", 0, (requester, 7))
    pending_replies.watch("j", 0, (other, 1))
    pending_replies.forget(requester)
    pending_replies.watch("j", 0, (requester, 1))


def test_members_that_asked_together_get_one_answer() -> None:
    pending_replies, requester = PendingReplies(lambda job, seen: None), Somebody()
    pending_replies.wait([(rank, "dp", 0) for rank in range(3)], (requester, 7))
    pending_replies.wait([(3, "dp", 0)], (requester, 8))
    for rank in range(4):
        pending_replies.report(Ack(rank, "dp", 0, PATHS))
    assert [number for number, _ in said(pending_replies)] == [7, 8]
    assert not pending_replies.waiting
