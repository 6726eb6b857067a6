"""normlab compare as a grid: several cells at a time, cells that are tried again, --status, --aa, --within."""

import json
import shutil
import signal
import socket
import subprocess
import time

import program

NORMS = ["--norms", "layernorm,rmsnorm"]


class Grid(program.Case):
    def results(self, study="study"):
        return json.loads((self.folder / study / "results.json").read_text(encoding="utf-8"))

    def cells(self, study="study"):
        """What a cell found, without its times."""
        keys = ("variant", "seed", "status", "test_loss", "test_block_losses", "train_loss", "tokens")
        return [[cell[key] for key in keys] for cell in self.results(study)["cells"]]

    def start(self, *arguments):
        return subprocess.Popen([program.BINARY, *arguments], cwd=self.folder, env=self.environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begun(self, study="study"):
        return [path.parent for path in (self.folder / study).glob("runs/*/*/metrics.jsonl") if path.stat().st_size > 0]

    def wait_for_cells(self, process, count):
        while process.poll() is None and len(self.begun()) < count:
            time.sleep(0.005)

    # ---- jobs

    def test_jobs_change_no_bit_and_are_recorded(self):
        grid = [*NORMS, "--vary", "learning_rate=0.001,0.002", "--seeds", "2"]
        self.good(*self.compare(*grid, threads="2", out="one"))
        done = self.good(*self.compare(*grid, "--jobs", "2", threads="2", out="two"))
        self.assertEqual(self.cells("two"), self.cells("one"))
        self.assertEqual([cell["jobs"] for cell in self.results("two")["cells"]], [2] * 8)
        self.assertEqual([cell["threads"] for cell in self.results("two")["cells"]], [1] * 8)
        self.assertEqual({cell["jobs"] for cell in self.results("one")["cells"]}, {1})
        self.assertIn("1 thread for each of 2 cells at a time", " ".join(done.stderr.split()))
        self.assertIn("up to 2 at a time", " ".join(done.stdout.split()))

    def test_times_of_mixed_jobs_are_not_compared(self):
        self.good(*self.compare(*NORMS, "--seeds", "3"))
        shutil.rmtree(self.folder / "study/runs/rmsnorm/seed-2")
        self.good(*self.compare(*NORMS, "--seeds", "3", "--jobs", "2", threads="2"))
        by_metric = {comparison["metric"]: comparison for comparison in self.results()["comparisons"]}
        self.assertEqual([by_metric[metric]["n"] for metric in ("test_loss", "time")], [3, 2])
        self.assertEqual(by_metric["time"]["pairs_left_out"], 1)

    def test_more_jobs_than_threads_are_refused_and_a_rest_is_told(self):
        self.refused(2, ["--jobs 3", "2", "--threads"], *self.compare(*NORMS, "--jobs", "3", threads="2"))
        for wrong in ("0", "-1", "x", "1.5", "99999"):
            self.refused(2, ["--jobs", wrong], *self.compare(*NORMS, "--jobs", wrong))
        done = self.good(*self.compare(*NORMS, "--seeds", "1", "--jobs", "2", threads="3"))
        self.assertIn("1 of 3 threads stay unused", done.stderr)

    def test_memory_is_checked_for_all_cells_at_a_time(self):
        model = ["compare", *NORMS, "--seeds", "1", "--set", "emb_dim=512", "--set", "n_layers=2", "--set", "n_heads=2",
                 "--set", "held_out_windows=8", "--context", "16", "--batch", "4", "--steps", "1", "--data", "text.txt",
                 "--out", "study", "--threads", "2"]
        one = self.run_program(*model, NORMLAB_MEMORY_MIB="200")
        self.assertEqual(one.returncode, 0, one.stderr)
        shutil.rmtree(self.folder / "study")
        self.refused(1, ["2 runs at a time", "--jobs", "NORMLAB_MEMORY_MIB"], *model, "--jobs", "2",
                     NORMLAB_MEMORY_MIB="200")
        self.assertFalse((self.folder / "study").exists())

    def test_ctrl_c_stops_all_cells_with_a_checkpoint(self):
        command = self.compare(*NORMS, "--seeds", "2", "--jobs", "2", threads="2", steps="4000")
        self.good(*command[:command.index("--out")], "--out", "straight", "--threads", "2", *NORMS, "--seeds", "2")
        process = self.start(*command)
        self.wait_for_cells(process, 2)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stdout), (130, ""), stderr)
        self.assertIn("same command goes on", stderr)
        stopped = {path.parent.parent for path in (self.folder / "study").glob("runs/*/*/checkpoints/step-*")}
        self.assertEqual(stopped, set(self.begun()))
        self.assertEqual(len(stopped), 2)
        done = self.good(*command)
        self.assertEqual(done.stderr.count("goes on from step-"), 2)
        self.assertEqual(self.cells(), self.cells("straight"))

    def test_the_progress_line_tells_of_all_cells(self):
        process = self.start(*self.compare(*NORMS, "--seeds", "1", "--jobs", "2", threads="2", steps="100000"))
        self.wait_for_cells(process, 2)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        lines = [line for line in stderr.splitlines() if line.startswith(("cell ", "cells "))]
        self.assertTrue(lines, stderr)
        self.assertNotIn("\x1b", stderr)

    # ---- retries

    def test_a_cell_that_fails_is_tried_again_at_the_end(self):
        command = self.compare(*NORMS, "--seeds", "2")
        self.good(*command)
        blocked = self.folder / "study/runs/rmsnorm/seed-1"
        shutil.rmtree(blocked)
        blocked.write_text("in the way", encoding="ascii")
        done = self.run_program(*command, "--retries", "2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("rmsnorm, seed 1: failed"), 3, done.stderr)
        self.assertEqual(done.stderr.count("it will be tried again"), 2, done.stderr)
        self.assertIn("4 planned: 3 done, 0 diverged, 1 failed, 0 missing", done.stdout)
        for wrong in ("-1", "x", "2000"):
            self.refused(2, ["--retries", wrong], *command, "--retries", wrong)
        blocked.unlink()
        self.good(*command)

    # ---- status

    def status(self, *more, study="study"):
        return json.loads(self.good("compare", "--status", study, "--json", *more).stdout)

    def test_status_tells_of_a_study_at_work(self):
        process = self.start(*self.compare(*NORMS, "--seeds", "2", "--jobs", "2", threads="2", steps="200000"))
        self.wait_for_cells(process, 2)
        shown = self.status()
        text = self.good("compare", "--status", "study").stdout
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(shown["owner"]["pid"], process.pid)
        self.assertEqual(shown["owner"]["host"], socket.gethostname())
        self.assertEqual(shown["owner"]["program"], "normlab compare")
        self.assertEqual(shown["owner"]["state"], "alive")
        self.assertEqual((shown["running"], shown["jobs"]), (2, 2))
        self.assertEqual(shown["counts"], {"planned": 4, "done": 0, "diverged": 0, "failed": 0, "missing": 4})
        self.assertGreater(shown["remaining_s"], 0)
        running = [cell for cell in shown["cells"] if cell["running"]]
        self.assertEqual({cell["steps"] for cell in running}, {200000})
        self.assertIn(f"process {process.pid} on", text)
        self.assertIn("step", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
        after = self.status()
        self.assertEqual((after["owner"]["state"], after["running"], after["remaining_s"]), ("dead", 0, None))

    def test_status_of_a_study_that_is_done_changes_nothing(self):
        self.good(*self.compare(*NORMS, "--seeds", "2"))
        before = {path: path.stat().st_mtime_ns for path in (self.folder / "study").rglob("*")}
        shown = self.status()
        self.assertEqual({path: path.stat().st_mtime_ns for path in (self.folder / "study").rglob("*")}, before)
        self.assertTrue(shown["complete"])
        self.assertIsNone(shown["owner"])
        (self.folder / "text.txt").unlink()  # no data needed
        self.assertIn("4 planned: 4 done", self.good("compare", "--status", "study").stdout)

    def test_status_refuses_what_it_would_ignore(self):
        self.refused(1, ["no folder", "nothing", "compare"], "compare", "--status", "nothing")
        self.refused(2, ["--status", "--data"], "compare", "--status", "study", "--data", "text.txt")
        self.refused(2, ["--status", "--seeds"], "compare", "--status", "study", "--seeds", "3")

    def test_a_second_program_is_told_who_works(self):
        process = self.start(*self.compare(*NORMS, "--seeds", "1", steps="200000"))
        self.wait_for_cells(process, 1)
        self.refused(1, [f"normlab compare (process {process.pid} on {socket.gethostname()}, since 2", "--out"],
                     *self.compare(*NORMS, "--seeds", "1", steps="200000"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual((self.folder / "study/.lock").read_text(encoding="ascii"), "")

    # ---- A/A

    def test_an_aa_study_compares_a_norm_with_itself(self):
        command = self.compare("--aa", "--norms", "layernorm", "--seeds", "3", steps="20")
        done = self.good(*command)
        results = self.results()
        self.assertTrue(results["study"]["aa"])
        self.assertEqual([variant["seeds"] for variant in results["variants"]], [[1, 2, 3], [4, 5, 6]])
        self.assertEqual([(cell["variant"], cell["seed"]) for cell in results["cells"]],
                         [("layernorm", 1), ("layernorm", 2), ("layernorm", 3),
                          ("layernorm'", 4), ("layernorm'", 5), ("layernorm'", 6)])
        self.assertIn("An A/A study", done.stdout)
        self.assertIn("paired by position", " ".join(done.stdout.split()))
        self.assertIn("nothing to run", self.good(*command).stderr)
        self.good(*self.compare("--aa", "--norms", "layernorm", "--seeds", "4", steps="20"))
        self.assertEqual([variant["seeds"] for variant in self.results()["variants"]], [[1, 2, 3, 7], [4, 5, 6, 8]])
        self.refused(1, ["--aa"], *self.compare(*NORMS, "--seeds", "4", steps="20"))
        self.refused(2, ["--aa", "--seeds N"], *self.compare("--aa", "--norms", "layernorm", "--seed-list", "1,2"))

    def test_aa_takes_the_baseline_or_the_norm_of_the_configuration(self):
        done = self.good(*self.compare("--aa", *NORMS, "--baseline", "rmsnorm", "--seeds", "1", out="a"))
        self.assertIn("the others are left out", done.stderr)
        self.assertEqual(self.results("a")["study"]["baseline"], "rmsnorm")
        self.good(*self.compare("--aa", "--set", "norm_type=no_norm", "--seeds", "1", out="b"))
        self.assertEqual(self.results("b")["study"]["baseline"], "no_norm")

    # ---- S-12: two norms x two learning rates x three seeds

    def test_within_compares_norms_at_each_learning_rate(self):
        grid = self.compare(*NORMS, "--vary", "learning_rate=0.001,0.002", "--seeds", "3")
        self.good(*grid, "--within", "learning_rate")
        results = self.results()
        self.assertEqual([variant["counts"]["done"] for variant in results["variants"]], [3] * 4)
        losses = [comparison for comparison in results["comparisons"] if comparison["metric"] == "test_loss"]
        self.assertEqual([(comparison["variant"], comparison["baseline"]) for comparison in losses],
                         [(f"norm_type=rmsnorm,learning_rate={rate}", f"norm_type=layernorm,learning_rate={rate}")
                          for rate in ("0.001", "0.002")])
        self.assertEqual({comparison["confidence"] for comparison in losses}, {1 - 0.05 / (2 * 2)})
        by_cell = {(cell["variant"], cell["seed"]): cell["test_loss"] for cell in results["cells"]}
        for comparison in losses:
            pairs = [by_cell[comparison["variant"], seed] - by_cell[comparison["baseline"], seed] for seed in (1, 2, 3)]
            self.assertAlmostEqual(comparison["difference"], sum(pairs) / 3, places=12)
        self.refused(1, ["--within learning_rate", "--out"], *grid, "--within", "norm_type")
        self.refused(1, ["--within batch", "does not vary"], *grid[:grid.index("--out")], "--out", "new", *NORMS,
                     "--within", "batch")


program.main()
