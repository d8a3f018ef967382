"""Pending requests: the circuits of a group, the start of a job, the splice of a spare, re-routing, rewiring by hand.

The request queue asks each for the circuits it needs now (``wanted``) and, once they are up or cannot be had, for the
actions to take (``done``, ``given_up``), which whoever makes the request gives to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.ocs import OpticalSwitch, UpdateMode
from controllers.circuits.rotation import RunningRotation, circuits_in_slot
from controllers.engine.actions import Action, Note, Rewired, RewireRefused
from controllers.engine.membership import Readiness, Round
from controllers.policies.policy import Policy, Wiring
from railyard.errors import CircuitError
from railyard.protocol import Hop
from workloads.program import Group


@dataclass(eq=False, kw_only=True)
class PendingRequest:
    """A request for circuits that is queued or being executed; by itself it wants none.

    ``what`` names it on the timeline and in messages. ``asked`` is the time of the request, ``delay_s`` the dark time
    of its reconfigurations, ``awaiting`` the numbers of those under way, ``tries`` their rounds so far. ``reroutes``:
    the routes of an electrical torus must be updated for it, once. ``changed`` are the (switch, port) whose circuits
    have changed for it. ``reason_noted``: the timeline already has the reason why it waits.

    ``delayed`` is called at the end of the delay, before the routes of the request are sent. ``begun`` returns the
    actions to take when the first circuits begin to change, ``done`` those once the circuits are up, ``given_up`` those
    for a request that cannot be met, for a reason.
    """

    what: str
    asked: float
    delay_s: float
    reroutes: bool = False
    awaiting: set[int] = field(default_factory=set)
    changed: set[tuple[str, int]] = field(default_factory=set)
    tries: int = 0
    reason_noted: bool = False
    delayed: Callable[[], None] = lambda: None
    begun: Callable[[float], list[Action]] = lambda now: []
    done: Callable[[float], list[Action]] = lambda now: []
    given_up: Callable[[str, float], list[Action]] = lambda reason, now: []

    def wanted(self, target: Wiring) -> Wiring:
        """The complete circuits of each switch concerned, given those of ``target``."""
        return {}

    @property
    def quiet(self) -> bool:
        """Whether no rank sends over the circuits before it is told that they are up."""
        return False

    def own_circuits(self) -> Wiring:
        """The circuits of the request itself, all of which must be up before it is done."""
        return {}


@dataclass(eq=False, kw_only=True)
class GroupRequest(PendingRequest):
    """The complete round of requests of a group (granted by ``controllers.engine.request_queue``).

    ``watched``: failures of its members are detected, so that it may wait where a port has failed. ``rotation``: the
    slots of its circuits; None if the circuits stay up until the release.
    """

    policy: Policy
    readiness: Readiness
    round: Round
    watched: bool = False
    rotation: RunningRotation | None = None

    @property
    def group(self) -> Group:
        return self.readiness.group

    @property
    def asking(self) -> Group:
        """The group as its policy sees it: with the number of this request."""
        return replace(self.group, turn=self.round.index)

    @property
    def quiet(self) -> bool:
        return self.rotation is not None

    @cached_property
    def rotation_ports(self) -> tuple[tuple[str, int], ...]:
        """The (switch, port) that a rotation uses in any of its slots: all are held from the first to the last."""
        slots = self.rotation.slots if self.rotation is not None else ()
        return tuple({(name, port) for slot in slots for name, own in slot.wiring.items() for port in own.ports})

    def wanted(self, target: Wiring) -> Wiring:
        """The circuits that the policy wants; in a rotation those of the current slot and of no other slot."""
        if self.rotation is None:
            return self.policy.wanted(self.asking, target)
        return circuits_in_slot(self.rotation.slots, self.rotation.slot, target)

    def paths(self, circuits: Wiring) -> tuple[Hop, ...]:
        """The paths of the group over ``circuits``; in a rotation those of the current slot."""
        if self.rotation is not None:
            return self.rotation.slot.paths
        return tuple(self.policy.paths(self.asking, circuits))


@dataclass(eq=False, kw_only=True)
class StartRequest(PendingRequest):
    """The starting circuits of the new job ``job``.

    ``kept()`` returns the ports of other jobs by switch, those of members being replaced included; circuits between
    those ports stay.
    """

    job: str
    wiring: Wiring
    kept: Callable[[], Mapping[str, frozenset[int]]]

    def wanted(self, target: Wiring) -> Wiring:
        wiring, kept = {}, self.kept()
        for name, matching in self.wiring.items():
            ports = kept.get(name, frozenset())
            others = [c for c in target.get(name, Matching()) if ports.issuperset(c.ports)]
            wiring[name] = Matching([*others, *matching])
        return wiring

    def own_circuits(self) -> Wiring:
        return self.wiring


@dataclass(eq=False, kw_only=True)
class SpliceRequest(PendingRequest):
    """The circuits (and routes) of the new groups of a job, in which a spare replaces a failed member.

    ``mine`` are the ports of all present and former members: circuits of other jobs do not change. ``broken(switch)``
    returns the broken ports of a switch: a circuit that needs one is left out, since its chip either fails next or
    works with its remaining ports.
    """

    wiring: Wiring
    broken: Callable[[str], frozenset[int]]
    mine: Mapping[str, frozenset[int]]

    def wanted(self, target: Wiring) -> Wiring:
        wiring = {}
        for name in self.mine.keys() | self.wiring.keys():
            ports = self.mine.get(name, frozenset())
            others = [c for c in target.get(name, Matching()) if ports.isdisjoint(c.ports)]
            wiring[name] = Matching([*others, *self._sound(name)])
        return wiring

    def own_circuits(self) -> Wiring:
        return {name: Matching(self._sound(name)) for name in self.wiring}

    def _sound(self, name: str) -> list[Circuit]:
        broken = self.broken(name)
        return [circuit for circuit in self.wiring.get(name, ()) if broken.isdisjoint(circuit.ports)]


@dataclass(eq=False, kw_only=True)
class RewireRequest(PendingRequest):
    """A rewiring of one switch by hand, over REST or the job channel; ``ticket`` identifies it.

    ``manual`` are the fields of the event ``manual`` that is noted when ports begin to go dark, so never for a
    rewiring that is refused before; one that is refused later is then noted as refused too. None: nothing is noted.
    """

    switch: OpticalSwitch
    matching: Matching
    mode: UpdateMode
    ticket: object
    manual: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.begun = lambda now: [] if self.manual is None else [Note("manual", now, fields=self.manual)]
        self.done = lambda now: [Rewired(self.ticket)]
        self.given_up = self._given_up

    def _given_up(self, reason: str, now: float) -> list[Action]:
        fields = {"group": self.what, "index": None, "reason": reason, "final": True}
        undone = [Note("refused", now, fields=fields)] if self.manual is not None and self.tries else []
        return [*undone, RewireRefused(self.ticket, reason)]

    def wanted(self, target: Wiring) -> Wiring:
        """The circuits after applying the matching in its update mode, once.

        Raises ``CircuitError`` if circuits of the matching were removed while they were tuning.
        """
        if self.tries and not self.matching.circuits <= self.switch.target.circuits:
            raise CircuitError(f"the new circuits of {self.switch.name} were removed while they were tuning")
        if self.tries:
            return {}
        return {self.switch.name: self.switch.resolve(self.matching, self.mode)}

    def own_circuits(self) -> Wiring:
        return {self.switch.name: self.matching}
