"""The state of all optical switches of a plan: circuits, reconfigurations under way, and ports in use by requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controllers.circuits.circuits import Matching, SwitchCircuit
from controllers.circuits.ocs import Change, OpticalSwitch
from controllers.engine.actions import Darken
from controllers.engine.requests import PendingRequest
from controllers.mesh.layouts import SEARCH_S
from controllers.mesh.switch import PipSwitch
from railyard.errors import CircuitError, ControlError
from railyard.protocol import Hop
from topos.plan import FabricPlan, SwitchPlan

SwitchPort = tuple[str, int]
"""(switch, port number)."""

_FAILED = "has failed"


@dataclass
class Reconfiguration:
    """A reconfiguration under way for the request ``owner`` (None: a repair that no request waits for)."""

    darken: Darken
    owner: PendingRequest | None
    asked: float
    began: float


class PortFailed(CircuitError):
    """A circuit needs a port that has failed."""


class OpticalState:
    """The optical switches, by name. A request *holds* ports from its reconfiguration or ack until its release."""

    def __init__(self, plan: FabricPlan) -> None:
        self.switches = {s.name: _device(s) for s in plan.switches if s.kind == "ocs"}
        self._number: dict[tuple[int, int], SwitchPort] = {
            (p.rank, p.lane): (s.name, p.number) for s in plan.network("rail") if s.kind == "ocs" for p in s.ports
        }
        self._holders: dict[SwitchPort, dict[PendingRequest, None]] = {}
        self._holding: dict[PendingRequest, tuple[SwitchPort, ...]] = {}
        self._running: dict[int, Reconfiguration] = {}
        self._rank = {port: rank for (rank, _), port in self._number.items()}
        self._ids = itertools.count(1)
        self._how_failed: dict[SwitchPort, str] = {}

    def switch(self, name: str) -> OpticalSwitch:
        """The switch ``name``; ``ControlError`` if there is none."""
        try:
            return self.switches[name]
        except KeyError:
            known = ", ".join(self.switches) or "none"
            raise ControlError(f"{name} is not an optical switch of this fabric; those are: {known}") from None

    def next_id(self) -> int:
        return next(self._ids)

    def rank_at(self, switch: str, port: int) -> int | None:
        """The chip whose rail port is connected to ``port`` of ``switch``; None if there is none."""
        return self._rank.get((switch, port))

    def sound(self, rank: int) -> bool:
        ports = self.ports_of_ranks([rank])
        return all(self.switches[name].failed.isdisjoint(found) for name, found in ports.items())

    def fail(self, switch: str, port: int, how: str | None) -> None:
        """Break a port; ``how`` is what messages say of it, such as "was failed over REST"."""
        self.switch(switch).fail(port)
        self._how_failed[switch, port] = how or _FAILED

    def how_failed(self, switch: str, port: int) -> str:
        """The words of messages for a port that is broken."""
        return self._how_failed.get((switch, port), _FAILED)

    def target(self) -> dict[str, Matching]:
        return {name: switch.target for name, switch in self.switches.items()}

    def circuits_and_reverts(self) -> set[SwitchCircuit]:
        """All circuits of every switch, those that return, and those that do if a reconfiguration under way fails."""
        found = {(name, c) for name, switch in self.switches.items() for c in (*switch.target, *switch.returning)}
        for darken in (running.darken for running in self._running.values()):
            found.update((darken.switch, c) for c in darken.before if darken.ports.issuperset(c.ports))
        return found

    def circuits_up(self) -> dict[str, Matching]:
        return {name: switch.up for name, switch in self.switches.items()}

    @property
    def dark_ports(self) -> set[SwitchPort]:
        return {(name, port) for name, switch in self.switches.items() for port in switch.dark}

    def ports_of(self, paths: Iterable[Hop]) -> tuple[SwitchPort, ...]:
        """The optical ports that ``paths`` use, the far ends of their circuits included."""
        ports: dict[SwitchPort, None] = {}
        for rank, lane, peer, peer_lane in paths:
            for end in ((rank, lane), (peer, peer_lane)):
                if end in self._number:
                    name, number = self._number[end]
                    far = self.switches[name].target.peer(number)
                    ports[name, number] = None
                    if far is not None:
                        ports[name, far] = None
        return tuple(ports)

    def ports_of_ranks(self, ranks: Iterable[int]) -> dict[str, frozenset[int]]:
        wanted = set(ranks)
        ports: dict[str, set[int]] = {}
        for (rank, _), (name, number) in self._number.items():
            if rank in wanted:
                ports.setdefault(name, set()).add(number)
        return {name: frozenset(found) for name, found in ports.items()}

    def hold(self, owner: PendingRequest, ports: Iterable[SwitchPort]) -> None:
        self.release(owner)
        self._holding[owner] = tuple(ports)
        for port in self._holding[owner]:
            self._holders.setdefault(port, {})[owner] = None

    def release(self, owner: PendingRequest) -> None:
        for port in self._holding.pop(owner, ()):
            holders = self._holders[port]
            del holders[owner]
            if not holders:
                del self._holders[port]

    def users(self, switch: str, ports: Iterable[int], but: PendingRequest) -> list[PendingRequest]:
        found: dict[PendingRequest, None] = {}
        for port in sorted(ports):
            found.update(self._holders.get((switch, port), {}))
        found.pop(but, None)
        return list(found)

    def changes(self, wiring: Mapping[str, Matching]) -> dict[str, Change]:
        """The changes that lead to ``wiring``, by switch; ``CircuitError`` if it needs an unknown port.

        ``PortFailed`` if it needs one that has failed.
        """
        changes: dict[str, Change] = {}
        for name, matching in wiring.items():
            switch = self.switch(name)
            change = switch.change_to(matching)
            if change is None:
                continue
            broken = sorted(change.ports & switch.failed & matching.ports)
            if broken:
                how = self.how_failed(name, broken[0])
                raise PortFailed(f"port {broken[0]} of {name} {how}; the circuit it should hold cannot be set up")
            changes[name] = change
        return changes

    def warm(self, slots: Iterable[Mapping[str, Matching]], search_s: float = SEARCH_S) -> None:
        """Find the paths of a rotation on switches that are meshes before it begins; other switches need none.

        ``slots`` are the complete circuits of each switch, slot by slot; ``search_s`` is the limit for each, in
        seconds. ``CircuitError`` for the first slot that a mesh cannot hold.
        """
        by_switch: dict[str, list[Matching]] = {}
        for wiring in slots:
            for name, matching in wiring.items():
                by_switch.setdefault(name, []).append(matching)
        for name, matchings in by_switch.items():
            device = self.switch(name)
            if isinstance(device, PipSwitch):
                device.warm(matchings, search_s)

    def begin(
        self, name: str, change: Change, owner: PendingRequest | None, delay_s: float, asked: float, now: float
    ) -> Darken:
        """Begin ``change`` on switch ``name`` for ``owner``; the order to execute."""
        number = self.next_id()
        self.switches[name].begin(change, number)
        quiet = owner is not None and owner.quiet
        darken = Darken(number, name, change.ports, change.before, change.after, delay_s, quiet)
        self._running[number] = Reconfiguration(darken, owner, asked, now)
        if owner is not None:
            owner.awaiting.add(number)
        return darken

    def owner(self, reconfiguration_id: int) -> PendingRequest | None:
        """The request that a reconfiguration under way is for; None for a repair."""
        return self._running[reconfiguration_id].owner

    def finish(self, reconfiguration_id: int) -> Reconfiguration:
        """Finish a reconfiguration: its circuits are up. ``ControlError`` if it is not under way."""
        done = self._take(reconfiguration_id)
        self.switches[done.darken.switch].finish(reconfiguration_id)
        return done

    def abort(self, reconfiguration_id: int) -> Reconfiguration:
        """Undo a reconfiguration that its switch did not execute. ``ControlError`` if it is not under way."""
        done = self._take(reconfiguration_id)
        self.switches[done.darken.switch].abort(reconfiguration_id)
        return done

    def _take(self, reconfiguration_id: int) -> Reconfiguration:
        try:
            done = self._running.pop(reconfiguration_id)
        except KeyError:
            raise ControlError(f"no reconfiguration {reconfiguration_id} is under way") from None
        if done.owner is not None:
            done.owner.awaiting.discard(reconfiguration_id)
        return done


def _device(plan: SwitchPlan) -> OpticalSwitch:
    return OpticalSwitch(plan.name, (port.number for port in plan.ports)) if plan.mesh is None else PipSwitch(plan)
