"""Ranks that scripts drive: their tensors over electrical rails and over circuits that change, with right values."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import driven_rank
from agents.driven_rank import Made
from checkout import ROOT

from controllers.engine.jobs import Job
from experiments.session import Session
from experiments.settings import PacketSettings
from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig, Incarnation
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.collectives.circuits import follow_circuits
from workloads.program import Group, Program

pytestmark = pytest.mark.root

RANKS, STEPS, RATE_MBPS = 4, 3, 100
MANY = 1_000_000_000
"""Steps of a program that a script ends."""
GROUPS = {
    "dp": Group("dp", "dp", (0, 1, 2, 3)),
    "left": Group("left", "ep", (0, 1)),
    "right": Group("right", "ep", (2, 3)),
    "up": Group("up", "pp", (1, 2)),
    "small": Group("small", "dp", (0, 1, 2, 3), "front-end"),
}
UNEVEN = ((3, 0, 20_001, 5), (100, 7, 0, 1), (0, 0, 9, 2), (1, 4_000, 5, 6))
RINGS = [
    Made("all_reduce", "dp", 10_007),
    Made("all_reduce", "small"),
    Made("all_reduce", "dp", 33_333, "bfloat16", waits=False),
    Made("all_reduce", "dp", 1_001, "int64", waits=False),
    Made("all_gather", "dp", 5_001, "bfloat16"),
    Made("reduce_scatter", "dp", 777, "int64"),
    Made("all_reduce", "left", 5, "float16", "max"),
    Made("reduce_scatter", "right", 12_345, "float64", "avg"),
    Made("message", "up", 40_001, "bfloat16"),
    Made("all_to_all", "dp", 3_001, "int32"),
    Made("broadcast", "left", 8_191, "uint8"),
    Made("all_gather", "dp", 3, "uint8"),
    Made("all_to_all", "dp", 0, "bfloat16", matrix=UNEVEN, waits=False),
    Made("broadcast", "dp", 20_001, "float64", algorithm="ring"),
]
STRAIGHT = [
    Made("all_to_all", "dp", 2_001, "float16", algorithm="direct"),
    Made("all_to_all", "dp", 0, "float32", matrix=UNEVEN, algorithm="direct"),
    Made("all_to_all", "dp", 0, "bfloat16", matrix=UNEVEN, algorithm="direct", waits=False),
    Made("all_reduce", "dp", 2_000, "float32", "avg", algorithm="direct"),
]


@pytest.fixture(scope="module")
def electrical() -> Iterator[Session]:
    topo = RailTopo(servers=RANKS, gpus=1, fabric="electrical", rate_mbps=RATE_MBPS, front_end=True)
    with Session(PacketSettings(), topo) as session:
        yield session


@pytest.fixture(scope="module")
def ocs() -> Iterator[Session]:
    topo = RailTopo(servers=RANKS, gpus=1, fabric="ocs", rate_mbps=RATE_MBPS, front_end=True)
    with Session(PacketSettings(controller="ryu"), topo) as session:
        yield session


class Scripts:
    """The scripts of all ranks, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def socket(self, rank: int) -> str:
        return str(self.folder / f"g{rank}.sock")

    def start(self) -> None:
        for rank in range(RANKS):
            command = [sys.executable, driven_rank.__file__, self.socket(rank), str(rank), str(self.folder / "plan")]
            output = (self.folder / f"script{rank}").open("w")
            environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
            with output:
                self.running.append(
                    subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True)
                )

    def statuses(self) -> list[int]:
        return [process.wait(30) for process in self.running]

    def output(self, rank: int) -> str:
        return (self.folder / f"script{rank}").read_text()

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@contextmanager
def driven(
    session: Session,
    launcher: AgentLauncher,
    folder: Path,
    made: list[Made],
    *,
    mode: str = "native",
    policy: str = "",
    steps: int = STEPS,
    plan: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Iterator[tuple[AgentTeam, Scripts]]:
    used = {name: group for name, group in GROUPS.items() if any(call.group == name for call in made)}
    driven_rank.write(folder / "plan", made, used, steps, **(plan or {}))
    program = driven_rank.program_of(made, used, RANKS)
    if policy == "follow":
        program = follow_circuits(program)
    if policy:
        job = Job(name=folder.name, groups=tuple(program.groups.values()), mode=mode, reconfiguration_delay_s=0.01)
        session.register(job, policy)
    scripts = Scripts(folder)
    configs = [config(session, program, rank, scripts, mode=mode, policy=policy, **fields) for rank in range(RANKS)]
    team = launcher.launch(configs, session.netns_fds())
    try:
        scripts.start()
        yield team, scripts
    finally:
        team.stop()
        scripts.close()
        if policy:
            session.call("finish", job=folder.name)


def config(
    session: Session, program: Program, rank: int, scripts: Scripts, *, mode: str, policy: str, **fields: Any
) -> AgentConfig:
    made = AgentConfig(
        rank=rank,
        job=scripts.folder.name,
        mode=mode,  # type: ignore[arg-type]
        program=program,
        scale=Scale(1.0),
        plan=session.plan,
        events=str(scripts.folder / f"g{rank}.jsonl"),
        channel=session.channel_path if policy else None,
        steps=MANY,
        script=scripts.socket(rank),
        profile_steps=1 if mode == "provisioned" else 0,
    )
    return replace(made, **fields)


def finish(team: AgentTeam, scripts: Scripts) -> list[Event]:
    team.wait_ready(30)
    team.go(time.monotonic() + 0.02)
    team.wait_done(60)
    assert scripts.statuses() == [0] * RANKS, [scripts.output(rank) for rank in range(RANKS)]
    team.stop()
    return [event for file in sorted(scripts.folder.glob("*.jsonl")) for event in read_events(file)]


@pytest.mark.beside
def test_values_are_right_over_electrical_rails(electrical: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    made = RINGS + STRAIGHT
    with driven(electrical, launcher, tmp_path, made) as (team, scripts):
        events = finish(team, scripts)
        assert team.steps == dict.fromkeys(range(RANKS), STEPS)
        print(scripts.output(0))
    calls = sum(len(GROUPS[call.group].members) for call in made)
    assert sum(e.kind == "communicate" for e in events) == STEPS * calls
    assert sum(e.kind == "compute" for e in events) == STEPS * (calls + RANKS)
    small = [e for e in events if e.kind == "communicate" and e["group"] == "small"]
    assert len(small) == STEPS * RANKS and all(e["sent_bytes"] == 0 and e["lanes"] == [] for e in small)
    first = next(e for e in events if e.kind == "communicate" and e["bytes"] == 4 * 10_007)
    assert first["payload_bytes"] == pytest.approx(1.5 * first["bytes"], rel=0.01)


@pytest.mark.beside
@pytest.mark.parametrize(("mode", "policy"), [("provisioned", "opus"), ("on-demand", "follow")])
def test_values_are_right_over_circuits(
    ocs: Session, launcher: AgentLauncher, tmp_path: Path, mode: str, policy: str
) -> None:
    made = RINGS
    if policy == "follow":
        made = [replace(call, algorithm="pairwise") for call in STRAIGHT if call.kind == "all_to_all"] + RINGS[:4]
    with driven(ocs, launcher, tmp_path, made, mode=mode, policy=policy) as (team, scripts):
        events = finish(team, scripts)
    calls = sum(len(GROUPS[call.group].members) for call in made)
    assert sum(e.kind == "communicate" for e in events) == STEPS * calls
    assert [e["step"] for e in events if e.kind == "step" and e["rank"] == 0] == list(range(STEPS))


@pytest.mark.timed
def test_a_large_sum_comes_close_to_the_bound_of_the_ring(
    electrical: Session, launcher: AgentLauncher, tmp_path: Path
) -> None:
    elements = 6_163_712
    with driven(electrical, launcher, tmp_path, [Made("all_reduce", "dp", elements)], steps=2) as (team, scripts):
        events = finish(team, scripts)
    moved = [e for e in events if e.kind == "communicate" and e["step"] == 1]
    took = max(e.end or e.t for e in moved) - max(e["posted"] for e in moved)
    bound = 2 * 3 / 4 * 4 * elements / 2 * 8 / (RATE_MBPS * 1e6)
    steps = [e.seconds for e in events if e.kind == "step" and e["step"] == 1]
    print(f"\n{took:.3f} s, {took / bound:.3f} of the bound; a step {max(steps):.3f} s")
    assert took <= 1.05 * bound


@pytest.mark.beside
def test_a_script_that_dies_is_named_and_ends_all(electrical: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    with driven(electrical, launcher, tmp_path, RINGS, plan={"dies": [2, 1, 1]}) as (team, scripts):
        with pytest.raises(AgentError, match=r"^the script of rank 2 ended in step 1 without its communication 1 \("):
            finish(team, scripts)
        team.stop()
        assert all(scripts.statuses())
        assert "this script fails on purpose" in scripts.output(2)
        assert "the script of rank 2" not in scripts.output(2)


@pytest.mark.beside
def test_a_driven_member_goes_on_from_a_step(ocs: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    incarnation = Incarnation(number=1, first_step=5, group="", store=str(tmp_path / "disk"), heartbeat_s=0.3)
    with driven(ocs, launcher, tmp_path, RINGS, mode="on-demand", policy="opus", incarnation=incarnation) as (
        team,
        scripts,
    ):
        finish(team, scripts)
        assert team.steps == dict.fromkeys(range(RANKS), 5 + STEPS)
