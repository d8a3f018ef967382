from __future__ import annotations

import pytest

from experiments.propius.data.messages import ControlRequest, EdgeRefused, Frame, ManagerRequest, read
from railyard.protocol import to_json

JOB = {
    "op": "register",
    "name": "a",
    "demand": 2,
    "bounds": [3, 2, 400, 4, 0],
    "private_bound": 100,
    "rounds": 3,
    "over_selection": 1.2,
}


def test_a_registration_is_read_as_a_job() -> None:
    job = read(ControlRequest, Frame(to_json(JOB))).job
    assert (job.name, job.demand, job.bounds.fp16_mem, job.rounds, job.selected) == ("a", 2, 400, 3, 2)


def test_infinity_is_no_attribute() -> None:
    with pytest.raises(EdgeRefused, match=r"checkin\.attributes\.0"):
        read(ManagerRequest, Frame(b'{"op":"checkin","attributes":[Infinity,1,1,1,1]}'))
