"""Numbers in the texts of claims, and laws that they are compared with: computed here, or read from kept rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from commands.claims.claim import DOCS, is_where, read_catalog
from commands.claims.kept import Kept, read_kept
from commands.main import main
from experiments.collectives.straggler.experiment import LATE_ENOUGH
from experiments.collectives.straggler.law import StragglerLaw
from experiments.collectives.straggler.report import laws
from experiments.fabric_cost.experiment import ClusterDesign, fabric_rows
from experiments.rails.job import fitted
from experiments.rails.settings import make_settings
from measure.published import published
from measure.results.results import Results
from workloads.catalog import make_workload, recipe_of
from workloads.program import Compute
from workloads.training.recipe import changed

CATALOG = read_catalog()
CLAIMS = CATALOG.claims
REASONS = {name: claim.why for name, claim in CLAIMS.items() if claim.why}
WINDOW_S = 1.15
"""A window of the authors' step in which nobody needs the rail: with it ``hidden_once`` is nearest to their growth."""
ON_DEMAND, PROVISIONED = (published(f"opus-llama-growth-{mode}").values for mode in ("on-demand", "provisioned"))


RUNS = ["allocation", "server-fabric", "straggler", "straggler-ranks", "straggler-late", "straggler-buckets"]


@pytest.fixture(scope="module")
def kept() -> dict[str, Kept]:
    return read_kept(DOCS / "measured", RUNS)[0]


def hidden_once(delay_ms: float) -> float:
    """By how many seconds a step grows on demand if of its six delays one is hidden, up to ``WINDOW_S``."""
    delay_s = delay_ms / 1e3
    return published("opus-llama-phase-changes").value * delay_s - min(delay_s, WINDOW_S)


def test_which_claims_do_not_hold() -> None:
    assert set(REASONS) == {
        *("opus-growth-2000", "opus-100-provisioned"),
        *("morphlux-epoch", "morphlux-outage", "morphlux-slice-law", "morphlux-two-rings-dp"),
        "propius-scarce-jct",
    }


def test_steered_ports_alone_are_off_the_law_of_slices() -> None:
    (kept,) = read_kept(DOCS / "measured", ["slices"])[0].values()
    off = {(row["measure"], row["shape"], row["fabric"]): row["value"] / row["law"] - 1 for row in kept.rows}
    assert max(abs(share) for (_, _, fabric), share in off.items() if fabric == "electrical") < 0.0025
    furthest = max(off, key=lambda key: off[key])
    assert furthest[1:] == ("4x1x2 fragmented", "photonic")
    assert f"up to {off[furthest] * 100:.1f} % off" in " ".join(REASONS["morphlux-slice-law"].split())
    two_rings = off["DP all-reduce", "4x1x2 contiguous", "photonic"]
    assert f"are {two_rings * 100:.1f} % longer" in REASONS["morphlux-two-rings-dp"]


def test_the_completion_times_in_the_reason_of_propius_are_those_of_the_kept_rows() -> None:
    (kept,) = read_kept(DOCS / "measured", ["propius-scarce"])[0].values()
    rows = [row for row in kept.rows if row["study"] == "jct" and row["policy"] != "fifo" and row["authors_jct_s"]]
    assert len(rows) == 2
    for value in (value for row in rows for value in (row["jct_s"], row["authors_jct_s"])):
        assert f"{value:,.0f} s" in REASONS["propius-scarce-jct"]


def test_one_hidden_delay_of_six_explains_the_growth_on_demand_of_the_authors_step() -> None:
    """The window is that of least error, in steps of 50 ms; without one, six delays are 1.2 s too many."""
    assert max(abs(hidden_once(delay) - grown) for delay, grown in ON_DEMAND.items()) < 0.2
    assert max(abs(6 * delay / 1e3 - grown) for delay, grown in ON_DEMAND.items()) > 1
    squares = {
        window: sum((6 * d / 1e3 - min(d / 1e3, window) - grown) ** 2 for d, grown in ON_DEMAND.items())
        for window in (step * 0.05 for step in range(40))
    }
    assert min(squares, key=lambda window: squares[window]) == pytest.approx(WINDOW_S)
    worst = max(abs(hidden_once(delay) - grown) for delay, grown in ON_DEMAND.items())
    reason = REASONS["opus-growth-2000"]
    assert f"up to {WINDOW_S:g} s: six delays d less min(d, {WINDOW_S:g} s) are within {worst:.1f} s" in reason
    assert f"all delays from {min(ON_DEMAND):g} ms to {max(ON_DEMAND) / 1e3:g} s" in reason
    assert CLAIMS["opus-slope"].expected == published("opus-llama-phase-changes").value - 1


def test_the_window_of_the_law_is_the_forward_pass_of_the_last_stage() -> None:
    recipe = fitted(make_settings({}), changed(recipe_of("llama3-8b-16"), {"fabric.port_gbps": 100}))
    last = make_workload(recipe, folded=True).program.operations[-1]
    window_s = sum(op.seconds for op in last if isinstance(op, Compute) and op.name.startswith("F1"))
    assert CLAIMS["opus-window"].expected == pytest.approx(18 - window_s, abs=0.02)
    assert f"window is {window_s:.2f} s" in REASONS["opus-growth-2000"]


def test_cost_and_power_in_the_note_are_those_of_the_rows() -> None:
    def in_sizes(count: str, sizes: Iterable[int]) -> str:
        rows = {gpus: {(row.count, row.fabric): row for row in fabric_rows(ClusterDesign(gpus))} for gpus in sizes}
        ratios = {gpus: found[count, "rail-optimized"] for gpus, found in rows.items()}
        return ", ".join(f"{r.cost_ratio:.2f} / {r.power_ratio:.1f} for {gpus:,} GPUs" for gpus, r in ratios.items())

    sizes = published("opus-cost-h200").values
    note = CLAIMS["opus-cost"].note
    assert note == CLAIMS["opus-power"].note
    assert (
        f"by the formula: {in_sizes('formula', sizes)}; the abstract says {published('opus-cost').value:g} and" in note
    )
    assert f"and over {published('opus-power').value:g}." in note
    assert f"{in_sizes('whole switches', sizes)}, and {in_sizes('whole switches', [8192])}, where" in note


def test_the_laws_of_a_late_rank_are_those_of_the_kept_runs(kept: dict[str, Kept]) -> None:
    (law,) = laws(kept["straggler"].rows)
    assert CLAIMS["stragglar-break-even"].expected == pytest.approx(law.critical_delay_s, rel=1e-5)
    for law in laws(kept["straggler-ranks"].rows):
        assert CLAIMS[f"stragglar-law-{law.n}"].expected == pytest.approx(law.speedup, rel=1e-5)
    (four,) = laws(kept["straggler-late"].rows)
    late_s = LATE_ENOUGH * four.first_phase_s
    assert CLAIMS["stragglar-two"].expected == pytest.approx(late_s - four.critical_delay_s, rel=1e-5)
    assert CLAIMS["stragglar-groups-in-time"].expected == pytest.approx(four.ring_s, rel=1e-5)
    eight = StragglerLaw(8, 1 << 18, 0.005, four.bytes_per_s)
    assert CLAIMS["stragglar-size"].expected == pytest.approx(eight.critical_bytes, rel=1e-5)
    of = {row["algorithm"]: row["law_s"] for row in kept["straggler-buckets"].rows if row["buckets"] == 4}
    assert CLAIMS["stragglar-buckets-all"].expected == pytest.approx(of["ring"] / of["stragglar"], rel=1e-5)
    assert CLAIMS["stragglar-buckets-first"].expected == pytest.approx(of["ring"] / of["auto"], rel=1e-5)


def test_the_authors_provisioned_step_exposes_six_delays_as_soon_as_the_delay_exceeds_50_ms() -> None:
    slopes = [(PROVISIONED[b] - PROVISIONED[a]) / (b - a) * 1e3 for a, b in pairwise((0, 50, 100)) if a]
    assert slopes == [pytest.approx(5.88)] and PROVISIONED[50] / 0.05 == pytest.approx(1.96)
    growth = f"{PROVISIONED[50]:.3f} s up to 50 ms, two delays, and by {PROVISIONED[100] - PROVISIONED[50]:.3f} s from"
    assert growth in REASONS["opus-100-provisioned"]


def test_one_cost_a_round_gives_the_speed_up_of_the_hardware_and_its_critical_delay() -> None:
    """Ring 1.75, StragglAR 9/7 and 9 rounds, T_RS 6/7 and 6 rounds, in times of the buffer on a link."""
    cost = (1.75 / published("stragglar-measured").bounds[1] - 9 / 7) / 9
    critical = 6 / 7 + 9 / 7 + 15 * cost - 1.75
    buffer_ms = 4 * 2**30 / (published("h100-rate").value * 1e9) * 1e3
    assert (round(cost, 4), round(critical * buffer_ms, 2)) == (0.0127, 5.57)
    assert critical * buffer_ms == pytest.approx(published("stragglar-critical-delay").value, rel=0.01)
    assert StragglerLaw(8, 1, 0.0, 1.0).critical_delay_s * buffer_ms == pytest.approx(3.75, abs=0.005)
    assert CLAIMS["stragglar-hardware"].expected == published("stragglar-measured").bounds[1]
    assert (
        "cost of 0.0127 of" in CLAIMS["stragglar-hardware"].says and "gives 1.361" in CLAIMS["stragglar-hardware"].note
    )
    assert "3.75 ms at 450 GB/s" in CLAIMS["stragglar-hardware-critical"].note
    for run in ("straggler-cost", "straggler-h100"):
        assert "--round-cost 0.0127" in CATALOG.runs[run].arguments
    assert f"--port-gbps {published('h100-rate').value * 8:g} " in CATALOG.runs["straggler-h100"].arguments


def test_no_one_gain_of_two_ports_gives_the_epochs_of_the_testbed() -> None:
    """One port at 10 Gb/s: 39.55 Gbit a step. The gain is by how much faster an all-reduce over two ports must be."""
    electrical, photonic = (published(f"morphlux-epoch-{fabric}").values for fabric in ("electrical", "photonic"))
    gains = {}
    for batch, steps in published("morphlux-steps").values.items():
        one_port_s = steps * published("llama-1b-gradients").value / published("morphlux-port").value
        gains[batch] = one_port_s / (one_port_s - (electrical[batch] - photonic[batch]))
    assert {batch: round(gain, 2) for batch, gain in gains.items()} == {2: 1.75, 4: 1.84, 8: 2.14}
    derived = ", ".join(f"{gain:.2f}x at batch {batch}" for batch, gain in gains.items())
    assert f"it is {derived}, the last" in REASONS["morphlux-epoch"]


def test_the_parts_of_an_outage_are_those_of_the_kept_run(kept: dict[str, Kept]) -> None:
    (row,) = (row for row in kept["server-fabric"].rows if is_where(CLAIMS["morphlux-outage"].rows, row))
    parts = dict(row["breakdown"])
    assert parts["first step"] == pytest.approx(3, abs=0.5) and parts["checkpoint"] == pytest.approx(4, abs=0.5)
    assert row["step_time_after_s"] == pytest.approx(parts["first step"], rel=0.1)
    timeline, claim = published("morphlux-timeline"), CLAIMS["morphlux-outage"]
    assert f"{timeline.between('load', 'first step'):.1f} s of the testbed's" in claim.why
    assert -claim.number.plus == timeline.between("rewire", "load") and "15.5 s together" in claim.note
    assert claim.expected == pytest.approx(timeline.values["first step"] + claim.number.plus)


@pytest.mark.parametrize(
    ("mix", "index"),
    [
        ("rack-even", 0.50),
        pytest.param("small", 0.79, marks=pytest.mark.thorough),
        pytest.param("half-rack", 0.60, marks=pytest.mark.thorough),
        pytest.param("small-even", 0.65, marks=pytest.mark.thorough),
        pytest.param("servers", 0.67, marks=pytest.mark.thorough),
    ],
)
def test_the_index_of_fragmentation_depends_on_the_sizes_of_slices(mix: str, index: float, tmp_path: Path) -> None:
    words = f"run allocation --study fragmentation --freed 0.2 --no-figures --mix {mix} --out {tmp_path / mix}"
    assert main(words.split()) == 0
    (row,) = (row for row in Results.open(tmp_path / mix).rows() if row["system"] == "contiguous")
    assert round(row["index_max"], 2) == index
    assert f"{index:.2f} (`{mix}`" in CLAIMS["morphlux-index"].note


def test_neither_way_of_asking_gives_both_shares_of_failed_requests(kept: dict[str, Kept]) -> None:
    rows = [row for row in kept["allocation"].rows if row["study"] == "protocols" and row["asked"] == "32"]
    failed = {(row["protocol"], row["system"]): row["failed_share"] for row in rows}
    assert failed["per-rack", "morphlux"] == 0 and failed["per-rack", "contiguous"] == pytest.approx(0.25, abs=0.05)
    assert failed["cluster", "morphlux"] > 0.5 and failed["cluster", "contiguous"] == pytest.approx(0.75, abs=0.1)
    (cluster,) = (row for row in rows if (row["protocol"], row["system"]) == ("cluster", "morphlux"))
    assert 1 - 1 / cluster["pooled_ratio"] == pytest.approx(failed["cluster", "contiguous"], abs=0.01)
