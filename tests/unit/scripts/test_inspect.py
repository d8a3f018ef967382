from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import CASES
from script_runs import called

MICRO = "MICRO\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\n"


run = partial(called, "show")


def shown(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def play(n: int, chunks: int, rounds: Sequence[Sequence[Sequence[Any]]], state: list[list[int]]) -> None:
    """Carry out rounds on numbers, as the description of the JSON says: reads see the start of the round."""
    for transfers in rounds:
        before = [list(row) for row in state]
        for src, dst, chunk, what in transfers:
            if what == "copy":
                state[dst][chunk] = before[src][chunk]
            else:
                assert what == "reduce"
                state[dst][chunk] += before[src][chunk]
    assert all(len(row) == chunks for row in state)


@pytest.mark.parametrize(("ranks", "straggler"), [(4, None), (8, 2), (16, 0)])
def test_stragglar_as_rounds(ranks: int, straggler: int | None) -> None:
    options = [] if straggler is None else ["--straggler", straggler]
    data = shown("--algorithm", "stragglar", "--ranks", ranks, *options)
    late = ranks - 1 if straggler is None else straggler
    assert (data["algorithm"], data["kind"], data["n"], data["straggler"]) == ("stragglar", "all_reduce", ranks, late)
    assert len(data["rounds"]) == 2 * ranks + ranks.bit_length() - 5  # n - 2 before the straggler, n + L - 3 after it
    state = [[10**rank + chunk for chunk in range(data["chunks"])] for rank in range(ranks)]
    total = [sum(row[chunk] for row in state) for chunk in range(data["chunks"])]
    others = [total[chunk] - state[late][chunk] for chunk in range(data["chunks"])]
    first = data["phase1_rounds"]
    assert all(late not in (src, dst) for transfers in data["rounds"][:first] for src, dst, *_ in transfers)
    assert any(late in (src, dst) for src, dst, *_ in data["rounds"][first])
    play(ranks, data["chunks"], data["rounds"][:first], state)
    assert [state[owner][chunk] for chunk, owner in enumerate(data["chunk_owner"])] == others
    play(ranks, data["chunks"], data["rounds"][first:], state)
    assert state == [total] * ranks


def test_another_collective_has_no_straggler() -> None:
    data = shown("--algorithm", "ring", "--op", "all_gather", "--ranks", 4)
    assert (data["straggler"], data["phase1_rounds"], data["kind"]) == (None, 0, "all_gather")
    state = [[c + 7 if data["chunk_owner"][c] == rank else 0 for c in range(data["chunks"])] for rank in range(4)]
    play(4, data["chunks"], data["rounds"], state)
    assert state == [[c + 7 for c in range(data["chunks"])]] * 4


def test_the_table_says_rounds_and_bytes() -> None:
    done = run("--algorithm", "recursive-halving-doubling", "--ranks", 4, "--size", "64K")
    assert done.returncode == 0, done.stderr
    assert "rounds: 4" in done.stdout
    assert "each rank sends 98,304 bytes" in done.stdout
    assert "bound: 6.29146e-05 s for 65,536 bytes on one port of 12.5 Gb/s" in done.stdout  # 98,304 x 8 / 12.5e9


def test_the_bound_after_the_arrival() -> None:
    """n = 8: nine rounds of a seventh of the buffer are left (StragglAR, section 3)."""
    done = run("--algorithm", "stragglar", "--ranks", 8, "--size", 28 * 1024, "--port-gbps", 1)
    assert f"{9 * 4096 * 8 / 1e9:.6g} s of it after the straggler has come" in done.stdout


def test_xml_comes_back_as_the_same_collective(tmp_path: Path) -> None:
    done = run("--algorithm", "ring", "--ranks", 4, "--xml")
    assert done.returncode == 0, done.stderr
    (tmp_path / "ring.xml").write_text(done.stdout)
    data = shown(tmp_path / "ring.xml", "--size", "64K")
    assert data["bytes_sent"] == data["bytes_received"] == [98304] * 4
    assert data["traffic"] == [[rank, (rank + 1) % 4, 98304] for rank in range(4)]
    assert data["collectives"] == [{"kind": "all_reduce", "bytes": 65536, "members": 4, "count": 1}]


def test_a_file_with_everything_said(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("DATA\n1\na -1 300 NONE 0 5 NONE 0 700 ALLREDUCE 1048576 0\n")
    data = shown(tmp_path / "x.txt", "--ranks", 4, "--compute-unit", "us", "--port-gbps", 1)
    assert data["layers"] == 1
    assert data["operations"] == {"compute": 8, "all_reduce": 4}
    assert data["compute_s"] == pytest.approx([0.001] * 4)
    assert data["bytes_sent"] == [2 * 3 * 1048576 // 4] * 4
    on_the_wire = 2 * 3 / 4 * 1048576 * 8 / 2e9  # two ports of 1 Gb/s
    assert 0.001 + on_the_wire < data["prediction"]["step_s"] < 0.001 + on_the_wire * 1.05
    slower = shown(tmp_path / "x.txt", "--ranks", 4, "--compute-unit", "us", "--port-gbps", 0.1, "--time", 100)
    assert slower["prediction"]["step_s"] == pytest.approx(0.001 + 10 * on_the_wire, rel=0.05)
    assert slower["prediction"]["wall_clock_s"] == pytest.approx(100 * slower["prediction"]["step_s"])


def test_a_step_at_a_rate_that_no_run_carries_is_predicted(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("DATA\n1\na -1 300 NONE 0 5 NONE 0 700 ALLREDUCE 1048576 0\n")
    done = run(tmp_path / "x.txt", "--ranks", 4, "--compute-unit", "us", "--port-gbps", 1600)
    assert "2 ports of 1600 Gb/s" in done.stdout and "note: a run would be refused: " in done.stdout


def test_a_file_with_nothing_said_is_shown_with_notes(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("DATA\n1\na -1 300 NONE 0 5 NONE 0 700 ALLREDUCE 1048576 0\n")
    data = shown(tmp_path / "x.txt")
    assert data["ranks"] is None
    assert data["prediction"] is None
    assert data["collectives"] == [{"kind": "all_reduce", "bytes": 1048576, "members": 0, "count": 1}]
    assert any("compute_unit" in note for note in data["notes"])
    assert any("ranks" in note for note in data["notes"])
    assert "ranks: not said" in run(tmp_path / "x.txt").stdout


def test_several_files_and_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text(MICRO)
    both = shown(tmp_path / "m.txt", tmp_path / "m.txt", "--ranks", 2)
    assert [one["bytes_sent"] for one in both] == [[4096, 4096]] * 2
    smoke = shown("smoke")
    assert smoke["format"] == "recipe"
    assert smoke["ranks"] == 8
    assert smoke["prediction"]["step_s"] > max(smoke["compute_s"])


@pytest.mark.parametrize("ranks", [4, 64, 4096])
def test_a_long_layer_file_takes_less_than_two_seconds(tmp_path: Path, ranks: int) -> None:
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 24 all_gpus: 9216"
    layers = [
        "attention_column\t-1\t1750840\tALLGATHER\t50331648\t875420\tREDUCESCATTER\t0\t875420\tNONE\t0\t100",
        "mlp_moelayer\t-1\t540000\tALLTOALL_EP\t12582912\t540000\tALLTOALL_EP\t12582912\t1\tALLREDUCE\t64000\t100",
    ]
    content = [header, "1789", *(layers[n % 2] for n in range(1789))]
    (tmp_path / "long.txt").write_text("\n".join(content))
    before = time.process_time()
    data = shown(tmp_path / "long.txt", "--ranks", ranks, "--compute-unit", "ns")
    assert time.process_time() - before < 2.0, "processor time; a busy machine takes longer by the clock"
    assert (data["ranks"], data["layers"]) == (ranks, 1789)
    tp = 895 * 50331648 / 2  # 895 gathered halves
    ep = 2 * 894 * 12582912 / 2
    dp = 894 * 2 * 64000 * (1 - 2 / ranks)
    assert data["bytes_sent"] == pytest.approx([tp + ep + dp] * ranks, rel=1e-4)
    if ranks == 64:
        assert sum(size for _, _, size in data["traffic"]) == sum(data["bytes_sent"])


def test_a_wrong_unit_is_an_error_and_not_a_note(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(MICRO)
    done = run(tmp_path / "x.txt", "--compute-unit", "parsec")
    assert done.returncode == 2
    assert "'parsec' is not a unit" in done.stderr


# -- files of others -------------------------------------------------------------------------------


def test_the_same_ring_as_xml_and_as_traces() -> None:
    folder = CASES / "astra-sim" / "custom_ring_allreduce_8npus_1MB"
    xml, traces = shown(folder / "custom_allreduce.xml"), shown(folder)
    for data in (xml, traces):
        assert data["bytes_sent"] == data["bytes_received"] == [1_835_008] * 8
        assert data["traffic"] == [[rank, (rank + 1) % 8, 1_835_008] for rank in range(8)]
    assert traces["prediction"]["step_s"] == pytest.approx(xml["prediction"]["step_s"], rel=0.05)


@pytest.mark.parametrize("path", sorted(str(path.relative_to(CASES)) for path in CASES.glob("**/*.txt")))
def test_every_layer_file_is_shown_without_options(path: str) -> None:
    assert shown(CASES / path)["layers"] > 0
