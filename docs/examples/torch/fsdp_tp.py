"""Parameters in shards (FSDP2), alone, with tensor parallel (--tp 2), or with copies of the shards (--replicas 2).

torchrun --nproc-per-node 4 fsdp_tp.py --tp 2
"""

import torch
import torch.distributed as dist
from model import Transformer
from task import arguments, batch, loss_of
from tensor_parallel import split
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main() -> None:
    parser = arguments("shards of parameters and tensor parallel")
    parser.add_argument("--tp", type=int, default=1, help="ranks of a tensor-parallel group")
    parser.add_argument("--replicas", type=int, default=1, help="copies of the shards (HSDP)")
    parser.add_argument("--bfloat16", action="store_true", help="parameters and activations in bfloat16")
    parser.add_argument("--recompute", action="store_true", help="keep no activations of a block, compute them again")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, shards = dist.get_rank(), dist.get_world_size() // args.replicas // args.tp
    sizes, names = (args.replicas, shards, args.tp), ("dp_replicate", "dp_shard", "tp")
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    torch.manual_seed(0)
    model = Transformer(args)
    if args.tp > 1:
        split(model, mesh["tp"])
    if args.recompute:
        for name, layer in model.layers.items():
            model.layers[name] = checkpoint_wrapper(layer)
    if args.replicas * shards > 1:
        options = {"mesh": mesh["dp_replicate", "dp_shard"] if args.replicas > 1 else mesh["dp_shard"]}
        if args.bfloat16:
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers.values():
            fully_shard(layer, **options)
        fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        tokens, following = batch(args, 1000 * step + rank // args.tp)  # of a tensor-parallel group all get the same
        loss = loss_of(model(tokens), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
