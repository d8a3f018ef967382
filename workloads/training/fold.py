"""Which ranks of a training job stand for all others: those that cannot be told apart are computed once.

- **Rails** are alike where TP fills the servers and nothing else joins their GPUs: each rail has the same stages and
  replicas, and no byte goes from one to another. One of them is kept.
- **Replicas** of a data-parallel ring are alike: they start an operation at the same moment, and in each of the n - 1
  rounds of a ring of n all send and receive one n-th part. Two are kept, as a ring of two whose single round moves a
  part of that size and stands for n - 1 rounds. Not where experts are on the rails: their all-to-alls are no rings.

Uneven experts make ranks differ. What is folded takes as long as the whole job (tests compare them to 1e-9).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from workloads.program import Group
from workloads.training.ranks import ELEMENT_BYTES, Parallelism
from workloads.training.recipe import Recipe

_KEPT_REPLICAS = 2


@dataclass(frozen=True)
class Layout:
    """The ranks of a program by dimension and the servers they are in; they stand for those of ``whole``."""

    parallelism: Parallelism
    servers: int
    gpus_per_server: int
    whole: Parallelism

    def part_bytes(self, group: Group, size: int) -> int:
        """Bytes of a collective over ``group`` with parts as large as those of ``size`` bytes over all replicas."""
        if group.domain != "scale-out" or group.dimension not in ("dp", "edp"):
            return size
        return max(min(size, ELEMENT_BYTES), round(size * self.parallelism.dp / self.whole.dp))

    def rounds(self, group: Group) -> float:
        """How many rounds of the whole group each round of a collective over ``group`` stands for."""
        if group.dimension == "world":  # a tree, whose rounds grow with the logarithm
            return ceil(log2(self.whole.ranks)) / ceil(log2(self.parallelism.ranks))
        if group.domain == "scale-out" and group.dimension in ("dp", "edp") and self.parallelism.dp > 1:
            return (self.whole.dp - 1) / (self.parallelism.dp - 1)
        return 1.0


def layout_of(recipe: Recipe, *, folded: bool = False) -> Layout:
    """All ranks of the job; ``folded``: those that stand for all others, as far as they are known."""
    p, fabric = recipe.parallelism, recipe.fabric
    whole = Layout(p, fabric.servers, fabric.gpus_per_server, p)
    if not folded or recipe.model.expert_skew:
        return whole
    p.check_gpus(fabric.servers, fabric.gpus_per_server)
    alone = p.tp == fabric.gpus_per_server or recipe.training.tp_across_servers
    rails_alike = alone and not recipe.training.tp_on_packets
    experts_inside = p.ep > 1 and p.tp * p.ep == fabric.gpus_per_server
    replicas_alike = experts_inside or (alone and p.ep == 1)
    kept = p.model_copy(
        update={"tp": 1 if rails_alike else p.tp, "dp": min(p.dp, _KEPT_REPLICAS) if replicas_alike else p.dp}
    )
    gpus = 1 if rails_alike else fabric.gpus_per_server
    return Layout(kept, kept.ranks // gpus, gpus, p)
