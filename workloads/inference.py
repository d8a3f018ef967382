"""An inference job: requests of a client, each answered by all members together (tensor parallel).

A request is a step. The prompt comes from the client over the front-end network, as the logits go back to it; between
them every block of layers computes and all-reduces its activations over the circuits of the slice. That is the prefill
of a prompt, so its latency is the time to the first token; the tokens after it are not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random

from workloads.collectives.algorithms import ring, ring_name
from workloads.program import Collective, Compute, Group, OpenLoop, Operation, Program

BLOCKS = 2
"""Blocks of layers of a request: with more of them messages are too short for their rate to decide."""

PROMPT_BYTES, ANSWER_BYTES = 6144, 4096
"""Token ids of a prompt of 1536 tokens; best logits and their ids. Both are small beside a packet's time."""


def poisson(rate: float, count: int, patience_s: float, seed: int) -> OpenLoop:
    """``count`` requests at ``rate`` per second. The second half has the gaps of the first, so both are the same load.

    >>> [round(t, 2) for t in poisson(2.0, 4, 1.0, 1).at_s]
    [0.07, 1.0, 1.08, 2.01]
    """
    dice = Random(f"requests-{seed}")
    gaps = [dice.expovariate(rate) for _ in range(-(-count // 2))]
    return OpenLoop(tuple(accumulate((gaps + gaps)[:count])), patience_s)


def inference_job(
    members: Sequence[int],
    client: int,
    arrivals: OpenLoop,
    activation_bytes: int,
    compute_s: float,
    lanes: int,
    ranks: int,
    *,
    group: str = "world",
) -> Program:
    """A program of ``ranks`` ranks in which ``members`` (in ring order) answer what ``client`` asks.

    ``activation_bytes`` (the buffers of all all-reduces) and ``compute_s`` are those of a request. The
    ring is that of ``workloads.training.step.training_job``, over ``group``.
    """
    members, asking, name = tuple(members), f"{group} requests", ring_name(lanes)
    came = Compute(0, "request", 0.0, arrivals=arrivals)
    prompt = Collective(1, "prompt", "broadcast", asking, PROMPT_BYTES, (0,))
    served: list[Operation] = [came, prompt]
    for block in range(BLOCKS):
        last = len(served) - 1
        served.append(Compute(last + 1, f"layers {block}", compute_s / BLOCKS, (last,)))
        size = activation_bytes // BLOCKS
        served.append(Collective(last + 2, f"all-reduce {block}", "all_reduce", group, size, (last + 1,), name))
    last = len(served) - 1
    served.append(Collective(last + 1, "answer", "gather", asking, ANSWER_BYTES, (last,)))
    asks = (came, prompt, Collective(2, "answer", "gather", asking, ANSWER_BYTES, (1,)))
    of_rank = {client: asks, **dict.fromkeys(members, tuple(served))}
    return Program(
        name=f"inference-{group}",
        operations=tuple(of_rank.get(rank, ()) for rank in range(ranks)),
        groups={
            group: Group(group, "tp", members),
            asking: Group(asking, "world", (client, *members), domain="front-end"),
        },
        schedules={name: ring("all_reduce", len(members), lanes=lanes)},
    )
