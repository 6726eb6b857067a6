"""A finished study with everything that a report shows: made by the real program on a tiny model, then given logs and
records that real runs have only now and then."""

import json
import math
import pathlib
import random
import subprocess

NASTY = "a,\"b\"\n</script><script>document.title = 'broken'</script>"
SPIKE_STEP, LONG_STEPS = 54321, 100000
MOVED = {"what": "gradient_norm", "name": "trf_blocks.0.norm1.scale", "step": 54320, "ratio": 3.5}
TINY = ["--set", "emb_dim=32", "--set", "n_layers=1", "--set", "n_heads=2", "--set", "held_out_windows=8", "--context", "16",
        "--batch", "4", "--steps", "4", "--threads", "1"]


def write_metrics(run, losses, first_step=1):
    with open(run / "metrics.jsonl", "w", encoding="ascii") as file:
        for step, loss in enumerate(losses, first_step):
            text = f"\"{loss}\"" if isinstance(loss, float) and not math.isfinite(loss) else repr(loss)
            file.write(f'{{"step":{step},"loss":{text},"grad_norm":1.5}}\n')


def edit(path, change):
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def inside_lines(scale):
    for step in range(10, 210, 10):
        norms = [{"site": site, "input": {"rms": scale * (1 + k + step / 100), "max": 3, "kurtosis": 3 + k, "mean_share": 0.1 / (1 + k),
                                          "outlier_channel": 1, "outlier_ratio": 2}, "output": {"rms": 1, "max": 3, "kurtosis": 3}}
                 for k, site in enumerate(["trf_blocks.0.norm1", "trf_blocks.0.norm2", "final_norm"])]
        tensors = [{"name": name, "weight_norm": 2 + k, "gradient_norm": "nan" if step == 200 and k == 1 else 0.1 * (k + 1),
                    "update_norm": 0.01, "update_ratio": 0.005}
                   for k, name in enumerate(["tok_emb.weight", "trf_blocks.0.att.W_query.weight", "final_norm.scale", "out_head.weight"])]
        yield json.dumps({"step": step, "norms": norms, "tensors": tensors})


def make(program, folder):
    """Returns the folder of a study of four variants, three seeds each. One is called NASTY."""
    folder = pathlib.Path(folder)
    order = random.Random(1)
    (folder / "text.txt").write_text(" ".join(order.choice(["light", "and", "day"]) for _ in range(4000)), encoding="ascii")
    study = folder / "study"
    subprocess.run([program, "compare", *TINY, "--norms", "layernorm,rmsnorm,no_norm,dyt", "--seeds", "3", "--profile", "--duel", "4", "--data",
                    str(folder / "text.txt"), "--out", str(study)], check=True, capture_output=True, timeout=120)

    # A name that is markup wherever it is not escaped, and breaks lines.
    def rename(record):
        for variant in record["variants"]:
            if variant["name"] == "dyt":
                variant["name"] = NASTY
        for look in record.get("history", record.get("looks_taken", [])):
            look["variants"] = [NASTY if name == "dyt" else name for name in look["variants"]]
        for variant in record["variants"]:
            if variant.get("compared_with") == "dyt":
                variant["compared_with"] = NASTY
    edit(study / "study.json", rename)
    edit(study / "duel.json", rename)
    encoded = "".join(c if c.isalnum() or c in "._-=+," else f"%{ord(c):02X}" for c in NASTY)
    (study / "runs" / "dyt").rename(study / "runs" / encoded)

    run = lambda variant, seed: study / "runs" / variant / f"seed-{seed}"
    for seed in (1, 2, 3):  # a long log with one spike, and a tail of zeros
        losses = [3 + 0.1 * seed + 0.01 * math.sin(step) if step <= 90000 else 0 for step in range(1, LONG_STEPS + 1)]
        losses[SPIKE_STEP - 1] = 9.5
        write_metrics(run("layernorm", seed), losses)
    edit(run("layernorm", 1) / "run.json", lambda record: record.update(spikes=[
        {"step": SPIKE_STEP, "loss": 9.5, "before": 3.1, "peak": 9.5, "recovered_after": 12, "first": MOVED, "moved": [MOVED]}]))
    write_metrics(run("rmsnorm", 1), [2.5 if step % 5 == 0 else math.nan for step in range(1, 101)])
    write_metrics(run("rmsnorm", 2), [2.5] * 98 + [math.inf, math.nan])
    write_metrics(run("rmsnorm", 3), [2.5] * 100)
    for seed in (1, 2, 3):  # every decade, 0 and below
        write_metrics(run("no_norm", seed), [1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001, 0.000001, 0, -1], first_step=0)
    for k, variant in enumerate(["layernorm", encoded]):
        (run(variant, 1) / "inside.jsonl").write_text("\n".join(inside_lines(1 + 100 * k)) + "\n", encoding="ascii")
    return study
