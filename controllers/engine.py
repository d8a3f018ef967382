"""The engine: the state machine under every policy, without clock and without I/O.

The live controller and the predictor (``measure.model``) drive the same engine: time comes in as ``now``, what should
happen goes out as actions. Order of a reconfiguration, always: all members asked -> nothing in flight on the ports
concerned -> dark -> installed -> ack. Source of the rules: Opus, arXiv 2602.12521.
"""

from __future__ import annotations

from controllers.actions import (
    Ack,
    Action,
    CheckedIn,
    Note,
    Refuse,
    Registered,
    RegisterRefused,
    Rewired,
    RewireRefused,
)
from controllers.circuits import Matching
from controllers.fabric import Fabric, Reconfiguration
from controllers.intents import GroupIntent, Intent, RewireIntent, StartIntent
from controllers.jobs import Job
from controllers.ocs import Change, UpdateMode
from controllers.policy import Policy, Wiring
from controllers.readiness import Readiness, Round
from railyard.errors import ConfigError, ControlError, RailyardError
from topos.plan import FabricPlan

MAX_TRIES = 8
"""Reconfigurations one request may take before its policy is held to be going round in circles."""


class Engine:
    """The circuits of every OCS of ``plan``, for any number of jobs.

    Each method takes ``now`` (seconds, any clock that does not go back) and returns what must be done, in order. A
    caller's own mistake raises ``ControlError``, ``ConfigError`` or ``CircuitError``, and then nothing has changed.
    A request that can be granted is granted, even if an older one still waits for other ports.
    """

    def __init__(self, plan: FabricPlan) -> None:
        self.plan = plan
        self.fabric = Fabric(plan)
        self.jobs: dict[str, Job] = {}
        self._policies: dict[str, Policy] = {}
        self._groups: dict[str, tuple[Job, Readiness]] = {}
        self._pending: list[Intent] = []
        self._rounds: dict[tuple[str, int], GroupIntent] = {}
        self._gone: set[int] = set()

    # ---- jobs -------------------------------------------------------------------------------------------------

    def register(self, job: Job, policy: Policy, now: float) -> list[Action]:
        """Take ``job`` in and set up its starting circuits (no delay); ``Registered`` follows when they stand.

        On the switches they are on they replace all circuits but those between GPUs of other jobs.
        """
        self._check_new(job)
        wiring = policy.start(job.groups)
        others = frozenset(r for other in self.jobs.values() for g in other.groups for r in g.members)
        intent = StartIntent(asked=now, delay_s=0.0, job=job, wiring=wiring, kept=self.fabric.ports_of_ranks(others))
        self.fabric.changes(intent.wanted(self.fabric.target()))
        self.jobs[job.name] = job
        self._policies[job.name] = policy
        for group in job.groups:
            self._groups[group.name] = (job, Readiness(group))
            self._gone.difference_update(group.members)
        self._pending.append(intent)
        return self._try(intent, now)

    def finish(self, job: str, now: float) -> list[Action]:
        """Forget ``job`` and its groups; its circuits stay. Whoever still waits is refused."""
        if job not in self.jobs:
            raise ControlError(f"job {job} is not registered; registered are: {', '.join(self.jobs) or 'none'}")
        actions: list[Action] = []
        for name, (owner, readiness) in list(self._groups.items()):
            if owner.name == job:
                for turn in list(readiness.rounds.values()):
                    actions += self._refuse_round(readiness, turn, f"job {job} was finished")
                del self._groups[name]
        for intent in self._pending:
            if isinstance(intent, StartIntent) and intent.job.name == job:
                actions += self._refuse(intent, f"job {job} was finished before its circuits stood", now)
                break
        self.jobs.pop(job, None)
        self._policies.pop(job, None)
        return actions + self._advance(now)

    def check_in(self, rank: int, group: str, now: float) -> list[Action]:
        """``rank`` is here; when all members are, each is told whether the group asks, and its paths if it does not."""
        job, readiness = self._group(group)
        complete = readiness.check_in(rank)
        self._gone.discard(rank)
        if not complete:
            return self._refuse_check_in(readiness)
        value, policy = readiness.group, self._policies[job.name]
        asks = policy.asks(value)
        final = policy.paths(value, self.fabric.light()) if not asks and value.domain == "scale-out" else ()
        paths = tuple(final)
        return [CheckedIn(r, group, value.domain, asks, paths) for r in value.members]

    # ---- requests ---------------------------------------------------------------------------------------------

    def request(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """``rank`` asks for the circuits of ``group`` for the ``index``-th time (from 0)."""
        job, readiness = self._group(group)
        turn = readiness.ask(rank, index, now)
        self._gone.discard(rank)
        if turn is None:
            return self._refuse_left(readiness, readiness.rounds[index])
        intent = GroupIntent(
            asked=now, delay_s=job.dark_s, job=job, policy=self._policies[job.name], readiness=readiness, turn=turn
        )
        self._rounds[group, index] = intent
        self._pending.append(intent)
        return self._try(intent, now)

    def release(self, rank: int, group: str, index: int, now: float) -> list[Action]:
        """``rank`` has nothing in flight any more for request ``index``."""
        _, readiness = self._group(group)
        if readiness.release(rank, index) is None:
            return []
        self.fabric.let_go(self._rounds.pop((group, index)))
        return self._advance(now)

    def gone(self, rank: int, now: float) -> list[Action]:
        """``rank`` has left (its process ended): whoever waits for it is refused instead of waiting for ever."""
        self._gone.add(rank)
        actions: list[Action] = []
        for _, readiness in self._groups.values():
            if rank in readiness.group.members:
                for turn in list(readiness.rounds.values()):
                    actions += self._refuse_left(readiness, turn)
                actions += self._refuse_check_in(readiness)
        return actions

    def rewire(
        self,
        switch: str,
        matching: Matching,
        update_mode: UpdateMode,
        now: float,
        *,
        delay_s: float | None = None,
        ticket: object = None,
    ) -> list[Action]:
        """Rewire ``switch`` by hand; ``Rewired(ticket)`` follows when it is tuned.

        Waits for ports that are tuning; refuses at once (``RewireRefused``) where a group has traffic on a port.
        ``delay_s`` defaults to that of the job registered last, 0 without one.
        """
        device = self.fabric.switch(switch)
        after = device.resolve(matching, update_mode)
        self.fabric.changes({switch: after})
        delay = self._default_delay_s() if delay_s is None else delay_s
        intent = RewireIntent(
            asked=now, delay_s=delay, ticket=ticket, switch=device, matching=matching, mode=update_mode
        )
        self._pending.append(intent)
        return self._try(intent, now)

    # ---- what the switches report -----------------------------------------------------------------------------

    def lit(self, reconfiguration_id: int, now: float, *, since: float | None = None) -> list[Action]:
        """The delay of this reconfiguration is over and its circuits pass light.

        ``since``: when its ports really went dark, if that is known better than when it was ordered.
        """
        done = self.fabric.finish(reconfiguration_id)
        actions: list[Action] = [_reconfigured(done, done.began if since is None else since, now)]
        actions += self._drop_broken(done.darken.switch, now)
        if done.owner is not None and done.owner in self._pending:
            actions += self._try(done.owner, now)
        elif done.owner is not None and not done.owner.awaiting:
            self.fabric.let_go(done.owner)
        return actions + self._advance(now)

    def failed(self, reconfiguration_id: int, reason: str, now: float) -> list[Action]:
        """The switch did not do it (it refused, or has gone): whoever waits for it is told ``reason``."""
        done = self.fabric.abort(reconfiguration_id)
        actions: list[Action] = []
        if done.owner is not None and done.owner in self._pending:
            actions += self._refuse(done.owner, reason, now)
        elif done.owner is not None and not done.owner.awaiting:
            self.fabric.let_go(done.owner)
        return actions + self._advance(now)

    def port_failed(self, switch: str, port: int, now: float) -> list[Action]:
        """A port broke: its circuit is taken off, without delay, and requests that need it are refused."""
        device = self.fabric.switch(switch)
        if device.state(port) == "failed":
            return []
        device.fail(port)
        note = Note("port", now, fields={"rail": switch, "port": port, "state": "failed"})
        return [note, *self._drop_broken(switch, now), *self._advance(now)]

    def port_restored(self, switch: str, port: int, now: float) -> list[Action]:
        """A port was repaired: the circuit it lost comes back, after the delay, if both ends are free and sound."""
        device = self.fabric.switch(switch)
        if device.state(port) != "failed":
            return []
        device.restore(port)
        actions: list[Action] = [Note("port", now, fields={"rail": switch, "port": port, "state": "restored"})]
        change = device.returning()
        if change is not None:
            actions.append(self.fabric.begin(switch, change, None, self._default_delay_s(), now, now))
        return actions + self._advance(now)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> list[Action]:
        """Try everybody who waits, the oldest first."""
        actions: list[Action] = []
        for intent in list(self._pending):
            if intent in self._pending:
                actions += self._try(intent, now)
        return actions

    def _try(self, intent: Intent, now: float) -> list[Action]:
        """Grant, start, refuse or leave waiting."""
        if intent.awaiting:
            return []
        target = self.fabric.target()
        try:
            changes = self.fabric.changes(intent.wanted(target))
        except RailyardError as error:
            return self._refuse(intent, str(error), now)
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(intent, f"the policy failed with {type(error).__name__}: {error}", now)
        if changes:
            return self._begin(intent, changes, now)
        return self._grant(intent, now)

    def _begin(self, intent: Intent, changes: dict[str, Change], now: float) -> list[Action]:
        for name, change in changes.items():
            if change.ports & self.fabric.switches[name].dark:
                return _waits(intent, f"ports of {name} are still tuning", now)
            users = self.fabric.users(name, change.ports, but=intent)
            if users:
                reason = f"{users[0].label()} has traffic on the ports of {name} that would go dark"
                by_hand = isinstance(intent, RewireIntent) and not any(user.awaiting for user in users)
                return self._refuse(intent, reason, now) if by_hand else _waits(intent, reason, now)
        if intent.tries >= MAX_TRIES:
            return self._refuse(
                intent,
                f"the policy asked for other circuits {intent.tries} times for {intent.label()}; it never settles",
                now,
            )
        intent.tries += 1
        self.fabric.hold(intent, [(name, port) for name, change in changes.items() for port in change.tuned])
        return [
            self.fabric.begin(name, change, intent, intent.delay_s, intent.asked, now)
            for name, change in changes.items()
        ]

    def _grant(self, intent: Intent, now: float) -> list[Action]:
        if isinstance(intent, GroupIntent):
            return self._ack(intent, now)
        done: Action
        wiring: Wiring
        if isinstance(intent, StartIntent):
            wiring, done = intent.wiring, Registered(intent.job.name)
        else:
            assert isinstance(intent, RewireIntent)
            wiring, done = {intent.switch.name: intent.matching}, Rewired(intent.ticket)
        for name, matching in wiring.items():
            if matching.ports & self.fabric.switches[name].dark:
                return []
        self._pending.remove(intent)
        self.fabric.let_go(intent)
        return [done]

    def _ack(self, intent: GroupIntent, now: float) -> list[Action]:
        try:
            meant = intent.paths(self.fabric.target())
            ports = self.fabric.ports_of(meant)
            if any(port in self.fabric.switches[name].dark for name, port in ports):
                return []
            paths = intent.paths(self.fabric.light())
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(intent, f"the policy failed with {type(error).__name__}: {error}", now)
        if not paths and len(intent.group.members) > 1:
            return self._refuse(intent, f"the policy gave group {intent.label()} no path", now)
        self._pending.remove(intent)
        intent.turn.acked = True
        self.fabric.hold(intent, ports)
        group, index = intent.group.name, intent.turn.index
        fields = {
            "group": group,
            "index": index,
            "ranks": list(intent.group.members),
            "asked": intent.turn.asked_first,
            "ready": intent.turn.asked_last,
        }
        return [Note("ack", now, fields=fields), *(Ack(r, group, index, paths) for r in intent.group.members)]

    def _refuse(self, intent: Intent, reason: str, now: float) -> list[Action]:
        """Give up on ``intent`` and tell whoever waits for it."""
        if isinstance(intent, GroupIntent):
            note = _waits(intent, reason, now, final=True)
            return [*note, *self._refuse_round(intent.readiness, intent.turn, reason)]
        self._drop(intent)
        if isinstance(intent, StartIntent):
            job = intent.job.name
            self._groups = {n: pair for n, pair in self._groups.items() if pair[0].name != job}
            self.jobs.pop(job, None)
            self._policies.pop(job, None)
            return [RegisterRefused(job, reason)]
        assert isinstance(intent, RewireIntent)
        return [RewireRefused(intent.ticket, reason)]

    def _refuse_round(self, readiness: Readiness, turn: Round, reason: str) -> list[Action]:
        """Forget a round; those who asked and were not acknowledged are told why."""
        group = readiness.group.name
        readiness.rounds.pop(turn.index, None)
        intent = self._rounds.pop((group, turn.index), None)
        if intent is not None:
            self._drop(intent)
        return [] if turn.acked else [Refuse(rank, group, turn.index, reason) for rank in sorted(turn.asked)]

    def _refuse_left(self, readiness: Readiness, turn: Round) -> list[Action]:
        left = readiness.missing(turn) & self._gone
        return self._refuse_round(readiness, turn, f"rank {min(left)} of the group has left") if left else []

    def _refuse_check_in(self, readiness: Readiness) -> list[Action]:
        left = (set(readiness.group.members) - readiness.checked_in) & self._gone
        if not left:
            return []
        here = sorted(readiness.checked_in)
        readiness.checked_in.clear()
        return [Refuse(r, readiness.group.name, None, f"rank {min(left)} of the group has left") for r in here]

    def _drop(self, intent: Intent) -> None:
        """Take ``intent`` off the books; ports of its reconfigurations under way stay taken until they are lit."""
        if intent in self._pending:
            self._pending.remove(intent)
        if not intent.awaiting:
            self.fabric.let_go(intent)

    def _drop_broken(self, switch: str, now: float) -> list[Action]:
        change = self.fabric.switches[switch].dropped()
        return [] if change is None else [self.fabric.begin(switch, change, None, 0.0, now, now)]

    def _default_delay_s(self) -> float:
        return next((job.dark_s for job in reversed(self.jobs.values())), 0.0)

    def _group(self, name: str) -> tuple[Job, Readiness]:
        try:
            return self._groups[name]
        except KeyError:
            raise ControlError(f"no job has registered a group {name}") from None

    def _check_new(self, job: Job) -> None:
        if job.name in self.jobs:
            raise ControlError(f"job {job.name} is registered already; finish it first or choose another name")
        if job.reconfiguration_delay_s < 0 or job.link_recovery_s < 0:
            raise ConfigError(f"job {job.name} has a delay below 0; 0 or more is right", key="reconfiguration_delay_s")
        seen: set[str] = set()
        for group in job.groups:
            if group.name in self._groups or group.name in seen:
                raise ControlError(f"group {group.name} is registered already; every group needs a name of its own")
            if not group.members or len(set(group.members)) != len(group.members):
                raise ConfigError(f"group {group.name} must have members, each of them once")
            outside = [r for r in group.members if not 0 <= r < self.plan.ranks]
            if outside:
                raise ConfigError(
                    f"group {group.name} has rank {outside[0]}; the fabric's ranks are 0 to {self.plan.ranks - 1}"
                )
            seen.add(group.name)


def _waits(intent: Intent, reason: str, now: float, *, final: bool = False) -> list[Action]:
    """Note once why ``intent`` has to wait (or, ``final``, gets nothing)."""
    if intent.said_why and not final:
        return []
    intent.said_why = True
    index = intent.turn.index if isinstance(intent, GroupIntent) else None
    return [Note("refused", now, fields={"group": intent.label(), "index": index, "reason": reason, "final": final})]


def _reconfigured(done: Reconfiguration, since: float, now: float) -> Note:
    darken = done.darken
    circuits = [list(c.ports) for c in darken.after if darken.ports.issuperset(c.ports)]
    fields = {
        "rail": darken.switch,
        "reconfiguration": darken.reconfiguration_id,
        "ports": sorted(darken.ports),
        "circuits": circuits,
        "asked": done.asked,
        "delay_s": darken.delay_s,
        "group": done.owner.label() if done.owner is not None else "",
    }
    return Note("reconfigure", since, now, fields)
