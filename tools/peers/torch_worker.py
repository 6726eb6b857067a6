"""A PyTorch process that peers.py keeps: a job in JSON on each line of its input, an answer on each line of its output.

  {"job": "hello", "threads": 2}                                            -> {"torch": "2.15.0"}
  {"job": "norm", "norm": "rmsnorm", "how": "builtin", "dtype": "bf16", "rows": 2048, "cols": 768, "seconds": 0.3,
   "sets": 1}                                                              -> {"forward": s, "backward": s}
  {"job": "step", "mode": "eager", "dtype": "f32", "shape": {...}, "seconds": 3}
                                                                           -> {"step": s, "peak_bytes": n, "parameters": n}

Times are medians of single calls. Memory: the high-water mark of the process, set back before the model is made, minus
what the process held then. One training at a time; the same one asked for again goes on.
"""

import json
import re
import statistics
import sys
import time

import torch
import torch._functorch.config

import torch_models

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
torch._functorch.config.donated_buffer = False  # backward is called again over one graph


def status_bytes(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(rf"{name}:\s+(\d+) kB", file.read()).group(1)) * 1024


def median_time(call, seconds):
    """Of calls for so many seconds, at least 3; each call gets its number."""
    call(0)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call(len(times) + 1)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Worker:
    def __init__(self):
        self.norms, self.training, self.training_key, self.baseline = {}, None, None, 0

    def hello(self, job):
        torch.set_num_threads(job["threads"])
        return {"torch": torch.__version__}

    def norm(self, job):
        key = (job["norm"], job["how"], job["cols"], job["dtype"])
        if key not in self.norms:
            self.norms[key] = torch_models.make_norm(*key[:3], DTYPES[job["dtype"]])
        norm, shape, dtype = self.norms[key], (job["rows"], job["cols"]), DTYPES[job["dtype"]]
        sets = [(torch.randn(shape).to(dtype).requires_grad_(), torch.randn(shape).to(dtype)) for _ in range(job["sets"])]
        forward = median_time(lambda i: norm(sets[i % len(sets)][0]), job["seconds"] / 2)
        graphs = [(norm(x), x, dy) for x, dy in sets]
        parameters = list(norm.parameters())

        def backward(i):
            y, x, dy = graphs[i % len(graphs)]
            torch.autograd.grad(y, [x, *parameters], dy, retain_graph=True)

        return {"forward": forward, "backward": median_time(backward, job["seconds"] / 2)}

    def step(self, job):
        key = json.dumps([job["mode"], job["dtype"], job["shape"]])
        if key != self.training_key:
            self.training = None
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
            self.baseline = status_bytes("VmRSS")
            self.training, self.training_key = torch_models.Training(job["shape"], job["mode"], job["dtype"]), key
            self.training.step()  # compiles, and makes the moments
        step_s = median_time(lambda i: self.training.step(), job["seconds"])
        return {"step": step_s, "peak_bytes": status_bytes("VmHWM") - self.baseline, "parameters": self.training.parameters}


def main():
    worker = Worker()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = getattr(worker, job["job"])(job)
        except Exception as error:  # the reason is shown where the number would stand
            answer = {"refused": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), flush=True)


main()
