"""What all scripts of this folder share beside the model: their options, the tokens of a batch, the loss."""

import argparse

import torch
import torch.nn.functional as F


def arguments(text: str) -> argparse.ArgumentParser:
    """Options that all scripts have; with these sizes the model has 6.2 million parameters."""
    parser = argparse.ArgumentParser(description=text)
    sizes = {"steps": 3, "dim": 256, "layers": 6, "heads": 16, "kv-heads": 0, "hidden": 768, "vocab": 2048}
    for name, size in {**sizes, "seq": 128, "batch": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser


def batch(args, seed, rows=0):
    """Tokens, and those that follow them: each row counts on from a random number, which can be learnt."""
    start = torch.randint(0, 256, (rows or args.batch, 1), generator=torch.Generator().manual_seed(seed))
    tokens = (start + torch.arange(args.seq + 1)) % min(256, args.vocab)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def loss_of(logits, following):
    return F.cross_entropy(logits.flatten(0, 1).float(), following.flatten(0, 1))
