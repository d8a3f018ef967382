"""A mixture of experts: each rank of a group holds one expert, and tokens go to the rank of theirs and back.

torchrun --nproc-per-node 4 moe.py
"""

import torch
import torch.distributed as dist
from task import arguments, batch, loss_of
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single
from torch.distributed.device_mesh import init_device_mesh


class Experts(nn.Module):
    """The expert of this rank, and the gate, which sends each token to the one expert that it likes best."""

    def __init__(self, dim, hidden, group, weights):
        super().__init__()
        self.group, self.experts, self.weights = group, dist.get_world_size(group), weights
        self.gate = nn.Linear(dim, self.experts, bias=False)
        self.expert = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        score, choice = self.gate(tokens).softmax(-1).max(-1)
        if self.weights:  # whatever the gate says
            places = torch.arange(len(tokens)) * sum(self.weights) / len(tokens)
            choice = torch.bucketize(places, torch.tensor(self.weights).cumsum(0), right=True)
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice, minlength=self.experts)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)  # how many tokens come from which rank
        sent, received = sent.tolist(), received.tolist()
        here = all_to_all_single(tokens[order], received, sent, self.group)
        back = all_to_all_single(self.expert(here), sent, received, self.group)
        mixed = torch.zeros_like(tokens).index_put((order,), back)
        return x + (mixed * score[:, None]).view_as(x)


def main() -> None:
    parser = arguments("a mixture of experts")
    parser.add_argument("--ep", type=int, default=0, help="ranks, and experts, of a group (default: all ranks)")
    parser.add_argument("--weights", type=float, nargs="+", help="shares of the experts, instead of the gate's choice")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    ep = args.ep or world
    mesh = init_device_mesh("cpu", (world // ep, ep), mesh_dim_names=("dp", "ep"))
    torch.manual_seed(0)
    layers = [Experts(args.dim, args.hidden, mesh["ep"].get_group(), args.weights) for _ in range(2)]
    model = nn.Sequential(
        nn.Embedding(args.vocab, args.dim), *layers, nn.RMSNorm(args.dim), nn.Linear(args.dim, args.vocab, bias=False)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        tokens, following = batch(args, 1000 * step + rank)
        loss = loss_of(model(tokens), following) / world
        loss.backward()
        for name, parameter in model.named_parameters():
            if ".expert." not in name:  # all ranks have it
                dist.all_reduce(parameter.grad)
            elif world > ep:  # the same expert of other groups
                dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {mean.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
