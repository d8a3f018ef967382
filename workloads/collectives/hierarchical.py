"""Hierarchical all-reduce: inside each server first, then along the rails, then inside each server again.

Position p is GPU p mod g of server p // g, for g GPUs in a server. The server's GPUs reduce-scatter over the scale-up
network, so that GPU l has shard l of the server's sum; the GPUs l of all servers all-reduce that shard on a ring along
rail l; the server's GPUs gather the shards. A rail carries 1 / g of the buffer.

Source: Goyal et al., "Accurate, large minibatch SGD", 2017; Cho et al., "BlueConnect", MLSys 2019.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.collectives.ring import ring
from workloads.schedule import CollectiveKind, Schedule, Transfer


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
