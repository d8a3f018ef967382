from __future__ import annotations

import time
from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.slices import Slice
from topos.torus import Extents, Torus

extents = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5))


@st.composite
def slices(draw: st.DrawFn) -> tuple[Torus, Slice]:
    """A torus and a slice inside it, in half of all cases along the whole of some dimension."""
    shape = draw(extents)
    block: Extents = tuple(n if draw(st.booleans()) else draw(st.integers(1, n)) for n in shape)  # type: ignore[assignment]
    origin = tuple(draw(st.integers(0, n - e)) for n, e in zip(shape, block, strict=True))
    server: Extents = tuple(draw(st.sampled_from([s for s in (1, 2, 3) if n % s == 0])) for n in shape)  # type: ignore[assignment]
    return Torus(shape, server), Slice(block, origin)  # type: ignore[arg-type]


def distance(torus: Torus, a: int, b: int) -> int:
    """Links on the shortest way, counted apart from the code under test."""
    pairs = zip(torus.places[a], torus.places[b], torus.shape, strict=True)
    return sum(min((p - q) % n, (q - p) % n) for p, q, n in pairs)


@given(slices())
def test_ring_visits_each_chip_once_by_single_links_and_closes_where_it_can(case: tuple[Torus, Slice]) -> None:
    torus, piece = case
    ring = piece.ring(torus)
    assert tuple(sorted(ring)) == piece.chips(torus) and len(ring) == piece.size == prod(piece.extents)
    assert all(distance(torus, a, b) == 1 for a, b in pairwise(ring))
    wide = [extent for extent in piece.extents if extent > 1]
    spans = any(e == n and e > 1 for e, n in zip(piece.extents, torus.shape, strict=True))
    closing = distance(torus, ring[-1], ring[0])
    if not wide:
        assert closing == 0
    elif spans or piece.size == 2 or (len(wide) > 1 and piece.size % 2 == 0):
        assert closing == 1
    elif len(wide) > 1:
        assert closing == 2  # an odd block has no ring: as on a chessboard
    else:
        along = torus.shape[piece.extents.index(piece.size)]
        assert closing == min(piece.size - 1, along - piece.size + 1)


@given(slices())
def test_ring_along_a_line_goes_from_end_to_end(case: tuple[Torus, Slice]) -> None:
    """So that the last hop runs back over the other direction of the links, and none carries two hops one way."""
    torus, piece = case
    wide = [d for d in range(3) if piece.extents[d] > 1]
    if len(wide) == 1:
        places = [torus.places[chip][wide[0]] for chip in piece.ring(torus)]
        assert places == list(range(places[0], places[0] + piece.size))


@given(slices())
def test_text_there_and_back(case: tuple[Torus, Slice]) -> None:
    torus, piece = case
    assert Slice.parse(str(piece)) == piece == Slice.parse(str(piece).replace(",", ":"))
    assert piece.fits(torus.shape)
    over = Slice(piece.extents, tuple(o + n for o, n in zip(piece.origin, torus.shape, strict=True)))  # type: ignore[arg-type]
    assert not over.fits(torus.shape)


def test_rings_of_the_paper_s_rack() -> None:
    torus = Torus((4, 4, 1), (2, 2, 1))
    assert Slice.parse("4x1@0,0").ring(torus) == (0, 1, 4, 5)  # once round the whole dimension
    assert Slice.parse("2x2@0,2").ring(torus) == (8, 9, 11, 10)
    assert Slice.parse("2x2@0,2").chips(torus) == (8, 9, 10, 11)
    assert Slice.parse("1x4@3,0").ring(torus) == (5, 7, 13, 15)


def visits(torus: Torus, ring: tuple[int, ...]) -> int:
    """How often the ring enters a server."""
    return sum(torus.server_of(a) != torus.server_of(b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


@pytest.mark.parametrize(
    ("shape", "server", "text", "entered"),
    [
        # whole servers in the rack of arXiv 2508.03674: all chips of one before the next
        ((4, 4, 4), (2, 2, 1), "4x4x4@0,0,0", 16),
        ((4, 4, 4), (2, 2, 1), "4x4x1@0,0,1", 4),
        ((4, 4, 4), (2, 2, 1), "4x4x2@0,0,2", 8),
        ((4, 4, 4), (2, 2, 1), "2x2x4@2,0,0", 4),
        ((4, 4, 4), (2, 2, 1), "2x2x2@0,0,0", 2),
        ((4, 4, 4), (2, 2, 1), "4x4x3@0,0,0", 12),
        ((4, 4, 4), (2, 2, 1), "2x2x3@0,0,0", 4),  # three servers in a line: the middle one on the way back as well
        ((4, 4, 4), (2, 2, 1), "4x4x4@1,1,1", 16),  # all the way round from inside a server
        ((9, 6, 1), (3, 3, 1), "9x6@0,0", 6),
        ((8, 8, 1), (4, 4, 1), "8x8@0,0", 4),
        ((6, 6, 1), (3, 3, 1), "6x6@0,0", 4),
    ],
)
def test_ring_enters_servers_as_seldom_as_it_can(shape: Extents, server: Extents, text: str, entered: int) -> None:
    torus = Torus(shape, server)
    begin = time.process_time()
    ring = Slice.parse(text).ring(torus)
    assert time.process_time() - begin < 1  # the longest takes a third of it; a search that runs wild takes minutes
    assert visits(torus, ring) == entered
    assert all(distance(torus, a, b) == 1 for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


def test_odd_block_without_a_ring() -> None:
    torus = Torus((4, 4, 1), (1, 1, 1))
    ring = Slice.parse("3x3@0,0").ring(torus)
    assert [torus.places[chip][:2] for chip in ring][-1] == (1, 1)
    assert Slice.parse("3x1@0,0").ring(torus) == (0, 1, 2)
