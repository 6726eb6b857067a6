#!/usr/bin/env python3
"""Writes tests/fixtures/pytorch_{layernorm,rmsnorm}_{pre,post}.safetensors: a small GPT, its loss, its gradients
and five training steps as PyTorch computes them.

The C++ tests read these files; neither they nor the build need PyTorch. Run again only to change the cases:

    python3 tools/make_pytorch_fixture.py       # needs torch, numpy and safetensors; a few seconds on a CPU

The model is written the way the article's own code writes it, one plain operation at a time, and shares nothing
with normlab. Everything runs in float64, so the numbers can judge an fp32 and a float64 implementation alike. The
initial weights are float32 numbers, so both start from exactly the same ones. Before a file is written, the model
is checked against PyTorch's built-in layers.

In each file:
    <parameter>         F32        initial weights, named as in the model below
    inputs, targets     I32 [B,T]  token ids; a target of -1 is not counted (the post files have some)
    loss                F64 [1]    mean cross-entropy in nats over the counted targets, at the initial weights
    grad.<parameter>    F64        its gradient, before clipping
    grad_norm           F64 [1]    the global norm of all gradients
    step_losses         F64 [5]    loss before each of five AdamW steps on the same batch; [0] is `loss`
    step_grad_norms     F64 [5]    gradient norm of each step before clipping; [0] is `grad_norm`
    final.<parameter>   F64        weights after the five steps
The shape of the model and the settings of the optimizer are JSON in the metadata, under "config".

Clipping: gradients are multiplied by min(1, max_norm / norm). torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm
first; that is not done here.
"""

import json
import math
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures"

MODEL = {
    "vocab_size": 61,
    "context_length": 16,
    "emb_dim": 24,
    "n_heads": 3,
    "n_layers": 2,
    "qkv_bias": False,
    "final_norm": True,
    "norm_eps": 1e-5,
}
OPTIMIZER = {
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "adam_eps": 1e-8,
    "weight_decay": 0.1,
    "weight_decay_on": "tensors with 2 dimensions",
    "clip_norm": 1.0,
    "clip_scale": "min(1, clip_norm / norm)",
    "steps": 5,
}
BATCH = 4
IGNORED = -1


class LayerNorm(nn.Module):
    def __init__(self, emb_dim, eps):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        norm_x = (x - mean) / torch.sqrt(var + self.eps)
        return self.scale * norm_x + self.shift


class RMSNorm(nn.Module):
    def __init__(self, emb_dim, eps):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(emb_dim))

    def forward(self, x):
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return self.scale * (x / torch.sqrt(mean_square + self.eps))


NORMS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}


class GELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(cfg["emb_dim"], 4 * cfg["emb_dim"]), GELU(), nn.Linear(4 * cfg["emb_dim"], cfg["emb_dim"])
        )

    def forward(self, x):
        return self.layers(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_heads = cfg["n_heads"]
        self.head_dim = cfg["emb_dim"] // cfg["n_heads"]
        self.W_query = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.W_key = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.W_value = nn.Linear(cfg["emb_dim"], cfg["emb_dim"], bias=cfg["qkv_bias"])
        self.out_proj = nn.Linear(cfg["emb_dim"], cfg["emb_dim"])
        future = torch.triu(torch.ones(cfg["context_length"], cfg["context_length"], dtype=torch.bool), diagonal=1)
        self.register_buffer("mask", future, persistent=False)

    def split_heads(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.n_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        b, t, c = x.shape
        queries, keys, values = (self.split_heads(w(x)) for w in (self.W_query, self.W_key, self.W_value))
        scores = queries @ keys.transpose(2, 3) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(self.mask[:t, :t], -torch.inf)
        weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        context = (weights @ values).transpose(1, 2).reshape(b, t, c)
        return self.out_proj(context)


class TransformerBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        norm = NORMS[cfg["norm_type"]]
        self.norm_position = cfg["norm_position"]
        self.att = MultiHeadAttention(cfg)
        self.ff = FeedForward(cfg)
        self.norm1 = norm(cfg["emb_dim"], cfg["norm_eps"])
        self.norm2 = norm(cfg["emb_dim"], cfg["norm_eps"])

    def forward(self, x):
        if self.norm_position == "pre":
            x = x + self.att(self.norm1(x))
            x = x + self.ff(self.norm2(x))
        else:
            x = self.norm1(x + self.att(x))
            x = self.norm2(x + self.ff(x))
        return x


class GPTModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.trf_blocks = nn.Sequential(*[TransformerBlock(cfg) for _ in range(cfg["n_layers"])])
        self.final_norm = NORMS[cfg["norm_type"]](cfg["emb_dim"], cfg["norm_eps"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, tokens):
        x = self.tok_emb(tokens) + self.pos_emb(torch.arange(tokens.shape[1]))
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)


def mean_loss(logits, targets):
    """Mean of logsumexp(logits) - logits[target] over the targets that are not IGNORED."""
    counted = targets != IGNORED
    top = logits.max(dim=-1, keepdim=True).values
    log_sum = (top + torch.log(torch.exp(logits - top).sum(dim=-1, keepdim=True))).squeeze(-1)
    chosen = logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (log_sum - chosen)[counted].mean()


def built_in_loss(model, cfg, inputs, targets):
    """The same loss by PyTorch's own layers, to check the classes above."""
    p = dict(model.named_parameters())

    def norm(name, x):
        if cfg["norm_type"] == "layernorm":
            return F.layer_norm(x, x.shape[-1:], p[name + ".scale"], p[name + ".shift"], cfg["norm_eps"])
        return F.rms_norm(x, x.shape[-1:], p[name + ".scale"], cfg["norm_eps"])

    def attention(block, x):
        b, t, c = x.shape
        q, k, v = (
            F.linear(x, p[f"{block}.att.{w}.weight"]).view(b, t, cfg["n_heads"], -1).transpose(1, 2)
            for w in ("W_query", "W_key", "W_value")
        )
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        return F.linear(o, p[f"{block}.att.out_proj.weight"], p[f"{block}.att.out_proj.bias"])

    def feed_forward(block, x):
        h = F.linear(x, p[f"{block}.ff.layers.0.weight"], p[f"{block}.ff.layers.0.bias"])
        return F.linear(F.gelu(h, approximate="tanh"), p[f"{block}.ff.layers.2.weight"], p[f"{block}.ff.layers.2.bias"])

    x = p["tok_emb.weight"][inputs] + p["pos_emb.weight"][: inputs.shape[1]]
    for i in range(cfg["n_layers"]):
        block = f"trf_blocks.{i}"
        if cfg["norm_position"] == "pre":
            x = x + attention(block, norm(block + ".norm1", x))
            x = x + feed_forward(block, norm(block + ".norm2", x))
        else:
            x = norm(block + ".norm1", x + attention(block, x))
            x = norm(block + ".norm2", x + feed_forward(block, x))
    logits = F.linear(norm("final_norm", x), p["out_head.weight"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def initialize(model, rng):
    """Wide enough that attention is far from uniform and no gradient is nearly zero: entries of queries and keys
    have a standard deviation near 1. Gains and biases differ by column."""
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        if name.endswith("emb.weight"):
            values = rng.normal(0, 0.5, shape)
        elif parameter.dim() == 2:
            values = rng.normal(0, 0.2, shape)
        elif name.endswith(".scale"):
            values = 1 + rng.normal(0, 0.1, shape)
        else:
            values = rng.normal(0, 0.1, shape)
        parameter.data.copy_(torch.from_numpy(values.astype(np.float32).astype(np.float64)))


def gradient_norm(model):
    return math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))


def train(model, inputs, targets):
    """Five AdamW steps on one batch. Returns the losses and the gradient norms before clipping."""
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=OPTIMIZER["learning_rate"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["adam_eps"],
    )
    losses, norms = [], []
    for _ in range(OPTIMIZER["steps"]):
        optimizer.zero_grad()
        loss = mean_loss(model(inputs), targets)
        loss.backward()
        norm = gradient_norm(model)
        scale = min(1.0, OPTIMIZER["clip_norm"] / norm)
        for parameter in model.parameters():
            parameter.grad.mul_(scale)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def copies(model, prefix, dtype, of=lambda p: p.data):
    return {prefix + name: of(p).numpy().astype(dtype) for name, p in model.named_parameters()}


def write(norm_type, norm_position):
    cfg = {**MODEL, "norm_type": norm_type, "norm_position": norm_position}
    rng = np.random.default_rng(20260)
    model = GPTModel(cfg)
    initialize(model, rng)

    tokens = rng.integers(0, cfg["vocab_size"], (BATCH, cfg["context_length"] + 1))
    inputs, targets = torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())
    if norm_position == "post":
        targets[0, :3] = IGNORED
        targets[2, 7] = IGNORED
        targets[3, -2:] = IGNORED

    loss = mean_loss(model(inputs), targets)
    expected = built_in_loss(model, cfg, inputs, targets)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    loss.backward()
    assert abs(loss.item() - expected.item()) < 1e-13, (loss.item(), expected.item())
    for (name, parameter), gradient in zip(model.named_parameters(), gradients):
        error = float((parameter.grad - gradient).abs().max())
        assert error <= 1e-13, f"{name}: gradient differs from the built-in layers by {error}"
    smallest = min((float(p.grad.pow(2).mean().sqrt()), name) for name, p in model.named_parameters())
    assert smallest[0] > 1e-3, f"{smallest[1]}: gradient is nearly zero; a test of it would show nothing"

    tensors = copies(model, "", np.float32)
    tensors["inputs"] = inputs.numpy().astype(np.int32)
    tensors["targets"] = targets.numpy().astype(np.int32)
    tensors["loss"] = np.array([loss.item()])
    tensors |= copies(model, "grad.", np.float64, of=lambda p: p.grad.clone())
    tensors["grad_norm"] = np.array([gradient_norm(model)])
    losses, norms = train(model, inputs, targets)
    assert losses[0] == loss.item() and losses == sorted(losses, reverse=True), losses
    tensors["step_losses"] = np.array(losses)
    tensors["step_grad_norms"] = np.array(norms)
    tensors |= copies(model, "final.", np.float64)

    path = OUT / f"pytorch_{norm_type}_{norm_position}.safetensors"
    config = {
        "model": cfg,
        "optimizer": OPTIMIZER,
        "batch": BATCH,
        "ignored_target": IGNORED,
        "source": f"tools/make_pytorch_fixture.py, torch {torch.__version__}, float64",
    }
    save_file(tensors, path, metadata={"config": json.dumps(config)})  # one key: safetensors keeps no order of keys
    print(
        f"{path.name}: {path.stat().st_size:,} bytes, loss {losses[0]:.6f} -> {losses[-1]:.6f}, gradient norms "
        f"{norms[0]:.3f} -> {norms[-1]:.3f}, smallest gradient RMS {smallest[0]:.1e} ({smallest[1]})"
    )


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    OUT.mkdir(parents=True, exist_ok=True)
    for norm_type in NORMS:
        for norm_position in ("pre", "post"):
            write(norm_type, norm_position)


if __name__ == "__main__":
    main()
