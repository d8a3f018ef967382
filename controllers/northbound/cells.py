"""A PIP switch by its cells: what people read of it, and what they may set. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controllers.engine.actions import Action
from controllers.engine.engine import Engine
from controllers.mesh.switch import STATES, PipSwitch
from controllers.northbound import messages
from controllers.northbound.answers import PendingReply
from controllers.northbound.messages import Message
from railyard.errors import CircuitError, ConfigError


def set_cells(engine: Engine, message: Message, reply_to: PendingReply, now: float) -> Iterable[Action]:
    """Operation ``cells``: the circuits that light makes of these states replace those of the switch.

    ``reply_to`` is answered when they stand. Refused like any rewiring where traffic is on a port that would go dark.
    """
    name = messages.text(message, "switch")
    device = engine.optical.switch(name)
    if not isinstance(device, PipSwitch):
        raise CircuitError(f"{name} is not made of a mesh; it has circuits and no cells")
    wanted = device.with_cells(_states(message), _blocked(message))
    delay_s = messages.seconds(message, "delay_s", None)
    return engine.rewire(name, wanted, "overwrite", now, delay_s=delay_s, ticket=reply_to)


def _states(message: Message) -> tuple[bool, ...]:
    """The list under ``cells``; True stands for cross."""
    value = message.get("cells")
    if not isinstance(value, list):
        raise ConfigError("must be a list with the state of each cell, bar or cross", key="cells")
    for number, state in enumerate(value):
        if state not in STATES:
            raise ConfigError(f"must be bar or cross, not {state!r}", key=f"cells[{number}]")
    return tuple(state == "cross" for state in value)


def _blocked(message: Message) -> list[int]:
    value: Any = message.get("blocked", [])
    if not isinstance(value, list) or not all(type(port) is int for port in value):
        raise ConfigError(f"must be a list of ports that shall hold no circuit, not {value!r}", key="blocked")
    return value
