from __future__ import annotations

from dataclasses import replace

import pytest

from railyard.errors import ConfigError
from workloads.check import check
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.schedule import Schedule

PAIR = {"pair": Group("pair", "pp", (0, 1)), "other": Group("other", "dp", (0, 1))}


def program(*ranks: tuple[Operation, ...], groups: dict[str, Group] | None = None) -> Program:
    """A program on all of these ranks; ``PAIR`` are its groups if it has more than one."""
    return Program("x", ranks, groups or (PAIR if len(ranks) > 1 else {}))


def send(id_: int, size: int = 8, deps: tuple[int, ...] = ()) -> Send:
    return Send(id_, f"send{id_}", "pair", 1, size, deps)


def recv(id_: int, size: int = 8, deps: tuple[int, ...] = ()) -> Recv:
    return Recv(id_, f"recv{id_}", "pair", 0, size, deps)


def ring(id_: int, size: int = 8, group: str = "pair", deps: tuple[int, ...] = ()) -> Collective:
    return Collective(id_, f"ring{id_}", "all_reduce", group, size, deps)


def test_good_programs_pass() -> None:
    check(program((send(0), Compute(1, "c", 0.0, (0,))), (recv(0),)))
    check(program((ring(0), ring(1, 16)), (ring(0), ring(1, 16))))
    crossing = (send(0), Recv(1, "r", "pair", 1, 8)), (Send(0, "s", "pair", 0, 8), recv(1))
    check(program(*crossing))


BAD: dict[str, tuple[Program, str]] = {
    "member": (program((), groups={"g": Group("g", "dp", (0, 1))}), "group g has member 1; ranks are 0 to 0"),
    "twice": (program((), groups={"g": Group("g", "dp", (0, 0))}), "none twice"),
    "misnamed": (program((), groups={"g": Group("h", "dp", (0,))}), "group g contains the name h"),
    "infinite": (program((Compute(0, "c", float("inf")),)), "must be 0 or more, and finite"),
    "late": (program((Compute(0, "c", 1.0, late=(0.5, -1.0)),)), "is late by -1.0 s; it must be 0 or more"),
    "late for ever": (program((Compute(0, "c", 1.0, late=(float("nan"),)),)), "is late by nan s"),
    "no group": (program((ring(0, group="ring"),), ()), r"rank 0, operation 0 \(ring0\) uses group ring, which does"),
    "not a member": (
        program((), (ring(0, group="g"),), groups={"g": Group("g", "dp", (0,))}),
        "rank 1 is not a member",
    ),
    "ids": (program((Compute(1, "c", 1.0),)), "ids must be the positions"),
    "dep": (program((Compute(0, "c", 1.0, (1,)), Compute(1, "d", 1.0))), r"operation 0 \(c\) depends on operation 1"),
    "time": (program((Compute(0, "c", -1.0),)), "must be 0 or more"),
    "bytes": (program((send(0, 0),), (recv(0, 0),)), "at least 1"),
    "peer": (program((Send(0, "s", "pair", 0, 8),), ()), "names peer 0; it must be another member"),
    "unequal": (program((send(0, 8),), (recv(0, 9),)), r"rank 1, operation 0 \(recv0\) expects 9 bytes, but rank 0"),
    "no receive": (program((send(0),), ()), "has no receive on rank 1"),
    "no send": (program((), (recv(0),)), "has no send on rank 0"),
    "other size": (program((ring(0, 8),), (ring(0, 9),)), "all_reduce of 9 bytes in group pair, where rank 0 runs"),
    "missing": (program((ring(0), ring(1)), (ring(0),)), r"rank 0, operation 1 \(ring1\) has no counterpart on rank 1"),
    "crossing": (
        program((send(0), Recv(1, "r", "pair", 1, 8, (0,))), (Send(0, "s", "pair", 0, 8), recv(1, deps=(0,)))),
        r"rank 0, operation 0 \(send0\) never starts",
    ),
    "deadlock": (
        program((ring(0), ring(1, group="other", deps=(0,))), (ring(0, group="other"), ring(1, deps=(0,)))),
        r"rank 0, operation 0 \(ring0\) never starts",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_programs_are_refused_by_name(name: str) -> None:
    wrong, sentence = BAD[name]
    with pytest.raises(ConfigError, match=sentence):
        check(wrong)


def own(schedules: dict[str, Schedule], algorithm: str = "mine") -> Program:
    op = Collective(0, "own", "all_reduce", "pair", 8, algorithm=algorithm)
    return Program("x", ((op,), (op,)), PAIR, schedules)


def test_schedules_of_its_own() -> None:
    good = schedule("all_reduce", 2, "ring")
    check(own({"mine": good}))
    broken = replace(good, transfers=good.transfers[:-1])
    with pytest.raises(ConfigError, match=r"program x: schedule mine is wrong: .* ends without the contribution"):
        check(own({"mine": broken}))
    with pytest.raises(ConfigError, match=r"all_reduce over the 2 members of pair, .* mine is all_gather over 2"):
        check(own({"mine": schedule("all_gather", 2, "ring")}))
    with pytest.raises(ConfigError, match=r"all_reduce over the 2 members of pair, .* mine is all_reduce over 4"):
        check(own({"mine": schedule("all_reduce", 4, "ring")}))


def test_members_run_the_same_algorithm() -> None:
    ranks = [(Collective(0, "a", "all_reduce", "pair", 8, algorithm=name),) for name in ("ring", "tree")]
    with pytest.raises(ConfigError, match=r"all_reduce of 8 bytes by tree in group pair, where rank 0 .* by ring"):
        check(program(*ranks))


def test_eager_sends_do_not_wait_for_their_receive() -> None:
    crossing = (
        (send(0), Recv(1, "r", "pair", 1, 8, (0,))),
        (Send(0, "s", "pair", 0, 8), recv(1, deps=(0,))),
    )
    check(replace(program(*crossing), eager=True))
    received_first = ((Recv(0, "r", "pair", 1, 8), send(1, deps=(0,))), (recv(0), Send(1, "s", "pair", 0, 8, (0,))))
    with pytest.raises(ConfigError, match="never starts"):
        check(replace(program(*received_first), eager=True))
