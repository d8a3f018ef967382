"""YAML within bounds: what is small stays small, and nothing is misread silently."""

from __future__ import annotations

import math
import string
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import ConfigError
from railyard.yaml_file import MOST_BYTES, MOST_DEPTH, MOST_VALUES, read_mapping, written_mapping

TENFOLD = "\n".join(
    ["a0: &a0 [x]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10))]
)  # fmt: skip


def read(path: Path, text: str | bytes) -> dict[str, Any]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_mapping(path, "an experiment file", "steps, scale")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: " + "[" * 5000, f":1: has more than {MOST_DEPTH} levels of keys and lists"),
        ("a: " + "{b: " * 5000, f":1: has more than {MOST_DEPTH} levels"),
        (TENFOLD, f":5: has more than {MOST_VALUES} values"),
        ("a: [" + "1," * (MOST_VALUES + 1) + "]", f"has more than {MOST_VALUES} values"),
        ("a: &a [*a]", r":1: has an alias \*a inside of what it stands for"),
        ("a: 1\nb: 2\na: 3", ":3: has the key 'a' twice; give it once"),
        ("a:\n  b: 1\n  b: 2", ":3: has the key 'b' twice"),
        ("a: !!int 'x'", ":1: has a tag"),
        ("a: !!python/object:os.system x", ":1: has a tag"),
        ("a: '" + "x" * MOST_BYTES + "'", "is larger than 256 KiB; an experiment file is smaller"),
        (b"a: \x00", "is not YAML: unacceptable character"),
        (b"a: \xff", ":1: is not UTF-8 text"),
        ("a: 'x", ":1: is not YAML: "),
        ("- a", "must be a mapping of keys such as steps, scale"),
        ("1: 2", "keys must be text"),
    ],
)
def test_what_is_too_much_or_unclear_is_refused(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path / "own.yaml", text)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="/dev/zero: is larger than 256 KiB"):
        read_mapping(Path("/dev/zero"), "an experiment file", "steps")


def test_numbers_are_decimal(tmp_path: Path) -> None:
    text = "a: 010\nb: 1:30\nc: 1e3\nd: .5\ne: -2\nf: 1e400\ng: .nan\nh: 0x10\ni: 2020-99-99\nj: yes\nk: ~\nl: 1_000"
    found = read(tmp_path / "own.yaml", text)
    assert math.isnan(found.pop("g"))
    assert found == {
        "a": 10, "b": "1:30", "c": 1000.0, "d": 0.5, "e": -2, "f": math.inf, "h": "0x10", "i": "2020-99-99", "j": True,
        "k": None, "l": "1_000",
    }  # fmt: skip
    assert isinstance(read(tmp_path / "own.yaml", "a: " + "9" * 5000)["a"], str)  # Python makes no number of it


def test_aliases_and_merges_within_bounds_are_read(tmp_path: Path) -> None:
    assert read(tmp_path / "own.yaml", "x: &x {a: 1}\ny: {<<: *x, a: 2, b: 3}\nz: [*x, *x]") == {
        "x": {"a": 1},
        "y": {"a": 2, "b": 3},
        "z": [{"a": 1}, {"a": 1}],
    }


@given(
    st.dictionaries(
        st.text(string.printable + "äß→", min_size=1),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(10**17), 10**17)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(string.printable + "äß→")
            | st.sampled_from(["1e5", "010", "1:30", "yes", "~", "null", ".5", "=", "<<"]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.", min_size=1), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read_as_the_same_values(data: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(written_mapping(data), encoding="utf-8", newline="")
        assert read_mapping(path, "an experiment file", "steps, scale") == data
