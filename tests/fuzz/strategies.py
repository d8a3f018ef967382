"""Strategies that change valid inputs: bytes, numbers, words and lines of text, and trees of plain data."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

MOST_BYTES = 1 << 16
"""Largest input: what takes long to read is to be found in small ones."""
NUMBERS = (
    *(0, 1, -1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 64, 100, 127, 128, 255, 256, 1000, 1023, 1024, 4096, 10_000, 32_768),
    *(65_535, 65_536, 100_000, 262_144, 999_999, 1_000_000, 1_048_576, 16_777_216, 999_999_999, 2**31 - 1, 2**31),
    *(2**32 - 1, 2**32, 2**40, 2**50, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**20, -(2**31), -(2**63)),
)
FRACTIONS = (0.5, 0.1, 1.5, -0.5, 1e-9, 1e-320, 1e9, 1e15, 1e17, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", " ", "0", "-0", "1e400", "1e-400", "1e999999999", "-1e99", "1_000", "0x1f", "0o17", "0b1", ".5", "5.", "+1"),
    *("nan", "inf", "-inf", "1/250", "1/0", "1/3", "0/1", "9" * 400, "9" * 5000, "0." + "0" * 400 + "1", "1:30"),
    *("yes", "no", "on", "true", "False", "null", "~", "None", "auto", "none", "all", "default", "2020-01-01"),
    *("a" * 200, "a" * 20_000, "[" * 5000, "{" * 5000, '{"a":' * 3000, "(" * 300, "\\", "\x00", "\ufeff", "é"),
    *("\u2028", "\\ud800", "%s", "%n", "{0}", "../../etc/passwd", "/dev/null", ".", "..", "/", "-", "--", "=", ","),
    *(",,", ":", ";", "a,b", "*", "&a [*a, *a]", "<<", "!!python/object:os.system", "<!DOCTYPE a>", "&lt;", "<!--"),
    *("]]>", "'", '"', "#", "\r"),
)

numbers: st.SearchStrategy[float] = st.sampled_from(NUMBERS) | st.sampled_from(FRACTIONS) | st.integers(0, 20)
"""Numbers with which readers have trouble, or small ones."""
texts = st.sampled_from(TEXTS)
_leaves: st.SearchStrategy[Any] = numbers | texts | st.sampled_from((None, True, False, [], {}))
values: st.SearchStrategy[Any] = _leaves.map(lambda leaf: [leaf] * 300) | st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=4
)
"""Plain data of any kind."""
_PACKED = [
    struct.pack(layout, number % (1 << 8 * struct.calcsize(layout)))
    for layout in ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")
    for number in NUMBERS
]
_SPANS = {
    "line": re.compile(rb"[^\n]*\n?"),
    "number": re.compile(rb"-?[0-9]+(?:\.[0-9]+)?"),
    "word": re.compile(rb"[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+"),
}
_WINDOW = 512
_KINDS = st.sampled_from(("none", "byte", "bytes", "rest", "line", "number", "number", "word", "word"))
_PIECES = st.sampled_from(("nothing", "bytes", "word", "number", "text", "seed", "again", "near"))
_CHANGES = st.sampled_from((0, 0, 1, 1, 2, 3, 5))
_MANY, _STEPS, _BITS = st.sampled_from((2, 2, 3, 10, 100, 5000)), st.sampled_from((-1, 1, 2, 10)), st.integers(0, 7)
_OTHERS = {
    "nothing": st.just(b""),
    "bytes": st.binary(min_size=1, max_size=8) | st.sampled_from(_PACKED),
    "word": texts.map(str.encode),
    "number": numbers.map(lambda number: str(number).encode()),
    "text": texts.map(str.encode),
}


@st.composite
def changed(
    draw: st.DrawFn, inputs: st.SearchStrategy[bytes], seeds: Sequence[bytes], words: Sequence[bytes] = ()
) -> bytes:
    """One of ``inputs`` with up to five spans replaced; parts of ``seeds`` and ``words`` may get into it."""
    data = draw(inputs)[:MOST_BYTES]
    for _ in range(draw(_CHANGES)):
        start, end = _span(draw, data)
        new = _piece(draw, data[start:end], seeds, words)
        data = (data[:start] + new + data[end:])[:MOST_BYTES]
    return data


def _span(draw: st.DrawFn, data: bytes) -> tuple[int, int]:
    """Start and end of a piece of ``data``: some bytes, a line, a number, a word, or all from somewhere on."""
    start = draw(st.integers(0, len(data)))
    kind = draw(_KINDS)
    if kind in _SPANS:
        first = max(0, start - _WINDOW // 2)
        matches = list(_SPANS[kind].finditer(data, first, first + _WINDOW))
        return matches[draw(st.integers(0, len(matches) - 1))].span() if matches else (start, start)
    longest = {"none": 0, "byte": 1, "bytes": _WINDOW, "rest": len(data)}[kind]
    length = draw(st.integers(1, longest)) if kind == "bytes" else longest
    return start, min(len(data), start + length)


def _piece(draw: st.DrawFn, old: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """What takes the place of ``old``."""
    kind = draw(_PIECES)
    if kind == "seed":
        seed = draw(st.sampled_from(seeds))
        return seed[slice(*_span(draw, seed))]
    if kind == "again":
        return old * min(draw(_MANY), MOST_BYTES // (len(old) or 1))
    if kind == "near" and old.isdigit() and len(old) < 20:
        return b"%d" % (int(old) + draw(_STEPS))
    if kind == "near":  # a bit flipped
        return bytes([old[0] ^ 1 << draw(_BITS)]) + old[1:] if old else b"\x00"
    if kind == "word" and words:
        return draw(st.sampled_from(words))
    return draw(_OTHERS[kind])


@st.composite
def changed_tree(draw: st.DrawFn, tree: Any) -> Any:
    """Plain data such as ``tree`` with one value, key or part of a list changed."""
    act = draw(st.sampled_from(("in", "in", "in", "in", "in", "in", "without", "more", "other")))
    if isinstance(tree, dict) and tree and act != "other":
        key = draw(st.sampled_from(list(tree)))
        if act == "without":
            return {name: value for name, value in tree.items() if name != key}
        if act == "more":
            return {**tree, draw(texts): draw(values)}
        return {**tree, key: draw(changed_tree(tree[key]))}
    if isinstance(tree, list) and tree and act != "other":
        at = draw(st.integers(0, len(tree) - 1))
        if act == "without":
            return tree[:at] + tree[at + 1 :]
        if act == "more":
            most = MOST_BYTES // len(json.dumps(tree[at]))
            return tree[:at] + [tree[at]] * min(draw(_MANY), most) + tree[at:]
        return [*tree[:at], draw(changed_tree(tree[at])), *tree[at + 1 :]]
    if isinstance(tree, int) and not isinstance(tree, bool) and draw(st.integers(0, 2)) == 0:
        return tree + draw(st.sampled_from((-1, 1, 2, 7)))
    return draw(values)


@st.composite
def changed_trees(draw: st.DrawFn, trees: Sequence[Any], most: int = 2) -> Any:
    """One of ``trees`` with up to ``most`` changes."""
    tree = draw(st.sampled_from(trees))
    for _ in range(draw(st.integers(1, most))):
        tree = draw(changed_tree(tree))
    return tree


def json_bytes(tree: Any) -> bytes:
    """Plain data as one line of JSON."""
    return json.dumps(tree).encode()


def json_lines(tree: Any) -> bytes:
    """Plain data as lines of JSON, one for each element of a list."""
    return b"".join(json_bytes(line) + b"\n" for line in (tree if isinstance(tree, list) else [tree]))


def as_yaml(trees: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Plain data as YAML; mostly in the form of JSON, which is made ten times as fast."""
    dumped: Callable[[Any], bytes] = lambda tree: yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace")  # noqa: E731
    quick: Callable[[Any], bytes] = lambda tree: (  # noqa: E731
        json.dumps(tree).replace("Infinity", ".inf").replace("NaN", ".nan").encode()
    )
    return st.builds(lambda write, tree: write(tree), st.sampled_from((quick, quick, quick, quick, dumped)), trees)
