"""A rank of a training script without torch: it makes the calls of a table over the rails and checks every result.

The same table gives the program (``program_of``). Values are small whole numbers, exact in every type.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.pytorch.rail_client import RailClient


@dataclass(frozen=True)
class Made:
    """One call of ``group``: ``count`` elements of a part or buffer, or a matrix of counts in an all-to-all.

    ``waits``: it is over before the next call is made. A send goes from the first to the second rank of its group.
    """

    kind: str
    group: str
    count: int = 0
    dtype: str = "float32"
    reduce: str = "sum"
    matrix: tuple[tuple[int, ...], ...] = ()
    algorithm: str = ""
    waits: bool = True


SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}


def program_of(made: list[Made], groups: dict[str, Group], world: int, schedules: Any = None) -> Program:
    """The program of the calls: each with a compute before it, and one at the end."""
    ranks: list[tuple[Operation, ...]] = []
    for rank in range(world):
        ops: list[Operation] = []
        for call in made:
            members = groups[call.group].members
            if rank not in members:
                continue
            ops.append(Compute(len(ops), "compute", 0.0))
            count = call.count * (1 if call.kind in ("all_reduce", "broadcast", "message") else len(members))
            number, name, after = len(ops), f"{call.kind}{len(ops)}", (len(ops) - 1,)
            size = max(count, 1) * SIZES[call.dtype]
            if call.kind == "message":
                kind = Send if rank == members[0] else Recv
                ops.append(kind(number, name, call.group, sum(members) - rank, size, after))
            else:
                ops.append(Collective(number, name, call.kind, call.group, size, after, call.algorithm))  # type: ignore[arg-type]
        ranks.append((*ops, Compute(len(ops), "end", 0.0)))
    return Program("driven", tuple(ranks), groups, schedules or {})


def write(file: Path, made: list[Made], groups: dict[str, Group], steps: int, **more: Any) -> None:
    members = {name: (group.members, group.domain) for name, group in groups.items()}
    file.write_text(json.dumps({"calls": [asdict(call) for call in made], "groups": members, "steps": steps, **more}))


def encoded(values: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def value(count: int, salt: int, rank: int) -> Any:
    return (3 * np.arange(count) + 5 * rank + 7 * salt) % 13


def expected(call: Made, members: list[int], rank: int, salt: int) -> tuple[Any, Any]:
    """What ``rank`` sends, and what it must receive."""
    me, n, count = members.index(rank), len(members), call.count
    own = value(count, salt, rank)
    if call.kind == "message":
        other = value(count, salt, members[0])
        return (own, own[:0]) if me == 0 else (own[:0], other)
    if call.kind == "broadcast":
        return own, value(count, salt, members[0])
    if call.kind in ("all_gather", "gather"):
        parts = np.concatenate([value(count, salt, m) for m in members])
        return own, parts if call.kind == "all_gather" or me == 0 else own[:0]
    if call.kind == "scatter":
        own, parts = value(count * n, salt, rank), value(count * n, salt, members[0])
        return own, parts[count * me : count * (me + 1)]
    if call.kind == "all_to_all":
        matrix = call.matrix or ((count,) * n,) * n
        pairs = [[value(matrix[i][j], salt + j, members[i]) for j in range(n)] for i in range(n)]
        return np.concatenate(pairs[me]), np.concatenate([pairs[i][me] for i in range(n)])
    whole = [value(count * (n if call.kind == "reduce_scatter" else 1), salt, m) for m in members]
    functions = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "product": np.multiply}
    reduced = functions[call.reduce].reduce(whole)
    if call.reduce == "avg":
        reduced = reduced / n if call.dtype.startswith(("float", "bfloat")) else reduced // n
    if call.kind == "reduce_scatter":
        reduced = reduced[count * me : count * (me + 1)]
    return whole[me], reduced if call.kind != "reduce" or me == 0 else reduced[:0]


def shifted(call: Made, step: int) -> Made:
    """The call of ``step``: the matrix of an uneven all-to-all is another in each."""
    turned = call.matrix[step % len(call.matrix) :] + call.matrix[: step % len(call.matrix)] if call.matrix else ()
    return Made(**{**asdict(call), "matrix": turned})


class Under:
    """A call under way."""

    def __init__(self, call: Made, receive: Any, want: Any, what: str) -> None:
        self.call, self.receive, self.want, self.what = call, receive, want, what
        self.over, self.error = threading.Event(), None

    def then(self, error: Any) -> None:
        self.error = error
        self.over.set()

    def check(self) -> None:
        assert self.over.wait(60), f"{self.what} does not end"
        if self.error is not None:
            raise self.error
        if not np.array_equal(self.receive, encoded(self.want, self.call.dtype)):
            print(f"{self.what} is wrong:", self.receive[:9], encoded(self.want, self.call.dtype)[:9], flush=True)
            sys.exit(3)


def main(path: str, rank: int, plan: dict[str, Any]) -> None:
    client = RailClient(path, 20)
    client.ready()
    mine = [(n, Made(**c)) for n, c in enumerate(plan["calls"]) if rank in plan["groups"][c["group"]][0]]
    costs = []
    for step in range(plan["steps"]):
        open_calls = []
        for number, (at, made) in enumerate(mine):
            if [rank, step, number] == plan.get("dies"):
                raise RuntimeError("this script fails on purpose")
            call = shifted(made, step)
            members, domain = plan["groups"][call.group]
            began = time.monotonic()
            if domain == "front-end":
                client.passed(number)
                client.over(number)
                costs.append(time.monotonic() - began)
                continue
            give, want = expected(call, members, rank, at + step)
            give = encoded(give, call.dtype)
            receive = np.zeros(len(want), dtype=give.dtype)
            if call.kind in ("all_reduce", "broadcast"):  # in place
                receive = give
            kind = call.kind if call.kind != "message" else "send" if rank == members[0] else "recv"
            sizes: dict[str, Any] = {}
            if call.matrix:
                me, size = members.index(rank), give.itemsize
                sizes = {"sent": [size * c for c in call.matrix[me]], "received": [size * r[me] for r in call.matrix]}
            under = Under(call, receive, want, f"rank {rank}, step {step}, call {number}, {call}")
            data = give.view(np.uint8).data, receive.view(np.uint8).data
            client.carry(number, kind, call.dtype, call.reduce, *data, under.then, **sizes)
            if receive is not give:
                give[:] = 1
            if call.waits:
                under.check()
            else:
                open_calls.append(under)
        for under in open_calls:
            under.check()
        client.step(step)
    client.bye()
    if costs:
        print(f"passed and over: {1e6 * float(np.median(costs)):.0f} us", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
