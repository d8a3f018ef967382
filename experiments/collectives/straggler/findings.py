"""Findings of a straggler experiment: break-even delays, speed-ups and shares, beside the law and published values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from experiments.collectives.report import same_but_algorithm
from experiments.collectives.rounds import after_arrival_s, crossings
from experiments.collectives.straggler.experiment import LOG_RANKS, LOG_SHARE, PAIR, StragglerSettings
from experiments.report import in_words as estimate_in_words
from measure.metrics.estimate import Estimate
from measure.published import published
from measure.results.estimates import crossing_of, ratio_of
from measure.results.row import Row
from railyard.size import in_words

SPEEDUPS, MEASURED = published("stragglar-simulated"), published("stragglar-measured")
"""Ring / StragglAR by number of ranks, and the range that the authors measured on ``MEASURED_RANKS`` GPUs."""
MEASURED_RANKS = 8
END_TO_END = published("stragglar-end-to-end")
GAPS, LOG_STEP = published("stragglar-gaps"), published("stragglar-log-step")
LOG_ALL_REDUCE, LOG_BREAK_EVEN = published("stragglar-log-all-reduce"), published("stragglar-log-break-even")


def findings(experiment: StragglerSettings, rows: Sequence[Row]) -> Iterator[str]:
    """The findings as sentences; a study that is incomplete gives none."""
    for n, size in dict.fromkeys((r["n"], r["bytes"]) for r in rows):
        mine = [r for r in rows if (r["n"], r["bytes"]) == (n, size)]
        yield from _break_even(experiment, n, size, [r for r in mine if r["study"] == "delay"])
        yield from _speedup(experiment, n, size, [r for r in mine if r["study"] in ("delay", "ranks")])
        yield from _machine_share(n, size, [r for r in mine if r["study"] == "reconfiguration"])
        yield from _detector(n, [r for r in mine if r["study"] == "detector"])
        yield from _steps(experiment, n, size, [r for r in mine if r["study"] == "step"])
        yield from _chosen(n, size, [r for r in mine if r.get("chosen") and not r.get("buckets")])
        for study in ("buckets", "two", "groups"):
            yield from _gains([r for r in mine if r["study"] == study])
    for n in dict.fromkeys(r["n"] for r in rows):
        yield from _sizes(experiment, [r for r in rows if (r["study"], r["n"]) == ("size", n)])
    yield from crossings(rows, experiment.trials, after_arrival_s)
    yield from _end_to_end(rows)


def _of(rows: Sequence[Row], algorithm: str) -> list[Row]:
    return sorted((r for r in rows if r["algorithm"] == algorithm), key=lambda r: r["straggler_delay_s"])


def break_even(rows: Sequence[Row]) -> Estimate | None:
    """The delay in seconds from which on StragglAR is faster than Ring; None if it never is."""
    return crossing_of(_of(rows, "ring"), _of(rows, "stragglar"), "straggler_delay_s", "time_s")


def break_even_s(rows: Sequence[Row]) -> float | None:
    found = break_even(rows)
    return None if found is None else found.median


def _break_even(experiment: StragglerSettings, n: int, size: int, rows: Sequence[Row]) -> Iterator[str]:
    found = break_even(rows)
    if found is None:
        return
    law = experiment.law(n, size).critical_delay_s
    yield (
        f"{n} ranks, {in_words(size)}: StragglAR is faster than Ring from a delay of "
        f"{estimate_in_words(found, '.3f')} s on; law {law:.3f} s ({found.median / law - 1:+.1%})."
    )


def _speedup(experiment: StragglerSettings, n: int, size: int, rows: Sequence[Row]) -> Iterator[str]:
    first = experiment.law(n, size).first_phase_s
    ring = [r for r in _of(rows, "ring") if r["straggler_delay_s"] >= first]
    stragglar = [r for r in _of(rows, "stragglar") if r["straggler_delay_s"] >= first]
    if not ring or not stragglar:
        return
    found, law = ratio_of(ring[-1], stragglar[-1], "after_arrival_s"), experiment.law(n, size).speedup
    if found is None:
        return
    yield (
        f"{n} ranks, {in_words(size)}: for delays beyond the first phase Ring takes {estimate_in_words(found, '.3f')} "
        f"times as long after arrival as StragglAR; law {law:.3f} ({found.median / law - 1:+.1%})"
        f"{_beside(n, found.median, experiment.round_cost)}."
    )


def _beside(n: int, speedup: float, round_cost: float) -> str:
    """The published speed-ups for ``n`` ranks, with their kinds and, of hardware, how far it is from ``speedup``."""
    if round_cost:
        hardware = f", {MEASURED.shown()} on {n} GPUs ({MEASURED.label})" if n == MEASURED_RANKS else ""
        return f" with {round_cost:g} of the buffer's time on a link for each round of StragglAR{hardware}"
    said = f"; StragglAR: {SPEEDUPS.values[n]:.3f} ({SPEEDUPS.label})" if n in SPEEDUPS.values else ""
    if n == MEASURED_RANKS:
        low, high = MEASURED.bounds
        said += (
            f", {MEASURED.shown()} on {n} GPUs ({MEASURED.label}), {(speedup - high) * 100:.0f} to "
            f"{(speedup - low) * 100:.0f} points below this. Law and emulator know latency and bytes; on GPUs a round "
            "is also calls of NCCL and a kernel that adds, which neither has"
        )
    return said


def _machine_share(n: int, size: int, rows: Sequence[Row]) -> Iterator[str]:
    """The time of this machine for a change of circuits, measured with a reconfiguration delay of 0."""
    own = [r for r in rows if r["algorithm"] == "stragglar" and not r["reconfiguration_delay_ms"]]
    packets = [r for r in own if r["fabric"] == "electrical"]
    follow = [r for r in own if r.get("circuits") == "on-demand"]
    if packets and follow:
        own_s = follow[0]["after_arrival_s"] - packets[0]["after_arrival_s"]
        yield (
            f"{n} ranks, {in_words(size)}: this machine needs {own_s / follow[0]['second_phase_rounds'] * 1e3:.1f} ms "
            "for a change of circuits."
        )


def _gains(rows: Sequence[Row]) -> Iterator[str]:
    """Ring over the other algorithms where a step has several all-reduces, or several ranks are late."""
    for row in rows:
        rings = [r for r in rows if r["algorithm"] == "ring" and same_but_algorithm(r, row)]
        gain = ratio_of(rings[0], row, "time_s") if rings and row["algorithm"] != "ring" else None
        if gain is None:
            continue
        where, beside = f"rank late by {row['straggler_delay_s']:.3f} s", ""
        if row["law_s"]:
            law = rings[0]["law_s"] / row["law_s"]
            beside = f"; law {law:.3f} ({gain.median / law - 1:+.1%})"
        if row["study"] == "buckets":
            where += f", buckets: {row['buckets']} of {in_words(row['bytes'])}"
        elif row["study"] == "two":
            where += (
                f" and another by {row['second_delay_s']:.3f} s (T_crit {row['critical_delay_s'] or math.inf:.3f} s)"
            )
        else:
            where += f", in one of {row['groups']} groups (the others took {row['in_time_s']:.3f} s)"
        yield (
            f"{row['n']} ranks, {where}: Ring takes {estimate_in_words(gain, '.3f')} times as long as "
            f"{row['algorithm']}{beside}."
        )


def _sizes(experiment: StragglerSettings, rows: Sequence[Row]) -> Iterator[str]:
    """The buffer from which on StragglAR is faster than halving-doubling, which has fewer rounds."""
    late = sorted((r for r in rows if r["straggler_delay_s"]), key=lambda r: r["bytes"])
    halving, own = ([r for r in late if r["algorithm"] == a] for a in ("recursive-halving-doubling", "stragglar"))
    measured, model = (crossing_of(halving, own, "bytes", f"{kind}after_arrival_s") for kind in ("", "predicted_"))
    law = experiment.law(late[0]["n"], late[0]["bytes"]) if late else None
    if measured is not None and model is not None and law is not None and law.knows("recursive-halving-doubling"):
        yield (
            f"{late[0]['n']} ranks: after a late rank's arrival StragglAR is faster than halving-doubling from "
            f"{estimate_in_words(measured, ',.0f')} bytes on; model {model.median:,.0f}, law "
            f"{law.critical_bytes:,.0f} bytes. By the law it never is where no rank is late."
        )


def _chosen(n: int, size: int, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        by_delay = sorted(rows, key=lambda r: r["straggler_delay_s"])
        said = ", ".join(f"{r['chosen']} at {r['straggler_delay_s']:.3f} s" for r in by_delay)
        yield f"{n} ranks, {in_words(size)}: auto took {said}."


def _detector(n: int, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        right = fmean(bool(r["right"]) for r in rows)
        after = fmean(r["after_arrival_s"] for r in rows)
        yield (
            f"{n} ranks: the detector predicted the late rank in {right:.0%} of {len(rows)} steps; StragglAR took "
            f"{after:.3f} s after arrival on average."
        )


def _steps(experiment: StragglerSettings, n: int, size: int, rows: Sequence[Row]) -> Iterator[str]:
    law = experiment.law(n, size) if rows else None
    for share in sorted({r["all_reduce_share"] for r in rows}):
        here = {r["algorithm"]: r for r in rows if r["all_reduce_share"] == share}
        if law is None or len(here) < len(PAIR):
            continue
        ring, stragglar = (here[name] for name in PAIR)
        gain = ratio_of(ring, stragglar, "mean_step_time_s")
        if gain is not None:
            right, delay_s, critical_s = ring["expected_late"], ring["straggler_delay_s"], law.critical_delay_s
            yield (
                f"{n} ranks, Ring {share:.1%} of a step, rank late by {delay_s:.3f} s (T_crit {critical_s:.3f} s), "
                f"expected in {right:.0%} of steps: a step with Ring takes {estimate_in_words(gain, '.4f')} times one "
                f"with StragglAR; law {1 + law.step_gain(share, delay_s, right):.4f}{_of_log(share)}."
            )


def _of_log(share: float) -> str:
    """The words beside the point with the proportions of the authors' log; nothing beside others."""
    if share != LOG_SHARE:
        return ""
    mean, most = GAPS.values["mean"], GAPS.values["most"]
    return (
        f". Those are the proportions of a job on {LOG_RANKS} A100: all-reduce {LOG_ALL_REDUCE.shown()} ms "
        f"({LOG_ALL_REDUCE.label}) of {LOG_STEP.shown()} ms ({LOG_STEP.label}), late by {mean:g} ms on average and "
        f"{most:g} ms at most ({GAPS.label}), T_crit {LOG_BREAK_EVEN.shown()} ms ({LOG_BREAK_EVEN.label})"
    )


def _end_to_end(rows: Sequence[Row]) -> Iterator[str]:
    if any(r["study"] == "step" for r in rows):
        yield (
            f"StragglAR: {END_TO_END.value:+g} % on Llama-3.2-3B ({END_TO_END.label}), with late ranks of its own. "
            "The steps above are synthetic: their gain follows from the shares and the delay, and confirms nothing."
        )
