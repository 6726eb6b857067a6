"""kill -9 at random moments: `train` and `compare` can always go on, and end with the bits of a run that nobody killed.

    kill_test.py PROGRAM [--kills N] [--seed S]        N kills of each command; the seed repeats a failure

One kill of four is a SIGTERM: that one leaves a checkpoint, often inside the accumulation window of a step.
"""

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

import program

KILLS = 4
SEED = 1

# Steps of four micro-batches; checkpoints so often that many kills meet one being written.
RUN = ["--set", "emb_dim=48", "--set", "n_layers=1", "--set", "n_heads=2", "--set", "held_out_windows=32", "--context", "32",
       "--batch", "8", "--set", "micro_batch=2", "--data", "text.txt", "--checkpoint-every", "3"]
ONE_THREAD = ["--threads", "1"]
# --json: what is told on the way, a resumption too, goes to stderr.
TRAIN = ["train", *RUN, *ONE_THREAD, "--norm", "fused_rmsnorm", "--steps", "600", "--json"]
COMPARE = ["compare", *RUN, *ONE_THREAD, "--norms", "fused_layernorm,no_norm", "--seeds", "2", "--steps", "240", "--save-models",
           "--duel", "0"]


# A grid with two cells at a time.
GRID = ["compare", *RUN, "--norms", "fused_layernorm,no_norm", "--vary", "learning_rate=0.001,0.002", "--seeds", "1",
        "--steps", "240", "--save-models", "--duel", "0"]


def outcome(run):
    """What must not depend on how often a run was killed."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="ascii").splitlines()]
    return {
        "record": {key: record[key] for key in ("status", "steps_done", "tokens", "train_loss", "test_loss", "test_block_losses")},
        "metrics": [[line[key] for key in ("step", "loss", "learning_rate", "grad_norm")] for line in lines],
        "spikes": record["spikes"],
        "inside": (run / "inside.jsonl").read_text(encoding="ascii"),
        "weights": hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
    }


class Kill(program.Case):
    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")
        self.resumptions = 0

    def timed(self, *arguments):
        start = time.monotonic()
        self.good(*arguments)
        return time.monotonic() - start

    def kill_once(self, arguments, longest_s):
        """Whether the program was killed before it ended well."""
        number = signal.SIGTERM if self.random.random() < 0.25 else signal.SIGKILL
        after_s = self.random.uniform(0, longest_s)
        process = subprocess.Popen([program.BINARY, *arguments], cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
        where = f"--seed {SEED}: {number.name} after {after_s:.3f} s of {arguments}\n{stderr}"
        self.assertIn(process.returncode, (0, 130, -number), where)
        self.assertNotIn("error", stderr.lower(), where)
        self.resumptions += "resumed" in stderr or "goes on from" in stderr
        return process.returncode != 0

    def kill_until_done(self, command, go_on, out, outcomes):
        """Kills KILLS times, in as many whole runs as that takes. `go_on` adds what the command needs to be resumed."""
        whole_s = self.timed(*command, "--out", "straight")
        want = outcomes(self.folder / "straight")
        kills = 0
        while True:
            killed = kills < KILLS and self.kill_once([*command, *go_on(), "--out", out], 0.7 * whole_s)
            kills += killed
            if killed:
                continue
            if kills >= KILLS:
                self.good(*command, *go_on(), "--out", out)
            self.assertEqual(outcomes(self.folder / out), want, f"--seed {SEED}")
            if kills >= KILLS:
                return
            shutil.rmtree(self.folder / out)

    def test_train_goes_on_with_the_same_bits(self):
        run = self.folder / "killed"
        self.kill_until_done(TRAIN, lambda: ["--resume"] if (run / ".lock").exists() else [], "killed", outcome)
        self.assertGreater(self.resumptions, 0, "no run was cut off: the kills came too early or too late")

    def outcomes(self, study):
        results = json.loads((study / "results.json").read_text(encoding="utf-8"))
        self.assertEqual(results["study"]["counts"]["done"], 4)
        return {str(run.parent.relative_to(study)): outcome(run.parent) for run in sorted(study.glob("runs/*/*/run.json"))}

    def test_a_grid_of_two_cells_at_a_time_goes_on_with_the_bits_of_one_at_a_time(self):
        self.good(*GRID, *ONE_THREAD, "--out", "alone")
        self.kill_until_done([*GRID, "--threads", "2", "--jobs", "2"], list, "killed", self.outcomes)
        self.assertEqual(self.outcomes(self.folder / "killed"), self.outcomes(self.folder / "alone"))
        self.assertGreater(self.resumptions, 0, "no cell was cut off: the kills came too early or too late")

    def test_compare_goes_on_inside_its_cells(self):
        self.kill_until_done(COMPARE, list, "killed", self.outcomes)
        self.assertGreater(self.resumptions, 0, "no cell was cut off: the kills came too early or too late")


def main():
    global KILLS, SEED
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    known, sys.argv[2:] = parser.parse_known_args(sys.argv[2:])
    KILLS, SEED = known.kills, known.seed
    program.main()


main()
