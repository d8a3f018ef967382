"""The operation that sets the cells of a PIP switch one by one. No I/O."""

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
    """Operation ``cells``: the circuits that result from the states of the cells replace those of the switch.

    ``reply_to`` gets its answer when the circuits are up. The operation is refused, like any rewiring, if a port that
    would go dark has traffic. ``CircuitError`` if the switch is no mesh, ``ConfigError`` for a wrong key.
    """
    name = messages.text(message, "switch")
    device = engine.optical.switch(name)
    if not isinstance(device, PipSwitch):
        raise CircuitError(f"{name} is not made of a mesh and has no cells; set its circuits instead")
    wanted = device.with_cells(_states(message), _blocked(message))
    delay_s = messages.seconds(message, "delay_s", None)
    return engine.rewire(name, wanted, "overwrite", now, delay_s=delay_s, ticket=reply_to)


def _states(message: Message) -> tuple[bool, ...]:
    """The states listed under ``cells``; True stands for cross."""
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
        raise ConfigError(f"must be a list of ports that will hold no circuit, not {value!r}", key="blocked")
    return value
