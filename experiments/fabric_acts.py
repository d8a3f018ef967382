"""Carries out the acts of timetables on a fabric that is up: by its controller, or in the kernel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from controllers.northbound.client import ChannelClient
from experiments.session import Session
from experiments.timetable import TimedAct
from railyard.errors import CircuitError, ConfigError, ControlError
from topos.kernel.emulation import Emulation


def change_links(net: Emulation, act: TimedAct) -> None:
    """Do an act of the kernel's: set a link, or fail or restore what it names; ``ConfigError`` if it is refused."""
    if act.verb == "set":
        net.set_link(act.target, None, **{key: float(value) for key, value in act.values.items()})
    else:
        getattr(net, act.verb)(act.target)


_STATES = {"fail": "failed", "restore": "restored"}


class FabricActs:
    """Does acts on the fabric of ``session``; ``refused`` gets an act that was refused, and why, at once or later.

    The controller is asked without waiting: ``unanswered`` are connections that are readable when it has answered.
    """

    def __init__(self, session: Session, refused: Callable[[TimedAct, str], None]) -> None:
        self._session, self._refused = session, refused
        self.unanswered: dict[ChannelClient, TimedAct] = {}

    def do(self, act: TimedAct) -> bool:
        """Do ``act``, or ask the controller to, which tunes circuits for as long as the job says; False if refused."""
        try:
            request = self._request(act)
            if request is not None:
                self._ask(act, **request)
            else:
                change_links(self._session.net, act)
        except (CircuitError, ConfigError, ControlError) as error:
            self._refused(act, str(error))
            return False
        return True

    def take_answer(self, client: ChannelClient) -> None:
        act = self.unanswered.pop(client)
        try:
            with client:
                client.answer(act.verb)
        except ControlError as error:
            self._refused(act, str(error))

    def close(self) -> None:
        for client, act in self.unanswered.items():
            client.close()
            self._refused(act, "the run ended before its controller had done it")

    def _request(self, act: TimedAct) -> dict[str, Any] | None:
        """The request to the controller for ``act``; None where the kernel does it: links, and ports without ours."""
        switch, _, port = act.target.partition(":")
        rewire, ports = {"op": "rewire", "switch": switch}, act.ports
        if act.verb == "connect":
            return rewire | {"circuits": list(zip(ports[::2], ports[1::2], strict=True)), "update": "update"}
        if act.verb == "disconnect":
            switches = self._session.call("circuits").get("switches", ())
            standing = [pair for each in switches if each["name"] == switch for pair in each["circuits"]]
            if missing := set(ports).difference(*standing):
                raise ControlError(f"port {min(missing)} of {switch} is in no circuit")
            return rewire | {"circuits": [c for c in standing if not {*ports}.intersection(c)], "update": "overwrite"}
        optical = any(each.kind == "ocs" for each in self._session.plan.switches if each.name == switch)
        if act.verb == "set" or not (port and optical) or self._session.controller is None:
            return None
        return {"op": "fault", "switch": switch, "port": int(port), "state": _STATES[act.verb]}

    def _ask(self, act: TimedAct, op: str, **fields: Any) -> None:
        if self._session.channel_path is None:
            raise ControlError("circuits belong to a controller of your own here")
        client = ChannelClient(self._session.channel_path, self._session.settings.ack_timeout_s)
        with ExitStack() as stack:
            stack.enter_context(client).send(op, **fields)
            stack.pop_all()
        self.unanswered[client] = act
