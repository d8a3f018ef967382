"""Carries out the acts of timetables on a fabric that is up: by its controller, or in the kernel."""

from __future__ import annotations

from collections.abc import Callable

from controllers.northbound.client import ChannelClient
from experiments.session import Session
from experiments.timetable import TimedAct
from railyard.errors import CircuitError, ConfigError, ControlError


class FabricActs:
    """Does acts on the fabric of ``session``; ``refused`` gets an act that was refused, and why, at once or later.

    What the controller is to do is asked for without waiting: ``unanswered`` has a connection for each act whose answer
    is not there, readable when it is.
    """

    def __init__(self, session: Session, refused: Callable[[TimedAct, str], None]) -> None:
        self._session, self._refused = session, refused
        self._asked: dict[ChannelClient, tuple[TimedAct, str]] = {}

    @property
    def unanswered(self) -> tuple[ChannelClient, ...]:
        return tuple(self._asked)

    def do(self, act: TimedAct) -> None:
        """Do ``act``, or have the controller do it: it has the request then, and tunes circuits for as long as set."""
        try:
            self._do(act)
        except (CircuitError, ConfigError, ControlError) as error:
            self._refused(act, str(error))

    def take_answer(self, client: ChannelClient) -> None:
        """Take the answer that one of ``unanswered`` has."""
        act, op = self._asked.pop(client)
        try:
            with client:
                client.answer(op)
        except ControlError as error:
            self._refused(act, str(error))

    def close(self) -> None:
        """Wait for no answer any more."""
        for client, (act, _) in self._asked.items():
            client.close()
            self._refused(act, "the run ended before its controller had done it")
        self._asked.clear()

    def _do(self, act: TimedAct) -> None:
        switch, _, port = act.target.partition(":")
        if act.verb == "connect":
            self._ask(act, "rewire", switch=switch, circuits=act.circuits, update="update")
        elif act.verb == "disconnect":
            self._ask(act, "rewire", switch=switch, circuits=self._circuits_without(act), update="overwrite")
        elif act.verb == "set":
            self._session.net.set_link(act.target, **act.values)
        elif port and self._session.controller is not None and self._is_optical(switch):
            state = "failed" if act.verb == "fail" else "restored"
            self._ask(act, "fault", switch=switch, port=int(port), state=state)
        elif act.verb == "fail":
            self._session.net.fail(act.target)
        else:
            self._session.net.restore(act.target)

    def _is_optical(self, switch: str) -> bool:
        return any(each.kind == "ocs" for each in self._session.plan.switches if each.name == switch)

    def _circuits_without(self, act: TimedAct) -> list[tuple[int, int]]:
        """The circuits of a switch but those of the ports of ``act``; ``ControlError`` for one that has none."""
        switches = self._session.call("circuits")["switches"]
        standing = next(each["circuits"] for each in switches if each["name"] == act.target)
        for port in act.ports:
            if not any(port in circuit for circuit in standing):
                raise ControlError(f"port {port} of {act.target} is in no circuit")
        return [(a, b) for a, b in standing if not {a, b}.intersection(act.ports)]

    def _ask(self, act: TimedAct, op: str, **fields: object) -> None:
        channel, timeout_s = self._session.channel_path, self._session.settings.ack_timeout_s
        if channel is None:
            raise ControlError("no controller of ours is there to change circuits")
        client = ChannelClient(channel, timeout_s)
        try:
            client.send(op, **fields)
        except ControlError:
            client.close()
            raise
        self._asked[client] = act, op
