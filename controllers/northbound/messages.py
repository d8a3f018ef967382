"""Requests of the northbound interfaces as Python values; a wrong or missing key is a ``ConfigError``. No I/O."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast, get_args

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import UPDATE_MODES, UpdateMode
from controllers.circuits.rotation import Cycle, Demand
from controllers.engine.jobs import Detection, Job
from railyard.errors import ConfigError
from workloads.program import Dimension, Domain, Group

Message = Mapping[str, Any]

_LARGEST = sys.float_info.max
"""The largest number accepted: JSON allows integers that no float can hold."""


def text(message: Message, key: str) -> str:
    """The non-empty string under ``key``."""
    value = message.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"must be a non-empty string, not {value!r}", key=key)
    return value


def whole(message: Message, key: str) -> int:
    """The integer of 0 or more under ``key``."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"must be an integer of 0 or more, not {value!r}", key=key)
    return value


def seconds(message: Message, key: str, default: float | None = 0.0) -> float | None:
    """The number of seconds (0 or more) under ``key``; ``default`` if the key is missing or null."""
    value = message.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ConfigError(f"must be a number of seconds of 0 or more, not {value!r}", key=key)
    return float(value)


def flag(message: Message, key: str) -> bool:
    """The truth value under ``key``; false if the key is missing."""
    value = message.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"must be true or false, not {value!r}", key=key)
    return value


def circuits(message: Message, key: str = "circuits") -> Matching:
    """The list of port pairs under ``key``; ``CircuitError`` if a port is in two pairs."""
    value = message.get(key)
    if not isinstance(value, list):
        raise ConfigError(f"must be a list of port pairs such as [[1, 4], [2, 3]], not {value!r}", key=key)
    found = []
    for pair in value:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(port) is int for port in pair)):
            raise ConfigError(f"must hold pairs of port numbers such as [1, 4], not {pair!r}", key=key)
        found.append(Circuit(*pair))
    return Matching(found)


def update_mode(message: Message, default: UpdateMode = "update") -> UpdateMode:
    """The update mode under the key ``update``."""
    value = message.get("update", default)
    if value not in UPDATE_MODES:
        raise ConfigError(f"must be one of {', '.join(UPDATE_MODES)}, not {value!r}", key="update")
    return cast(UpdateMode, value)


def job(message: Message) -> Job:
    """The job of a ``register`` request."""
    groups = message.get("groups")
    if not isinstance(groups, list):
        raise ConfigError(f"must be a list of groups, not {groups!r}", key="groups")
    return Job(
        name=text(message, "job"),
        groups=tuple(_group(value, f"groups[{number}]") for number, value in enumerate(groups)),
        mode=text(message, "mode"),
        reconfiguration_delay_s=seconds(message, "reconfiguration_delay_s") or 0.0,
        link_recovery_s=seconds(message, "link_recovery_s") or 0.0,
        detection=_detection(message.get("detection")),
        cycle=_cycle(message.get("cycle")),
    )


def _detection(value: object) -> Detection | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ConfigError(f"must be an object, not {value!r}", key="detection")
    keys = [field.name for field in fields(Detection)]
    for key in value:
        if key not in keys:
            raise ConfigError(f"is not a kind of detection; use one of {', '.join(keys)}", key=f"detection.{key}")
    for key in ("exit", "port"):
        flag({f"detection.{key}": value.get(key, False)}, f"detection.{key}")
    misses = value.get("misses", Detection.misses)
    if type(misses) is not int or misses < 1:
        raise ConfigError(f"must be an integer of 1 or more, not {misses!r}", key="detection.misses")
    heartbeat_s = seconds({"detection.heartbeat_s": value.get("heartbeat_s")}, "detection.heartbeat_s") or 0.0
    return Detection(heartbeat_s, misses, value.get("exit", False), value.get("port", False))


def _cycle(value: object) -> Cycle | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ConfigError(f"must be an object, not {value!r}", key="cycle")
    known = {field.name: field.default for field in fields(Cycle)}
    for key in value:
        if key not in known:
            raise ConfigError(f"is not a key of a cycle; use one of {', '.join(known)}", key=f"cycle.{key}")
    named = {f"cycle.{key}": found for key, found in {**known, **value}.items()}
    guard_s = seconds(named, "cycle.guard_s")
    assert guard_s is not None
    return Cycle(
        slot_s=seconds(named, "cycle.slot_s", None),
        guard_s=guard_s,
        simplex=flag(named, "cycle.simplex"),
        demand=_demand(value.get("demand", [])),
        most_slots=whole(named, "cycle.most_slots"),
    )


def _demand(value: object) -> Demand:
    """A list of rows of numbers; the policy checks that they are a demand matrix."""
    rows: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(row, list) and all(map(_is_number, row)) for row in rows):
        raise ConfigError("must be a list of rows of numbers, one row for each sender", key="cycle.demand")
    return tuple(tuple(float(entry) for entry in row) for row in rows)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and not abs(value) > _LARGEST


def _group(value: object, place: str) -> Group:
    if not isinstance(value, dict):
        raise ConfigError(f"must be an object, not {value!r}", key=place)
    members = value.get("members")
    if not isinstance(members, list) or not all(type(rank) is int and rank >= 0 for rank in members):
        raise ConfigError(f"must be a list of ranks, not {members!r}", key=f"{place}.members")
    dimension, domain = value.get("dimension"), value.get("domain", "scale-out")
    for key, found, allowed in (("dimension", dimension, get_args(Dimension)), ("domain", domain, get_args(Domain))):
        if found not in allowed:
            raise ConfigError(f"must be one of {', '.join(allowed)}, not {found!r}", key=f"{place}.{key}")
    return Group(
        name=text(value, "name"),
        dimension=cast(Dimension, dimension),
        members=tuple(members),
        domain=cast(Domain, domain),
        stage=whole({"stage": 0, **value}, "stage"),
        lanes=_lanes(value.get("lanes"), len(members), f"{place}.lanes"),
        parent=str(value.get("parent", "")),
    )


def _lanes(value: object, members: int, place: str) -> tuple[int, int] | None:
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) == members == 2 and all(type(v) is int and v >= 0 for v in value)):
        raise ConfigError(f"must be the two ports of a pair such as [1, 0], not {value!r}", key=place)
    return value[0], value[1]
