"""normlab compare: the study as a folder, restarts, refusals, interruptions, exit codes."""

import csv
import fcntl
import json
import shutil
import signal
import subprocess
import time

import program


class Compare(program.Case):
    def results(self):
        return json.loads((self.folder / "study/results.json").read_text(encoding="utf-8"))

    def run_times(self):
        return {path: path.stat().st_mtime_ns for path in (self.folder / "study/runs").rglob("run.json")}

    def test_the_default_study_needs_only_data_and_out(self):
        done = self.good(*self.compare())
        results = self.results()
        self.assertEqual([variant["name"] for variant in results["variants"]],
                         ["handrolled_layernorm", "fused_layernorm", "handrolled_rmsnorm", "fused_rmsnorm", "no_norm"])
        self.assertEqual(results["study"]["counts"], {"planned": 25, "done": 25, "diverged": 0, "failed": 0, "missing": 0})
        self.assertEqual(len(results["comparisons"]), 4 * 4)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80, done.stdout)
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        done.stdout.encode("ascii")
        self.assertLess(done.stderr.index("preparing"), done.stderr.index(": test loss"))
        self.assertFalse(list((self.folder / "study").rglob("*.safetensors")))

    def test_tables_and_json_and_csv_hold_the_same_numbers(self):
        text = self.good(*self.compare("--norms", "layernorm,no_norm", "--seeds", "3")).stdout
        results = self.results()
        for variant in results["variants"]:
            self.assertIn(f"{variant['mean_test_loss']:.4f}", text)
        loss = results["comparisons"][0]
        self.assertIn(f"[{loss['ci_low']:+.4f}, {loss['ci_high']:+.4f}]", text)
        with open(self.folder / "study/results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([float(row["test_loss"]) for row in rows], [cell["test_loss"] for cell in results["cells"]])

    def test_a_second_start_runs_nothing_and_shows_the_same(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2")
        first = self.good(*command)
        before, results = self.run_times(), self.results()
        second = self.good(*command)
        self.assertEqual(self.run_times(), before)
        self.assertEqual(second.stdout, first.stdout)
        self.assertIn("nothing to run", second.stderr)
        self.assertEqual(json.loads(self.good(*command, "--json").stdout), results)

    def test_only_what_is_missing_runs_again(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "3")
        self.good(*command)
        before = self.run_times()
        lost = self.folder / "study/runs/rmsnorm/seed-2/run.json"
        lost.unlink()
        killed = self.folder / "study/runs/layernorm/seed-1/run.json"
        killed.write_text(killed.read_text(encoding="utf-8").replace('"done"', '"running"'), encoding="utf-8")
        self.good(*command)
        changed = {path for path, at in self.run_times().items() if at != before[path]}
        self.assertEqual(changed, {lost, killed})

    def test_threads_may_differ_between_starts(self):
        norms = ["--norms", "layernorm,rmsnorm", "--seeds", "2"]
        self.good(*self.compare(*norms))
        losses = [cell["test_loss"] for cell in self.results()["cells"]]
        (self.folder / "study/runs/rmsnorm/seed-2/run.json").unlink()
        done = self.good(*self.compare(*norms, threads="2"))
        self.assertEqual([cell["test_loss"] for cell in self.results()["cells"]], losses)
        self.assertIn("others differ", " ".join(done.stdout.split()))
        self.assertIn("left out", " ".join(done.stdout.split()))

    def test_another_study_in_the_folder_is_refused_by_key(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2")
        self.good(*command)
        before = self.run_times()
        self.refused(1, ["steps = 4", "steps = 5", "--out", "delete"],
                     *self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", steps="5"))
        self.refused(1, ["learning_rate"], *command, "--set", "learning_rate=0.01")
        self.refused(1, ["--margin 0.01", "0.5"], *command, "--margin", "0.5")
        self.refused(1, ["--looks 2", "9"], *command, "--looks", "9")
        self.refused(1, ["seed 2"], *self.compare("--norms", "layernorm,rmsnorm", "--seeds", "1"))
        self.refused(1, ["rmsnorm"], *self.compare("--norms", "layernorm,no_norm", "--seeds", "2"))
        (self.folder / "text.txt").write_text("other text " * 2000, encoding="ascii")
        self.refused(1, ["data hash"], *command)
        self.assertEqual(self.run_times(), before)

    def test_another_instruction_set_cannot_continue_a_study(self):
        isas = json.loads(self.good("list", "devices", "--json").stdout)["devices"][0]["supported_isas"]
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2")
        self.good(*command)
        (self.folder / "study/runs/rmsnorm/seed-2/run.json").unlink()
        if len(isas) > 1:
            self.refused(1, ["instruction set", isas[-1], isas[0]], *command, NORMLAB_ISA=isas[0])

    def test_more_seeds_are_a_further_look(self):
        self.good(*self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", "--looks", "1"))
        done = self.good(*self.compare("--norms", "layernorm,rmsnorm", "--seeds", "3"))
        self.assertIn("xploratory", done.stdout)
        self.assertEqual(self.results()["study"]["look"], 2)
        self.assertTrue(self.results()["study"]["exploratory"])

    def test_aliases_and_repeats_are_dropped_with_a_note(self):
        done = self.good(*self.compare("--norms", "pytorch_layernorm,fused_layernorm,no_norm", "--seeds", "1"))
        self.assertEqual([variant["name"] for variant in self.results()["variants"]], ["fused_layernorm", "no_norm"])
        self.assertIn("named twice", done.stderr)
        self.assertIn("one seed", done.stdout)
        self.assertTrue(all(comparison["verdict"] is None for comparison in self.results()["comparisons"]))

    def test_any_key_can_vary(self):
        done = self.good(*self.compare("--norms", "layernorm,rmsnorm", "--vary", "learning_rate=0.001,0.002", "--seeds", "2",
                                       "--baseline", "norm_type=rmsnorm,learning_rate=0.001"))
        results = self.results()
        self.assertEqual(len(results["variants"]), 4)
        self.assertEqual(results["study"]["baseline"], "norm_type=rmsnorm,learning_rate=0.001")
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80, done.stdout)

    def test_divergence_is_an_outcome_and_fails_only_on_request(self):
        command = self.compare("--vary", "learning_rate=0.001,1e6", "--set", "grad_clip=0", "--set", "norm_type=no_norm",
                               "--seeds", "3", steps="50")
        self.good(*command)
        results = self.results()
        self.assertEqual(results["study"]["counts"]["diverged"], 3)
        self.assertEqual(results["comparisons"][0]["verdict"], "diverged")
        gated = self.run_program(*command, "--fail-if-worse")
        self.assertEqual(gated.returncode, 3)
        self.assertIn("--fail-if-worse: ended worse than the baseline: ", gated.stderr)

    # S-09
    def test_a_gate_passes_what_is_not_shown_to_be_worse_and_nothing_that_was_not_judged(self):
        command = self.compare("--norms", "layernorm,handrolled_layernorm", "--seeds", "3", "--fail-if-worse")
        self.good(*command)
        self.assertIn(self.results()["comparisons"][0]["verdict"], ("equivalent", "identical"))
        self.refused(2, ["--fail-if-slower judges from the duel", "--duel 0"], *command, "--fail-if-slower")
        norms = ("--norms", "layernorm,no_norm", "--seeds", "1")
        for command, words in ((self.compare(*norms, "--fail-if-worse", out="one"), "more seeds"),
                               (self.compare(*norms, "--fail-if-slower", "--duel", "0.001", out="two"), "--duel SECONDS")):
            done = self.run_program(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("could not be judged, for there is no verdict on no_norm", done.stderr)
            self.assertIn(words, done.stderr)
            self.assertIn("no_norm", done.stdout)  # the table is there all the same

    # S-19
    def test_a_margin_of_0_leaves_no_equivalence(self):
        done = self.good(*self.compare("--norms", "layernorm,handrolled_layernorm", "--seeds", "3", "--margin", "0",
                                       "--speed-margin", "0"))
        self.assertIn("none for losses, none for times", " ".join(done.stdout.split()))
        results = self.results()
        self.assertEqual((results["study"]["margin_nats"], results["study"]["speed_margin"]), (0, 0))
        self.assertNotIn("equivalent", [comparison["verdict"] for comparison in results["comparisons"]])
        self.refused(1, ["--margin 0", "0.01"], *self.compare("--norms", "layernorm,handrolled_layernorm", "--seeds", "3",
                                                              "--margin", "0.01"))

    # S-08
    def test_verdicts_are_words_and_never_colours(self):
        command = self.compare("--norms", "layernorm,no_norm", "--seeds", "3")
        plain = self.good(*command).stdout
        self.assertTrue(" ".join(plain.split()).startswith(self.results()["headline"]), plain)
        for environment in ({"NO_COLOR": "1"}, {"TERM": "xterm-256color"}, {"TERM": "dumb"}):
            done = self.good(*command, **environment)
            self.assertEqual(done.stdout, plain)
            self.assertNotIn("\x1b", done.stdout + done.stderr)

    # T-37
    def test_a_variant_that_learns_nothing_is_told_early_and_diverged(self):
        command = self.compare("--vary", "learning_rate=0.002,3", "--set", "norm_type=no_norm", "--set", "warmup_fraction=0",
                               "--seeds", "3", steps="40")
        done = self.good(*command)
        self.assertRegex(done.stderr, r"note: learning_rate=3.*, seed \d: the training loss has been above the 5\.\d+ of its first step since step \d+")
        results = self.results()
        self.assertEqual(results["comparisons"][0]["verdict"], "diverged")
        reasons = {cell["reason"] for cell in results["cells"] if cell["status"] == "diverged"}
        self.assertIn("from step 2 on", " ".join(reasons))

    # S-09
    def test_fail_if_worse_follows_the_verdict_on_the_loss(self):
        command = self.compare("--vary", "learning_rate=0.002,1e-9", "--set", "norm_type=layernorm", "--seeds", "4", steps="60")
        self.good(*command)
        self.assertEqual(self.results()["comparisons"][0]["verdict"], "worse")
        self.assertEqual(self.run_program(*command, "--fail-if-worse").returncode, 3)

    def test_a_cell_that_fails_leaves_the_others_and_exits_1(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2")
        blocked = self.folder / "study/runs/rmsnorm/seed-2"
        self.good(*command)
        for path in sorted(blocked.iterdir()):
            path.unlink()
        blocked.rmdir()
        blocked.write_text("a file where a folder should be", encoding="ascii")
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("4 planned: 3 done, 0 diverged, 1 failed, 0 missing", done.stdout)
        self.assertIn("rmsnorm, seed 2: failed", done.stdout)
        self.assertIn("interim", done.stdout)
        blocked.unlink()
        self.good(*command)

    def start(self, *arguments, steps):
        return subprocess.Popen([program.BINARY, *self.compare(*arguments, steps=steps)], cwd=self.folder,
                                env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_training(self, process, cell):
        metrics = self.folder / "study/runs" / cell / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.01)

    def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                shutil.rmtree(self.folder / "study", ignore_errors=True)
                process = self.start("--norms", "layernorm,rmsnorm", "--seeds", "2", steps="1000000")
                self.wait_for_training(process, "layernorm/seed-1")
                process.send_signal(number)
                stdout, stderr = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, stderr)
                self.assertEqual(stdout, "")
                self.assertIn("same command goes on", stderr)
                self.assertEqual(self.results()["study"]["counts"]["missing"], 4)

    # T-01
    def test_a_stopped_cell_goes_on_from_its_checkpoint(self):
        norms = ["--norms", "layernorm,rmsnorm", "--seeds", "2"]
        steps = "3000"
        self.good(*self.compare(*norms, steps=steps))
        want = [cell["test_block_losses"] for cell in self.results()["cells"]]
        shutil.rmtree(self.folder / "study")
        process = self.start(*norms, steps=steps)
        self.wait_for_training(process, "layernorm/seed-1")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        before = {path: path.read_bytes() for path in (self.folder / "study").rglob("*") if path.suffix == ".json"}
        self.refused(1, ["layernorm, seed 1", "steps = 3000", "4", "--out"], *self.compare(*norms, steps="4"))
        self.assertEqual({path: path.read_bytes() for path in before}, before)
        done = self.good(*self.compare(*norms, steps=steps))
        self.assertIn("layernorm, seed 1: goes on from step-", done.stderr)
        self.assertEqual([cell["test_block_losses"] for cell in self.results()["cells"]], want)
        self.assertEqual(list((self.folder / "study").rglob("checkpoints")), [])

    def test_a_killed_study_goes_on(self):
        process = self.start("--norms", "layernorm,rmsnorm", "--seeds", "2", steps="1000000")
        self.wait_for_training(process, "layernorm/seed-1")
        process.kill()
        process.communicate(timeout=60)
        self.good(*self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2"))  # nothing had finished: declared anew

    def test_two_programs_do_not_work_in_one_folder(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "1")
        self.good(*command)
        with open(self.folder / "study/.lock", "r+", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.truncate(0)
            lock.write("4711\n")
            lock.flush()
            self.refused(1, ["process 4711"], *command)
        self.good(*command)

    def test_runs_and_studies_do_not_mix(self):
        self.good(*self.train())
        self.refused(1, ["normlab train"], *self.compare(out="run"))
        self.good(*self.compare("--norms", "layernorm,rmsnorm", "--seeds", "1"))
        self.refused(1, ["normlab compare"], *self.train(out="study"))

    def test_models_are_saved_on_request(self):
        self.good(*self.compare("--norms", "layernorm,rmsnorm", "--seeds", "1", "--save-models"))
        self.assertEqual(len(list((self.folder / "study").rglob("model.safetensors"))), 2)


program.main()
