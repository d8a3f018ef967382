"""A small language model in plain PyTorch, in the shape of TorchTitan's debug model unless arguments say otherwise.

The other scripts of this folder train it, each in parallel in another way. Nothing here knows of any network.
"""

import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal attention; with ``kv_heads`` (0: as many as heads) several heads share keys and values."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.head = dim // heads
        self.wq, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(dim, self.head * (kv_heads or heads), bias=False) for _ in range(2))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape != k.shape)
        return self.wo(seen.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """A gated layer of ``hidden`` columns."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Attention and a gated layer, each after a norm and beside a residual."""

    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(dim), Attention(dim, heads, kv_heads)
        self.ffn_norm, self.feed_forward = nn.RMSNorm(dim), FeedForward(dim, hidden)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Stage ``stage`` of ``stages`` of the model: the first has the embedding, the last the norm and the output."""

    def __init__(self, args, stage=0, stages=1):
        super().__init__()
        first, end = (args.layers * n // stages for n in (stage, stage + 1))
        blocks = {str(n): Block(args.dim, args.heads, args.kv_heads, args.hidden) for n in range(first, end)}
        self.embedding = nn.Embedding(args.vocab, args.dim) if stage == 0 else nn.Identity()
        self.layers = nn.ModuleDict(blocks)
        self.norm = nn.RMSNorm(args.dim) if stage == stages - 1 else nn.Identity()
        self.output = nn.Linear(args.dim, args.vocab, bias=False) if stage == stages - 1 else nn.Identity()

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(self.norm(x))
