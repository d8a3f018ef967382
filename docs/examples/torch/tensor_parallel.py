"""How the layers of the model are split over the ranks of a tensor-parallel group (as TorchTitan splits them)."""

import warnings

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def split(model, mesh):
    """Split ``model`` over ``mesh``: between two blocks a rank holds its part of the sequence."""
    warnings.filterwarnings("ignore", message=".*returned a view tensor")  # of FSDP2; nothing writes into the logits
    plan = {}
    if isinstance(model.embedding, nn.Embedding):
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if isinstance(model.output, nn.Linear):
        plan["norm"] = SequenceParallel()
        plan["output"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh, plan)
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for layer in model.layers.values():
        columns = dict.fromkeys(("attention.wq", "attention.wk", "attention.wv"), ColwiseParallel())
        columns |= {"feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel()}
        rows = {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.wo", "feed_forward.w2")}
        norms = {"attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel()}
        parallelize_module(layer, mesh, {**norms, "attention": whole, "feed_forward": whole, **columns, **rows})
    return model
