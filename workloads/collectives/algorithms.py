"""Collective algorithms for any number of positions: all-to-alls, rings, direct, halving and doubling, trees,
hierarchical.

All-to-alls: every position has data for every other, n x n x k chunks in all. Chunk (i x n + j) x k + m is piece m of
the data from position i to position j. The schedules differ in the way that a chunk takes: straight, over one other
position, or hop by hop along a ring or a line.

Ring: the positions form a ring. Clockwise chunks travel from position i to i + 1 on lane 0. The bidirectional ring has
twice as many chunks; its second half travels from i to i - 1 on lane 1, so that both ports of a GPU work both ways.
With L lanes there are n x L chunks: those of lane 2k travel clockwise, those of lane 2k + 1 the other way, each lane on
a circuit of its own where a hop has several (``workloads.rank.paths.choose_path``). Every position sends (n - 1) / n of
the buffer (twice that for an all-reduce), which is optimal. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", JPDC 2009.

Direct: all data goes straight to its destination, in one round (two for ``allpairs``). There are few latencies, but
each position sends to all others through the same port: n - 1 times the bytes of one transfer. For small buffers, and
for networks with a path between any two positions. Source: the one-shot all-reduce of NVIDIA's TensorRT-LLM and of
MSCCL++; allpairs of MSCCL.

Halving and doubling: log2 n rounds between positions whose numbers differ in one bit. Halving is a reduce-scatter (half
the buffer to the farthest partner, then a quarter, ...), doubling an all-gather (the same backwards); one after the
other they are an all-reduce that sends as little as a ring, in 2 log2 n rounds. Doubling with the whole buffer in each
round is the all-reduce with the fewest rounds, for small buffers. Where n is not a power of two, each position from p =
2^k on first adds its data to position - p, and receives its part of the result from there at the end: two more rounds.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.

Trees: binomial for scalars, and the double binary tree for large all-reduces. A tree needs a path between any two
positions, so it is for electrical networks (the front-end), not for rings of circuits.

Hierarchical: inside each server first, then along the rails, then inside each server again. Position p is GPU p mod g
of server p // g, for g GPUs in a server. The server's GPUs reduce-scatter over the scale-up network, so that GPU l has
shard l of the server's sum; the GPUs l of all servers all-reduce that shard on a ring along rail l; the server's GPUs
gather the shards. A rail carries 1 / g of the buffer. Source: Goyal et al., "Accurate, large minibatch SGD", 2017; Cho
et al., "BlueConnect", MLSys 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from railyard.errors import ConfigError
from workloads.schedule import CollectiveKind, Schedule, Transfer


def pairwise_all_to_all(n: int) -> Schedule:
    """Pairwise exchange in n - 1 rounds: each position exchanges data with one other in each round.

    For a power of two the partner in round r is the position whose number differs by the bits of r, so each round is a
    matching. Otherwise a position sends to the position r after it and receives from the position r before it.
    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
    """
    power = n & (n - 1) == 0
    transfers = [
        Transfer(r - 1, src, dst, src * n + dst, "copy")
        for r in range(1, n)
        for src in range(n)
        for dst in (src ^ r if power else (src + r) % n,)
    ]
    return _all_to_all("pairwise", n, transfers, one_port=True)


def straight_all_to_all(n: int, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all in one round, in which no transfer waits for another.

    For circuits that come in slots (``controllers.circuits.rotation``): a transfer may go as soon as its circuit is up.
    Each position sends to the next position first. ``weights[i][j]``: amount of data of that pair relative to other
    pairs; pairs of weight 0 send nothing. Raises ``ConfigError`` for an invalid matrix.
    """
    sizes = _chunk_weights(n, 1, weights)
    transfers = [
        Transfer(0, src, chunk % n, chunk, "copy")
        for offset in range(1, n)
        for src in range(n)
        for chunk in (src * n + (src + offset) % n,)
        if not sizes or sizes[chunk]
    ]
    return _all_to_all("straight", n, transfers, weights=sizes)


def bidirectional_direct_all_to_all(n: int) -> Schedule:
    """The all-to-all of n x n x 2 chunks in one round, through both ports of a GPU.

    Data for positions less than n / 2 ahead goes by lane 0, for those less than n / 2 behind by lane 1, and for the one
    opposite (n even) half by each, so that both ports carry the same number of bytes.
    """
    transfers = [
        Transfer(0, src, (src + offset) % n, (src * n + (src + offset) % n) * 2 + half, "copy", lane)
        for offset in range(1, n)
        for src in range(n)
        for half in (0, 1)
        for lane in (half if 2 * offset == n else int(2 * offset > n),)
    ]
    return _all_to_all("bidirectional-direct", n, transfers, pieces=2)


def valiant_all_to_all(n: int, weights: Sequence[Sequence[int]] | None = None) -> Schedule:
    """The all-to-all of n x n x (n - 1) chunks in two rounds: the data of each position is spread over all others.

    Piece m of the data of position i goes to position i + 1 + m (modulo n) in the first round and from there to its
    destination in the second, unless that is the position itself. Each circuit then carries about the same amount
    whatever the demand, so slots that do not follow the demand (``controllers.policies.rotor``) are used evenly; in
    exchange, nearly all data crosses the fabric twice. ``weights`` as in ``straight_all_to_all``.
    Source: Valiant and Brebner, "Universal schemes for parallel communication", STOC 1981; RotorNet, SIGCOMM'17.
    """
    pieces = max(1, n - 1)
    sizes = _chunk_weights(n, pieces, weights)
    transfers: list[Transfer] = []
    for m in range(n - 1):
        for src in range(n):
            middle = (src + 1 + m) % n
            for dst in ((middle + offset) % n for offset in range(n)):
                chunk = (src * n + dst) * pieces + m
                if dst == src or (sizes and not sizes[chunk]):
                    continue
                transfers.append(Transfer(0, src, middle, chunk, "copy"))
                if middle != dst:
                    transfers.append(Transfer(1, middle, dst, chunk, "copy"))
    return _all_to_all("valiant", n, transfers, pieces=pieces, weights=sizes)


def ring_all_to_all(n: int, *, bidirectional: bool = False) -> Schedule:
    """The all-to-all of n x n chunks on a ring, hop by hop.

    Chunks go clockwise on lane 0. When bidirectional, each chunk takes the shorter direction (counter-clockwise on lane
    1); the farthest ones, where both are equal, go clockwise from even positions and counter-clockwise from odd ones.
    Each link carries n (n - 1) / 2 chunks on one ring, n^2 / 8 (n even) each way on two.
    """

    def hops(src: int, dst: int) -> int:
        distance = (dst - src) % n
        back = bidirectional and (2 * distance > n or (2 * distance == n and src % 2))
        return distance - n if back else distance

    return _hop_by_hop("bidirectional-ring" if bidirectional else "ring", n, hops, one_port=not bidirectional)


def line_all_to_all(n: int) -> Schedule:
    """The all-to-all of n x n chunks on a line, position i joined to i - 1 and i + 1, hop by hop.

    Upwards on lane 0, downwards on lane 1, like the two directions of a bidirectional ring; up to n^2 / 4 chunks each
    way at the middle. A line is a ring without its last link, such as the members of an expert-parallel group on the
    ring of a data-parallel one.
    """
    return _hop_by_hop("line", n, lambda src, dst: dst - src)


def _hop_by_hop(algorithm: str, n: int, hops: Callable[[int, int], int], one_port: bool = False) -> Schedule:
    """The all-to-all between neighbours; ``hops(src, dst)`` are upwards on lane 0, negative ones downwards on lane 1.

    More chunks cross a link than in a direct exchange, but circuits that never change are enough.
    """
    transfers: list[Transfer] = []
    for src in range(n):
        for dst in range(n):
            distance = hops(src, dst)
            direction, lane = (-1, 1) if distance < 0 else (1, 0)
            for hop in range(abs(distance)):
                at = (src + direction * hop) % n
                transfers.append(Transfer(hop, at, (at + direction) % n, src * n + dst, "copy", lane))
    return _all_to_all(algorithm, n, transfers, one_port=one_port)


def _all_to_all(
    algorithm: str,
    n: int,
    transfers: Iterable[Transfer],
    *,
    pieces: int = 1,
    weights: tuple[int, ...] = (),
    one_port: bool = False,
) -> Schedule:
    return Schedule(
        algorithm=algorithm,
        kind="all_to_all",
        n=n,
        chunks=n * n * pieces,
        owner=tuple(chunk // (n * pieces) for chunk in range(n * n * pieces)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
        one_port=one_port,
        weights=weights,
    )


def _chunk_weights(n: int, pieces: int, weights: Sequence[Sequence[int]] | None) -> tuple[int, ...]:
    """The weight of each chunk, equal to that of its pair; () for None.

    Raises ``ConfigError`` unless ``weights`` is n x n with whole numbers of 0 or more, at least one above 0.
    """
    if weights is None:
        return ()
    if [len(row) for row in weights] != [n] * n:
        lengths = ", ".join(str(len(row)) for row in weights) or "nothing"
        raise ConfigError(f"must be a matrix of {n} x {n}, a row for each sender, not rows of {lengths}", key="weights")
    for i, row in enumerate(weights):
        for j, entry in enumerate(row):
            if not isinstance(entry, int) or entry < 0:
                raise ConfigError(f"entry ({i}, {j}) must be a whole number of 0 or more, not {entry}", key="weights")
    if not any(map(any, weights)):
        raise ConfigError("must have an entry above 0", key="weights")
    return tuple(weight for row in weights for weight in row for _ in range(pieces))


CHAIN_CHUNKS_PER_POSITION = 4


def ring_name(lanes: int) -> str:
    """Name of the ring algorithm with ``lanes`` lanes: ``ring``, ``bidirectional-ring``, ``ring-3``, ``ring-4``, ..."""
    return {1: "ring", 2: "bidirectional-ring"}.get(lanes, f"ring-{lanes}")


def ring(kind: CollectiveKind, n: int, *, lanes: int = 1) -> Schedule:
    """All-reduce, all-gather or reduce-scatter over ``n`` positions on ``lanes`` lanes; n = 1 has nothing to transfer.

    Chunks: n for each lane (l x n to l x n + n - 1); position p owns chunk l x n + p of every lane l before an
    all-gather and after a reduce-scatter. Raises ``ConfigError`` without a lane.
    """
    if lanes < 1:
        raise ConfigError(f"must be at least 1, not {lanes}", key="lanes")
    directions = [-1 if lane % 2 else 1 for lane in range(lanes if n > 1 else 1)]
    transfers: list[Transfer] = []
    for lane, direction in enumerate(directions):
        if kind in ("all_reduce", "reduce_scatter"):
            transfers += _reduce_scatter(n, direction, lane)
        if kind in ("all_reduce", "all_gather"):
            transfers += _all_gather(n, direction, lane, first_round=n - 1 if kind == "all_reduce" else 0)
    return Schedule(
        algorithm=ring_name(lanes),
        kind=kind,
        n=n,
        chunks=n * len(directions),
        owner=tuple(range(n)) * len(directions),
        transfers=tuple(sorted(transfers)),
        one_port=lanes == 1,
    )


def _reduce_scatter(n: int, direction: int, lane: int) -> Iterator[Transfer]:
    """Transfers in which chunk c starts at the neighbour of its owner and is summed around the ring to the owner."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - direction * (1 + round_)) % n
            yield Transfer(round_, src, (src + direction) % n, lane * n + chunk, "reduce", lane)


def _all_gather(n: int, direction: int, lane: int, first_round: int) -> Iterator[Transfer]:
    """Transfers in which chunk c starts at its owner and is copied around the ring."""
    for round_ in range(n - 1):
        for src in range(n):
            chunk = (src - direction * round_) % n
            yield Transfer(first_round + round_, src, (src + direction) % n, lane * n + chunk, "copy", lane)


def chain(kind: CollectiveKind, n: int) -> Schedule:
    """Broadcast or reduce as a pipeline: chunk after chunk along the positions 0, 1, ..., n - 1, or back to 0.

    With k chunks it takes k + n - 2 rounds of 1 / k of the buffer, so with more chunks its time approaches that of
    sending the buffer once; 4 n chunks cost at most a quarter more. Position 0 is the root.
    Source: Chan et al., "Collective communication: theory, practice, and experience", 2007 (pipelined algorithms), and
    NCCL's ring broadcast.
    """
    chunks = CHAIN_CHUNKS_PER_POSITION * n
    transfers = []
    for round_ in range(chunks + n - 2):
        for hop in range(n - 1):
            chunk = round_ - hop
            if 0 <= chunk < chunks and kind == "broadcast":
                transfers.append(Transfer(round_, hop, hop + 1, chunk, "copy"))
            elif 0 <= chunk < chunks:
                transfers.append(Transfer(round_, n - 1 - hop, n - 2 - hop, chunk, "reduce"))
    return Schedule("ring", kind, n, chunks, (0,) * chunks, tuple(transfers), one_port=True)


def direct(kind: CollectiveKind, n: int) -> Schedule:
    """The schedule of ``kind`` over ``n`` positions in one round; the root is position 0.

    Chunks: 1 (all_reduce, broadcast, reduce), n x n (all_to_all) or n. Each position sends to the next one first,
    so that no two begin with the same receiver.
    """
    if kind == "all_to_all":
        return replace(straight_all_to_all(n), algorithm="direct")
    chunks = 1 if kind in ("all_reduce", "broadcast", "reduce") else n
    return Schedule("direct", kind, n, chunks, tuple(range(chunks)), tuple(_transfers(kind, n)))


def allpairs(kind: CollectiveKind, n: int) -> Schedule:
    """The all-reduce of two rounds over ``n`` positions: a direct reduce-scatter, then a direct all-gather.

    Every position sends as much as in a ring, with two latencies instead of 2 (n - 1). Position c owns chunk c.
    """
    first, second = direct("reduce_scatter", n), direct("all_gather", n)
    transfers = (*first.transfers, *(replace(t, round=1) for t in second.transfers))
    return replace(first, algorithm="allpairs", kind=kind, transfers=transfers)


def _transfers(kind: CollectiveKind, n: int) -> Iterator[Transfer]:
    for src, dst in ((src, (src + offset) % n) for offset in range(1, n) for src in range(n)):
        if kind == "all_reduce" or (kind == "reduce" and dst == 0):
            yield Transfer(0, src, dst, 0, "reduce")
        elif kind == "reduce_scatter":
            yield Transfer(0, src, dst, dst, "reduce")
        elif kind == "all_gather" or (kind == "gather" and dst == 0):
            yield Transfer(0, src, dst, src, "copy")
        elif kind in ("broadcast", "scatter") and src == 0:
            yield Transfer(0, src, dst, 0 if kind == "broadcast" else dst, "copy")


Blocks = Sequence[Sequence[int]]
"""By core position (below p): the chunks that it is responsible for."""


def halving_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce by halving, then doubling; p chunks, where p is the greatest power of two up to n."""
    core = _core(n)
    blocks = [(b,) for b in range(core)]
    moves = [*_halving(blocks), *_doubling(blocks, first_round=core.bit_length() - 1)]
    return _schedule("recursive-halving-doubling", kind, n, core, moves, lambda p: range(core), lambda p: range(core))


def recursive_doubling(kind: CollectiveKind, n: int) -> Schedule:
    """All-reduce of the whole buffer (1 chunk) in each round, or an all-gather (n chunks) by doubling."""
    core = _core(n)
    if kind == "all_reduce":
        levels = range(core.bit_length() - 1)
        moves = [Transfer(level, p, p ^ 1 << level, 0, "reduce") for level in levels for p in range(core)]
        return _schedule("recursive-doubling", kind, n, 1, moves, lambda p: [0], lambda p: [0])
    others = {p: [c for c in range(n) if c != p] for p in range(core, n)}
    return _schedule("recursive-doubling", kind, n, n, _doubling(_blocks(n)), lambda p: [p], lambda p: others[p])


def recursive_halving(kind: CollectiveKind, n: int) -> Schedule:
    return _schedule("recursive-halving", kind, n, n, _halving(_blocks(n)), lambda p: range(n), lambda p: [p])


def _core(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _blocks(n: int) -> Blocks:
    """Chunks of core position b: chunk b, and the chunk of the position it stands in for."""
    core = _core(n)
    return [(b, b + core) if b + core < n else (b,) for b in range(core)]


def _halving(blocks: Blocks) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, the half of its blocks that the partner keeps."""
    core = len(blocks)
    for number in range(core.bit_length() - 1):
        distance = core >> (number + 1)
        for src in range(core):
            partner = src ^ distance
            start = partner // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(number, src, partner, c, "reduce") for c in block)


def _doubling(blocks: Blocks, first_round: int = 0) -> Iterator[Transfer]:
    """Transfers in which a position gives its partner, in each round, all blocks that it has."""
    core = len(blocks)
    for number in range(core.bit_length() - 1):
        distance = 1 << number
        for src in range(core):
            start = src // distance * distance
            for block in blocks[start : start + distance]:
                yield from (Transfer(first_round + number, src, src ^ distance, c, "copy") for c in block)


def _schedule(
    name: str,
    kind: CollectiveKind,
    n: int,
    chunks: int,
    moves: Iterable[Transfer],
    given: Callable[[int], Iterable[int]],
    returned: Callable[[int], Iterable[int]],
) -> Schedule:
    """The schedule whose ``moves`` are among the core positions.

    An extra position p gives the core the chunks ``given(p)`` in a round before, and receives ``returned(p)`` in a
    round after.
    """
    core = _core(n)
    extra = range(core, n)
    op: Literal["copy", "reduce"] = "copy" if kind == "all_gather" else "reduce"
    transfers = [Transfer(0, p, p - core, c, op) for p in extra for c in given(p)]
    transfers += [replace(t, round=t.round + 1) for t in moves] if extra else moves
    last = transfers[-1].round + 1 if extra else 0
    transfers += [Transfer(last, p - core, p, c, "copy") for p in extra for c in returned(p)]
    return Schedule(name, kind, n, chunks, tuple(range(chunks)), tuple(transfers), one_port=True)


CHUNKS_PER_LEVEL = 4
"""Chunks of each of the two binary trees per level: the pipeline is about four times as long as the trees are deep."""


def tree(kind: CollectiveKind, n: int) -> Schedule:
    """A binomial tree with position 0 as root: up the tree, down the tree, or (all_reduce) both.

    Few rounds with the whole buffer in each, for scalars, where only the number of rounds counts. There is one chunk; a
    gather or scatter has n chunks, and a position forwards those of the positions below it.
    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
    """
    chunks = n if kind in ("gather", "scatter") else 1
    transfers: list[Transfer] = []
    if kind in ("all_reduce", "reduce", "gather"):
        transfers += _up(kind, n)
    if kind in ("all_reduce", "broadcast", "scatter"):
        transfers += _down(kind, n, first_round=(n - 1).bit_length() if kind == "all_reduce" else 0)
    return Schedule("tree", kind, n, chunks, tuple(range(chunks)), tuple(transfers), one_port=True)


def _up(kind: CollectiveKind, n: int) -> Iterator[Transfer]:
    for level in range((n - 1).bit_length()):
        half = 1 << level
        for p in range(half, n, 2 * half):
            if kind == "gather":
                yield from (Transfer(level, p, p - half, c, "copy") for c in range(p, min(p + half, n)))
            else:
                yield Transfer(level, p, p - half, 0, "reduce")


def _down(kind: CollectiveKind, n: int, first_round: int) -> Iterator[Transfer]:
    levels = (n - 1).bit_length()
    for down in range(levels):
        half = 1 << (levels - 1 - down)
        for p in range(half, n, 2 * half):
            below = range(p, min(p + half, n)) if kind == "scatter" else range(1)
            yield from (Transfer(first_round + down, p - half, p, c, "copy") for c in below)


def double_binary_tree(kind: CollectiveKind, n: int) -> Schedule:
    """The all-reduce of 2 x 4 ceil(log2 n) chunks on two binary trees, the first half up and down the first tree.

    In a binary tree the leaves, half of the positions, send little. Here a position inside one tree is a leaf of the
    other (except for the roots), and chunk after chunk goes up to the root of its tree, where it is summed, and down
    again. A position then sends and receives about twice the buffer, as in a ring, in a number of rounds whose latency
    part grows as log n. Each transfer takes the first round in which its chunk is there and the ports of both ends are
    free; chunks are placed one after the other, alternating between the trees.

    Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
    Computing 2009; used by NCCL since 2.4.
    """
    pieces = max(1, CHUNKS_PER_LEVEL * (n - 1).bit_length())
    trees = [_parents(n), _mirrored(n)]
    transfers: list[Transfer] = []
    busy: set[tuple[int, int, str]] = set()

    def place(earliest: int, src: int, dst: int, chunk: int, op: Literal["copy", "reduce"]) -> int:
        """Add a transfer in the first round from ``earliest`` on with both ports free; returns the round after it."""
        round_ = earliest
        while not busy.isdisjoint({(round_, src, "send"), (round_, dst, "receive")}):
            round_ += 1
        busy.update({(round_, src, "send"), (round_, dst, "receive")})
        transfers.append(Transfer(round_, src, dst, chunk, op))
        return round_ + 1

    for number in range(pieces):
        for which, parents in enumerate(trees):
            chunk = which * pieces + number
            down = sorted(range(n), key=lambda p: _depth(parents, p))[1:]
            ready = [0] * n
            for p in reversed(down):
                above = parents[p]
                ready[above] = max(ready[above], place(ready[p], p, above, chunk, "reduce"))
            for p in down:
                ready[p] = place(ready[parents[p]], parents[p], p, chunk, "copy")
    owner = tuple(parents.index(-1) for parents in trees for _ in range(pieces))
    in_order = tuple(sorted(transfers, key=lambda t: t.round))
    return Schedule("double-binary-tree", kind, n, 2 * pieces, owner, in_order, one_port=True)


def _parents(n: int) -> list[int]:
    """Parents of the first tree, root 0 (its parent is -1): odd positions are leaves.

    Position p is as many levels above the leaves as it has trailing zero bits; its parent has one more, or is the next
    lower position that exists.
    """
    parents = [-1]
    for p in range(1, n):
        bit = p & -p
        above = (p ^ bit) | bit << 1
        parents.append(above if above < n else p ^ bit)
    return parents


def _mirrored(n: int) -> list[int]:
    """Parents of the second tree, whose leaves are even: the first reversed (n even) or shifted by one (n odd)."""
    role = [n - 1 - p if n % 2 == 0 else (p - 1) % n for p in range(n)]
    position = {-1: -1, **{r: p for p, r in enumerate(role)}}
    parents = _parents(n)
    return [position[parents[r]] for r in role]


def _depth(parents: list[int], p: int) -> int:
    """Number of positions above ``p``."""
    return 0 if parents[p] < 0 else 1 + _depth(parents, parents[p])


def hierarchical(kind: CollectiveKind, n: int, *, gpus_per_server: int = 1) -> Schedule:
    """The schedule over ``n`` positions; chunk l x servers + i is part i of shard l.

    ``gpus_per_server`` must divide ``n``; 1 gives the ring of the rail, n the ring inside one server.
    """
    gpus = gpus_per_server
    servers = n // gpus
    transfers = list(_inside("reduce_scatter", gpus, servers, first_round=0))
    for local in range(gpus):
        for t in ring("all_reduce", servers).transfers:
            src, dst = t.src * gpus + local, t.dst * gpus + local
            transfers.append(Transfer(gpus - 1 + t.round, src, dst, local * servers + t.chunk, t.op))
    transfers += _inside("all_gather", gpus, servers, first_round=gpus - 1 + 2 * (servers - 1))
    return Schedule(
        algorithm="hierarchical",
        kind=kind,
        n=n,
        chunks=n,
        owner=tuple((c % servers) * gpus + c // servers for c in range(n)),
        transfers=tuple(sorted(transfers, key=lambda t: t.round)),
        one_port=True,
    )


def _inside(kind: CollectiveKind, gpus: int, servers: int, first_round: int) -> Iterator[Transfer]:
    """Transfers of the ring ``kind`` over the shards inside every server."""
    for t in ring(kind, gpus).transfers:
        for server in range(servers):
            src, dst = server * gpus + t.src, server * gpus + t.dst
            for part in range(servers):
                yield Transfer(first_round + t.round, src, dst, t.chunk * servers + part, t.op, scale_up=True)
