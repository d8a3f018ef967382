"""A layer file (ASTRA-sim 1.0, AICB for SimAI) as one training step, the same for every rank.

The order follows the state machines of ASTRA-sim 1.0's ``Workload.cc``:

- forward, first layer to last: compute, then the collective, which the next layer waits for;
- backward, last layer to first. DATA and DLRM: weight gradient, its collective, then the input gradient (layer 0 has
  none). All others: input gradient with its collective, then the weight gradient with its own. HYBRID_TRANSFORMER and
  HYBRID_TRANSFORMER_FWD_IN_BCKWD wait for the first collective at once, the others beside the weight gradient;
- the collective of a weight gradient holds up nothing but the end of the step;
- DLRM: the all-to-all of layer 0 runs beside the bottom layers and is waited for behind the last of them; on the way
  back it starts after the input gradient of the first top layer, and the weight gradient of layer 0 waits for it;
- MICRO: the collective of each weight gradient, one after another, and nothing else;
- ``checkpoint_initiates``: before its input gradient such a layer repeats the forward pass from the checkpoint on;
- the last column is spent after each collective of the layer; those of weight gradients at the end of the step, so
  that they do not hold up a rank's computes.

A collective that a file has where its parallelism has no group (the forward pass of DATA, say) is not sent, as there.
ALLGATHER sizes: the gathered total in HYBRID_TRANSFORMER_FWD_IN_BCKWD and MICRO, which AICB writes for SimAI; what one
rank contributes in all others, as ASTRA-sim reads them.

Ranks are ordered as in Megatron: model-parallel neighbours first, then expert-parallel, then the rest of the
data-parallel dimension, then pipeline stages. HYBRID_MODEL_DATA is the opposite (ASTRA-sim gives its first dimension to
data). Pipeline stages are identical (the file holds the layers of one), and their groups are separate. Sources:
ASTRA-sim 1.0 and SimAI, ``Workload::decode_involved_dimensions`` and ``MockNcclGroup``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Literal, cast

from railyard.errors import ConfigError
from workloads.formats.layer_text import LAST_BOTTOM_LAYER, Layer, LayerFile, LayerPass, Scope, read_layer_file
from workloads.formats.reading import UNITS, ComputeUnit, Reading, read_unit
from workloads.program import MOST_OPERATIONS, Collective, Compute, Dimension, Group, Program, check_size
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
        return self.parallelism.ranks

    def _varied(self, role: Role) -> tuple[str, ...]:
        """The dimensions in which the members of a group of ``role`` differ."""
        opposite: dict[Role, Role] = {"model": "data", "data": "model"}
        return _ROLES[opposite.get(role, role) if self.data_first else role][2]

    def size(self, role: Role) -> int:
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
        start, dimension, _ = _ROLES[role]
        all_groups: list[Group] = []
        seen: set[int] = set()
        for rank in range(self.ranks):
            if rank not in seen:
                name = "all" if role == "all" else f"{start}.{rank}"
                all_groups.append(Group(name, dimension, self.members(role, rank)))
                seen.update(all_groups[-1].members)
        return all_groups


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
        sent = f"{stages} alike" if stages > 1 else f"one of {header['pp']}"
        notes.append(f"pipeline stages: {sent}; transfers between stages (pp_comm) are not in the layers and not sent.")
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


FORMAT = "layer text (ASTRA-sim 1.0, AICB)"
PLACEHOLDER = 1
"""Compute time that writers use where they measured none."""
GATHERS_TOTAL = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "MICRO")
BLOCKING = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The steps of every rank, the groups of whose collectives are named by role, and the layout of the ranks."""

    name: str
    steps: tuple[Compute | Collective, ...]
    layout: GroupLayout
    notes: tuple[str, ...] = ()

    @property
    def roles(self) -> list[Role]:
        return sorted({cast(Role, step.group) for step in self.steps if isinstance(step, Collective)})

    def program(self) -> Program:
        """The program of all ranks; its size is ranks x steps. ``ConfigError`` where that is too large."""
        check_size(self.layout.ranks, self.layout.ranks * len(self.steps), "ranks")
        names: list[dict[str, str]] = [{} for _ in range(self.layout.ranks)]
        groups: list[Group] = []
        for role in self.roles:
            for group in self.layout.groups(role):
                groups.append(group)
                for rank in group.members:
                    names[rank][role] = group.name
        groups.sort(key=lambda group: group.members[0])
        lists = tuple(
            tuple(replace(op, group=own[op.group]) if isinstance(op, Collective) else op for op in self.steps)
            for own in names
        )
        return Program(self.name, lists, {group.name: group for group in groups})


def read_layers(
    path: Path, *, compute_unit: str | None = None, ranks: int | None = None, model_parallel: int | None = None
) -> Reading:
    """The program of a layer file.

    ``ranks``: default ``all_gpus`` of the header. ``model_parallel``: size of a model-parallel group, default
    ``model_parallel_NPU_group``. Raises ``ConfigError`` naming file and line, or the option that the file needs.
    """
    file = read_layer_file(path)
    plan = make_plan(file, unit_of(file, compute_unit), ranks, model_parallel)
    return Reading(FORMAT, plan.program(), plan.notes)


def unit_of(file: LayerFile, compute_unit: str | None) -> ComputeUnit | None:
    """The unit of the compute times; raises ``ConfigError`` for times without a unit, naming the first."""
    unit = read_unit(compute_unit)
    if unit is not None and unit.operations:
        raise ConfigError(f"layer files hold times, not operations; the units are {UNITS}", key="compute_unit")
    if unit is not None or file.parallelism == "MICRO":
        return unit
    for layer in file.layers:
        longest = max(part.compute for part in layer.parts)
        if longest > PLACEHOLDER:
            raise ConfigError(
                f"layer {layer.name} computes for {longest}, and the file does not name the unit; give it, such as "
                f"--compute-unit ns: one of {UNITS} (ASTRA-sim documents cycles of its clock, AICB appears to write "
                "ns)",
                key="compute_unit",
                source=f"{file.source}:{layer.line}",
            )
    return None


def make_plan(file: LayerFile, unit: ComputeUnit | None, ranks: int | None, model_parallel: int | None = None) -> Plan:
    """The plan of a layer file, without computes where there is no unit; the options are those of ``read_layers``."""
    layout, notes = layout_of(file, ranks, model_parallel)
    builder = _Steps(file, unit, layout)
    builder.build()
    return Plan(Path(file.source).stem, tuple(builder.steps), layout, (*notes, *builder.noted))


@dataclass
class _Steps:
    """Builds the steps of one rank; ids are indices in ``steps``, and a part without duration passes its deps on."""

    file: LayerFile
    unit: ComputeUnit | None
    layout: GroupLayout
    steps: list[Compute | Collective] = field(default_factory=list)
    noted: dict[str, None] = field(default_factory=dict)
    updates: list[tuple[Layer, Ids]] = field(default_factory=list)
    repeated: int = 0
    """Layers of forward passes that were repeated so far."""

    def __post_init__(self) -> None:
        self._initiates = frozenset(self.file.lists.get("checkpoint_initiates", ()))
        self._checkpoints = sorted(self.file.lists.get("checkpoints", ()))

    def build(self) -> None:
        policy = self.file.parallelism
        if policy == "MICRO":
            done: Ids = ()
            for index, layer in enumerate(self.file.layers):
                done = self.collective(index, layer, "weight-grad", layer.weight_grad, done)
            return
        bottom = self._last_bottom_layer() if policy == "HYBRID_DLRM" else -1
        chain = self._forward(range(len(self.file.layers)), (), bottom)
        if policy in ("DATA", "HYBRID_DLRM"):
            self._backward_weights_first(chain, bottom)
        else:
            self._backward(chain)
        for layer, deps in self.updates:
            self.compute(f"{layer.name}.update", layer.update, deps, layer)

    # -- passes ------------------------------------------------------------------------------------

    def _forward(self, indices: Iterable[int], chain: Ids, bottom: int = -1) -> Ids:
        beside: Ids = ()
        for index in indices:
            layer = self.file.layers[index]
            chain = self.compute(f"{layer.name}.forward", layer.forward.compute, chain, layer)
            done = self.collective(index, layer, "forward", layer.forward, chain)
            if self.file.parallelism == "HYBRID_DLRM":
                beside = _both(beside, done) if done != chain else beside
                if index == bottom:
                    chain = _both(chain, beside)
            else:
                chain = self.update(layer, chain, done)
        return chain

    def _backward_weights_first(self, chain: Ids, bottom: int) -> None:
        """DATA and DLRM: the input gradients have no collective, but for the all-to-all of DLRM's layer 0."""
        layers = self.file.layers
        exchanged: Ids = ()
        for index in reversed(range(len(layers))):
            layer = layers[index]
            if index == 0:
                chain = _both(chain, exchanged)
            chain = self.compute(f"{layer.name}.weight-grad", layer.weight_grad.compute, chain, layer)
            self._weight_collective(index, layer, chain)
            if index > 0:
                chain = self.compute(f"{layer.name}.input-grad", layer.input_grad.compute, chain, layer)
            else:
                self._unsent(index, layer, layer.input_grad)
            if bottom >= 0 and index == min(bottom + 1, len(layers) - 1):
                exchanged = self.collective(0, layers[0], "input-grad", layers[0].input_grad, chain)

    def _backward(self, chain: Ids) -> None:
        for index in reversed(range(len(self.file.layers))):
            layer = self.file.layers[index]
            chain = self._recompute(index, chain)
            chain = self.compute(f"{layer.name}.input-grad", layer.input_grad.compute, chain, layer)
            blocking = self.file.parallelism in BLOCKING
            begun = done = chain
            if blocking or index > 0:  # no layer waits for the input gradient of the first one
                done = self.collective(index, layer, "input-grad", layer.input_grad, begun)
            if blocking:
                chain = self.update(layer, begun, done)
            chain = self.compute(f"{layer.name}.weight-grad", layer.weight_grad.compute, chain, layer)
            self._weight_collective(index, layer, chain)
            if not blocking and done != begun:
                chain = _both(chain, self.update(layer, begun, done))

    def _recompute(self, index: int, chain: Ids) -> Ids:
        """The forward passes that a layer of ``checkpoint_initiates`` repeats."""
        if index not in self._initiates:
            return chain
        place = bisect_right(self._checkpoints, index)
        if not place:
            raise ConfigError(
                f"checkpoint_initiates names layer {index}, but there is no checkpoint at or before it",
                source=f"{self.file.source}:1",
            )
        start = self._checkpoints[place - 1]
        self.repeated += index - start
        if self.repeated > MOST_OPERATIONS:
            raise ConfigError(
                f"checkpoint_initiates repeats {self.repeated} or more layers of the forward pass in a step; at most "
                f"{MOST_OPERATIONS}",
                source=f"{self.file.source}:1",
            )
        return self._forward(range(start, index), chain)

    def _weight_collective(self, index: int, layer: Layer, chain: Ids) -> None:
        done = self.collective(index, layer, "weight-grad", layer.weight_grad, chain)
        if done != chain:
            self.updates.append((layer, done))

    def _last_bottom_layer(self) -> int:
        bottom = self.file.header.get(LAST_BOTTOM_LAYER)
        if bottom is None or bottom >= len(self.file.layers):
            fault = "is missing" if bottom is None else f"is {bottom}"
            raise ConfigError(
                f"{LAST_BOTTOM_LAYER} {fault}; HYBRID_DLRM needs a layer of 0 to {len(self.file.layers) - 1}",
                source=f"{self.file.source}:1",
            )
        return bottom

    # -- single steps ------------------------------------------------------------------------------

    def compute(self, name: str, amount: int, deps: Ids, layer: Layer) -> Ids:
        """Add a compute, if it takes time; returns the ids that later steps wait for."""
        if self.unit is None or not amount:
            return deps
        seconds = self.unit.of(amount, f"{self.file.source}:{layer.line}")
        if seconds == 0:
            return deps
        self.steps.append(Compute(len(self.steps), name, seconds, deps))
        return (len(self.steps) - 1,)

    def collective(self, index: int, layer: Layer, what: str, part: LayerPass, deps: Ids) -> Ids:
        """Add a collective, if there is anything to send."""
        if part.kind is None:
            return deps
        role = role_of(layer, index, part)
        if role is None:
            self._unsent(index, layer, part)
            return deps
        members = self.layout.size(role)
        if members == 1:
            self.noted[f"collectives of {role} groups are not sent: they have one member."] = None
            return deps
        size = part.bytes
        if part.kind == "all_gather" and self.file.parallelism not in GATHERS_TOTAL:
            size *= members
        self.steps.append(Collective(len(self.steps), f"{layer.name}.{what}", part.kind, role, size, deps))
        return (len(self.steps) - 1,)

    def update(self, layer: Layer, before: Ids, done: Ids) -> Ids:
        return done if done == before else self.compute(f"{layer.name}.update", layer.update, done, layer)

    def _unsent(self, index: int, layer: Layer, part: LayerPass) -> None:
        if part.kind is not None and role_of(layer, index, part) is None:
            self.noted[f"{layer.parallelism} sends only what its parallelism has a group for, as in ASTRA-sim."] = None


def _both(one: Ids, other: Ids) -> Ids:
    return tuple(sorted({*one, *other}))
