"""The optical circuit switch as a device: circuits, port states, and what a reconfiguration does to them.

Port states and update modes carry the names of SONiC's OCS model. Pure: no clock, no wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from controllers.circuits.circuits import Circuit, Matching
from railyard.errors import CircuitError, ControlError

PortState = Literal["blocked", "tuning", "tuned", "failed"]
"""No circuit; circuit being set up (dark); light passes; broken."""

UpdateMode = Literal["update", "safe", "overwrite"]
"""``update`` takes the ports it needs from circuits that stand, ``safe`` refuses to, ``overwrite`` replaces all."""

UPDATE_MODES: tuple[str, ...] = get_args(UpdateMode)


@dataclass(frozen=True)
class Change:
    """One reconfiguration: only ``ports`` change, all other ports of the switch keep their light.

    Those that get a new circuit (``tuned``) are dark until it stands; those that only lose theirs are blocked at once,
    so another reconfiguration may take them without waiting for this one.
    """

    ports: frozenset[int]
    before: Matching
    after: Matching

    @property
    def tuned(self) -> frozenset[int]:
        """The ports that get a new circuit."""
        return self.ports & self.after.ports


class OpticalSwitch:
    """One OCS.

    ``target`` is what it was last told to hold, circuits that are still tuning included; ``up`` only what passes
    light now. Several reconfigurations may be under way at once as long as they share no port.
    """

    def __init__(self, name: str, ports: Iterable[int]) -> None:
        self.name = name
        self.ports = frozenset(ports)
        self.target = Matching()
        self._dark: dict[int, int] = {}
        self._changes: dict[int, Change] = {}
        self._failed: set[int] = set()
        self._lost: set[Circuit] = set()

    @property
    def up(self) -> Matching:
        """The circuits that pass light now."""
        out = self._dark.keys() | self._failed
        return self.target if out.isdisjoint(self.target.ports) else self.target.without_ports(out)

    @property
    def dark(self) -> frozenset[int]:
        """The ports that are tuning, of every reconfiguration under way."""
        return frozenset(self._dark)

    @property
    def failed(self) -> frozenset[int]:
        """The broken ports."""
        return frozenset(self._failed)

    def state(self, port: int) -> PortState:
        """The state of one port; ``CircuitError`` if the switch has no such port."""
        self._check(port)
        if port in self._failed:
            return "failed"
        if port in self._dark:
            return "tuning"
        return "blocked" if self.target.peer(port) is None else "tuned"

    def states(self) -> dict[int, PortState]:
        """The state of every port."""
        return {port: self.state(port) for port in sorted(self.ports)}

    def resolve(self, wanted: Matching, mode: UpdateMode) -> Matching:
        """All circuits of the switch after ``wanted`` was applied in ``mode``; ``CircuitError`` if it cannot be."""
        wanted.check_ports(self.ports, self.name)
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
                        f"port {port} of {self.name} holds circuit {Circuit(port, peer)}; mode safe takes no port that "
                        "is in use, mode update does"
                    )
        return self.target.replaced_by(wanted)

    def change_to(self, after: Matching) -> Change | None:
        """What going to ``after`` (all circuits of the switch) would change; None if nothing."""
        after.check_ports(self.ports, self.name)
        ports = self.target.changed_ports(after)
        return Change(ports, self.target, after) if ports else None

    def begin(self, change: Change, reconfiguration_id: int) -> None:
        """Take the light off the ports of ``change``; ``CircuitError`` if one is dark or the change is stale."""
        clash = sorted(change.ports & self._dark.keys())
        if clash:
            raise CircuitError(f"port {clash[0]} of {self.name} is still tuning; wait until it is tuned")
        if change.before != self.target:
            raise CircuitError(f"{self.name} has changed since this reconfiguration was planned; plan it again")
        self.target = change.after
        self._changes[reconfiguration_id] = change
        self._dark.update(dict.fromkeys(change.tuned, reconfiguration_id))

    def finish(self, reconfiguration_id: int) -> Change:
        """The light is back: the ports of this reconfiguration are tuned (or blocked, without a circuit)."""
        return self._end(reconfiguration_id)

    def abort(self, reconfiguration_id: int) -> Change:
        """The switch did not take this reconfiguration: its ports hold again what they held before."""
        change = self._end(reconfiguration_id)
        mine = change.ports - self._dark.keys()
        kept = self.target.without_ports(mine)
        back = [c for c in change.before if mine.issuperset(c.ports) and not kept.ports.intersection(c.ports)]
        self.target = Matching([*kept, *back])
        return change

    def _end(self, reconfiguration_id: int) -> Change:
        try:
            change = self._changes.pop(reconfiguration_id)
        except KeyError:
            raise ControlError(f"{self.name} has no reconfiguration {reconfiguration_id} under way") from None
        for port in change.tuned:
            del self._dark[port]
        return change

    def fail(self, port: int) -> None:
        """Break ``port``; its circuit passes no light. ``dropped`` tells what then has to go."""
        self._check(port)
        self._failed.add(port)

    def restore(self, port: int) -> None:
        """Repair ``port``; ``returning`` tells which circuits can come back."""
        self._check(port)
        self._failed.discard(port)

    def dropped(self) -> Change | None:
        """The change that takes the circuits of broken ports off (they are remembered); None if there are none."""
        broken = {p for p in self._failed if p not in self._dark and self.target.peer(p) is not None}
        if not broken:
            return None
        self._lost.update(c for c in self.target if broken.intersection(c.ports))
        return self.change_to(self.target.without_ports(broken))

    def returning(self) -> Change | None:
        """The change that brings back circuits lost to a broken port whose ports are sound and free again."""
        used = self.target.ports | self._dark.keys()
        self._lost = {c for c in self._lost if not used.intersection(c.ports)}
        back = [c for c in self._lost if not self._failed.intersection(c.ports)]
        self._lost.difference_update(back)
        return self.change_to(Matching([*self.target, *back])) if back else None

    def _check(self, port: int) -> None:
        if port not in self.ports:
            raise CircuitError(
                f"port {port} is not on {self.name}; its ports are {min(self.ports)} to {max(self.ports)}"
            )
