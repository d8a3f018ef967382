"""A training job that loses a member: checkpoints really stored and copied, and the right sums in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agents.expected_state import digest, expected
from agents.recording_listener import Listener

from railyard.errors import AgentError
from railyard.scale import Scale
from railyard.timeline import Event, read_events
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.agent.checkpoint import Store
from workloads.agent.config import AgentConfig, Incarnation
from workloads.agent.launcher import AgentLauncher, AgentTeam
from workloads.agent.state import State, expected_checksums
from workloads.training.step import training_job

pytestmark = pytest.mark.root

HOSTS, SPARE = 5, 4
GRADIENT, STATE = 400_000, 700_001
STEPS, EVERY = 6, 2
BEFORE, AFTER = (0, 1, 2, 3), (0, 1, SPARE, 3)
COMPUTE_S = 0.1
SCALE = Scale(1.0)


@pytest.fixture(scope="module")
def net() -> Iterator[Emulation]:
    topo = RailTopo(servers=HOSTS, gpus=1, fabric="electrical", rate_mbps=200, front_end=True)
    with Emulation(topo, openflow=None) as running:
        yield running


class Job:
    """The lives of one job on the hosts of a net."""

    def __init__(self, net: Emulation, launcher: AgentLauncher, folder: Path, name: str = "job", **fields: Any) -> None:
        self.net, self.launcher, self.folder, self.name = net, launcher, folder, name
        self.fields = {"steps": STEPS, "mode": "native", "scale": SCALE, "seed": 5, **fields}
        self.launched: list[AgentTeam] = []

    def disk(self, rank: int) -> str:
        return str(self.folder / "disks" / f"g{rank}")

    def configs(self, members: Sequence[int], copies: dict[int, int], **incarnation: Any) -> list[AgentConfig]:
        program = training_job(members, GRADIENT, COMPUTE_S, 2, HOSTS, group="A")
        whole = {"group": "A", "checkpoint_every": EVERY, "state_bytes": STATE, **incarnation}
        return [
            AgentConfig(
                rank=rank,
                job=self.name,
                program=program,
                plan=self.net.plan,
                events=str(self.folder / f"life{whole.get('number', 0)}-g{rank}.jsonl"),
                incarnation=Incarnation(
                    store=self.disk(rank),
                    copy_from=copies.get(rank),
                    copy_to=tuple(new for new, old in copies.items() if old == rank),
                    **whole,
                ),
                **self.fields,
            )
            for rank in members
        ]

    def launch(self, members: Sequence[int], copies: dict[int, int] | None = None, **incarnation: Any) -> AgentTeam:
        return self.launch_configs(self.configs(members, copies or {}, **incarnation))

    def launch_configs(self, configs: list[AgentConfig]) -> AgentTeam:
        team = self.launcher.launch(configs, [self.net.netns_fd(f"g{config.rank}") for config in configs])
        self.launched.append(team)
        return team

    def events(self, kind: str) -> list[Event]:
        found = [event for file in sorted(self.folder.glob("life*.jsonl")) for event in read_events(file)]
        return [event for event in found if event.kind == kind]


@pytest.fixture
def job(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> Iterator[Job]:
    made = Job(net, launcher, tmp_path)
    yield made
    for team in made.launched:
        team.stop()


def right_sums(team: AgentTeam, members: Sequence[int], first_step: int = 0) -> None:
    program = training_job(members, GRADIENT, COMPUTE_S, 2, HOSTS, group="A")
    sums = expected_checksums(program, "A", 5, SCALE, STEPS)
    for rank in members:
        assert team.checksums[rank] == dict(list(enumerate(sums))[first_step:])


def until(team: AgentTeam, launcher: AgentLauncher, what: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert launcher.listen(end - time.monotonic()), f"not within {seconds} s: {team.failures}"


@pytest.mark.timed(late_ms=50)  # ends within 1 s, and starts up within 0.2 s to 0.4 s
def test_a_job_goes_on_with_a_spare_and_the_right_state(job: Job) -> None:
    first = job.launch(BEFORE)
    first.wait_ready(10)
    first.go(time.monotonic() + 0.02)
    until(first, job.launcher, lambda: min(first.steps.values()) >= 3)
    until(first, job.launcher, lambda: all(first.checkpoints[r] for r in BEFORE))
    first.kill(2)
    until(first, job.launcher, lambda: 2 in first.exited)
    began = time.monotonic()
    first.stop()
    assert time.monotonic() - began < 1.0 and first.gone
    assert first.exited == {0: 0, 1: 0, 2: -9, 3: 0}, "those that are left live on until they are stopped"
    causes = [failure for failure in first.failures if not failure.consequence]
    assert [(f.rank, "was killed by signal 9" in f.sentence) for f in causes] == [(2, True)]
    assert first.finished == set()
    sums = dict(enumerate(expected_checksums(job.configs(BEFORE, {})[0].program, "A", 5, SCALE, STEPS)))
    (step, checksum), *_ = sorted(set.intersection(*(set(first.checkpoints[r]) for r in BEFORE)))
    assert (step, checksum) == (2, sums[1]), "the checkpoint of step 2 holds steps 0 and 1"

    second = job.launch(AFTER, {SPARE: 1}, number=1, first_step=step, given=(("library", 0.2), ("load", 0.0)))
    second.wait_ready(10)
    second.go(time.monotonic() + 0.02)
    second.wait_done(30)
    second.stop()
    right_sums(second, AFTER, first_step=2)
    assert second.steps == dict.fromkeys(AFTER, STEPS)
    right = expected(job.configs(AFTER, {})[0].program, "A", 5, SCALE, STATE, STEPS)
    for rank in AFTER:
        last = Store(job.disk(rank), "job").load(STEPS)
        assert (last.step, last.checksum) == (STEPS, right.checksum)
        assert digest(State(last.words, last.checksum)) == right
    assert [entry[0] for entry in second.checkpoints[SPARE]] == [4, 6]

    steps = [e for e in job.events("step") if e["rank"] == 0]
    assert [e["step"] for e in steps][-4:] == [2, 3, 4, 5]
    stages = [e for e in job.events("stage") if e["rank"] == SPARE]
    assert [(e["name"], e["given"], e["incarnation"]) for e in stages] == [
        ("checkpoint", False, 1),
        ("library", True, 1),
        ("load", True, 1),
    ]
    assert 0.2 <= stages[1].seconds < 0.4 and stages[2].t >= (stages[1].end or 0)
    assert not [e for e in job.events("stage") if e["rank"] == 0 and e["name"] == "checkpoint"]
    states = [e for e in job.events("state") if e["rank"] == SPARE]
    assert [(e["step"], e["checksum"]) for e in states] == [(s, sums[s]) for s in (2, 3, 4, 5)]
    stored = [e for e in job.events("checkpoint") if e["rank"] == SPARE]
    assert [(e["step"], e["incarnation"], e["bytes"]) for e in stored] == [(4, 1, 700_004), (6, 1, 700_004)]


@pytest.mark.timed(late_ms=20)  # heartbeats of 50 ms, none 200 ms apart
def test_a_member_says_that_it_lives_through_stages_steps_and_the_death_of_a_peer(
    net: Emulation, launcher: AgentLauncher, tmp_path: Path
) -> None:
    listener = Listener(tmp_path / "channel")
    job = Job(net, launcher, tmp_path, mode="electrical", channel=str(tmp_path / "channel"))
    big: dict[str, Any] = {"state_bytes": 20_000_000, "checkpoint_every": 1}
    try:
        team = job.launch(BEFORE, heartbeat_s=0.05, given=(("library", 0.3), ("data", 0.2)), **big)
        team.wait_ready(10)
        began = time.monotonic()
        assert all(8 <= len(listener.beats(rank)) <= 13 for rank in BEFORE), "0.5 s of stages"
        team.go(began)
        until(team, launcher, lambda: min(team.steps.values()) >= 3)
        team.kill(2)
        until(team, launcher, lambda: 2 in team.exited)
        died = time.monotonic()
        while time.monotonic() < died + 0.5:
            launcher.listen(0.05)
        team.stop()
    finally:
        for launched in job.launched:
            launched.stop()
        listener.close()
    for rank in (0, 1, 3):
        beats = listener.beats(rank)
        assert rank not in team.exited or team.exited[rank] == 0
        assert len([t for t in beats if t > died]) >= 8, "a rank that lost a peer is not dead itself"
        gaps = sorted(b - a for a, b in pairwise(beats))
        assert gaps[len(gaps) // 2] == pytest.approx(0.05, abs=0.005) and gaps[-1] < 0.2
    assert not [t for t in listener.beats(2) if t > died + 0.01]
    alive = job.events("alive")
    assert sorted(e["rank"] for e in alive) == list(BEFORE) and {e["incarnation"] for e in alive} == {0}


@pytest.mark.beside
def test_a_copy_from_where_there_is_none_is_one_sentence(job: Job) -> None:
    team = job.launch(AFTER, {SPARE: 1}, number=1, first_step=2)
    with pytest.raises(AgentError, match=r"rank 4 cannot copy the checkpoint of step 2 from rank 1: rank 1 has no|"
                                         r"there is no checkpoint of step 2 of job job"):  # fmt: skip
        team.wait_ready(10)


@pytest.mark.beside
def test_a_peer_that_does_not_serve_ends_the_wait(net: Emulation, launcher: AgentLauncher, tmp_path: Path) -> None:
    job = Job(net, launcher, tmp_path, ack_timeout_s=0.5)
    (spare,) = (c for c in job.configs(AFTER, {SPARE: 1}, number=1, first_step=2) if c.rank == SPARE)
    team = job.launch_configs([spare])
    try:
        with pytest.raises(AgentError, match=r"from rank 1: no checkpoint server answers there within 0.5 s"):
            team.wait_ready(10)
    finally:
        team.stop()
