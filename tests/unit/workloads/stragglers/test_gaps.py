from __future__ import annotations

import json
import math
import random
import statistics
from itertools import islice, pairwise
from pathlib import Path

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import ConfigError
from workloads.stragglers.gaps import Fixed, LogNormal, Replay

EXAMPLE = ROOT / "docs" / "examples" / "straggler_gaps.json"


def drawn(gaps: Fixed | LogNormal | Replay, count: int, seed: int = 1) -> list[float]:
    return list(islice(gaps.draw(random.Random(seed)), count))


def test_the_published_gaps_follow_from_their_median_and_sigma() -> None:
    """Median 7, mean 9.5, p90 19, max 22 ms."""
    gaps = sorted(drawn(LogNormal(0.007, 0.78), 20_000))
    assert statistics.median(gaps) == pytest.approx(0.007, rel=0.05)
    assert statistics.fmean(gaps) == pytest.approx(0.0095, rel=0.05)
    assert gaps[18_000] == pytest.approx(0.019, rel=0.05)
    assert max(drawn(LogNormal(0.007, 0.78, 0.022), 2000)) == 0.022


@given(median=st.floats(1e-4, 1.0), sigma=st.floats(0.1, 1.5), seed=st.integers(0, 100))
def test_logarithms_of_gaps_are_normal(median: float, sigma: float, seed: int) -> None:
    logs = [math.log(gap) for gap in drawn(LogNormal(median, sigma), 2000, seed)]
    assert math.exp(statistics.fmean(logs)) == pytest.approx(median, rel=0.25 * sigma)
    assert statistics.pstdev(logs) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize(("key", "factor"), [("gaps_s", 1.0), ("gaps_ms", 1e-3), ("gaps_us", 1e-6)])
def test_json_says_its_unit_and_begins_again_at_its_end(tmp_path: Path, key: str, factor: float) -> None:
    file = tmp_path / "gaps.json"
    file.write_text(json.dumps({key: [3, 1.5]}))
    assert drawn(Replay.read(file), 3) == pytest.approx([3 * factor, 1.5 * factor, 3 * factor])
    assert drawn(Replay.read(file, factor=10), 1) == pytest.approx([30 * factor])


@given(data=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: ("{" + text).encode()))
def test_any_bytes_are_gaps_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed"
    file.write_bytes(data)
    try:
        replay = Replay.read(file, "ms")
    except ConfigError:
        return
    assert replay.gaps_s and min(replay.gaps_s) >= 0


def test_our_example_was_drawn_by_our_own_generator() -> None:
    gaps_ms = json.loads(EXAMPLE.read_text())["gaps_ms"]
    own = drawn(LogNormal(0.007, 0.78, 0.022), len(gaps_ms), seed=1)
    assert gaps_ms == pytest.approx([gap * 1e3 for gap in own], abs=0.005)
    assert Replay.read(EXAMPLE).gaps_s == pytest.approx(own, abs=5e-6)


SYNTHETIC_MS = {0: 1.5, 12: 5.0, 24: 7.0, 36: 14.0, 44: 19.0, 48: 22.0}
"""Synthetic, not measured: 49 gaps in order of size, straight lines between these places. Median, mean, p90 and maximum
are those of the gaps of 4 A100s as published (StragglAR, arXiv 2505.23523): 7, 9.5, 19 and 22 ms.
"""


def synthetic_gaps_ms() -> list[float]:
    """The 49 gaps, shuffled: a file of measured gaps has them in the order of the steps."""
    places = list(SYNTHETIC_MS.items())
    gaps = [places[0][1]]
    for (first, low), (last, high) in pairwise(places):
        gaps += [low + (high - low) * k / (last - first) for k in range(1, last - first + 1)]
    random.Random(1).shuffle(gaps)
    return gaps


def test_gaps_with_the_published_statistics_are_read(tmp_path: Path) -> None:
    file = tmp_path / "gaps.json"
    file.write_text(json.dumps({"what": "synthetic", "unit": "ms", "gaps_ms": synthetic_gaps_ms()}))
    assert Replay.read(file).gaps_s == pytest.approx([gap / 1e3 for gap in synthetic_gaps_ms()])
    gaps = sorted(Replay.read(file).gaps_s)
    assert len(gaps) == 49
    assert statistics.median(gaps) == pytest.approx(0.007, abs=0.0005)
    assert statistics.fmean(gaps) == pytest.approx(0.0095, abs=0.0002)
    assert 0.6 < statistics.pstdev(map(math.log, gaps)) < 0.9
    assert gaps[-5] == pytest.approx(0.019, abs=0.0005) and gaps[-1] == pytest.approx(0.022, abs=0.0005)
