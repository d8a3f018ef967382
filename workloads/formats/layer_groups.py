"""The groups of the collectives in a layer file: the file's parallelism on a number of ranks.

Ranks are ordered as in Megatron: model-parallel neighbours first, then expert-parallel, then the rest of the
data-parallel dimension, then pipeline stages. HYBRID_MODEL_DATA is the opposite (ASTRA-sim gives its first dimension to
data). Pipeline stages are identical (the file holds the layers of one), and their groups are separate. Sources:
ASTRA-sim 1.0 and SimAI, ``Workload::decode_involved_dimensions`` and ``MockNcclGroup``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from railyard.errors import ConfigError
from workloads.formats.layer_text import Layer, LayerFile, LayerPass, Scope
from workloads.program import Dimension, Group
from workloads.training.ranks import Coordinates, Parallelism

Role = Literal["all", "model", "data", "expert", "data-of-experts"]
# Start of the names of its groups, dimension for the policies, and the dimensions in which the members differ.
_ROLES: dict[Role, tuple[str, Dimension, tuple[str, ...]]] = {
    "all": ("all", "dp", ("pp", "dp", "ep", "tp")),
    "model": ("tp", "tp", ("tp",)),
    "data": ("dp", "dp", ("dp", "ep")),
    "expert": ("ep", "ep", ("ep",)),
    "data-of-experts": ("dpep", "dp", ("dp",)),
}
_SCOPED: dict[Scope, Role] = {"EP": "expert", "DP_EP": "data-of-experts"}
HYBRIDS = ("HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
MOST_RANKS = 1_000_000


def role_of(layer: Layer, index: int, part: LayerPass) -> Role | None:
    """Role of the group of the collective of ``part``; None where the parallelism has no group at this place."""
    weights = part is layer.weight_grad
    if layer.parallelism in ("DATA", "MICRO"):
        return "all" if weights else None
    if layer.parallelism == "MODEL":
        return None if weights else "all"
    if layer.parallelism == "HYBRID_DLRM":
        return "all" if weights or index == 0 else None
    if part.scope:
        return _SCOPED[part.scope]
    return "data" if weights else "model"


@dataclass(frozen=True)
class GroupLayout:
    """Ranks of a job by dimension of parallelism.

    With ``data_first``, neighbouring ranks are data-parallel: tp and dp of ``parallelism`` are then those of the
    opposite role.
    """

    parallelism: Parallelism
    data_first: bool = False

    @property
    def ranks(self) -> int:
        """Number of ranks in all dimensions together."""
        return self.parallelism.ranks

    def _varied(self, role: Role) -> tuple[str, ...]:
        """The dimensions in which the members of a group of ``role`` differ."""
        opposite: dict[Role, Role] = {"model": "data", "data": "model"}
        return _ROLES[opposite.get(role, role) if self.data_first else role][2]

    def size(self, role: Role) -> int:
        """Number of members of a group of ``role``."""
        return prod(getattr(self.parallelism, dimension) for dimension in self._varied(role))

    def members(self, role: Role, rank: int) -> tuple[int, ...]:
        """Members of the group of ``rank``, in ring order."""
        varied, at = self._varied(role), self.parallelism.coordinates(rank)
        places = {
            name: range(getattr(self.parallelism, name)) if name in varied else (getattr(at, name),)
            for name in ("pp", "dp", "ep", "tp")
        }
        points = (dict(zip(places, point, strict=True)) for point in product(*places.values()))
        return tuple(self.parallelism.rank(Coordinates(**point)) for point in points)

    def groups(self, role: Role) -> list[Group]:
        """All groups of ``role``, each named after its first member, in that order."""
        start, dimension, _ = _ROLES[role]
        found: list[Group] = []
        seen: set[int] = set()
        for rank in range(self.ranks):
            if rank not in seen:
                name = "all" if role == "all" else f"{start}.{rank}"
                found.append(Group(name, dimension, self.members(role, rank)))
                seen.update(found[-1].members)
        return found


def layout_of(file: LayerFile, ranks: int | None, model_parallel: int | None = None) -> tuple[GroupLayout, list[str]]:
    """Layout of ``ranks`` ranks (default: ``all_gpus`` of the header), and notes on how the file was interpreted.

    Raises ``ConfigError`` naming the option or header key that is missing or does not divide.
    """
    notes: list[str] = []
    header = file.header
    count = ranks if ranks is not None else header.get("all_gpus")
    if count is None:
        raise ConfigError(
            "the file does not say for how many ranks it is; give their number, such as --ranks 8",
            key="ranks",
            source=file.source,
        )
    if not 1 <= count <= MOST_RANKS:
        raise ConfigError(f"must be 1 to {MOST_RANKS}, not {count}", key="ranks", source=file.source)
    hybrids = {layer.parallelism for layer in file.layers}.intersection(HYBRIDS)
    if not hybrids:
        return GroupLayout(Parallelism(tp=1, pp=1, dp=count)), notes
    data_first = _data_first(file, hybrids)
    tp = model_parallel if model_parallel is not None else header.get("model_parallel_NPU_group")
    if tp is None:
        raise ConfigError(
            f"{', '.join(sorted(hybrids))} needs the size of a model-parallel group, and the file "
            "does not have model_parallel_NPU_group; give it, such as --model-parallel 4",
            key="model_parallel",
            source=file.source,
        )
    stages = max(header.get("pp", 1), 1) if count == header.get("all_gpus") else 1
    if tp < 1 or count % (tp * stages):
        raise ConfigError(
            f"{count} ranks do not divide into model-parallel groups of {tp}"
            + (f" in {stages} pipeline stages" if stages > 1 else "")
            + f"; name a multiple of {max(tp, 1) * stages}",
            key="ranks",
            source=file.source,
        )
    ep = _experts(file, count // (tp * stages))
    dp = count // (tp * stages * ep)
    if header.get("pp", 1) > 1:
        what = f"{stages} alike" if stages > 1 else f"one of {header['pp']}"
        notes.append(f"pipeline stages: {what}; transfers between stages (pp_comm) are not in the layers and not sent.")
    if data_first:
        tp, dp = dp, tp
    return GroupLayout(Parallelism(tp=tp, pp=stages, dp=dp, ep=ep), data_first), notes


def _data_first(file: LayerFile, hybrids: set[str]) -> bool:
    """Whether neighbouring ranks are data-parallel; all layers of a file must agree."""
    if "HYBRID_MODEL_DATA" not in hybrids:
        return False
    if len(hybrids) > 1:
        raise ConfigError(
            f"layers mix HYBRID_MODEL_DATA with {', '.join(sorted(hybrids - {'HYBRID_MODEL_DATA'}))}; their groups lie "
            "across each other, so a file can have one of them",
            source=file.source,
        )
    for layer in file.layers:
        if any(part.kind and part.scope for part in layer.parts):
            raise ConfigError("HYBRID_MODEL_DATA has no expert-parallel groups", source=f"{file.source}:{layer.line}")
    return True


def _experts(file: LayerFile, data: int) -> int:
    """Size of an expert-parallel group, 1 where no collective uses one."""
    if not any(part.kind and part.scope for layer in file.layers for part in layer.parts):
        return 1
    ep = max(file.header.get("ep", 1), 1)
    if data % ep:
        raise ConfigError(
            f"{data} data-parallel ranks do not divide into expert-parallel groups of {ep} (ep of the header); name "
            f"a number of ranks with a multiple of {ep} of them",
            key="ranks",
            source=file.source,
        )
    return ep
