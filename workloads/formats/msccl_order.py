"""Finds an order in which the steps of an MSCCL program can run, and the send that each receive takes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from railyard.errors import ConfigError
from workloads.formats.msccl_program import RECEIVES, SENDS, Algo, Threadblock, ThreadblockStep

Connection = tuple[int, int, int]
"""(sender, receiver, channel): messages are received in the order in which they were sent."""


@dataclass(frozen=True)
class Order:
    """``steps`` in a possible order, each with its threadblock; ``sender[r]`` is the send that receive r takes."""

    steps: tuple[tuple[Threadblock, ThreadblockStep], ...]
    sender: dict[int, int]


def order(algo: Algo) -> Order:
    """Simulate the program: threadblocks in turn, a step when its dependencies are done.

    Sends do not wait for their receive. Raises ``ConfigError`` for a send or receive without its counterpart, and for
    steps that wait for each other in a cycle.
    """
    sender = _match(algo)
    done: set[int] = set()
    next_step = [0] * len(algo.blocks)
    waiting: dict[int, list[int]] = {}
    ready = deque(index for index, block in enumerate(algo.blocks) if block.steps)
    ran: list[tuple[Threadblock, ThreadblockStep]] = []
    while ready:
        index = ready.popleft()
        block = algo.blocks[index]
        step = block.steps[next_step[index]]
        blocker = _blocker(step, sender, done)
        if blocker is not None:
            waiting.setdefault(blocker, []).append(index)
            continue
        ran.append((block, step))
        done.add(step.id)
        ready.extend(waiting.pop(step.id, ()))
        next_step[index] += 1
        if next_step[index] < len(block.steps):
            ready.append(index)
    if waiting:
        raise _cycle(algo, next_step, sender, done)
    return Order(tuple(ran), sender)


def _blocker(step: ThreadblockStep, sender: dict[int, int], done: set[int]) -> int | None:
    """A step that ``step`` still waits for; None if it can run."""
    for before in (step.waits_for, sender.get(step.id)):
        if before is not None and before not in done:
            return before
    return None


def _match(algo: Algo) -> dict[int, int]:
    """The send of every receive: on each connection, the k-th receive takes the k-th send."""
    sends = _ends(algo, SENDS, "sends to")
    receives = _ends(algo, RECEIVES, "receives from")
    sender: dict[int, int] = {}
    for connection in {**sends, **receives}:
        out, into = sends.get(connection, ()), receives.get(connection, ())
        src, dst, chan = connection
        for number, (send, receive) in enumerate(zip(out, into, strict=False), 1):
            if send.cnt != receive.cnt:
                raise receive.element.error(
                    f"receives {receive.cnt} chunks, but send {number} of gpu {src} to gpu {dst} on channel {chan} "
                    f"has {send.cnt}"
                )
            sender[receive.id] = send.id
        if len(out) > len(into):
            raise out[len(into)].element.error(
                f"is send {len(into) + 1} of gpu {src} to gpu {dst} on channel {chan}, which has only "
                f"{len(into)} receives"
            )
        if len(into) > len(out):
            raise into[len(out)].element.error(
                f"is receive {len(out) + 1} of gpu {dst} from gpu {src} on channel {chan}, which has only "
                f"{len(out)} sends"
            )
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


def _cycle(algo: Algo, next_step: list[int], sender: dict[int, int], done: set[int]) -> ConfigError:
    """The error for steps that never run: it names one that is part of a cycle."""
    home = {step.id: index for index, block in enumerate(algo.blocks) for step in block.steps}
    index = next(i for i, block in enumerate(algo.blocks) if next_step[i] < len(block.steps))
    seen: set[int] = set()
    while index not in seen:
        seen.add(index)
        step = algo.blocks[index].steps[next_step[index]]
        blocker = _blocker(step, sender, done)
        assert blocker is not None  # without a blocker the step would have run
        index = home[blocker]
    block = algo.blocks[index]
    step = block.steps[next_step[index]]
    blocker = _blocker(step, sender, done)
    assert blocker is not None
    other = algo.blocks[home[blocker]]
    awaited = other.steps[[s.id for s in other.steps].index(blocker)].element.place.rpartition(":")[2]
    return step.element.error(
        f"this step of gpu {block.gpu}, threadblock {block.id}, can never run: it waits for line {awaited}, "
        f"which waits for it in a cycle"
    )
