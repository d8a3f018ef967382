"""MSCCL XML for the tests beside: small programs from short places, and the files of other projects."""

from __future__ import annotations

from collections import Counter

from checkout import CASES

from workloads.formats.msccl_reader import read_msccl
from workloads.schedule import Schedule

Moves = Counter[tuple[int, int, int, str]]


def case(name: str) -> Schedule:
    return read_msccl(CASES / name)


def wires(made: Schedule, offset: list[int] | None = None) -> Moves:
    """The transfers on the wire; ``offset`` renumbers chunks."""
    return Counter((t.src, t.dst, offset[t.chunk] if offset else t.chunk, t.op) for t in made.transfers if not t.local)


def step(kind: str, src: str = "", dst: str = "", cnt: int = 1, dep: str = "", s: int | None = None) -> str:
    """A step from short places ("i3"), with a dependency "threadblock.step"."""
    places = "".join(f' {name}buf="{p[0]}" {name}off="{p[1:]}"' for name, p in (("src", src), ("dst", dst)) if p)
    block, number = dep.split(".") if dep else ("-1", "-1")
    name = "" if s is None else f' s="{s}"'
    return f'<step{name} type="{kind}"{places} cnt="{cnt}" depid="{block}" deps="{number}" hasdep="0"/>\n'


def tb(send: int, recv: int, *steps: str, number: int = 0, chan: int = 0) -> str:
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{"".join(steps)}</tb>\n'


def algo(coll: str, *gpus: str, chunks: int, inplace: int = 1, scratch: int = 4, more: str = "") -> str:
    body = "".join(f'<gpu id="{k}" s_chunks="{scratch}">\n{gpu}</gpu>\n' for k, gpu in enumerate(gpus))
    return (
        f'<algo name="own" proto="Simple" ngpus="{len(gpus)}" nchunksperloop="{chunks}" coll="{coll}" '
        f'inplace="{inplace}"{more}>\n{body}</algo>'
    )


def exchange(other: int) -> str:
    """An all-reduce of one chunk between two: both send, both add what comes."""
    return tb(other, other, step("s", "i0"), step("rrc", "i0", "i0"))


SWAP = algo("allreduce", exchange(1), exchange(0), chunks=1)
