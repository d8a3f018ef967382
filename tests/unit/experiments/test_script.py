"""The processes of a script, as their launcher tells of them: when they are in error, and what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.script import RankPlace, ScriptTeam, UserScript, output_of, rendezvous_port
from railyard.errors import AgentError
from workloads.pytorch.script_ranks import RecordedCall, ScriptFailure, ScriptRank

ORDER = ScriptRank(0, 2, 0, 1, "", 0, "lo", "")
CALLS = ((RecordedCall("end", (), 0, False, 0.5),),) * 2


class Ranks:
    """Stands for the process that forks the ranks."""

    def __init__(self) -> None:
        self.arguments: tuple[str, ...] = ()
        self.ended: dict[int, int] = {}
        self.failures: list[ScriptFailure] = []
        self.orders: Sequence[ScriptRank] = ()
        self.killed: list[int] = []
        self.warning = "cores are shared"

    def launch(self, orders: Sequence[ScriptRank], fds: Sequence[int]) -> None:
        self.orders = orders

    def poll(self) -> None:
        pass

    def kill(self, rank: int) -> None:
        self.killed.append(rank)

    def stop(self) -> None:
        self.ended = {order.rank: 1 for order in self.orders}


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A team of two ranks, with its clock, its launcher and what it said."""
    clock = [100.0]
    monkeypatch.setattr("experiments.script.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("experiments.script.select.select", lambda *ends: clock.__setitem__(0, clock[0] + ends[-1]))
    ranks, said = Ranks(), list[str]()
    script = UserScript("train.py", ("--save", "{point}.pt"), ORDER, CALLS, timeout_s=10)
    made = ScriptTeam(ranks, script, tmp_path / "003-restart1", said.append)  # type: ignore[arg-type]
    places = [RankPlace(rank + 4, -1, f"g{rank}-fe", str(tmp_path / f"s{rank}")) for rank in range(2)]
    made.launch(places, "10.250.0.5", 29500)
    return made, clock, ranks, said


def test_each_rank_has_its_place_its_calls_and_files_and_all_the_arguments_of_the_point(team: Any) -> None:
    _, _, ranks, _ = team
    assert ranks.arguments == ("--save", "003.pt")
    first, second = ranks.orders
    assert (second.rank, second.interface, second.master, second.port) == (1, "g1-fe", "10.250.0.5", 29500)
    assert '"seconds":0.5' in Path(first.calls).read_text() and Path(first.trace).name == "rank0.jsonl"
    assert len({rendezvous_port(point, again) for point in range(9) for again in range(8)}) == 72


def test_whole_lines_of_the_first_rank_are_said_once_and_warnings_of_pytorch_not(team: Any, tmp_path: Path) -> None:
    made, _, _, said = team
    output = output_of(tmp_path / "003-restart1", 0)
    output.write_bytes(b"[W1128 socket.cpp] no name\nstep 0 loss 2\nstep 1 lo")
    made.poll()
    made.poll()
    assert said == ["  rank 0: step 0 loss 2"]
    with output.open("ab") as file:
        file.write(b"ss 1\n")
    made.stop()
    assert said[1:] == ["  rank 0: step 1 loss 1", "  cores are shared"]


def test_a_script_that_does_not_go_on_is_an_error_and_one_that_prints_or_steps_is_none(
    team: Any, tmp_path: Path
) -> None:
    made, clock, _, _ = team
    made.poll(0)
    for steps in (1, 2):
        clock[0] += 9
        made.poll(steps)
    clock[0] += 9
    output_of(tmp_path / "003-restart1", 1).write_text("alive")
    made.poll(2)
    clock[0] += 10.5
    with pytest.raises(AgentError, match="no rank of the script went on for 10 s"):
        made.poll(2)


def test_a_rank_that_died_is_told_with_its_traceback_and_where_hosts_fail_only_later(team: Any) -> None:
    made, clock, ranks, said = team
    ranks.failures = [ScriptFailure(1, "the script of rank 1 died", "Traceback: mine")]
    made.poll(patience_s=3)
    clock[0] += 2.9
    made.poll(patience_s=3)
    clock[0] += 0.2
    with pytest.raises(AgentError, match="the script of rank 1 died"):
        made.poll(patience_s=3)
    assert said == ["Traceback: mine"]


def test_a_failed_agent_is_explained_by_its_script_if_that_says_so_soon(team: Any) -> None:
    made, clock, _, _ = team
    made.poll(wait=True)
    assert 101 <= clock[0] < 101.2


def test_ranks_on_hosts_that_die_are_killed(team: Any) -> None:
    made, _, ranks, _ = team
    made.kill([5, 9])
    assert ranks.killed == [1]
    made.stop(at_once=True)
    assert ranks.killed == [1, 0, 1] and not made._places


def test_a_team_is_stopped_quietly_where_the_process_that_forked_it_is_gone(
    team: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, ranks, said = team

    def gone() -> None:
        raise AgentError("the process that starts the ranks of a script is gone")

    monkeypatch.setattr(ranks, "stop", gone)
    made.stop()
    assert said == ["  cores are shared"] and not made._places
