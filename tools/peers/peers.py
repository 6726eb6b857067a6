#!/usr/bin/env python3
"""Runs normlab and PyTorch on the same work, in turns, and prints how their times compare.

  ./dev peers --install                     once: PyTorch into a virtual environment of its own, build/peers
  ./dev peers                               everything: norm layers, then whole training steps
  ./dev peers --part norms --shapes 2048x768 --rounds 3
  ./dev peers --part steps --presets tiny --dtypes f32 --json peers.json

norms: forward and backward of LayerNorm and RMSNorm; PyTorch's built-in layer, the formula written by hand, and
  torch.compile of that, beside normlab's fused, handrolled and library implementations.
steps: forward, backward, clipping, AdamW. naive: the article's code style (separate q, k and v, all scores, norm and
  GELU by hand). eager: one product for q, k and v, scaled_dot_product_attention, built-in norm, fused AdamW. compile:
  torch.compile of eager. bf16: autocast.

In every round each contender measures once, in an order that is shuffled anew; a ratio is taken within its round, and
shown as the median over the rounds with the least and the largest. Both sides use the same number of threads. PyTorch is
needed neither to build nor to test normlab.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

HERE = pathlib.Path(__file__).resolve().parent
HOME = HERE.parent.parent
VENV = HOME / "build" / "peers"
NORM_SHAPES = "2048x768,4096x128,8192x768,2048x4096,1x4096"
STEP_SHAPES = {  # of normlab's presets, at the batch and the window measured; names on the command line
    "tiny": [("tiny", 16, 256)],
    "study": [("study", 16, 256)],
    "gpt2-small": [("gpt2-small", 4, 256), ("gpt2-small", 2, 1024)],
}
TORCH_NORMS = ["builtin", "handwritten", "compiled"]
TORCH_MODES = ["naive", "eager", "compile"]
STATE_BYTES = 16  # per parameter in fp32: weight, gradient, two moments


def say(text):
    print(text, file=sys.stderr, flush=True)


def install():
    """PyTorch for CPUs where its own index can be reached, else the one of PyPI, which is some gigabytes."""
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
    small = ["--retries", "0", "--timeout", "10", "--index-url", "https://download.pytorch.org/whl/cpu"]
    if subprocess.run([*pip, *small, "torch", "numpy"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        say("PyTorch's index for CPUs cannot be reached; installing from PyPI")
        subprocess.run([*pip, "torch", "numpy"], check=True)


class Torch:
    """A process that answers one job after the other."""

    def __init__(self, python, threads):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen([python, HERE / "torch_worker.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.version = self.ask({"job": "hello", "threads": threads})["torch"]

    def ask(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            return {"refused": f"the PyTorch process ended with code {self.process.wait()}: memory?"}
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Normlab:
    """A fresh process for every measurement."""

    def __init__(self, program, threads):
        self.program, self.threads = program, threads
        _, _, self.baseline = self.process("--version")

    def process(self, *arguments):
        """(exit code, (stdout, stderr), the most memory that it held)."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
            process = subprocess.Popen([str(self.program), *arguments], stdout=out, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            texts = []
            for file in (out, errors):
                file.seek(0)
                texts.append(file.read())
        return process.returncode, texts, usage.ru_maxrss * 1024

    def run(self, *arguments):
        """What --json tells, and the memory that the process took beyond an idle one; or a refusal."""
        code, (out, errors), peak = self.process(*arguments, "--threads", str(self.threads), "--json", "-")
        if code != 0:
            return {"refused": (errors.splitlines() or ["?"])[-1].removeprefix("normlab: error: ")}
        return {**json.loads(out), "process_bytes": peak - self.baseline}

    def norm(self, norm, implementation, dtype, shape, seconds, cache):
        report = self.run("bench", "kernels", "--norms", f"{implementation}_{norm}", "--dtypes", dtype, "--shapes", shape,
                             "--ops", "forward,backward", "--caches", cache, "--seconds", str(seconds / 2))
        if "refused" in report:
            return report
        answer = {}
        for case in report["cases"]:
            contender = case["contenders"][-1]
            if contender["refusal"] is not None:
                return {"refused": contender["refusal"]}
            answer[case["op"]] = contender["time_s"]["median"]
        return answer

    def step(self, norm, dtype, preset, batch, window, seconds):
        arguments = ["bench", "step", "--norms", norm, "--preset", preset, "--batch", str(batch), "--context", str(window),
                     "--dtype", dtype, "--seconds", str(seconds)]
        report = self.run(*arguments)
        if "refused" in report:
            return report
        variant = report["variants"][0]
        return {"step": variant["step_s"], "peak_bytes": report["process_bytes"], "arena_bytes": variant["peak_bytes"],
                "bound_share": variant["bound_share"], "products_share": variant["products_share"]}


def wait_politely_where_busy():
    """Threads that spin while they wait hold up everything where other programs want the processors: normlab looks and
    lets its own sleep; here both sides do."""
    def busy():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    before = busy()
    time.sleep(0.3)
    cpus = (busy() - before) / 0.3
    if cpus > 0.25:
        say(f"note: other programs keep {cpus:.1f} CPUs busy: the ratios say little; threads sleep while they wait")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def rounds_of(contenders, rounds, order, label):
    """{name: [answer of each round]}; in every round all contenders, in a shuffled order. A refusal is not asked again."""
    answers = {name: [] for name in contenders}
    for number in range(rounds):
        names = [name for name in contenders if not any("refused" in answer for answer in answers[name])]
        order.shuffle(names)
        for name in names:
            say(f"{label}: round {number + 1}/{rounds}, {name}")
            answers[name].append(contenders[name]())
    return answers


def median_and_range(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "rounds": len(values)}


def summary(answers, what, baseline):
    """Per contender: the times of `what`, and its time over the baseline's, round by round."""
    result = {}
    for name, given in answers.items():
        if any("refused" in answer for answer in given):
            result[name] = {"refused": next(a["refused"] for a in given if "refused" in a)}
            continue
        result[name] = {"seconds": median_and_range([answer[what] for answer in given])}
        others = answers.get(baseline, [])
        if name != baseline and others and not any("refused" in answer for answer in others):
            result[name]["ratio"] = median_and_range([a[what] / b[what] for a, b in zip(given, others)])
    return result


def ratio_text(entry):
    if "refused" in entry:
        return "refused: " + textwrap.shorten(entry["refused"], 90, placeholder=" ...")
    if "ratio" not in entry:
        return ""
    ratio = entry["ratio"]
    return f"{ratio['median']:7.2f}x [{ratio['least']:.2f}, {ratio['most']:.2f}]"


def print_table(title, result, unit, scale, baseline):
    print(f"\n{title}   (ratio: its time over that of {baseline}; median [least, most] of the rounds)")
    for name, entry in result.items():
        seconds = f"{entry['seconds']['median'] * scale:12,.1f} {unit}" if "seconds" in entry else " " * 15
        print(f"  {name:24} {seconds}  {ratio_text(entry)}".rstrip())


def cold_sets(dtype, rows, cols):
    """Pairs of matrices that together fill a GiB."""
    return max(2, -(-2**30 // (2 * rows * cols * (4 if dtype == "f32" else 2))))


def bench_norms(options, normlab, torch, order):
    results = []
    for dtype in options.dtypes:
        for shape in options.shapes:
            rows, cols = map(int, shape.split("x"))
            for norm in options.norms:
                sets = 1 if options.cache == "warm" else cold_sets(dtype, rows, cols)
                contenders = {}
                for name in ("fused", "handrolled", "library"):
                    contenders[f"normlab {name}"] = lambda name=name: normlab.norm(norm, name, dtype, shape, options.seconds,
                                                                                  options.cache)
                for how in TORCH_NORMS:
                    contenders[f"torch {how}"] = lambda how=how: torch.ask(
                        {"job": "norm", "norm": norm, "how": how, "dtype": dtype, "rows": rows, "cols": cols,
                         "seconds": options.seconds, "sets": sets})
                answers = rounds_of(contenders, options.rounds, order, f"{norm} {dtype} {shape}")
                for what in ("forward", "backward"):
                    result = summary(answers, what, "normlab fused")
                    print_table(f"{norm} {dtype} {shape} {what}, {options.cache}", result, "us", 1e6, "normlab fused")
                    results.append({"norm": norm, "dtype": dtype, "rows": rows, "cols": cols, "op": what,
                                    "cache": options.cache, "contenders": result})
    return results


def preset_shapes(program):
    presets = json.loads(subprocess.run([program, "list", "presets", "--json"], check=True, capture_output=True, text=True).stdout)
    return {preset["name"]: preset for preset in presets["presets"]}


def bench_steps(options, normlab, order):
    results = []
    presets = preset_shapes(normlab.program)
    for preset, batch, window in [shape for name in options.presets for shape in STEP_SHAPES[name]]:
        config = presets[preset]["config"]
        shape = {**{key: config[key] for key in ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers")},
                 "batch": batch, "window": window}
        state_bytes = STATE_BYTES * presets[preset]["parameters"]
        for dtype in options.dtypes:
            workers = {mode: Torch(options.python, options.threads) for mode in options.modes}
            try:
                contenders = {f"normlab {norm}": lambda norm=norm: normlab.step(norm, dtype, preset, batch, window, options.step_seconds)
                              for norm in ("fused_layernorm", "handrolled_layernorm")}
                for mode, worker in workers.items():
                    contenders[f"torch {mode}"] = lambda mode=mode, worker=worker: worker.ask(
                        {"job": "step", "mode": mode, "dtype": dtype, "shape": shape, "seconds": options.step_seconds})
                title = f"{preset} B{batch} T{window} {dtype}"
                answers = rounds_of(contenders, options.rounds, order, title)
            finally:
                for worker in workers.values():
                    worker.close()
            result = summary(answers, "step", "normlab fused_layernorm")
            print_table(f"step {title}", result, "ms", 1e3, "normlab fused_layernorm")
            for name, entry in result.items():
                if "refused" in entry:
                    continue
                peak = max(answer["peak_bytes"] for answer in answers[name])
                entry["peak_bytes"], entry["beyond_state_bytes"] = peak, peak - state_bytes
                entry["arena_bytes"] = answers[name][0].get("arena_bytes")
                entry["tokens_per_s"] = batch * window / entry["seconds"]["median"]
                for share in ("products_share", "bound_share"):
                    values = [answer[share] for answer in answers[name] if answer.get(share) is not None]
                    if values:
                        entry[share] = statistics.median(values)
                print(f"  {name:24} {entry['tokens_per_s']:12,.0f} tokens/s  {peak / 2**20:9,.0f} MiB at the most, "
                      f"{(peak - state_bytes) / 2**20:9,.0f} beyond weights, gradients, moments")
            results.append({"preset": preset, "batch": batch, "window": window, "dtype": dtype, "state_bytes": state_bytes,
                            "contenders": result})
    return results


def names(known):
    def parse(text):
        asked = text.split(",")
        for name in asked:
            if name not in known:
                raise argparse.ArgumentTypeError(f"\"{name}\" is unknown; there are {', '.join(known)}")
        return asked
    return parse


def shapes(text):
    for shape in text.split(","):
        if not (shape.count("x") == 1 and all(part.isdecimal() and int(part) > 0 for part in shape.split("x"))):
            raise argparse.ArgumentTypeError(f"\"{shape}\" is no shape; one is ROWSxCOLS, such as 2048x768")
    return text.split(",")


def positive(kind):
    def parse(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} must be above 0")
        return value
    return parse


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="installs PyTorch into build/peers, and ends")
    parser.add_argument("--part", choices=["norms", "steps", "all"], default="all")
    parser.add_argument("--norms", type=names(["layernorm", "rmsnorm"]), default="layernorm,rmsnorm")
    parser.add_argument("--shapes", type=shapes, default=NORM_SHAPES, help=f"of norm layers (default {NORM_SHAPES})")
    parser.add_argument("--cache", choices=["warm", "cold"], default="warm", help="of norm layers: the same buffers, or others")
    parser.add_argument("--presets", type=names(list(STEP_SHAPES)), default=",".join(STEP_SHAPES), help="of steps")
    parser.add_argument("--modes", type=names(TORCH_MODES), default=",".join(TORCH_MODES),
                        help="of PyTorch's steps; all of them are in memory at one time")
    parser.add_argument("--dtypes", type=names(["f32", "bf16"]), default="f32,bf16")
    parser.add_argument("--rounds", type=positive(int), default=3)
    parser.add_argument("--seconds", type=positive(float), default=0.6, help="of a norm layer in a round (default 0.6)")
    parser.add_argument("--step-seconds", type=positive(float), default=10, help="of a step in a round (default 10)")
    parser.add_argument("--threads", type=positive(int), default=2, help="of both (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the orders")
    parser.add_argument("--json", help="writes everything to a file")
    parser.add_argument("--python", default=str(VENV / "bin" / "python"), help="a Python that has PyTorch")
    parser.add_argument("--normlab", default=str(HOME / "build" / "release" / "bin" / "normlab"), help="the program")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse_arguments(arguments)
    if options.install:
        install()
        return 0
    try:
        found = subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    except OSError:
        found = False
    if not found:
        say(f"no PyTorch in {options.python}; `./dev peers --install` puts it into build/peers, or name another --python")
        return 1
    wait_politely_where_busy()
    normlab, torch = Normlab(options.normlab, options.threads), Torch(options.python, options.threads)
    version = subprocess.run([options.normlab, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{version}; PyTorch {torch.version}; {options.threads} threads each, {options.rounds} rounds")
    order = random.Random(options.seed)
    report = {"schema_version": 1, "kind": "peers", "normlab": version, "torch": torch.version, "threads": options.threads,
              "rounds": options.rounds, "seed": options.seed, "norms": [], "steps": []}
    try:
        if options.part in ("norms", "all"):
            report["norms"] = bench_norms(options, normlab, torch, order)
    finally:
        torch.close()
    if options.part in ("steps", "all"):
        report["steps"] = bench_steps(options, normlab, order)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
