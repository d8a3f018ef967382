"""What positions have to send to each other: drawn, or read from a file; and a sentence for whatever is no demand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.collectives.all_to_all.experiment import SKEW, read_demand, whole_numbers


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "demand.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_uniform_is_no_matrix() -> None:
    assert read_demand("uniform", 8, 1000, 1) == ()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_skewed_has_the_weights_of_zipf_for_each_sender_and_the_mean(n: int) -> None:
    found = read_demand("skewed", n, 1e6, 1)
    weights = sorted((place**-SKEW for place in range(1, n)), reverse=True)
    for i, row in enumerate(found):
        others = sorted((entry for j, entry in enumerate(row) if j != i), reverse=True)
        assert row[i] == 0
        assert [entry / others[0] for entry in others] == pytest.approx(weights, rel=1e-3)
    assert sum(map(sum, found)) == pytest.approx(1e6 * n * (n - 1), rel=1e-4)
    assert all(entry % 4 == 0 for row in found for entry in row), "whole elements"


def test_skewed_is_drawn_from_the_seed() -> None:
    assert read_demand("skewed", 8, 1e6, 7) == read_demand("skewed", 8, 1e6, 7)
    drawn = {read_demand("skewed", 8, 1e6, seed) for seed in range(10)}
    assert len(drawn) == 10
    popular = Counter(max(range(8), key=row.__getitem__) for demand in drawn for row in demand)
    assert len(popular) == 8, "anybody may be"


def test_of_a_file_only_proportions_count(tmp_path: Path) -> None:
    first = read_demand(write(tmp_path, "0,1,2\n3,0,4\n5,6,0\n"), 3, 3500, 1)
    assert first == ((0.0, 1000.0, 2000.0), (3000.0, 0.0, 4000.0), (5000.0, 6000.0, 0.0))
    assert read_demand(write(tmp_path, "0, .1, .2\n\n.3, 0, .4\r\n.5, .6, 0"), 3, 3500, 9) == first
    assert whole_numbers(first) == ((0, 1000, 2000), (3000, 0, 4000), (5000, 6000, 0))


def test_what_is_next_to_nothing_is_an_element_and_nothing_is_nothing(tmp_path: Path) -> None:
    found = read_demand(write(tmp_path, "0,1e-9,0\n1,0,1\n1,1,0\n"), 3, 1e4, 1)
    assert found[0] == (0.0, 4.0, 0.0)


@pytest.mark.parametrize("unit", ["e-320", "e300"])
def test_any_unit_will_do(tmp_path: Path, unit: str) -> None:
    assert read_demand(write(tmp_path, f"0,1{unit}\n1{unit},0\n"), 2, 1000, 1) == ((0.0, 1000.0), (1000.0, 0.0))


@given(
    n=st.integers(2, 5),
    mean=st.floats(100, 1e8),
    data=st.data(),
)
def test_a_file_has_the_mean_that_was_asked_for(
    tmp_path_factory: pytest.TempPathFactory, n: int, mean: float, data: st.DataObject
) -> None:
    entries = st.lists(st.floats(0.01, 100), min_size=n * n, max_size=n * n)
    rows = [data.draw(entries)[:n] for _ in range(n)]
    text = "\n".join(
        ",".join("0" if i == j else repr(entry) for j, entry in enumerate(row)) for i, row in enumerate(rows)
    )
    found = read_demand(write(tmp_path_factory.mktemp("csv"), text), n, mean, 1)
    assert sum(map(sum, found)) == pytest.approx(mean * n * (n - 1), abs=4 * n * n)
    assert all(entry >= 4 for i, row in enumerate(found) for j, entry in enumerate(row) if i != j)
