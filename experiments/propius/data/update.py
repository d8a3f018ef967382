"""The numbers of a client's update, and their sum in a defined order, so that a sum can be checked bit by bit.

The sum of float32 numbers depends on the order of addition. A leaf server adds updates in order of arrival, and the
root adds the sums of leaf servers in order of arrival, so an order is a list of lists of client numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.propius.data.messages import Payload
from railyard.errors import VerifyError

Numbers = NDArray[np.float32]
NUMBER_BYTES = 4
_KIND = np.dtype("<f4")


def draw(seed: int, job: int, round: int, client: int, size: int) -> Numbers:
    """The update of a client for a round of a job: ``size`` bytes of float32 numbers, the same in each process."""
    return np.random.default_rng((seed, job, round, client)).standard_normal(size // NUMBER_BYTES, np.float32)


def numbers(payload: Payload) -> Numbers:
    """The numbers in ``payload``, not copied; ``VerifyError`` if its size is no multiple of 4 bytes."""
    if len(payload) % NUMBER_BYTES:
        raise VerifyError(f"an update of {len(payload)} bytes is no list of float32 numbers")
    return np.frombuffer(payload, _KIND)


def add(total: Numbers | None, more: Numbers) -> Numbers:
    """``total`` (changed; None: nothing yet) plus ``more`` (not changed). ``VerifyError`` for another length."""
    if total is None:
        return more.copy()
    if total.shape != more.shape:
        raise VerifyError(f"an update of {more.size} numbers cannot be added to one of {total.size}")
    total += more
    return total


def as_bytes(total: Numbers) -> memoryview:
    """The numbers as they go over the wire, not copied."""
    return total.data.cast("B")


def crc(total: Numbers) -> int:
    return zlib.crc32(as_bytes(total))


def expected(order: Sequence[Sequence[int]], seed: int, job: int, round: int, size: int) -> Numbers:
    """The sum of the updates in ``order``: each inner list is added on its own, then the sums of the lists."""
    total: Numbers | None = None
    for clients in order:
        part: Numbers | None = None
        for client in clients:
            part = add(part, draw(seed, job, round, client, size))
        total = total if part is None else add(total, part)
    return np.zeros(size // NUMBER_BYTES, np.float32) if total is None else total


def check_sum(event: Any, seed: int, size: int) -> None:
    """Compare the sum of a ``sum`` event (job, round, crc, order) with the sum of the updates in its order.

    Raises ``VerifyError`` if they differ in one bit.
    """
    job, round, order = event["job"], event["round"], event["order"]
    if (found := crc(expected(order, seed, job, round, size))) != event["crc"]:
        raise VerifyError(
            f"the sum of round {round} of job {job} is wrong: its CRC is {event['crc']}, the sum of the updates of "
            f"clients {order} has {found}"
        )
