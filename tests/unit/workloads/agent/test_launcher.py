"""The runner's end of the agent launcher, against a launcher that says what the test says."""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import AgentError, MachineError
from railyard.liveness import stall_limit_s
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.agent.config import AgentConfig, Incarnation, configs_from_json
from workloads.agent.launcher import (
    FDS_PER_MESSAGE,
    MESSAGE_BYTES,
    MISSES,
    AgentLauncher,
    Failure,
    Hang,
    HangWatch,
    LauncherProcess,
)
from workloads.program import Compute, Program

SOON_S = 0.02
"""A time-out that is meant to pass."""
LATE_S = 10.0


class FakeProcess:
    """The launcher's process, which ends when its socket does."""

    pid = 4321
    stdin = stdout = None

    def __init__(self) -> None:
        self.waited = False

    def wait(self, timeout: float | None = None) -> int:
        self.waited = True
        return 0


class Server:
    """The launcher's end of the socket."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(LATE_S)
        self.process = FakeProcess()
        own = LauncherProcess(cast(Any, self.process), ours)
        self.launcher = AgentLauncher({"local": own}, own)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """One order, and the file descriptors that came with it."""
        data, ancillary, flags, _ = self.sock.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4 * FDS_PER_MESSAGE))
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        return json.loads(data), list(fds)

    def report(self, rank: int, team: int = 0, **news: Any) -> None:
        self.sock.send(json.dumps({"team": team, "rank": rank, **news}).encode())

    def says(self, rank: int, team: int = 0, **said: Any) -> None:
        """What an agent said."""
        self.report(rank, team, said=said)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.launcher.close()
    made.sock.close()


def configs(*ranks: int, computes: int = 1) -> list[AgentConfig]:
    ops = tuple(Compute(number, f"compute {number}", 0.5) for number in range(computes))
    program = Program("p", (ops,) * 4)
    plan = FabricPlan("electrical", 4, 1, 1, 9000, ())
    return [AgentConfig(rank, "job", "native", program, Scale(1.0), plan, f"events-{rank}") for rank in ranks]


def launched(server: Server, *ranks: int) -> Any:
    """The agents of one launch, of which nothing is known yet."""
    team = server.launcher.launch(configs(*ranks), [-1] * len(ranks))
    _, (memory,) = server.receive()
    os.close(memory)
    return team


def listen(server: Server, count: int = 1) -> None:
    for _ in range(count):
        assert server.launcher.listen(LATE_S)


# ---- launch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("computes", [1, 4000])
def test_launch_hands_over_every_config_however_long(server: Server, computes: int) -> None:
    sent = configs(2, 0, computes=computes)
    server.launcher.launch(sent, [-1, -1])
    order, (memory,) = server.receive()
    with os.fdopen(memory, "rb") as file:
        file.seek(0)
        text = file.read()
    assert order == {"launch": 0, "namespaces": [False, False]} and (len(text) > MESSAGE_BYTES) == (computes > 1)
    assert configs_from_json(text) == sent


def test_more_namespaces_than_one_message_carries_come_in_several_and_in_order(server: Server, tmp_path: Path) -> None:
    files = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("first", "other", "last")]
    namespaces = [files[0], *[files[1]] * (FDS_PER_MESSAGE - 1), -1, files[2]]
    server.launcher.launch(configs(*[0] * len(namespaces)), namespaces)
    received = []
    for expected in (FDS_PER_MESSAGE, 1):
        order, fds = server.receive()
        assert order == {"fds": True} and len(fds) == expected
        received += fds
    order, (memory,) = server.receive()
    assert order == {"launch": 0, "namespaces": [fd >= 0 for fd in namespaces]}
    assert [os.fstat(fd).st_ino for fd in received] == [os.fstat(fd).st_ino for fd in namespaces if fd >= 0]
    os.close(memory)
    for fd in (*files, *received):
        os.close(fd)


def test_listen_takes_one_message_and_says_whether_one_came_in_time(server: Server) -> None:
    team = launched(server, 0)
    server.says(0, ready=True)
    server.says(0, step=0)
    assert server.launcher.listen(0.0) and team.ready == {0} and team.steps == {0: 0}
    assert server.launcher.listen(0.0) and team.steps == {0: 1}
    begin = time.monotonic()
    assert not server.launcher.listen(SOON_S) and time.monotonic() - begin >= SOON_S


def test_listen_raises_at_once_when_a_watched_process_ends(server: Server) -> None:
    def check() -> None:
        raise MachineError("the watched process ended")

    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with server.launcher.watching([process.pid], check):
                assert not server.launcher.listen(SOON_S)
                process.kill()
                begin = time.monotonic()
                with pytest.raises(MachineError, match="the watched process ended"):
                    server.launcher.listen(LATE_S)
                assert time.monotonic() - begin < LATE_S / 2
                server.says(0, ready=True)
                launched(server, 0)
                assert server.launcher.listen(LATE_S), "it is named once; messages are read on"
            assert not server.launcher.listen(0.0), "it is watched no more"
        finally:
            process.kill()


def test_a_process_that_ended_before_it_is_watched_is_named_too(server: Server) -> None:
    def check() -> None:
        raise MachineError("the watched process ended")

    process = subprocess.Popen(["true"])
    process.wait()
    with (
        pytest.raises(MachineError, match="the watched process ended"),
        server.launcher.watching([process.pid], check),
    ):
        server.launcher.listen(LATE_S)


class Elsewhere:
    """Another machine, which starts agents and reports about them; ``gone`` takes no orders."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.forked: list[int] = []
        self.orders: list[dict[str, Any]] = []
        self.news: list[dict[str, Any]] = []
        self._fd = os.eventfd(0)

    @property
    def pending(self) -> bool:
        return bool(self.news)

    def fileno(self) -> int:
        return self._fd

    def fork(self, team: int, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> None:
        self.forked += [config.rank for config in configs]

    def send(self, order: dict[str, Any]) -> None:
        if self.gone:
            raise MachineError("machine b is gone")
        self.orders.append(order)

    def reports(self) -> list[dict[str, Any]]:
        news, self.news = self.news, []
        return news


def test_agents_are_started_on_the_machines_of_their_ranks_and_orders_go_to_all() -> None:
    a, b = Elsewhere(), Elsewhere(gone=True)
    launcher = AgentLauncher({"b": b, "a": a})
    launcher.machine_of = {0: "a", 2: "a", 3: "b"}
    team = launcher.launch(configs(0, 3, 2), [-1] * 3)
    assert (a.forked, b.forked) == ([0, 2], [3])
    b.news = [{"team": 0, "rank": 3, "pid": 9}]
    assert launcher.listen(LATE_S) and team.pids == {3: 9}, "what is pending is not waited for"
    with pytest.raises(MachineError, match="machine b is gone"):
        team.go(1.0)
    assert a.orders == [{"team": 0, "say": {"go": 1.0}}]
    launcher.close()
    for machine in (a, b):
        os.close(machine.fileno())


# ---- what is known of agents -----------------------------------------------------------------------------------------


def test_what_agents_say_is_kept_by_rank(server: Server) -> None:
    team = launched(server, 0, 3)
    server.says(3, step=0)
    server.says(3, state=0, checksum=77)
    server.says(3, checkpoint=1, checksum=78)
    server.says(3, done=True)
    listen(server, 4)
    assert team.steps == {0: 0, 3: 1} and team.finished == {3}
    assert team.checksums == {0: {}, 3: {0: 77}} and team.checkpoints == {0: [], 3: [(1, 78)]}
    assert team.failures == [] and team.exited == {} and not team.gone


def test_steps_of_a_job_that_goes_on_count_from_where_it_begins(server: Server) -> None:
    found = [replace(config, incarnation=Incarnation(first_step=7)) for config in configs(0)]
    team = server.launcher.launch(found, [-1])
    assert team.steps == {0: 7}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (-9, "the agent of rank 0 was killed by signal 9 (SIGKILL) in step 2, before its program was done"),
        (-60, "the agent of rank 0 was killed by signal 60 (unknown) in step 2, before its program was done"),
        (1, "the agent of rank 0 ended with status 1 in step 2, before its program was done"),
        (0, "the agent of rank 0 ended with status 0 in step 2, before its program was done"),
        (AgentError.exit_status, None),
    ],
)
def test_an_end_that_nobody_has_explained_is_a_failure(server: Server, status: int, sentence: str | None) -> None:
    team = launched(server, 0)
    server.says(0, step=1)
    server.report(0, exited=status)
    listen(server, 2)
    assert team.exited == {0: status} and team.gone
    assert team.failures == ([] if sentence is None else [Failure(0, sentence)])


def test_after_a_stop_ends_and_their_consequences_are_no_failures_and_causes_are(server: Server) -> None:
    team = launched(server, 0, 1, 2)
    team.begin_stop()
    assert server.receive() == ({"team": 0, "stop": True}, [])
    server.report(0, exited=-9)
    server.says(1, error="rank 0 closed its connection", consequence=True)
    server.says(2, error="3 elements wrong", consequence=False)
    listen(server, 3)
    assert team.failures == [Failure(2, "3 elements wrong")]


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_wait_ready_names_the_first_that_is_late(server: Server) -> None:
    team = launched(server, 0, 1, 2)
    server.says(0, ready=True)
    with pytest.raises(AgentError) as caught:
        team.wait_ready(SOON_S)
    assert str(caught.value) == "the agent of rank 1 did not get ready within 0.02 s"


def test_wait_done_counts_the_steps_and_names_who_is_late(server: Server) -> None:
    team = launched(server, 0, 1)
    for step in (0, 1):
        server.says(1, step=step)
    server.says(1, done=True)
    with pytest.raises(AgentError, match="the agent of rank 0 did not finish its program within"):
        team.wait_done(SOON_S)
    assert team.steps == {0: 0, 1: 2}


def test_a_wait_ends_with_the_cause_also_if_a_consequence_was_heard_before(server: Server) -> None:
    team = launched(server, 0, 1, 2)
    server.says(0, error="rank 2 closed its connection", consequence=True)
    server.says(1, error="rank 2 closed its connection", consequence=True)
    server.report(2, exited=-11)
    with pytest.raises(AgentError) as caught:
        team.wait_done(LATE_S)
    assert str(caught.value) == (
        "the agent of rank 2 was killed by signal 11 (SIGSEGV) in step 0, before its program was done"
    )


def test_a_consequence_without_a_cause_is_raised_itself(server: Server) -> None:
    team = launched(server, 0, 1)
    server.says(0, error="rank 1 closed its connection", consequence=True)
    with pytest.raises(AgentError, match=r"^rank 1 closed its connection$"):
        team.wait_done(LATE_S)


def test_kill_names_one_rank_of_the_launch(server: Server) -> None:
    team = launched(server, 0, 2)
    team.kill(2)
    team.kill(2, halt=True)
    assert [server.receive()[0] for _ in range(2)] == [{"team": 0, "kill": 2, "halt": halt} for halt in (False, True)]
    with pytest.raises(ValueError, match="rank 1 does not belong to this launch"):
        team.kill(1)


def test_stop_returns_when_all_are_gone_and_has_heard_what_they_said_until_then(server: Server) -> None:
    team = launched(server, 0, 1)
    server.says(0, step=4)
    for rank in (0, 1):
        server.report(rank, exited=0)
    server.says(1, step=9)
    team.stop()
    assert team.gone and team.steps == {0: 5, 1: 0}, "what follows the last end is left for later"


def test_a_heartbeat_that_is_heard_after_the_end_of_its_rank_watches_nobody(server: Server) -> None:
    team = launched(server, 0, 1)
    server.says(1, alive=3, every_s=2.0, at_work=1)
    listen(server, 1)
    assert team._hang_watch.next_check() < float("inf")
    server.report(1, exited=AgentError.exit_status)
    server.says(1, alive=4, every_s=2.0, at_work=1)
    listen(server, 2)
    assert team._hang_watch.next_check() == float("inf")


EVERY_S = 2.0
ALL_SILENT = Hang(-1, "the process that starts the agents hangs", "no agent has sent a heartbeat for 6.0 s")


def beaten(watch: HangWatch, until: float, hung: int, stopped: int, since: float) -> tuple[float, Hang]:
    """Let three ranks beat until one is complained about: ``hung`` answers no more, ``stopped`` is silent ``since``."""
    for beat in range(int(until / EVERY_S)):
        now = beat * EVERY_S
        while (moment := watch.next_check()) <= now:
            if (found := watch.complaint(moment)) is not None:
                return moment, found
        for rank in range(3):
            if rank != stopped or now < since:
                answers = beat if rank != hung or now < since else int(since / EVERY_S)
                watch.heard(rank, EVERY_S, answers, rank + 10, now)
    raise AssertionError("nobody is complained about")


def test_who_has_sent_no_heartbeat_yet_or_has_ended_is_not_named() -> None:
    watch = HangWatch()
    assert watch.next_check() == float("inf") and watch.complaint(1e9) is None
    watch.heard(0, EVERY_S, 0, 0, 0.0)
    watch.ended(0)
    assert watch.next_check() == float("inf")


@pytest.mark.parametrize(
    ("hung", "stopped", "sentence"),
    [
        (1, -1, "its loop has stood still for 4.7 s, perhaps for a disk that takes no data"),
        (-1, 2, "it has sent no heartbeat for 6.0 s"),
    ],
)
def test_a_rank_that_stands_still_is_named_and_not_those_that_wait_for_it(
    hung: int, stopped: int, sentence: str
) -> None:
    moment, (rank, _, what) = beaten(HangWatch(), 100.0, hung, stopped, since=20.0)
    assert (rank, what) == (max(hung, stopped) + 10, sentence), "the rank at work in the process of that one"
    assert moment <= 20.0 + MISSES * EVERY_S + 1.0


@pytest.mark.parametrize("heard", [(0.0, 0.0, 0.0), (0.0, 0.7, 1.9)], ids=["at once", "within an interval"])
def test_agents_that_fall_silent_together_are_not_the_fault_of_one(heard: tuple[float, ...]) -> None:
    watch = HangWatch()
    for rank, last in enumerate(heard):
        watch.heard(rank, EVERY_S, 0, rank, last)
    assert watch.complaint(stall_limit_s(EVERY_S, MISSES)) is None
    while (found := watch.complaint(watch.next_check())) is None:
        assert watch.next_check() < 10.0
    assert found == ALL_SILENT
    assert watch.next_check() >= heard[-1] + MISSES * EVERY_S


def test_loops_that_all_stand_still_are_not_the_fault_of_the_launcher() -> None:
    watch = HangWatch()
    for beat in range(5):
        for rank in range(2):
            watch.heard(rank, EVERY_S, 0, rank, beat * EVERY_S)
    found = watch.complaint(watch.next_check())
    assert found is not None and found[:2] == (-1, "all agents hang")
    assert found.what.startswith("their loops have stood still for 4.7 s, perhaps")


@given(st.floats(0.2, 1e4))
def test_a_check_that_is_late_itself_waits_for_heartbeats_that_are_late_too(late_s: float) -> None:
    watch = HangWatch()
    watch.heard(0, EVERY_S, 0, 0, 0.0)
    now = watch.next_check() + late_s
    assert watch.complaint(now) is None
    assert now < watch.next_check() < now + 1.0
    if late_s % 1 < 0.5:
        watch.heard(0, EVERY_S, 1, 0, now + 0.1)
    complaint = watch.complaint(now + 0.5)
    assert (complaint is None) == (late_s % 1 < 0.5 or now + 0.5 < 3 * EVERY_S)
