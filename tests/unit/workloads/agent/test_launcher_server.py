"""The agent launcher with real processes. Their agents only compute, so they need no network."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railyard.checkout import ROOT
from railyard.errors import AgentError, ControlError
from railyard.scale import Scale
from railyard.timeline import read_events
from topos.plan import FabricPlan
from workloads.agent.config import AgentConfig, AgentMode
from workloads.agent.launcher import MESSAGE_BYTES, AgentLauncher
from workloads.program import Compute, Program

LATE_S = 20.0
"""How long a test waits for a process before it fails."""
FOREVER_S = 3600.0
GRACE_S = 1.0
"""How long agents have to end after a stop."""


@pytest.fixture(scope="module")
def launcher() -> Iterator[AgentLauncher]:
    """One for all tests that leave it alive."""
    with AgentLauncher.start() as made:
        yield made


@pytest.fixture
def own_launcher() -> Iterator[AgentLauncher]:
    """One for a test that ends it."""
    made = AgentLauncher.start()
    yield made
    made.close()


def config(rank: int, folder: Path, seconds: float = 0.0, steps: int = 1, mode: AgentMode = "native") -> AgentConfig:
    program = Program("p", ((Compute(0, "work", seconds),),) * 3)
    plan = FabricPlan("electrical", 3, 1, 1, 9000, ())
    return AgentConfig(
        rank, "job", mode, program, Scale(1.0), plan, str(folder / f"events-{rank}"), steps=steps, agents_per_process=1
    )


def launch(launcher: AgentLauncher, *configs: AgentConfig) -> Any:
    team = launcher.launch(configs, [-1] * len(configs))
    team.wait_ready(LATE_S)
    return team


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LATE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def heard(launcher: AgentLauncher, condition: Callable[[], object]) -> None:
    """Take in news until ``condition`` holds."""
    end = time.monotonic() + LATE_S
    while not condition():
        assert launcher.listen(end - time.monotonic()), "the news never came"


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


def all_end(pidfds: list[int]) -> bool:
    """Whether processes end within a bounded time; they are killed if they do not."""
    ended = [bool(select.select([pidfd], [], [], LATE_S)[0]) for pidfd in pidfds]
    for pidfd in pidfds:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
    return all(ended)


# ---- from fork to end ------------------------------------------------------------------------------------------------


def test_each_agent_is_a_process_of_its_own_under_the_launcher(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launch(launcher, config(0, tmp_path), config(2, tmp_path))
    assert launcher.process is not None
    assert set(team.pids) == {0, 2} and len({os.getpid(), launcher.process.pid, *team.pids.values()}) == 4
    for rank, pid in team.pids.items():
        assert parent_of(pid) == launcher.process.pid
        assert Path(f"/proc/{pid}/comm").read_text() == f"railyard-g{rank}\n"
    team.stop()
    assert team.gone and not any(Path(f"/proc/{pid}").exists() for pid in team.pids.values()), "not even a zombie"


def test_agents_do_their_steps_and_end_when_they_are_told_to(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launch(launcher, config(0, tmp_path, steps=3), config(1, tmp_path, steps=2))
    assert team.steps == {0: 0, 1: 0}
    team.go(time.monotonic())
    team.wait_done(LATE_S)
    assert team.steps == {0: 3, 1: 2}
    team.stop()
    assert team.exited == {0: 0, 1: 0} and team.failures == []
    assert [event.kind for event in read_events(tmp_path / "events-1")].count("step") == 2


def test_an_agent_has_no_file_of_the_runner_open_but_its_own_socket(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launch(launcher, config(0, tmp_path), config(1, tmp_path))
    for pid in team.pids.values():
        seen: list[list[str]] = []
        end = time.monotonic() + 5
        own = ["anon_inode"] * 3 + ["socket"]  # two pollers, what its heartbeats ask it with, and its socket
        while own not in seen:  # a heartbeat has a file of /proc open for a moment
            assert time.monotonic() < end, seen
            seen.append(kinds_of_files(pid))
            time.sleep(0.01)
    team.stop()


def kinds_of_files(pid: int) -> list[str]:
    """The kinds of files that a process has open, without its standard streams."""
    names = []
    for fd in (int(name) for name in os.listdir(f"/proc/{pid}/fd")):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}") if fd > 2 else "")
    return sorted(name.split(":")[0] for name in names if name)


def test_launches_beside_each_other_are_told_apart(launcher: AgentLauncher, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first, second = (launch(launcher, config(0, folder, FOREVER_S)) for folder in folders)
    first.stop()
    assert first.gone and not second.gone and second.exited == {}
    assert Path(f"/proc/{second.pids[0]}").exists()
    second.stop()
    assert second.gone


# ---- what agents say -------------------------------------------------------------------------------------------------


def test_an_error_of_an_agent_is_passed_on_as_its_sentence(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launcher.launch([config(0, tmp_path, mode="on-demand")], [-1])
    with pytest.raises(AgentError, match=r"^mode on-demand needs a controller, and no job channel was given$"):
        team.wait_ready(LATE_S)
    heard(launcher, lambda: team.gone)
    assert team.exited == {0: AgentError.exit_status} and len(team.failures) == 1
    assert not team.failures[0].consequence and ControlError.exit_status != AgentError.exit_status


def test_an_error_that_is_a_mistake_of_ours_is_passed_on_with_its_kind(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launcher.launch([config(5, tmp_path)], [-1])
    with pytest.raises(AgentError, match=r"^the agent of rank 5 failed: IndexError: tuple index out of range$"):
        team.wait_ready(LATE_S)
    heard(launcher, lambda: team.gone)
    assert team.exited == {5: AgentError.exit_status}


@pytest.mark.parametrize("character", ["x", "\U0001f682"])
def test_an_error_too_long_for_a_message_is_cut(launcher: AgentLauncher, tmp_path: Path, character: str) -> None:
    """As that of a user's policy may be, or of an operation with a long name: here one whose id is wrong."""
    program = Program("p", ((Compute(1, character * 300_000, 0.0),),))
    team = launch(launcher, replace(config(0, tmp_path), program=program))
    team.go(time.monotonic())
    with pytest.raises(AgentError) as caught:
        team.wait_done(LATE_S)
    assert str(caught.value).startswith(f"operation '{character * 100}")
    assert str(caught.value).endswith(f"{character}...") and len(str(caught.value)) < MESSAGE_BYTES
    heard(launcher, lambda: team.gone)


def test_each_agent_gets_the_namespace_that_is_meant_for_it(launcher: AgentLauncher, tmp_path: Path) -> None:
    """A file that is no network namespace: only the ranks that were given one cannot enter it."""
    with open(os.devnull, "rb") as file:
        team = launcher.launch([config(rank, tmp_path) for rank in (0, 1, 2)], [file.fileno(), -1, file.fileno()])
    heard(launcher, lambda: set(team.exited) == {0, 2} and team.ready == {1})
    sentences = {failure.rank: failure.sentence for failure in team.failures}
    assert set(sentences) == {0, 2}
    assert sentences[2].startswith("the agent of rank 2 failed: MachineError: entering a network namespace failed")
    team.stop()


def test_news_that_the_runner_does_not_take_in_wait_and_none_is_lost(
    launcher: AgentLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the socket between the two holds."""
    steps = 3000
    team = launch(launcher, config(0, tmp_path, steps=steps))
    team.go(time.monotonic())
    events = tmp_path / "events-0"
    until(lambda: events.exists() and '"kind":"sockets"' in events.read_text())
    progress, update = {team.steps[0]}, team.update

    def noted(message: dict[str, Any]) -> None:
        update(message)
        progress.add(team.steps[0])

    monkeypatch.setattr(team, "update", noted)
    team.wait_done(LATE_S)
    assert progress == set(range(steps + 1))
    team.stop()


# ---- ends that are not asked for -------------------------------------------------------------------------------------


def test_a_kill_ends_one_agent_and_is_told_as_a_failure(launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launch(launcher, config(0, tmp_path, FOREVER_S), config(1, tmp_path, FOREVER_S))
    team.kill(1)
    heard(launcher, lambda: 1 in team.exited)
    assert team.exited == {1: -signal.SIGKILL}
    (failure,) = team.failures
    assert failure.rank == 1 and "was killed by signal 9 (SIGKILL) in step 0" in failure.sentence
    team.stop()
    assert team.exited == {0: 0, 1: -signal.SIGKILL} and len(team.failures) == 1


def test_an_unresponsive_agent_is_killed_some_time_after_the_stop_and_others_end_by_themselves(
    launcher: AgentLauncher, tmp_path: Path
) -> None:
    team = launch(launcher, config(0, tmp_path, FOREVER_S), config(1, tmp_path, FOREVER_S))
    os.kill(team.pids[0], signal.SIGSTOP)
    begin = time.monotonic()
    team.begin_stop()
    heard(launcher, lambda: 1 in team.exited)
    assert team.exited == {1: 0}
    heard(launcher, lambda: team.gone)
    assert time.monotonic() - begin >= GRACE_S
    assert team.exited[0] == -signal.SIGKILL and team.failures == []


def test_closing_the_launcher_ends_it_and_its_agents(own_launcher: AgentLauncher, tmp_path: Path) -> None:
    team = launch(own_launcher, config(0, tmp_path, FOREVER_S))
    assert own_launcher.process is not None
    watched = [os.pidfd_open(pid) for pid in (own_launcher.process.pid, team.pids[0])]
    own_launcher.close()
    assert all_end(watched)


def test_agents_die_with_their_launcher_even_where_they_hear_nothing_and_the_runner_is_told(
    own_launcher: AgentLauncher, tmp_path: Path
) -> None:
    team = launch(own_launcher, config(0, tmp_path, FOREVER_S))
    agent = os.pidfd_open(team.pids[0])
    os.kill(team.pids[0], signal.SIGSTOP)
    assert own_launcher.process is not None
    os.kill(own_launcher.process.pid, signal.SIGKILL)
    assert all_end([agent])
    with pytest.raises(AgentError, match="the process that starts the agents is gone"):
        team.wait_done(LATE_S)
    with pytest.raises(AgentError, match="the process that starts the agents is gone"):
        team.kill(0)


RUNNER = """
import sys
from pathlib import Path
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher
from workloads.program import Compute, Program

launcher = AgentLauncher.start()
plan = FabricPlan("electrical", 1, 1, 1, 9000, ())
program = Program("p", ((Compute(0, "work", 3600.0),),))
team = launcher.launch([AgentConfig(0, "job", "native", program, Scale(1.0), plan, sys.argv[1])], [-1])
team.wait_ready()
print(launcher.process.pid, team.pids[0], flush=True)
sys.stdin.read()
"""


def test_launcher_and_agents_die_with_the_runner_even_where_they_hear_nothing(tmp_path: Path) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path / "events")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert runner.stdout is not None and runner.stdin is not None
    with runner.stdin, runner.stdout:
        assert select.select([runner.stdout], [], [], LATE_S)[0]
        pids = [int(word) for word in runner.stdout.readline().split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        runner.kill()
        runner.wait(LATE_S)
    assert all_end(watched)


def test_an_agent_of_a_large_fabric_can_select_on_its_launcher() -> None:
    code = (
        "import os, resource, select, socket\n"
        "from workloads.agent.launcher_server import _keep_only\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]\n"
        "ours, theirs = socket.socketpair()\n"
        "assert theirs.fileno() > 1024\n"
        "ours.send(b'x')\n"
        "assert select.select([_keep_only(theirs, [])], [], [], 0)[0]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
