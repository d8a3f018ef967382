from __future__ import annotations

import numpy as np
import pytest

from experiments.propius.data.servers import add, as_bytes, check_sum, crc, draw, expected, numbers
from railyard.errors import VerifyError
from railyard.timeline import Event

SIZE = 4000


def test_an_update_is_the_same_each_time_and_differs_between_clients() -> None:
    first = draw(7, 1, 2, 3, SIZE)
    assert first.nbytes == SIZE
    assert np.array_equal(first, draw(7, 1, 2, 3, SIZE))
    assert not np.array_equal(first, draw(7, 1, 2, 4, SIZE))


def test_the_order_of_addition_decides_the_bits() -> None:
    orders = [[[1, 2], [3]], [[1], [2, 3]], [[3], [2, 1]]]
    sums = [expected(order, 7, 0, 0, SIZE) for order in orders]
    assert np.allclose(sums[0], sums[1], atol=1e-5) and np.allclose(sums[0], sums[2], atol=1e-5)
    assert len({crc(total) for total in sums}) > 1
    for order, total in zip(orders, sums, strict=True):
        event = Event(0.0, "edge", "sum", None, {"job": 0, "round": 0, "order": order, "crc": crc(total)})
        check_sum(event, 7, SIZE)
        with pytest.raises(VerifyError, match="the sum of round 0 of job 0 is wrong"):
            check_sum(event, 8, SIZE)


def test_numbers_go_over_the_wire_and_are_not_changed_by_the_sum() -> None:
    drawn = draw(7, 0, 0, 0, SIZE)
    sent = bytearray(as_bytes(drawn))
    total = add(None, numbers(sent))
    total = add(total, numbers(sent))
    assert sent == drawn.tobytes()
    assert np.array_equal(total, drawn + drawn)
