from __future__ import annotations

from typing import Any

import pytest

from controllers.edge.messages import ControlRequest, ManagerRequest
from railyard.protocol import to_json
from workloads.edge.wire import EdgeRefused, Frame, read

JOB = {
    "op": "register",
    "name": "a",
    "demand": 2,
    "bounds": [3, 2, 400, 4, 0],
    "private_bound": 100,
    "rounds": 3,
    "over_selection": 1.2,
}


def refused(kind: Any, **fields: Any) -> str:
    with pytest.raises(EdgeRefused) as error:
        read(kind, Frame(to_json(fields)))
    return str(error.value)


def test_a_registration_is_read_as_a_job() -> None:
    job = read(ControlRequest, Frame(to_json(JOB))).job
    assert (job.name, job.demand, job.bounds.fp16_mem, job.rounds, job.selected) == ("a", 2, 400, 3, 2)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"name": "x" * 65}, "register.name"),
        ({"name": ""}, "register.name"),
        ({"demand": 0}, "register.demand"),
        ({"demand": 10**7}, "register.demand"),
        ({"demand": 2.5}, "register.demand"),
        ({"bounds": [1, 2, 3]}, "register.bounds"),
        ({"bounds": [1, 2, 3, 1e13, 0]}, "register.bounds.3"),
        ({"bounds": [1] * 6}, "register.bounds"),
        ({"rounds": -1}, "register.rounds"),
        ({"over_selection": 0.5}, "register.over_selection"),
        ({"private_bound": "much"}, "register.private_bound"),
        ({"colour": "red"}, "register.colour"),
        ({"op": "destroy"}, "the request"),
    ],
)
def test_a_wrong_registration_is_refused_in_a_sentence_that_names_the_key(wrong: dict[str, Any], key: str) -> None:
    sentence = refused(ControlRequest, **JOB | wrong)
    assert sentence.startswith(f"{key}: ")
    assert "\n" not in sentence and len(sentence) < 400


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"op": "checkin", "client": -1, "attributes": [1] * 5}, "checkin.client"),
        ({"op": "checkin", "attributes": []}, "checkin.attributes"),
        ({"op": "checkin"}, "checkin.attributes"),
        ({"op": "accept", "job": 2**40, "client": 1, "device": 1}, "accept.job"),
        ({"op": "nack", "client": 1, "jobs": list(range(21))}, "nack.jobs"),
        ({"op": "bind", "job": 1, "client": 1, "device": 1}, "the request"),
    ],
)
def test_a_wrong_request_of_a_client_is_refused(fields: dict[str, Any], key: str) -> None:
    assert refused(ManagerRequest, **fields).startswith(f"{key}: ")


def test_infinity_is_no_attribute() -> None:
    with pytest.raises(EdgeRefused, match=r"checkin\.attributes\.0"):
        read(ManagerRequest, Frame(b'{"op":"checkin","attributes":[Infinity,1,1,1,1]}'))
