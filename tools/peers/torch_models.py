"""The same work as normlab's, in PyTorch: norm layers, and a GPT in the article's code style and in PyTorch's own."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class HandwrittenLayerNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(var + self.eps)) + self.shift


class HandwrittenRMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


HANDWRITTEN = {"layernorm": HandwrittenLayerNorm, "rmsnorm": HandwrittenRMSNorm}
BUILT_IN = {"layernorm": lambda width: nn.LayerNorm(width, eps=1e-5), "rmsnorm": lambda width: nn.RMSNorm(width, eps=1e-5)}


def make_norm(kind, how, width, dtype):
    """how: builtin, handwritten, or compiled: torch.compile of the handwritten one."""
    norm = (BUILT_IN if how == "builtin" else HANDWRITTEN)[kind](width).to(dtype)
    return torch.compile(norm, dynamic=False) if how == "compiled" else norm


class HandwrittenGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class NaiveAttention(nn.Module):
    """Separate projections, all T x T scores, a mask."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.W_query = nn.Linear(width, width, bias=False)
        self.W_key = nn.Linear(width, width, bias=False)
        self.W_value = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.triu(torch.ones(context, context), diagonal=1))

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (w(x).view(b, t, self.heads, self.head_width).transpose(1, 2) for w in (self.W_query, self.W_key, self.W_value))
        scores = q @ k.transpose(2, 3)
        scores.masked_fill_(self.mask.bool()[:t, :t], -torch.inf)
        weights = torch.softmax(scores / self.head_width**0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).contiguous().view(b, t, width))


class FusedAttention(nn.Module):
    """One projection for q, k and v; scaled_dot_product_attention."""

    def __init__(self, width, heads, context):
        super().__init__()
        del context
        self.heads, self.head_width = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.head_width).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(b, t, width))


class Block(nn.Module):
    def __init__(self, shape, naive, norm):
        super().__init__()
        width = shape["emb_dim"]
        attention = NaiveAttention if naive else FusedAttention
        self.att = attention(width, shape["n_heads"], shape["window"])
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), HandwrittenGELU() if naive else nn.GELU("tanh"),
                                nn.Linear(4 * width, width))
        self.norm1, self.norm2 = norm(width), norm(width)

    def forward(self, x):
        x = x + self.att(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, shape, naive, norm_kind, norm_how):
        super().__init__()
        norm = (HANDWRITTEN if norm_how == "handwritten" else BUILT_IN)[norm_kind]
        width, vocab = shape["emb_dim"], shape["vocab_size"]
        self.tok_emb = nn.Embedding(vocab, width)
        self.pos_emb = nn.Embedding(shape["context_length"], width)
        self.trf_blocks = nn.Sequential(*[Block(shape, naive, norm) for _ in range(shape["n_layers"])])
        self.final_norm = norm(width)
        self.out_head = nn.Linear(width, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        return self.out_head(self.final_norm(self.trf_blocks(x)))


class Training:
    """Whole steps: forward, backward, clipping, AdamW. mode: naive, eager or compile."""

    def __init__(self, shape, mode, dtype, norm_kind="layernorm", norm_how=None):
        torch.manual_seed(1)
        naive = mode == "naive"
        self.model = Gpt(shape, naive, norm_kind, norm_how or ("handwritten" if naive else "builtin"))
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.run = torch.compile(self.model, dynamic=False) if mode == "compile" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1,
                                           **({} if naive else {"fused": True}))
        self.autocast = dtype == "bf16"
        ids = torch.randint(0, min(256, shape["vocab_size"]), (shape["batch"], shape["window"] + 1))
        self.inputs, self.targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def step(self):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            logits = self.run(self.inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), self.targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
