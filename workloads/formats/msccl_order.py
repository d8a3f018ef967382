"""Finds an order in which the steps of an MSCCL program can run, and the send that each receive takes."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import zip_longest
from typing import NamedTuple

from railyard.errors import ConfigError
from workloads.formats.msccl_algo import RECEIVES, SENDS, Algo, StepId, ThreadblockStep

Connection = tuple[int, int, int]
"""(sender, receiver, channel): messages are received in the order in which they were sent."""


class Order(NamedTuple):
    """``steps`` in an order in which they can run; ``sender[r]`` is the send that receive r takes."""

    steps: list[ThreadblockStep]
    sender: dict[StepId, StepId]


def order(algo: Algo) -> Order:
    """Simulate the program: threadblocks in turn, a step when its dependencies are done.

    Sends do not wait for their receive. Raises ``ConfigError`` for a send or receive without its counterpart, and for
    steps that wait for each other in a cycle.
    """
    sender = _match(algo)
    done: set[StepId] = set()
    waiting: dict[StepId, list[deque[ThreadblockStep]]] = defaultdict(list)
    ready = deque(deque(block.steps) for block in algo.blocks if block.steps)
    ran: list[ThreadblockStep] = []
    while ready:
        steps = ready.popleft()
        for needed in (steps[0].waits_for, sender.get(steps[0].id)):
            if needed is not None and needed not in done:
                waiting[needed].append(steps)
                break
        else:
            ran.append(steps.popleft())
            done.add(ran[-1].id)
            ready.extend(waiting.pop(ran[-1].id, ()))
            if steps:
                ready.append(steps)
    if waiting:
        raise _cycle(waiting)
    return Order(ran, sender)


def _cycle(waiting: dict[StepId, list[deque[ThreadblockStep]]]) -> ConfigError:
    """The error for steps that never run: it names one that is part of a cycle."""
    stuck = {steps[0].id[:2]: (needed, steps) for needed, blocked in waiting.items() for steps in blocked}
    key = min(stuck)
    seen: set[tuple[int, int]] = set()
    while key not in seen:
        seen.add(key)
        key = stuck[key][0][:2]
    needed, steps = stuck[key]
    awaited = next(step for step in stuck[needed[:2]][1] if step.id == needed)
    line = awaited.element.place.rpartition(":")[2]
    return steps[0].element.error(
        f"this step of gpu {key[0]}, threadblock {key[1]}, can never run: it waits for line {line}, which waits for it "
        "in a cycle"
    )


def _match(algo: Algo) -> dict[StepId, StepId]:
    """The send of every receive: on each connection, the k-th receive takes the k-th send."""
    sends, receives = _ends(algo, SENDS, "sends to"), _ends(algo, RECEIVES, "receives from")
    sender: dict[StepId, StepId] = {}
    for connection in {**sends, **receives}:
        out, into = sends.get(connection, ()), receives.get(connection, ())
        src, dst, chan = connection
        for number, (send, receive) in enumerate(zip_longest(out, into), 1):
            if receive is None:
                raise send.element.error(
                    f"is send {number} of gpu {src} to gpu {dst} on channel {chan}, which has only {len(into)} receives"
                )
            if send is None:
                raise receive.element.error(
                    f"is receive {number} of gpu {dst} from gpu {src} on channel {chan}, which has only {len(out)} "
                    "sends"
                )
            if send.cnt != receive.cnt:
                raise receive.element.error(
                    f"receives {receive.cnt} chunks, but send {number} of gpu {src} to gpu {dst} on channel {chan} "
                    f"has {send.cnt}"
                )
            sender[receive.id] = send.id
    return sender


def _ends(algo: Algo, types: tuple[str, ...], verb: str) -> dict[Connection, tuple[ThreadblockStep, ...]]:
    """The steps at one end of every connection; a connection ends in one threadblock."""
    ends: dict[Connection, tuple[ThreadblockStep, ...]] = {}
    for block in algo.blocks:
        steps = tuple(step for step in block.steps if step.type in types)
        if not steps:
            continue
        peer = block.send if types is SENDS else block.recv
        src, dst = (block.gpu, peer) if types is SENDS else (peer, block.gpu)
        if (src, dst, block.chan) in ends:
            raise steps[0].element.error(
                f"a second threadblock of gpu {block.gpu} {verb} gpu {peer} on channel {block.chan}: one must do"
            )
        ends[src, dst, block.chan] = steps
    return ends
