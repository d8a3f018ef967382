"""An OpenFlow app of the user's own in the loop of a run: it is asked for circuits, and the switches whether it lies.

Takes the place of ``openflow.tuning``: where Railyard's controller would send flows, the app gets a ``request``. When
it answers that its circuits stand, the flows of the switch are read; the engine goes on when they lead where they
should and the delay is over. Pure: time and lines come in, lines and actions go out. ``railyard.app_channel`` is the
app's side. Whatever the app does wrong ends the run with one sentence (``end``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from controllers.engine.actions import Action, Darken, Note
from controllers.engine.requests import GroupRequest, StartRequest
from controllers.northbound import messages
from controllers.openflow import flows
from controllers.openflow.datapaths import DatapathSender, Transaction
from railyard.app_channel import HELLO, VERSION
from railyard.errors import ConfigError
from railyard.protocol import to_json
from railyard.validation import Whole, from_plain
from topos.plan import FabricPlan

PATIENCE_S = 5.0
"""How long the app may take for an answer, besides the delay of the circuits."""
LINE_BYTES = 1 << 16
"""The longest line of an app."""
MOST_WRONG = 100
"""Wrong lines of an app in a second; one that sends more floods."""


@dataclass(frozen=True)
class AppAnswer:
    """A line of the app: the circuits of request ``id`` stand (``ok``), or it refuses them for a reason."""

    id: Whole
    ok: bool = False
    refuse: Annotated[str, Field(max_length=1000)] = ""


@dataclass
class _Asked:
    """A reconfiguration that the app was asked for at ``since``; ``up_at``: when it said that its circuits stand."""

    action: Darken
    since: float
    up_at: float | None = None


class AppBridge:
    """The requests to one app, for the switches behind ``sender``. All methods are called under the core's lock."""

    def __init__(self, sender: DatapathSender, plan: FabricPlan) -> None:
        self.end = ""
        """Why the run must end: what the app did wrong; empty as long as that is nothing."""
        self.ready = False
        """Whether the app has answered ``hello``."""
        self.bad_lines = 0
        self._sender = sender
        self._plan = plan
        self._tell: Callable[[bytes], None] | None = None
        self._asked: dict[int, _Asked] = {}
        self._jobs: set[str] = set()
        self._second, self._recent = 0.0, 0

    def connected(self, tell: Callable[[bytes], None]) -> None:
        """Greet the app, whose lines ``tell`` sends."""
        self._tell, self.ready = tell, False
        self._say("hello", id=HELLO, version=VERSION, plan=asdict(self._plan))

    def left(self, now: float, how: str = "left") -> list[Action]:
        """Take note that the app's connection has ended, and ``how``, which ends a run with jobs."""
        self._tell = None
        doing = f"in the middle of {self._named(next(iter(self._asked)))}" if self._asked else "while a job ran"
        wrong = f"; {self.bad_lines} of its lines were wrong" if self.bad_lines else ""
        return self._fail(f"your controller {how} {doing}{wrong}", now) if self._jobs or self._asked else []

    def take(self, line: bytes, now: float) -> list[Action]:
        """Take a line of the app; one that is wrong is answered with what is wrong."""
        try:
            answer = from_plain(AppAnswer, line, "an answer of an app", strict=True)
            if answer.ok == bool(answer.refuse):
                raise ConfigError('must be true, or leave it out and say why in "refuse"', key="ok")
            if answer.id == HELLO and not self.ready:
                self.ready = answer.ok
                return [] if answer.ok else self._fail(f"your controller refused the fabric: {answer.refuse}", now)
            asked = self._asked.get(answer.id)
            if asked is None or asked.up_at is not None:
                raise ConfigError(f"no request {answer.id} waits for an answer", key="id")
        except ConfigError as error:
            return self._wrong(str(error), now)
        if answer.refuse:
            return self._fail(f"your controller refused {self._named(answer.id)}: {answer.refuse}", now)
        asked.up_at = now
        if not self._sender.send(asked.action.switch, "read", flows.flow_stats_request, now, answer.id):
            return self._fail(f"{asked.action.switch} cannot be asked for its flows", now)
        return []

    def _wrong(self, error: str, now: float) -> list[Action]:
        """Answer a wrong line with what is wrong with it."""
        if now >= self._second + 1.0:
            self._second, self._recent = now, 0
        self._recent += 1
        self.bad_lines += 1
        if self._recent > MOST_WRONG:
            floods = f"your controller floods: it sent more than {MOST_WRONG} wrong lines in a second"
            return self._fail(f"{floods}; of the last one, {error}", now)
        self._say("error", error=error)
        return []

    def _say(self, op: str, **fields: Any) -> None:
        if self._tell is not None:
            self._tell(to_json({"op": op, **fields}) + b"\n")

    def requested(self, request: messages.AnyRequest) -> None:
        """Tell the app what follows from a request that the engine has taken: a job, its end, a release."""
        if isinstance(request, messages.Register):
            job = request.job
            self._jobs.add(job.name)
            self._say("job", job=job.name, mode=job.mode, policy=request.policy, delay_s=job.dark_s, groups=job.groups)
        elif isinstance(request, messages.Finish):
            self._jobs.discard(request.job)
            self._say("done", job=request.job)
        elif isinstance(request, messages.Release):
            membership, readiness = self._sender.engine.registry.group(request.group)
            if request.index not in readiness.rounds:
                self._say("release", job=membership.job.name, group=request.group, index=request.index)

    def begin(self, action: Darken, now: float) -> Iterable[Action]:
        """Ask the app for the circuits of a reconfiguration."""
        number = action.reconfiguration_id
        self._asked[number] = _Asked(action, now)
        if action.quiet:
            return self._fail(f"your controller is asked for single changes, and {self._named(number)} is a slot", now)
        if self.end or self._tell is None:
            return self._fail("your controller is not there any more", now)
        self._say("request", id=number, **self._described(action))
        self._sender.later(now + PATIENCE_S + action.delay_s, lambda later: self._overdue(number, later))
        return ()

    def read(self, done: Transaction, entries: bytes, now: float) -> list[Action]:
        """Compare the flows of a switch with what the app has said, and end the reconfiguration if they agree."""
        number, name = done.reconfiguration_id, done.switch
        asked = self._asked.get(number)
        if asked is None:
            return []
        action, datapath = asked.action, self._sender.datapaths.connected[name]
        try:
            found, verified = flows.flows_in(entries), True
        except ValueError as error:
            return self._fail(f"the flows of {name} cannot be read: {error}", now)
        for port in sorted(action.ports & action.after.ports):
            peer = action.after.peer(port)
            assert peer is not None
            led = flows.leads(found, port, peer)
            verified &= led is not None
            if led is False:
                joins = f"{name} joins ports {min(port, peer)} and {max(port, peer)}"
                wrong = f"your controller said that {joins}, but the switch has no flow from port {port} to {peer}"
                return self._fail(wrong, now)
        for port in sorted(action.ports - action.after.ports):
            if any(flow.match.in_port == port and flow.outputs for flow in found):
                wrong = f"your controller said that port {port} of {name} has no circuit, but a flow leads on from it"
                return self._fail(wrong, now)
        caches_at = now + datapath.circuits_to_caches_s(now) + datapath.caches.settle_s
        end = max(asked.since + action.delay_s, caches_at)
        if end > now:
            self._sender.later(end, lambda later: self._end(number, later, verified=verified))
            return []
        return self._end(number, now, verified=verified)

    def switch_left(self, name: str, now: float) -> list[Action]:
        self._sender.datapaths.disconnect(name)
        return self._fail(f"{name} cannot be asked for its flows any more", now)

    def not_executed(self, failed: Transaction, problem: str, now: float) -> list[Action]:
        return self._fail(f"{failed.switch} {problem} when it was asked for its flows", now)

    def _end(self, number: int, now: float, *, verified: bool) -> list[Action]:
        asked = self._asked.pop(number, None)
        if asked is None or asked.up_at is None:
            return []
        # where the fabric keeps the dark time, that has begun with the flows and ended when the app could confirm them
        since = max(asked.since, asked.up_at - asked.action.delay_s)
        actions = self._sender.engine.reconfigured(number, now, since=since)
        note = actions[0]
        if isinstance(note, Note) and not verified:
            actions[0] = replace(note, fields={**note.fields, "verified": False})
        return actions

    def _overdue(self, number: int, now: float) -> list[Action]:
        asked = self._asked.get(number)
        if asked is None or asked.up_at is not None:
            return []
        waited = PATIENCE_S + asked.action.delay_s
        return self._fail(f"your controller did not answer {self._named(number)} within {waited:g} s", now)

    def _fail(self, sentence: str, now: float) -> list[Action]:
        """Refuse all that the app was asked for, with the first thing that it did wrong, which ends the run."""
        self.end = self.end or sentence
        asked, self._asked = self._asked, {}
        return [action for number in asked for action in self._sender.engine.failed(number, self.end, now)]

    def _named(self, number: int) -> str:
        """A request in words, for the user."""
        owner = self._sender.engine.optical.owner(number)
        what = "" if owner is None else f", for {owner.what}"
        return f"request {number} ({self._asked[number].action.switch}{what})"

    def _described(self, action: Darken) -> dict[str, Any]:
        """The fields of a request (docs/policies.md)."""
        engine = self._sender.engine
        owner = engine.optical.owner(action.reconfiguration_id)
        fields: dict[str, Any] = {"job": "", "group": "", "index": None, "members": (), "paths": ()}
        if isinstance(owner, GroupRequest):
            job = engine.registry.group(owner.group.name)[0].job.name
            group = owner.group
            fields = {"job": job, "group": group.name, "index": owner.round.index, "members": group.members}
            with suppress(Exception):  # a user's policy may raise anything; the engine then refuses the request
                fields["paths"] = owner.paths(engine.optical.target())
        elif isinstance(owner, StartRequest):
            fields["job"] = owner.job
        return {
            **fields,
            "switch": action.switch,
            "ports": sorted(action.ports),
            "before": [circuit.ports for circuit in action.before],
            "circuits": [circuit.ports for circuit in action.after],
            "delay_s": action.delay_s,
        }
