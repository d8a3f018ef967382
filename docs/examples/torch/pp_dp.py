"""A pipeline of stages, each of them data parallel: whole copies (--data ddp) or shards (--data fsdp, also with --tp).

torchrun --nproc-per-node 4 pp_dp.py --pp 2 --microbatches 4
"""

import torch
import torch.distributed as dist
from model import Transformer
from task import arguments, batch, loss_of
from tensor_parallel import split
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.nn.parallel import DistributedDataParallel

SCHEDULES = ("1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble")


def stage_of(args, mesh, index, stages):
    """Stage ``index``, split and sharded, with the shapes of what comes in and goes out."""
    model, data = Transformer(args, index, stages), mesh["dp"]
    if args.tp > 1:
        split(model, mesh["tp"])
    if args.data == "fsdp":
        for layer in model.layers.values():
            fully_shard(layer, mesh=data)
        fully_shard(model, mesh=data)
    elif data.size() > 1:
        model = DistributedDataParallel(model, process_group=data.get_group(), bucket_cap_mb=5)
    between = torch.empty(args.batch, args.seq // args.tp, args.dim, requires_grad=True)
    tokens = torch.empty(args.batch, args.seq, dtype=torch.int64)
    logits = torch.empty(args.batch, args.seq, args.vocab, requires_grad=True)
    shapes = {
        "input_args": (tokens if index == 0 else between,),
        "output_args": (logits if index == stages - 1 else between,),
    }
    return PipelineStage(model, index, stages, torch.device("cpu"), group=mesh["pp"].get_group(), **shapes)


def main() -> None:
    parser = arguments("pipeline and data parallel")
    parser.add_argument("--pp", type=int, default=2, help="ranks of a pipeline")
    parser.add_argument("--tp", type=int, default=1, help="ranks of a tensor-parallel group; needs --data fsdp")
    parser.add_argument("--data", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1F1B", help="as PyTorch names it")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    sizes, names = (args.pp, dist.get_world_size() // args.pp // args.tp, args.tp), ("pp", "dp", "tp")
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    if args.schedule == "InterleavedZeroBubble" and mesh["dp"].size() > 1:
        parser.error("PyTorch 2.13 averages no gradients under InterleavedZeroBubble: --pp must be the number of ranks")
    pp_rank, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    torch.manual_seed(0)
    kind = get_schedule_class(args.schedule)
    single = issubclass(kind, PipelineScheduleSingle)
    indices = (pp_rank,) if single else (pp_rank, pp_rank + args.pp)  # two stages a rank where stages are interleaved
    stages = [stage_of(args, mesh, index, args.pp * len(indices)) for index in indices]
    schedule = kind(stages[0] if single else stages, args.microbatches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW([p for stage in stages for p in stage.submod.parameters()], lr=1e-3)
    last, losses = pp_rank == args.pp - 1, []
    for step in range(args.steps):
        tokens, following = batch(args, 1000 * step + replica, args.batch * args.microbatches)
        inputs = (tokens,) if pp_rank == 0 else ()
        schedule.step(*inputs, **({"target": following, "losses": losses} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
        if last and replica == 0 and mesh["tp"].get_local_rank() == 0:
            print(f"step {step} loss {torch.stack(losses).mean().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
