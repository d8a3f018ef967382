"""The groups of the collectives in a layer file: the file's parallelism on a number of ranks.

Ranks are ordered as in Megatron: model-parallel neighbours first, then expert-parallel, then the rest of the
data-parallel dimension, then pipeline stages. HYBRID_MODEL_DATA is the opposite (ASTRA-sim gives its first dimension to
data). Pipeline stages are identical (the file holds the layers of one), and their groups are separate. Sources:
ASTRA-sim 1.0 and SimAI, ``Workload::decode_involved_dimensions`` and ``MockNcclGroup``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railyard.errors import ConfigError
from workloads.formats.layer_text import Layer, LayerFile, LayerPass, Scope
from workloads.program import Dimension, Group
from workloads.training.ranks import Coordinates, Parallelism

Role = Literal["all", "model", "data", "expert", "data-of-experts"]
DIMENSIONS: dict[Role, Dimension] = {
    "all": "dp",
    "model": "tp",
    "data": "dp",
    "expert": "ep",
    "data-of-experts": "dp",
}
_NAMES: dict[Role, str] = {"all": "all", "model": "tp", "data": "dp", "expert": "ep", "data-of-experts": "dpep"}
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
    """The ranks by dimension; with ``data_first``, neighbouring ranks share the data-parallel dimension."""

    parallelism: Parallelism
    data_first: bool = False

    @property
    def ranks(self) -> int:
        """Number of ranks in all dimensions together."""
        return self.parallelism.ranks

    def size(self, role: Role) -> int:
        """Number of members of a group of ``role``."""
        p = self.parallelism
        sizes: dict[Role, int] = {
            "all": p.ranks, "model": p.tp, "data": p.dp * p.ep, "expert": p.ep, "data-of-experts": p.dp
        }  # fmt: skip
        return sizes[role]

    def members(self, role: Role, rank: int) -> tuple[int, ...]:
        """Members of the group of ``rank``, in ring order."""
        p = self.parallelism
        if role == "all":
            return tuple(range(p.ranks))
        if self.data_first:
            row, place = divmod(rank, p.dp)
            if role == "data":
                return tuple(range(row * p.dp, (row + 1) * p.dp))
            return tuple(place + p.dp * t for t in range(p.tp))
        at = p.coordinates(rank)
        tps = range(p.tp) if role == "model" else (at.tp,)
        eps = range(p.ep) if role in ("data", "expert") else (at.ep,)
        dps = range(p.dp) if role in ("data", "data-of-experts") else (at.dp,)
        return tuple(p.rank(Coordinates(tp=t, ep=e, dp=d, pp=at.pp)) for d in dps for e in eps for t in tps)

    def group(self, role: Role, rank: int) -> Group:
        """The group of ``rank``, named after its first member."""
        members = self.members(role, rank)
        name = "all" if role == "all" else f"{_NAMES[role]}.{members[0]}"
        return Group(name, DIMENSIONS[role], members)


def layout_of(file: LayerFile, ranks: int | None, model_parallel: int | None = None) -> tuple[GroupLayout, list[str]]:
    """Layout of ``ranks`` ranks (default: ``all_gpus`` of the header), and notes on how the file was interpreted.

    Raises ``ConfigError`` naming the option or header key that is missing or does not divide.
    """
    notes: list[str] = []
    header = file.header
    count = ranks if ranks is not None else header.get("all_gpus")
    if count is None:
        raise ConfigError(
            "the file does not say for how many ranks it is; name a number", key="ranks", source=file.source
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
            "does not have model_parallel_NPU_group; name a number",
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
    if header.get("pp", 1) > 1:
        what = f"{stages} alike" if stages > 1 else f"one of {header['pp']}"
        notes.append(f"pipeline stages: {what}; transfers between stages (pp_comm) are not in the layers and not sent.")
    return GroupLayout(Parallelism(tp=tp, pp=stages, dp=count // (tp * stages * ep), ep=ep), data_first), notes


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
