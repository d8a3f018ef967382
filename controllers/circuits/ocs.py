"""The optical circuit switch (OCS) as a device: its circuits, its port states, and their changes.

Port states and update modes carry the names of SONiC's OCS model. Pure: no clock, no wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from controllers.circuits.circuits import Circuit, Matching
from railyard.errors import CircuitError, ControlError

PortState = Literal["blocked", "tuning", "tuned", "failed"]
"""The states of a port: without a circuit, circuit being set up (dark), circuit up, broken."""

UpdateMode = Literal["update", "safe", "overwrite"]
"""``update`` replaces circuits that share a port with the new ones, ``safe`` refuses to, ``overwrite`` replaces all."""

UPDATE_MODES: tuple[str, ...] = get_args(UpdateMode)


@dataclass(frozen=True)
class Change:
    """One reconfiguration: only ``ports`` change; the circuits of all other ports stay up.

    Ports that get a new circuit (``tuned``) are dark until it is up. Ports that only lose theirs are blocked at once,
    so another reconfiguration may use them without waiting for this one.
    """

    ports: frozenset[int]
    before: Matching
    after: Matching

    @property
    def tuned(self) -> frozenset[int]:
        return self.ports & self.after.ports


class OpticalSwitch:
    """One optical circuit switch with its circuits and the states of its ports.

    ``target`` is its matching after all reconfigurations under way, ``up`` the circuits that pass light now. Several
    reconfigurations may be under way at once as long as they share no port.
    """

    def __init__(self, name: str, ports: Iterable[int]) -> None:
        self.name = name
        self.ports = frozenset(ports)
        self.target = Matching()
        self._dark: dict[int, int] = {}
        self._changes: dict[int, Change] = {}
        self._failed: set[int] = set()
        self._lost = Matching()

    @property
    def up(self) -> Matching:
        out = self._dark.keys() | self._failed
        return self.target if out.isdisjoint(self.target.ports) else self.target.without_ports(out)

    @property
    def dark(self) -> frozenset[int]:
        return frozenset(self._dark)

    @property
    def failed(self) -> frozenset[int]:
        return frozenset(self._failed)

    @property
    def returning(self) -> set[Circuit]:
        """The lost circuits whose ports work and are free."""
        out = self.target.ports | self._dark.keys() | self._failed
        return {c for c in self._lost if out.isdisjoint(c.ports)}

    def state(self, port: int) -> PortState:
        """The state of one port; ``CircuitError`` if the switch has no such port."""
        self._check([port])
        if port in self._failed:
            return "failed"
        if port in self._dark:
            return "tuning"
        return "blocked" if self.target.peer(port) is None else "tuned"

    def states(self) -> dict[int, PortState]:
        return {port: self.state(port) for port in sorted(self.ports)}

    def resolve(self, wanted: Matching, mode: UpdateMode) -> Matching:
        """All circuits of the switch after applying ``wanted`` in ``mode``; ``CircuitError`` if that is impossible."""
        self._check(wanted.ports)
        if mode == "overwrite":
            return wanted
        if mode == "update":
            return self.target.replaced_by(wanted)
        if mode != "safe":
            raise CircuitError(f"update mode {mode} is not known; use one of {', '.join(UPDATE_MODES)}")
        for circuit in wanted:
            for port in circuit.ports:
                peer = self.target.peer(port)
                if peer is not None and circuit not in self.target:
                    raise CircuitError(
                        f"port {port} of {self.name} holds circuit {Circuit(port, peer)}; mode safe changes no port "
                        "that is in use, mode update does"
                    )
        return self.target.replaced_by(wanted)

    def change_to(self, after: Matching) -> Change | None:
        """The change that leads to ``after`` (all circuits of the switch); None if nothing would change."""
        self._check(after.ports)
        ports = self.target.changed_ports(after)
        return Change(ports, self.target, after) if ports else None

    def begin(self, change: Change, reconfiguration_id: int) -> None:
        """Begin ``change``: its ports go dark. ``CircuitError`` if one is dark already or the change is stale."""
        clash = sorted(change.ports & self._dark.keys())
        if clash:
            raise CircuitError(f"port {clash[0]} of {self.name} is still tuning; wait until it is tuned")
        if change.before != self.target:
            raise CircuitError(f"{self.name} has changed since this reconfiguration was planned; plan it again")
        self.target = change.after
        self._changes[reconfiguration_id] = change
        self._dark.update(dict.fromkeys(change.tuned, reconfiguration_id))

    def finish(self, reconfiguration_id: int) -> Change:
        """End a reconfiguration: its ports are tuned (or blocked, without a circuit)."""
        change = self._end(reconfiguration_id)
        self._lost = self._lost.without_ports(self.target.ports - self._dark.keys())
        return change

    def _end(self, reconfiguration_id: int) -> Change:
        try:
            change = self._changes.pop(reconfiguration_id)
        except KeyError:
            raise ControlError(f"{self.name} has no reconfiguration {reconfiguration_id} under way") from None
        for port in change.tuned:
            del self._dark[port]
        return change

    def abort(self, reconfiguration_id: int) -> Change:
        """End a reconfiguration that the switch may not have executed: its ports are left without a circuit.

        ``return_of_lost`` brings the former circuits back, and those whose return this was.
        """
        change = self._end(reconfiguration_id)
        self.target = self.target.without_ports(change.tuned)
        own = Matching(c for c in change.before if change.ports.issuperset(c.ports))
        self._lost = self._lost.replaced_by(own)
        return change

    def take_over(self, up: Matching, dark: Iterable[Circuit]) -> None:
        """Begin with the circuits that the switch has: those ``up``, and ``dark`` ones for ``return_of_lost``."""
        self.target, self._lost = up, Matching(dark)

    def fail(self, port: int) -> None:
        """Break ``port``: its circuit is no longer up. ``removal_of_broken`` is the change that follows."""
        self._check([port])
        self._failed.add(port)

    def restore(self, port: int) -> None:
        """Repair ``port``. ``return_of_lost`` is the change that follows."""
        self._check([port])
        self._failed.discard(port)

    def removal_of_broken(self) -> Change | None:
        """The change that removes the circuits of broken ports (and remembers them); None if there are none."""
        broken = {p for p in self._failed if p not in self._dark and self.target.peer(p) is not None}
        if not broken:
            return None
        self._lost = self._lost.replaced_by(Matching(c for c in self.target if broken.intersection(c.ports)))
        return self.change_to(self.target.without_ports(broken))

    def return_of_lost(self) -> Change | None:
        """The change that restores lost circuits whose ports work and are free; None without any."""
        return self._return_of(self.returning)

    def _return_of(self, circuits: Iterable[Circuit]) -> Change | None:
        """The change that adds ``circuits``, whose ports are free, to those of the switch; None without any."""
        return self.change_to(Matching([*self.target, *circuits]))

    def _check(self, ports: Iterable[int]) -> None:
        """Raise ``CircuitError`` for the lowest of ``ports`` that the switch does not have."""
        for port in sorted(set(ports) - self.ports):
            span = f"{min(self.ports)} to {max(self.ports)}" if self.ports else "none"
            raise CircuitError(f"port {port} is not on {self.name}; its ports are {span}")
