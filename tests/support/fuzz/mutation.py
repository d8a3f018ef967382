"""Changes of inputs: of bits, bytes and spans, of numbers and words in text, and of trees of plain data."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import yaml

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
    *(
        "a" * 200,
        "a" * 20_000,
        "[" * 5000,
        "{" * 5000,
        '{"a":' * 3000,
        "(" * 300,
        "\\",
        "\x00",
        "\ufeff",
        "é",
        "\u2028",
        "\\ud800",
    ),
    *("%s", "%n", "{0}", "../../etc/passwd", "/dev/null", ".", "..", "/", "-", "--", "=", ",", ",,", ":", ";", "a,b"),
    *(
        "*",
        "&a [*a, *a]",
        "<<",
        "!!python/object:os.system",
        "<!DOCTYPE a>",
        "&lt;",
        "<!--",
        "]]>",
        "'",
        '"',
        "#",
        "\r",
    ),
)
_WORD = re.compile(rb"[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_STRUCTS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")
_WINDOW = 512


def mutated(chance: Random, data: bytes, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """``data`` with one or more changes; parts of ``seeds`` and ``words`` may get into it."""
    for _ in range(min(1 + int(chance.expovariate(0.6)), 8)):
        change = chance.choice(_CHANGES)
        data = change(chance, data, chance.choice(seeds), words)[:MOST_BYTES]
    return data


def _span(chance: Random, data: bytes, most: int = _WINDOW) -> tuple[int, int]:
    """Start and end of a piece of ``data``, more often of a short one."""
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + int(chance.expovariate(4 / most)) + 1)


def _flip(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x00"
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _overwrite(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    """Bytes at random, or one of ``NUMBERS`` in a machine's layout."""
    at = chance.randrange(len(data) + 1)
    new = chance.randbytes(chance.randrange(1, 9))
    if chance.random() < 0.7:
        layout = chance.choice(_STRUCTS)
        new = struct.pack(layout, chance.choice(NUMBERS) % (1 << 8 * struct.calcsize(layout)))
    return data[:at] + new + data[at + len(new) :]


def _insert(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    new = chance.randbytes(chance.randrange(1, 9))
    if chance.random() < 0.7:
        new = chance.choice(words) if words and chance.random() < 0.6 else chance.choice(TEXTS).encode()
    return data[:at] + new + data[at:]


def _delete(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(chance, data)
    return data[:start] + data[end:]


def _repeat(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(chance, data)
    piece = data[start:end]
    times = min(int(chance.paretovariate(0.8)), MOST_BYTES // max(len(piece), 1))
    return data[:end] + piece * times + data[end:]


def _splice(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(chance, data)
    first, last = _span(chance, other)
    return data[:start] + other[first:last] + data[end if chance.random() < 0.5 else start :]


def _cut(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] if chance.random() < 0.8 else data[at:]


def _line(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    """A line less, more, elsewhere, or one of another input."""
    lines = data.split(b"\n")
    line = lines[chance.randrange(len(lines))]
    if chance.random() < 0.4:
        lines.remove(line)
    if chance.random() < 0.3:
        line = chance.choice(other.split(b"\n"))
    at = chance.randrange(len(lines) + 1)
    times = min(int(chance.paretovariate(0.8)), MOST_BYTES // max(len(line), 1))
    return b"\n".join([*lines[:at], *[line] * times, *lines[at:]])


def _found(chance: Random, data: bytes, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """A match of ``pattern`` somewhere in ``data``."""
    start = max(0, chance.randrange(len(data) + 1) - _WINDOW // 2)
    matches = list(pattern.finditer(data, start, start + _WINDOW))
    return chance.choice(matches) if matches else None


def _number(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    """Another number in the place of one in text."""
    found = _found(chance, data, _NUMBER)
    if found is None:
        return data
    new = number(chance)
    if chance.random() < 0.3 and b"." not in found[0] and len(found[0]) < 20:
        new = int(found[0]) + chance.choice((-1, 1, 2, 10))
    return data[: found.start()] + str(new).encode() + data[found.end() :]


def _word(chance: Random, data: bytes, other: bytes, words: Sequence[bytes]) -> bytes:
    """Another word in the place of one: of this input, of another, of ``words`` or of ``TEXTS``."""
    found = _found(chance, data, _WORD)
    if found is None:
        return data
    source = chance.random()
    if source < 0.4:
        match = _found(chance, other if source < 0.2 else data, _WORD)
        new = match[0] if match else b""
    elif source < 0.8 and words:
        new = chance.choice(words)
    else:
        new = chance.choice(TEXTS).encode()
    return data[: found.start()] + new + data[found.end() :]


_CHANGES: tuple[Callable[[Random, bytes, bytes, Sequence[bytes]], bytes], ...] = (
    *(_flip, _overwrite, _insert, _delete, _repeat, _splice, _cut, _line, _number, _number, _number, _word, _word),
)


def number(chance: Random) -> int | float:
    """A number with which readers have trouble, or a small one."""
    draw = chance.random()
    if draw < 0.4:
        return chance.choice(NUMBERS)
    return chance.choice(FRACTIONS) if draw < 0.6 else chance.randrange(20)


def value(chance: Random, depth: int = 2) -> Any:
    """Plain data of any kind."""
    draw = chance.random()
    if draw < 0.4:
        return number(chance)
    if draw < 0.6:
        return chance.choice(TEXTS)
    if draw < 0.75 or not depth:
        return chance.choice((None, True, False, [], {}))
    inner = [value(chance, depth - 1) for _ in range(chance.choice((1, 1, 2, 3, 300)))]
    return inner if draw < 0.9 else {str(chance.choice(TEXTS)): each for each in inner}


def yaml_text(chance: Random, tree: Any) -> bytes:
    """Plain data as YAML; mostly in the form of JSON, which is made ten times as fast."""
    if chance.random() < 0.2:
        return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace")
    return json.dumps(tree).replace("Infinity", ".inf").replace("NaN", ".nan").encode()


def mutated_tree(chance: Random, tree: Any) -> Any:
    """Plain data such as ``tree`` with one value, key or part of a list changed."""
    if isinstance(tree, dict) and tree and chance.random() < 0.85:
        key = chance.choice(list(tree))
        draw = chance.random()
        if draw < 0.1:
            return {name: each for name, each in tree.items() if name != key}
        if draw < 0.15:
            return {**tree, chance.choice(TEXTS): value(chance)}
        return {**tree, key: mutated_tree(chance, tree[key])}
    if isinstance(tree, list) and tree and chance.random() < 0.8:
        at = chance.randrange(len(tree))
        draw = chance.random()
        if draw < 0.15:
            return tree[:at] + tree[at + 1 :]
        if draw < 0.4:
            return tree[:at] + [tree[at]] * min(int(chance.paretovariate(0.7)), 5000) + tree[at:]
        return [*tree[:at], mutated_tree(chance, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, int) and not isinstance(tree, bool) and chance.random() < 0.3:
        return tree + chance.choice((-1, 1, 2, 7))
    return value(chance)
