"""Data parallel: a copy of the model on every rank, and the gradients averaged in buckets while they are computed.

torchrun --nproc-per-node 4 ddp.py --steps 20 --checkpoint /tmp/ddp.pt --every 5
"""

import os

import torch
import torch.distributed as dist
from model import Transformer
from task import arguments, batch, loss_of
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = arguments("data parallel")
    parser.add_argument("--bucket-mb", type=int, default=5, help="size of a bucket of gradients")
    parser.add_argument("--checkpoint", help="file to go on from if it exists, and to write")
    parser.add_argument("--every", type=int, default=1, help="steps between two checkpoints")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer(args), bucket_cap_mb=args.bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    for step in range(first, args.steps):
        tokens, following = batch(args, 1000 * step + rank)
        loss = loss_of(model(tokens), following)
        loss.backward()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {mean.item():.6f}", flush=True)
        if rank == 0 and args.checkpoint and (step + 1) % args.every == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, args.checkpoint + ".part")
            os.replace(args.checkpoint + ".part", args.checkpoint)  # never half a file
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
