"""A live controller that asks an app in memory for circuits, with switches in memory: good apps and bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core_world import World

from controllers.northbound.app_core import AppCore
from controllers.openflow import flows
from topos.plan import FabricPlan


class AppWorld(World):
    """The core, an app that has connected, and what the app was told. ``install`` is what a good app does."""

    core: AppCore

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan, kind=AppCore)
        self.told: list[dict[str, Any]] = []
        self.connect()
        for switch in plan.switches:
            self.join(switch.dpid)

    def connect(self) -> None:
        self.core.app_connected(lambda line: self.told.append(json.loads(line)))
        self.says(id=0, ok=True)

    def says(self, **fields: Any) -> None:
        self.core.app_said(json.dumps(fields).encode())

    def reply(self, dpid: int, sent: list[tuple[str, int]]) -> None:
        """Answer what the core reads, whose last part ends it."""
        super().reply(dpid, sent)
        for kind, number in sent:
            assert kind == "flows", "it changes no switch"
            self.core.answered(dpid, number)

    def ops(self) -> list[str]:
        return [message["op"] for message in self.told]

    def asked(self) -> dict[str, Any]:
        """The last request."""
        return next(message for message in reversed(self.told) if message["op"] == "request")

    def install(self, pairs: Iterable[Iterable[int]], name: str = "rail0") -> None:
        """Give a switch the circuits ``pairs`` and no others."""
        self.send([way for a, b in pairs for way in ((a, b), (b, a))], name)

    def send(self, ways: Iterable[tuple[int, int]], name: str = "rail0") -> None:
        """Give a switch a flow for each of ``ways``, from port to port, and no others."""
        (switch,) = (self.switches[plan.dpid] for plan in self.plan.switches if plan.name == name)
        switch.take(flows.bundle([flows.no_flows(), *(flows.circuit_flow(*way) for way in ways)], 1))
        switch.sent.clear()

    def serve(self) -> dict[str, Any]:
        """Do what was asked last, and say so; what was asked."""
        asked = self.asked()
        self.install(asked["circuits"], asked["switch"])
        self.says(id=asked["id"], ok=True)
        return asked

    def register_served(self, delay_s: float = 0.02) -> None:
        """Register the job of ``World.register``, whose starting circuits the app sets up."""
        from fabric_plans import pipeline_groups

        from controllers.engine.jobs import Job

        job = Job("j", pipeline_groups(2, 2), "x", delay_s)
        self.ask("register", op="register", policy="opus", job=job)
        self.serve()
        assert self.wait("register") == {"ok": True}

    def ask_pair(self) -> None:
        """Both ranks of a pipeline pair ask for their circuit."""
        group = "pp-s0-d0-r0"
        for rank in (0, 2):
            self.ask(f"in{rank}", op="checkin", job="j", rank=rank, group=group)
        for rank in (0, 2):
            self.ask(rank, op="request", job="j", rank=rank, group=group, index=0)
