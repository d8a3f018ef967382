"""Mininet's command line on a running fabric, with the additional commands ``circuits`` and ``rewire``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mininet.cli import CLI
from mininet.log import error, output

from railyard.errors import CircuitError, RailyardError
from railyard.signals import ctrl_c_apart


class Channel(Protocol):
    """The interface of the job channel (``controllers.northbound.client.ChannelClient``)."""

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer; raises ``RailyardError`` when the controller refuses."""


def parse_rewire(line: str) -> tuple[str, list[list[int]], str]:
    """Parse ``rail0 1-4 2-3 safe`` into switch, circuits and update mode; ``CircuitError`` with the usage."""
    words = line.split()
    update = words.pop() if words and words[-1] in ("update", "safe", "overwrite") else "update"
    if not words:
        raise CircuitError("usage: rewire SWITCH A-B [C-D ...] [update|safe|overwrite]")
    circuits = []
    for word in words[1:]:
        a, dash, b = word.partition("-")
        if not (dash and a.isdigit() and b.isdigit()):
            raise CircuitError(f"{word} is not a circuit; write two port numbers as in 1-4")
        circuits.append([int(a), int(b)])
    if not circuits and update != "overwrite":
        raise CircuitError("usage: rewire SWITCH A-B [C-D ...] [update|safe|overwrite]")
    return words[0], circuits, update


class RailCLI(CLI):  # type: ignore[misc]
    """Mininet's CLI with ``circuits`` and ``rewire``, which need ``channel``; reads commands until ``exit``."""

    def __init__(self, mininet: Any, channel: Channel | None = None, **options: Any) -> None:
        self.channel = channel
        super().__init__(mininet, **options)

    def run(self) -> None:
        """Read commands until ``exit``; Ctrl-C ends a command, SIGTERM and SIGHUP the command line."""
        with ctrl_c_apart():
            super().run()

    def onecmd(self, line: str) -> bool:
        """Carry out one command; what it cannot do is said in one sentence, and the next one is read."""
        try:
            return bool(super().onecmd(line))
        except RailyardError as refused:
            error(f"*** {refused}\n")
            return False

    def do_circuits(self, _line: str) -> None:
        """circuits: list every optical switch with its circuits and the ports that are not tuned."""
        answer = self._ask(lambda channel: channel.call("circuits"))
        for switch in (answer or {}).get("switches", []):
            if switch["kind"] == "ocs":
                output(f"{switch['name']}: {describe_switch(switch)}\n")

    def do_rewire(self, line: str) -> None:
        """Rewire SWITCH A-B [C-D ...] [update|safe|overwrite]: connect ports and wait until the circuits are up."""

        def call(channel: Channel) -> dict[str, Any]:
            switch, circuits, update = parse_rewire(line)
            return channel.call("rewire", switch=switch, circuits=circuits, update=update)

        if self._ask(call) is not None:
            output("tuned\n")

    def _ask(self, call: Callable[[Channel], dict[str, Any]]) -> dict[str, Any] | None:
        """The answer of the controller, or None after printing why there is none."""
        if self.channel is None:
            error("*** this fabric runs without Railyard's controller\n")
            return None
        try:
            return call(self.channel)
        except RailyardError as refused:
            error(f"*** {refused}\n")
            return None


def describe_switch(switch: dict[str, Any]) -> str:
    """One line of text for a switch as the job channel reports it: circuits, then untuned ports by state."""
    parts = [" ".join(f"{a}-{b}" for a, b in switch.get("circuits", [])) or "no circuit"]
    by_state: dict[str, list[str]] = {}
    for port, state in switch.get("ports", {}).items():
        if state != "tuned":
            by_state.setdefault(state, []).append(port)
    parts += [f"{state}: {','.join(ports)}" for state, ports in sorted(by_state.items())]
    return "; ".join(parts)
