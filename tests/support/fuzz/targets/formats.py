"""Workload files of other tools: layer files, MSCCL XML, Chakra traces, recipes, gaps of stragglers, demands."""

from __future__ import annotations

from pathlib import Path
from random import Random

import yaml

from experiments.all_to_all.demand import read_demand
from fuzz.mutation import mutated_tree, number, yaml_text
from fuzz.target import Target
from railyard.errors import ConfigError, VerifyError
from workloads.catalog import CATALOG, load_workload
from workloads.collectives.catalog import schedule
from workloads.formats.layer_text import KINDS, PARALLELISMS
from workloads.formats.msccl_algo import SENDS
from workloads.formats.msccl_reader import parse_msccl
from workloads.formats.msccl_writer import write_msccl
from workloads.inspection import inspect_file
from workloads.stragglers.injection import INJECTIONS, parse_injection

DATA = Path(__file__).parents[3] / "data"
_RANK = b"--next rank--"
"""Between the trace files of two ranks in one input."""


def _show(data: bytes, path: Path, **options: object) -> None:
    path.write_bytes(data)
    inspect_file(str(path), **options)  # type: ignore[arg-type]


def _layers(data: bytes, folder: Path) -> None:
    _show(data, folder / "layers.txt")
    load_workload(str(folder / "layers.txt"), compute_unit="ns", ranks=None if b"all_gpus" in data else 8)


def _msccl(data: bytes, folder: Path) -> None:
    _show(data, folder / "algorithm.xml")


def _written(data: bytes, folder: Path) -> None:
    """What the reader takes the writer writes, and the reader takes that."""
    made = parse_msccl(data.decode("utf-8", "replace"), "algorithm.xml")
    again = parse_msccl(write_msccl(made), "again.xml")
    if (again.kind, again.n, again.chunks) != (made.kind, made.n, made.chunks):
        raise AssertionError(f"{made.title} of {made.chunks} chunks came back as {again.title} of {again.chunks}")


def _chakra(data: bytes, folder: Path) -> None:
    for rank, trace in enumerate(data.split(_RANK)):
        (folder / f"trace.{rank}.et").write_bytes(trace)
    inspect_file(str(folder / "trace"))


def _any_file(data: bytes, folder: Path) -> None:
    _show(data, folder / "workload")


def _recipe(data: bytes, folder: Path) -> None:
    _show(data, folder / "recipe.yaml")


def _injection(data: bytes, folder: Path) -> None:
    parse_injection(data.decode("utf-8", "surrogateescape")).delays(8, 10, 3, 1)


def _gaps(data: bytes, folder: Path) -> None:
    path = folder / ("gaps.json" if data[:1] == b"{" else "gaps.txt")
    path.write_bytes(data)
    parse_injection(f"replay:{path}{'' if data[:1] == b'{' else ',unit=ms'}").delays(8, 10, 3, 1)


def _demand(data: bytes, folder: Path) -> None:
    (folder / "demand.csv").write_bytes(data)
    read_demand(str(folder / "demand.csv"), 3, 4096.0, 1)


# ---- inputs by the grammars ----------------------------------------------------------------------------------------


def _layer_text(chance: Random) -> bytes:
    """A layer file of a few layers whose header is not trusted to fit them."""
    parallelism, count = chance.choice(PARALLELISMS), chance.choice((1, 2, 3, 5, 40, 400))
    keys = ("all_gpus", "model_parallel_NPU_group", "pp", "ep", "vpp", "DLRM_LAST_BOTTOM_LAYER")
    header = [parallelism, *(f"{key}: {number(chance)}" for key in keys if chance.random() < 0.6)]
    for key in ("checkpoints", "checkpoint_initiates"):
        if chance.random() < 0.4:
            some = range(count) if chance.random() < 0.3 else [chance.randrange(count)] * chance.randrange(1, 4)
            header.append(f"{key}: {len(some)} {' '.join(map(str, some))}")
    words = ["NONE", *KINDS, "ALLTOALL_EP", "ALLGATHER_DP_EP"]
    part = [f"{chance.randrange(100)} {chance.choice(words)} {number(chance)}" for _ in range(3)]
    line = f"layer -1 {' '.join(part)} {chance.randrange(9)}"
    line += f" {chance.choice(PARALLELISMS)}" if parallelism == "HYBRID_CUSTOMIZED" else ""
    return "\n".join([" ".join(header), str(count), *[line] * count]).encode()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(place: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(place << 3) + _varint(value % (1 << 64))
    return _varint(place << 3 | 2) + _varint(len(value)) + value


def _framed(message: bytes) -> bytes:
    return _varint(len(message)) + message


def _node(chance: Random, id_: int, ranks: int) -> bytes:
    kind = chance.choice((1, 4, 4, 5, 6, 7, 7))
    fields = _field(1, id_) + _field(2, b"n") + _field(3, kind)
    fields += b"".join(_field(chance.choice((4, 5)), chance.randrange(id_)) for _ in range(chance.randrange(3)) if id_)
    fields += _field(7, chance.choice((0, 5, 100)))
    attributes = {5: ("comm_dst", "comm_size", "comm_tag"), 6: ("comm_src", "comm_size", "comm_tag")}
    for name in attributes.get(kind, ("comm_size", "comm_type", "num_ops", "runtime", "root_rank")):
        if chance.random() < 0.85:
            value = chance.randrange(ranks) if name != "comm_size" else chance.choice((4, 1024, 1 << 20))
            fields += _field(10, _field(1, name.encode()) + _field(chance.choice((9, 13)), value))
    if kind == 7 and chance.random() < 0.3:
        fields += _field(10, _field(1, b"comm_group") + _field(12, _field(1, chance.randrange(ranks)) * 2))
    return fields


def _traces(chance: Random) -> bytes:
    """Traces of two ranks, the second often like the first, so that collectives agree."""
    ranks, count = 2, chance.choice((1, 3, 10, 60))
    nodes = [_node(chance, id_, ranks) for id_ in range(count)]
    others = nodes if chance.random() < 0.6 else [_node(chance, id_, ranks) for id_ in range(count)]
    return _RANK.join(
        _framed(_field(1, b"0.0.4")) + b"".join(map(_framed, each)) for each in (nodes, others)
    )  # fmt: skip


def _recipe_text(chance: Random) -> bytes:
    tree = {"name": "own", **chance.choice(list(CATALOG.values()))}
    for _ in range(chance.randrange(1, 4)):
        tree = mutated_tree(chance, tree)
    return yaml_text(chance, tree)


def targets() -> list[Target]:
    """The targets of this module."""
    text, aicb = DATA / "astra-sim" / "text", DATA / "aicb"
    layers = [path.read_bytes() for path in sorted((*text.glob("*.txt"), *aicb.glob("*.txt")))]
    made = schedule("all_reduce", 2), schedule("all_gather", 4), schedule("all_to_all", 3, "direct")
    xml = [write_msccl(each).encode() for each in made]
    xml.append((DATA / "msccl-scheduler" / "ag-1k-512k.xml").read_bytes())
    small = sorted((DATA / "astra-sim" / "all_reduce_4npus_1MB").glob("*.et"))
    traces = [_RANK.join(path.read_bytes() for path in small), _pair_of_messages()]
    recipes = [yaml.safe_dump({"name": name, **entry}).encode() for name, entry in CATALOG.items()]
    keys = [b"all_gpus: ", b"checkpoints: ", b"checkpoint_initiates: ", b"pp: ", b"ep: ", b"DLRM_LAST_BOTTOM_LAYER: "]
    both = (ConfigError, VerifyError)
    gaps = [b'{"gaps_ms": [1, 2.5, 7]}', b"1\n2.5\n# three\n7\n"]
    demand = [b"0,1,2\n3,0,4\n5,6,0\n"]
    words = [*map(str.encode, (*SENDS, "r", "rrc", "re", "cpy", "nop", "scratch", "i", "o", "s")), b'cnt="2097151"']
    return [
        Target("layers", _layers, layers, words=[*keys, *map(str.encode, (*PARALLELISMS, *KINDS))], make=_layer_text),
        Target("msccl", _msccl, xml, both, words=words),
        Target("msccl-written", _written, xml, both, words=words, weight=0.5),
        Target("chakra", _chakra, traces, words=[_RANK, b"comm_group", b"comm_size", b"pg_name"], make=_traces),
        Target("any-file", _any_file, [*layers[:2], *xml[:1]], both, weight=0.5),
        Target("recipe", _recipe, recipes, make=_recipe_text, weight=0.2),
        Target("injection", _injection, [each.encode() for each in INJECTIONS.values() if "replay" not in each]),
        Target("gaps", _gaps, gaps, weight=0.5),
        Target("demand", _demand, demand, weight=0.5),
    ]


def _pair_of_messages() -> bytes:
    """Traces of two ranks that send each other a message."""

    def attribute(name: str, value: int) -> bytes:
        return _field(10, _field(1, name.encode()) + _field(13, value))

    def trace(peer: int) -> bytes:
        send = _field(1, 1) + _field(3, 5) + attribute("comm_dst", peer) + attribute("comm_size", 1024)
        take = _field(1, 2) + _field(3, 6) + attribute("comm_src", peer) + attribute("comm_size", 1024) + _field(5, 1)
        return _framed(_field(1, b"0.0.4")) + _framed(send) + _framed(take)

    return trace(1) + _RANK + trace(0)
