"""Agents on real namespaces and real TCP: numbers really added, and every bad end one sentence."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import hanging_launcher

from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send

pytestmark = [pytest.mark.root, pytest.mark.beside]

RANKS = 4
SIZE = 400_001
GROUPS = {
    "dp": Group("dp", "dp", (0, 1, 2, 3)),
    "left": Group("left", "pp", (0, 1), stage=0),
    "pair": Group("pair", "dp", (2, 3), stage=0),
}


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    with Emulation(RailTopo(servers=RANKS, gpus=1, fabric="electrical", rate_mbps=200), openflow=None) as running:
        yield running


def every_kind(rank: int) -> tuple[Operation, ...]:
    """All collectives, crossing sends and a group of two, with compute between them."""
    operations: list[Operation] = [Compute(0, "forward", 0.01)]

    def add(make: Any, *fields: Any, deps: tuple[int, ...]) -> None:
        operations.append(make(len(operations), f"op{len(operations)}", *fields, deps))

    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        add(Collective, kind, "dp", SIZE, deps=(len(operations) - 1,))
    before = (len(operations) - 1,)
    if rank in (0, 1):
        add(Send, "left", 1 - rank, SIZE, deps=before)
        add(Recv, "left", 1 - rank, SIZE, deps=before)
    else:
        add(Collective, "all_reduce", "pair", SIZE, deps=before)
    operations.append(Compute(len(operations), "backward", 0.01, before))
    return tuple(operations)


PROGRAM = Program("every-kind", tuple(every_kind(rank) for rank in range(RANKS)), GROUPS)


@contextmanager
def team_of(
    net: Emulation, launcher: AgentLauncher, folder: Path, program: Program = PROGRAM, **fields: Any
) -> Iterator[AgentTeam]:
    values: dict[str, Any] = {"mode": "native", "verify": True, "steps": 2, "scale": Scale(1.0), **fields}
    configs = [
        AgentConfig(rank=r, job="job", program=program, plan=net.plan, events=str(folder / f"agent{r}.jsonl"), **values)
        for r in range(RANKS)
    ]
    team = launcher.launch(configs, [net.netns_fd(f"g{r}") for r in range(RANKS)])
    try:
        yield team
    finally:
        team.stop()


def until(launcher: AgentLauncher, condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Listen to the agents until ``condition`` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert launcher.listen(end - time.monotonic()), f"not within {seconds} s"


def events_in(folder: Path) -> list[Event]:
    return [event for file in sorted(folder.glob("agent*.jsonl")) for event in read_events(file)]


def test_every_sum_is_right_on_every_rank(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    with team_of(net, launcher, tmp_path) as team:
        team.wait_ready(10)
        team.go(time.monotonic() + 0.02)
        team.wait_done(20)
    events = events_in(tmp_path)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 2 * (RANKS * 3 + 4), "every collective on every rank, and every receive"
    assert all(e["wrong"] == 0 for e in verified)
    assert team.steps == dict.fromkeys(range(RANKS), 2)
    assert sum(e.kind == "step" for e in events) == 2 * RANKS
    ring = next(e for e in events if e.kind == "communicate" and e["op_kind"] == "all_reduce" and e["rank"] == 0)
    assert ring["sent_bytes"] == pytest.approx(1.5 * SIZE, rel=0.01), "2 (n - 1) / n of the buffer"
    assert ring["lanes"] == [0, 1]
    late = [e["late_s"] for e in events if e.kind == "compute"]
    assert len(late) == 2 * 2 * RANKS and min(late) >= 0


def test_an_agent_that_hangs_is_named_before_its_peers_give_up(
    net: Emulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging_launcher.install(monkeypatch)
    with AgentLauncher.start() as launcher:
        for sign, what in ((hanging_launcher.HANG, "its loop has stood still"), (signal.SIGSTOP, "no heartbeat")):
            with team_of(net, launcher, tmp_path, steps=1000, ack_timeout_s=3.2) as team:
                team.wait_ready(10)
                team.go(time.monotonic())
                while min(team.steps.values()) < 1:
                    assert launcher.listen(20)
                hung = time.monotonic()
                os.kill(team.pids[2], sign)
                with pytest.raises(AgentError, match=rf"^the agent of rank 2 hangs in step \d+: .*{what}"):
                    team.wait_done(20)
                print(f"\n{sign.name}: named after {time.monotonic() - hung:.2f} s, heartbeats every 0.4 s")
                assert time.monotonic() - hung < 3 * 0.4 + 1.0
