"""Parses the layer files of ASTRA-sim 1.0, and of AICB for SimAI, without their meaning for a run.

The first line names the parallelism and then ``key: value`` pairs (some writers omit the colon; DLRM has one bare
number, its last bottom layer); the second the number of layers; every other line is a layer of 12 columns, separated by
tabs or spaces: name, a reserved number, then compute time, collective and bytes of forward pass, input gradient and
weight gradient, and the time of an update. A collective of 0 bytes is none (AICB writes them). HYBRID_CUSTOMIZED has
the layer's own parallelism as a 13th.
Sources: ASTRA-sim 1.0 ``inputs/workload/README.md``; SimAI ``astra-sim/workload/Workload.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from railyard.errors import ConfigError
from railyard.reading import read_text
from workloads.formats.reading import MOST_MESSAGE_BYTES
from workloads.schedule import CollectiveKind

PARALLELISMS = (
    "DATA",
    "MODEL",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "HYBRID_DLRM",
    "MICRO",
    "HYBRID_CUSTOMIZED",
)
KINDS: dict[str, CollectiveKind] = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
Scope = Literal["", "EP", "DP_EP"]
SCOPES: tuple[Scope, ...] = ("DP_EP", "EP")
COLUMNS = 12
LAST_BOTTOM_LAYER = "DLRM_LAST_BOTTOM_LAYER"
MOST_BYTES = 4 << 20
MOST_LAYERS = 10_000
_MOST_NUMBER = 1 << 62


@dataclass(frozen=True)
class LayerPass:
    """One pass over a layer: compute time in the file's unit, then a collective (None: none) of ``bytes``.

    ``scope`` is the group in the name of the collective: expert-parallel, or data-parallel across experts.
    """

    compute: int
    kind: CollectiveKind | None
    scope: Scope
    bytes: int


@dataclass(frozen=True)
class Layer:
    """One line of a layer file. ``parallelism`` is its own in HYBRID_CUSTOMIZED, else that of the file."""

    name: str
    line: int
    forward: LayerPass
    input_grad: LayerPass
    weight_grad: LayerPass
    update: int
    parallelism: str

    @property
    def parts(self) -> tuple[LayerPass, LayerPass, LayerPass]:
        """Forward pass, input gradient, weight gradient."""
        return self.forward, self.input_grad, self.weight_grad


@dataclass(frozen=True)
class LayerFile:
    """A layer file; ``header`` has the numbers of its first line, ``lists`` the layers that a key counts and names."""

    source: str
    parallelism: str
    layers: tuple[Layer, ...]
    header: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def read_layer_file(path: Path) -> LayerFile:
    return parse_layers(read_text(path, MOST_BYTES, "a layer file"), str(path))


def parse_layers(text: str, source: str) -> LayerFile:
    lines = text.replace("\r\n", "\n").split("\n")
    header = lines[0].split()
    if not header or header[0] not in PARALLELISMS:
        start = repr(header[0][:40]) if header else "nothing"
        raise ConfigError(
            f"starts with {start}; a layer file starts with one of {', '.join(PARALLELISMS)}", source=f"{source}:1"
        )
    numbers, lists = _header(header[0], header[1:], f"{source}:1")
    count_words = lines[1].split() if len(lines) > 1 else []
    count = _number(count_words[0] if count_words else "", "the number of layers", f"{source}:2")
    if len(count_words) > 1:
        raise ConfigError(
            f"has {len(count_words)} words; the second line is the number of layers", source=f"{source}:2"
        )
    if not 1 <= count <= MOST_LAYERS:
        raise ConfigError(f"says {count} layers; it must be 1 to {MOST_LAYERS}", source=f"{source}:2")
    filled = [(number, line) for number, line in enumerate(lines[2:], start=3) if line and not line.isspace()]
    if len(filled) != count:
        raise ConfigError(
            f"says {count} layers, but {len(filled)} lines follow; both must be equal", source=f"{source}:2"
        )
    layers = tuple(_layer(line.split(), header[0], number, source) for number, line in filled)
    for key, wanted in lists.items():
        for layer in wanted:
            if layer >= count:
                raise ConfigError(f"{key} names layer {layer}; layers are 0 to {count - 1}", source=f"{source}:1")
    return LayerFile(source, header[0], layers, numbers, lists)


def _header(parallelism: str, words: list[str], source: str) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Parse ``key: 8``, ``key 8`` and ``checkpoints: 2 0 7`` (a count, then layers) of the first line."""
    numbers: dict[str, int] = {}
    lists: dict[str, tuple[int, ...]] = {}
    if parallelism == "HYBRID_DLRM" and words and words[0].isdecimal():
        numbers[LAST_BOTTOM_LAYER] = _number(words[0], LAST_BOTTOM_LAYER, source)
        words = words[1:]
    at = 0
    while at < len(words):
        key = words[at].rstrip(":")
        if not key or _is_number(key):
            raise ConfigError(f"{words[at]!r} is not a key such as model_parallel_NPU_group: 8", source=source)
        if key in numbers:
            raise ConfigError(f"{key} appears twice", source=source)
        numbers[key] = _number(words[at + 1] if at + 1 < len(words) else "", key, source)
        at += 2
        if key in ("checkpoints", "checkpoint_initiates"):
            wanted = words[at : at + numbers[key]]
            if len(wanted) < numbers[key]:
                raise ConfigError(f"{key} counts {numbers[key]} layers and names {len(wanted)}", source=source)
            lists[key] = tuple(_number(word, f"a layer of {key}", source) for word in wanted)
            at += numbers[key]
    return numbers, lists


def _layer(words: list[str], parallelism: str, line: int, source: str) -> Layer:
    place = f"{source}:{line}"
    columns = COLUMNS + (parallelism == "HYBRID_CUSTOMIZED")
    if len(words) != columns:
        raise ConfigError(f"has {len(words)} columns; a layer of {parallelism} has {columns}", source=place)
    own = words[COLUMNS] if len(words) > COLUMNS else parallelism
    if own not in PARALLELISMS or (own != parallelism and own in ("MICRO", "HYBRID_CUSTOMIZED", "HYBRID_DLRM")):
        raise ConfigError(f"has {own[:40]!r} as its parallelism, which a single layer cannot have", source=place)
    update = _number(words[11], "the update time", place)
    forward, input_grad, weight_grad = (
        _part(words[at : at + 3], what, place)
        for at, what in ((2, "forward"), (5, "input-gradient"), (8, "weight-gradient"))
    )
    return Layer(words[0], line, forward, input_grad, weight_grad, update, own)


def _part(words: list[str], what: str, source: str) -> LayerPass:
    kind, scope = _collective(words[1], what, source)
    compute = _number(words[0], f"the {what} compute time", source)
    size = _number(words[2], f"the {what} bytes", source)
    if size > MOST_MESSAGE_BYTES:
        raise ConfigError(f"the {what} collective has {size} bytes; at most {MOST_MESSAGE_BYTES} go", source=source)
    return LayerPass(compute, kind if size else None, scope, size if kind else 0)


def _collective(word: str, what: str, source: str) -> tuple[CollectiveKind | None, Scope]:
    if word == "NONE":
        return None, ""
    scope: Scope = next((scope for scope in SCOPES if word.endswith(f"_{scope}")), "")
    name = word.removesuffix(f"_{scope}") if scope else word
    if name not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(
            f"{word[:40]!r} is not a {what} collective; known are NONE, {known}, also with the suffix _EP or _DP_EP",
            source=source,
        )
    return KINDS[name], scope


def _is_number(word: str) -> bool:
    return word.lstrip("+-").replace(".", "", 1).isdecimal()


def _number(word: str, what: str, source: str) -> int:
    """Parse a whole number of 0 or more; ``4096.0`` is one."""
    whole, point, rest = word.partition(".")
    if whole.isascii() and whole.isdecimal() and len(whole) <= 20 and (not point or not rest.strip("0")):
        value = int(whole)
        if value <= _MOST_NUMBER:
            return value
    shown = repr(word[:40]) if word else "missing"
    raise ConfigError(f"{what} is {shown}; it must be a whole number of 0 or more", source=source)
