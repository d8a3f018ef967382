from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import VerifyError
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.program import Collective, Compute, Group, Program, Recv, Send
from workloads.rank.flows import Flow, flow_names

flows = st.builds(Flow, st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.booleans())


@given(
    st.builds(Header, st.sampled_from(["data", "ready"]), flows, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
)
def test_a_header_comes_back_as_it_went(header: Header) -> None:
    packed = header.pack()
    assert len(packed) == HEADER_BYTES
    assert Header.unpack(packed) == header


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_other_bytes_are_refused_or_a_header(data: bytes) -> None:
    try:
        assert Header.unpack(data).pack()[:6] == data[:6]
    except VerifyError as error:
        assert "must begin with magic" in str(error)


def test_both_ends_give_a_communication_the_same_name() -> None:
    groups = {"dp": Group("dp", "dp", (0, 1)), "pp": Group("pp", "pp", (0, 1))}
    left = (
        Compute(0, "c", 1.0),
        Send(1, "s0", "pp", 1, 8),
        Collective(2, "a0", "all_reduce", "dp", 8),
        Send(3, "s1", "pp", 1, 8),
        Recv(4, "r0", "pp", 1, 8),
        Collective(5, "a1", "all_reduce", "dp", 8),
    )
    right = (
        Collective(0, "a0", "all_reduce", "dp", 8),
        Recv(1, "r0", "pp", 0, 8),
        Recv(2, "r1", "pp", 0, 8),
        Send(3, "s0", "pp", 0, 8),
        Collective(4, "a1", "all_reduce", "dp", 8),
    )
    program = Program("p", (left, right), groups)
    mine, other = flow_names(program, 0), flow_names(program, 1)
    assert [mine[i] for i in (1, 2, 3, 4, 5)] == [other[i] for i in (1, 0, 2, 3, 4)]
    assert mine[1] != mine[3] and mine[2] != mine[5] and mine[1] != mine[2]
    assert mine[1].at(4).step == 4
