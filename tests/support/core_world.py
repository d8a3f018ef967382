"""A live controller with switches in memory, for tests: messages in, flows and answers out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from fabric_plans import pipeline_groups
from fake_clock import FakeClock
from fake_openflow import FakeSwitch

from controllers.engine.jobs import Job
from controllers.openflow.core import ControllerCore
from railyard.protocol import to_json
from railyard.timeline import Event
from topos.plan import FabricPlan

REPLY_S = 0.0005
"""How long a switch in memory takes to answer, in fake time."""


class World:
    """A controller core, its switches and what came of it, on a fake clock (``RunningClock`` beside real sockets)."""

    def __init__(
        self,
        plan: FabricPlan,
        clock: FakeClock | None = None,
        record: Callable[[Event], None] | None = None,
        before: World | None = None,
        kind: type[ControllerCore] = ControllerCore,
    ) -> None:
        """``before``: the world of a controller that has ended, whose switches this one takes over."""
        self.plan = plan
        self.clock = clock or FakeClock()
        self.events: list[Event] = []
        self.ready = threading.Event()
        record = record or self.events.append
        takes_over = before is not None
        self.core = kind(self.plan, record, self.ready.set, self.clock, self.clock, takes_over=takes_over)
        self.core.start()
        self.switches: dict[int, FakeSwitch] = (
            before.switches if before is not None else {s.dpid: FakeSwitch() for s in self.plan.switches}
        )
        self.sends: dict[int, Any] = {}
        self.mute = False
        self.arrived = 0
        self.trusted = True
        self.answers: dict[object, dict[str, Any]] = {}

    def join(self, dpid: int = 0x10000) -> None:
        switch = self.switches[dpid]

        def send(data: bytes) -> bool:
            switch.take(data)
            sent, switch.sent = switch.sent, []
            if not self.mute:
                self.clock.after(REPLY_S, lambda: self.reply(dpid, sent))
            return True

        self.sends[dpid] = send
        self.core.joined(dpid, send)

    def reply(self, dpid: int, sent: list[tuple[str, int]]) -> None:
        """Answer what one message asked for."""
        for kind, number in sent:
            if kind == "barrier":
                self.core.answered(dpid, number)
            elif kind == "flows":
                statistics = self.switches[dpid].statistics()
                for part in (statistics[:48], statistics[48:]):
                    self.core.flows_read(number, part)
            elif kind == "ports":
                self.arrived += 5
                self.core.counted(dpid, number, [(port, self.arrived, 100 * self.arrived) for port in range(1, 9)])
            else:
                self.core.refused(dpid, number, "BUNDLE_FAILED")

    def answer(self, request_id: object, answer: bytes) -> None:
        self.answers[request_id] = json.loads(answer)

    def ask(self, request_id: object, **message: Any) -> None:
        self.core.handle(to_json({"id": request_id, **message}), self)

    def wait(self, request_id: object) -> dict[str, Any]:
        self.until(lambda: request_id in self.answers)
        return self.answers[request_id]

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until ``condition`` holds."""
        self.clock.until(condition)

    def register(self, delay_s: float = 0.02, *, resumes: bool = False) -> None:
        job = Job("j", pipeline_groups(2, 2), "x", delay_s)
        self.ask("register", op="register", policy="opus", job=job, resumes=resumes)
        assert self.wait("register") == {"ok": True}
