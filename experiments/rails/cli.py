"""Mininet's command line on a running fabric, with ``circuits``, ``rewire``, ``trace``, and names that follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Protocol

from mininet.cli import CLI
from mininet.log import error, output
from mininet.util import quietRun

from railyard.errors import CircuitError, ConfigError, RailyardError
from railyard.scale import Scale
from railyard.signals import ctrl_c_apart
from topos.kernel.reach import Reach
from topos.options import number
from topos.plan import FabricPlan
from topos.reach import Circuits, banner


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


_LONGEST_LINE = 1 << 16
_MOST_NESTED = 10
_ENDS_SHELL = "exit", "logout", "exec"
"""Commands after which the shell of a host would never show the prompt that Mininet waits for."""
_MOST_SHOWN = 40
"""Characters of a command that are shown again."""


class RailCLI(CLI):  # type: ignore[misc]
    """Mininet's CLI with ``circuits`` and ``rewire``, which need ``channel``; reads commands until ``exit``.

    With ``reach`` the names of hosts follow the circuits, and a banner comes first, with ``scale`` if it is given.
    """

    _nested = 0
    reach: Reach | None = None

    def __init__(
        self,
        mininet: Any,
        channel: Channel | None = None,
        reach: Reach | None = None,
        scale: Scale | None = None,
        **options: Any,
    ) -> None:
        self.mn, self.channel, self.reach = mininet, channel, reach
        if reach is not None:
            circuits = self._follow()
            if reach.plan is not None:
                output(banner(reach.plan, None if self._unknown(reach.plan) else circuits, scale) + "\n")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # one byte that is no UTF-8 would end the command line
        super().__init__(mininet, **options)

    def run(self) -> None:
        """Read commands until ``exit``; Ctrl-C ends a command, SIGTERM and SIGHUP the command line."""
        with ctrl_c_apart():
            super().run()
        if self.isatty():  # Mininet has a host's command read key by key, and leaves the terminal so
            quietRun("stty icanon")

    def onecmd(self, line: str) -> bool:
        """Carry out one command; what it cannot do is said in one sentence, and the next one is read."""
        try:
            return bool(super().onecmd(line))
        except RailyardError as refused:
            error(f"*** {refused}\n")
        except Exception as failure:  # of a command of Mininet, which checks few of its words
            error(f"*** {line.strip()[:_MOST_SHOWN]}: {type(failure).__name__}: {failure}\n")
        return False

    def _follow(self, *, force: bool = False) -> Circuits:
        """Let names and routes follow the circuits that exist now; returns these, none without a controller of ours."""
        answer = {} if self.channel is None else self.channel.call("circuits")
        circuits = {switch["name"]: switch.get("circuits", []) for switch in answer.get("switches", [])}
        if self.reach is not None:
            self.reach.follow(circuits, force=force)
        return circuits

    def default(self, line: str) -> None:
        """Run a command on a host, as Mininet, with the names of its peers replaced by the addresses it reaches."""
        first, _, rest = line.strip().partition(" ")
        if first in self.mn and rest.split(" ")[0] in _ENDS_SHELL:
            raise ConfigError(f"{rest} would end the shell of {first}, which this prompt needs; exit leaves the prompt")
        if self.reach is not None and first in self.mn:
            with suppress(RailyardError):  # the command runs all the same
                self._follow()
            words = rest.split(" ")
            named = [word for word in words if word in self.reach.names]
            for peer in named if self.channel is not None else ():
                if peer not in (first, *self.reach.ways.get(first, [])):
                    output(f"*** {first} is not joined to {peer}; circuits lists what is joined, rewire changes it\n")
            line = " ".join([first, *(self.reach.address(first, word) if word in named else word for word in words)])
        super().default(line)

    def do_pingall(self, line: str) -> None:
        """Ping from every host to those that it is joined to, and list the others (usage: pingall [SECONDS])."""
        if self.reach is None or self.reach.plan is None or self._unknown(self.reach.plan):
            super().do_pingall(line)
            return
        wait_s = number("timeout", line or 1, 0.001, 3600, "s")
        self._follow()
        for line in self.reach.ping_all(wait_s):
            output(line + "\n")

    def _unknown(self, plan: FabricPlan) -> bool:
        """Whether another controller than ours makes the circuits of this fabric."""
        return self.channel is None and any(switch.kind == "ocs" for switch in plan.switches)

    def do_link(self, line: str) -> None:
        """Take the link between two nodes up or down (usage: link NODE NODE up|down)."""
        super().do_link(line)
        self._follow(force=True)

    def do_source(self, line: str) -> bool:
        """Carry out the commands in a file (usage: source FILE); ``exit`` in it ends the command line."""
        words = line.split()
        if len(words) != 1:
            raise ConfigError("usage: source FILE")
        name = words[0]
        if self._nested == _MOST_NESTED:
            raise ConfigError(f"{name}: more than {_MOST_NESTED} files source each other")
        self._nested += 1
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                while command := file.readline(_LONGEST_LINE):
                    if len(command) == _LONGEST_LINE:
                        raise ConfigError(f"{name}: a line is longer than {_LONGEST_LINE} characters")
                    if self.onecmd(self.precmd(command)):
                        return True
        except OSError as failure:
            raise ConfigError(f"{name} cannot be read ({failure.strerror})") from None
        finally:
            self._nested -= 1
        return False

    def do_x(self, line: str) -> None:
        """Make an X11 tunnel to a node, and start a client there (usage: x NODE [COMMAND ...])."""
        for name in line.split()[:1]:
            if name not in self.mn:
                raise ConfigError(f"there is no node {name}; nodes lists them")
        super().do_x(line)
        self.mn.terms = [term for term in self.mn.terms if term is not None]  # a display of this machine has no tunnel

    def do_switch(self, _line: str) -> None:
        """Refuse: the switches of a fabric start and stop together."""
        raise ConfigError("the switches of a fabric start and stop together; use link NODE NODE down")

    def do_circuits(self, _line: str) -> None:
        """List every optical switch with its circuits and the ports that are not tuned."""
        answer = self._ask(lambda channel: channel.call("circuits"))
        if answer is None:
            return
        optical = [switch for switch in answer["switches"] if switch["kind"] == "ocs"]
        for switch in optical:
            output(f"{switch['name']}: {describe_switch(switch)}\n")
        if not optical:
            error("*** this fabric has no optical switch\n")

    def do_rewire(self, line: str) -> None:
        """Connect ports and wait for it (usage: rewire SWITCH A-B [C-D ...] [update|safe|overwrite])."""

        def call(channel: Channel) -> dict[str, Any]:
            switch, circuits, update = parse_rewire(line)
            return channel.call("rewire", switch=switch, circuits=circuits, update=update)

        if self._ask(call) is not None:
            self._follow()
            output("tuned\n")

    def do_trace(self, line: str) -> None:
        """Follow probes from host to host: hops, delays, or where they end (usage: trace HOST HOST)."""
        from measure.live.trace import trace

        if len(words := line.split()) != 2:
            raise ConfigError("usage: trace HOST HOST")
        output(f"{trace(self.mn, words[0], words[1])}\n")

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
