"""normlab duel, and the duel of a study: verdicts, files, restarts, interruptions. Never how fast anything is."""

import json
import signal
import subprocess
import time

import program

SMALL = ["--set", "emb_dim=32", "--set", "n_layers=1", "--set", "n_heads=2", "--context", "16", "--batch", "4",
         "--threads", "1"]
WORDS = ("less time per step", "more time per step", "equivalent within", "undecided: ", "no verdict on speed: ")


class Duel(program.Case):
    def duel(self, *arguments, seconds="1"):
        return ["duel", *SMALL, "--seconds", seconds, *arguments]

    def report(self, *arguments, **options):
        return json.loads(self.good(*self.duel(*arguments, "--json", **options)).stdout)

    def test_the_verdict_stands_first_and_every_interval_is_named(self):
        done = self.good(*self.duel("--norms", "fused_layernorm,no_norm"))
        paragraphs = [" ".join(part.split()) for part in done.stdout.split("\n\n")]
        self.assertTrue(paragraphs[0].startswith("no_norm against fused_layernorm: "), done.stdout)
        self.assertTrue(any(word in paragraphs[0] for word in WORDS), done.stdout)
        whole = " ".join(done.stdout.split())
        for part in ("ratio", "95% interval", "+-: half its width", "tokens/s", "quartiles", "MiB", "batch", "pilot of",
                     "excluded", "took a processor away"):
            self.assertIn(part, whole)
        self.assertIn("random tokens", done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80, done.stdout)
        done.stdout.encode("ascii")

    def test_json_holds_every_block_and_the_order_of_every_round(self):
        report = self.report("--norms", "fused_layernorm,pytorch_rmsnorm,no_norm", "--baseline", "pytorch_rmsnorm", "--data", "text.txt",
                             "--out", "duel.json")
        self.assertEqual(json.loads((self.folder / "duel.json").read_text(encoding="utf-8")), report)
        self.assertEqual((report["kind"], report["schema_version"], report["status"]), ("duel", 1, "done"))
        self.assertEqual(report["baseline"], "fused_rmsnorm")
        self.assertEqual(report["data"]["tokenizer"], "bytes")
        rounds = report["batches"] * report["rounds_per_batch"]
        self.assertGreater(rounds, 0)
        self.assertEqual([sorted(order) for order in report["orders"]], [[0, 1, 2]] * rounds)
        self.assertEqual(len(report["mhz"]), rounds)
        self.assertEqual(len(report["stolen_s"]), rounds)
        self.assertGreater(report["pilot_rounds"], 0)
        self.assertEqual(sum(variant["first_in_round"] for variant in report["variants"]), rounds)
        for variant in report["variants"]:
            self.assertEqual(len(variant["block_s"]), rounds)
            self.assertLessEqual(variant["step_s"]["first_quartile"], variant["step_s"]["median"])
            self.assertLessEqual(variant["step_s"]["median"], variant["step_s"]["third_quartile"])
            self.assertLess(variant["tokens_per_s_low"], variant["tokens_per_s"])
            self.assertLess(variant["tokens_per_s"], variant["tokens_per_s_high"])
            self.assertGreater(variant["peak_bytes"], 0)
            self.assertEqual(variant["ratio"] is None, variant["name"] == "fused_rmsnorm")
            if variant["ratio"] is not None:
                self.assertLess(variant["ci_low"], variant["ratio"])
                self.assertLess(variant["ratio"], variant["ci_high"])
                self.assertEqual(len(variant["batch_ratios"]), report["batches"])

    def test_percentages_may_have_their_sign(self):
        for precision in ("0.5", "0.5%"):
            report = self.report("--norms", "rmsnorm,no_norm", "--precision", precision, "--speed-margin", "2%", seconds="0.3")
            self.assertAlmostEqual(report["settings"]["half_width"], 0.005)
            self.assertAlmostEqual(report["half_width_asked"], 0.005)
            self.assertEqual(report["settings"]["speed_margin"], 0.02)

    def test_without_time_for_six_batches_there_is_no_verdict(self):
        report = self.report("--norms", "handrolled_layernorm,no_norm", seconds="0.001")
        self.assertLess(report["batches"], 6)
        other = report["variants"][1]
        self.assertIsNone(other["verdict"])
        self.assertIn("no verdict on speed", other["explanation"])
        self.assertIn("a verdict needs 6", other["explanation"])
        self.assertGreater(report["seconds_needed"], 0)

    def test_a_variant_meets_itself(self):
        report = self.report("--norms", "rmsnorm", "--aa")
        self.assertEqual([variant["name"] for variant in report["variants"]], ["rmsnorm", "rmsnorm again"])
        self.assertEqual(report["variants"][0]["peak_bytes"], report["variants"][1]["peak_bytes"])
        self.assertIn("same code", self.good(*self.duel("--aa", seconds="0.2")).stdout)

    def test_any_key_can_vary(self):
        report = self.report("--norms", "rmsnorm", "--vary", "norm_position=pre,post", seconds="0.3")
        self.assertEqual([variant["varied"]["norm_position"] for variant in report["variants"]], ["pre", "post"])

    def test_wrong_requests_are_refused_and_write_nothing(self):
        for parts, arguments in (
                (["\"rmsnrom\"", "\"rmsnorm\""], ["--norms", "rmsnrom,layernorm"]),
                (["two variants", "--aa"], ["--norms", "rmsnorm"]),
                (["--aa", "2"], ["--norms", "rmsnorm,layernorm", "--aa"]),
                (["baseline", "\"nosuch\"", "rmsnorm, layernorm"], ["--norms", "rmsnorm,layernorm", "--baseline", "nosuch"]),
                (["nofile"], ["--data", "nofile"]),
                (["nowhere"], ["--out", "nowhere/duel.json"]),
                (["\"tinny\""], ["--preset", "tinny"]),
        ):
            with self.subTest(arguments=arguments):
                self.refused(1, parts, "duel", *arguments)
        self.refused(1, ["2 variants side by side", "NORMLAB_MEMORY_MIB"], "duel", "--norms", "rmsnorm,no_norm",
                     NORMLAB_MEMORY_MIB="330")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_ctrl_c_prints_what_is_there_without_a_verdict(self):
        with subprocess.Popen([program.BINARY, *self.duel("--norms", "rmsnorm,no_norm", "--precision", "0.001", "--json",
                                                          seconds="600")],
                              cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as running:
            self.addCleanup(running.kill)
            for line in running.stderr:
                if line.startswith("memory"):
                    break
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, errors)
        report = json.loads(output)
        self.assertEqual(report["status"], "interrupted")
        self.assertIsNone(report["variants"][1]["verdict"])


class StudyDuel(program.Case):
    def results(self):
        return json.loads((self.folder / "study/results.json").read_text(encoding="utf-8"))

    def speed(self):
        return [c for c in self.results()["comparisons"] if c["metric"] in ("time", "tokens_per_s")]

    def study(self, *arguments, duel="1", seeds="2", **options):
        command = self.compare("--norms", "layernorm,no_norm", "--seeds", seeds, "--duel", duel or "0", *arguments, **options)
        if duel is None:
            at = command.index("--duel")
            del command[at:at + 2]
        return command

    def duel_time(self):
        return (self.folder / "study/duel.json").stat().st_mtime_ns

    def test_speed_is_judged_by_a_duel_that_is_run_once(self):
        done = self.good(*self.study())
        self.assertIn("steps of 2 variants in turns", " ".join(done.stderr.split()))
        duel = self.results()["duel"]
        self.assertEqual([variant["name"] for variant in duel["variants"]], ["layernorm", "no_norm"])
        for comparison in self.speed():
            self.assertEqual(comparison["test"], "duel")
            self.assertEqual(comparison["n"], duel["batches"])
        self.assertEqual(self.speed()[0]["ratio"], duel["variants"][1]["ratio"])
        self.assertEqual(self.speed()[0]["verdict"], duel["variants"][1]["verdict"])
        self.assertIn(f"{duel['variants'][1]['ratio']:.4f}", done.stdout)
        self.assertIn(f"{duel['variants'][1]['ci_low']:.4f} to {duel['variants'][1]['ci_high']:.4f}", done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80, done.stdout)
        record = json.loads((self.folder / "study/duel.json").read_text(encoding="utf-8"))
        self.assertEqual(record["data"], self.results()["study"]["data"])
        self.assertEqual(record["machine"]["threads"], 1)
        self.assertEqual(len(record["orders"]), duel["batches"] * duel["rounds_per_batch"])

        before = self.duel_time()
        self.assertEqual(self.good(*self.study()).stdout, done.stdout)
        self.assertEqual(self.good(*self.study(duel="0")).stdout, done.stdout)  # none is run; the one there counts
        self.assertEqual(self.duel_time(), before)

    def test_what_changes_a_duel_makes_it_run_anew(self):
        self.good(*self.study())
        before = self.duel_time()
        self.good(*self.study(seeds="3"))
        extended = self.duel_time()
        self.assertNotEqual(extended, before)
        self.good(*self.study(seeds="3", threads="2"))
        self.assertNotEqual(self.duel_time(), extended)
        self.assertEqual(self.results()["duel"]["machine"]["threads"], 2)
        self.good(*self.study(seeds="3", duel="0"))  # the one there counts, whatever threads this start has
        self.assertIsNotNone(self.results()["duel"])

    def test_by_default_a_fifth_of_the_cells_time_which_may_be_too_short(self):
        done = self.good(*self.study(duel=None))
        duel = self.results()["duel"]
        cells = sum(cell["time_s"] for cell in self.results()["cells"])
        self.assertAlmostEqual(duel["settings"]["seconds"], cells / 5)
        self.assertLess(duel["batches"], 6)
        self.assertIsNone(self.speed()[0]["verdict"])
        self.assertIn("of duel would do for a verdict", " ".join(done.stdout.split()))
        before = self.duel_time()
        self.good(*self.study(duel="3"))  # more than the one had that was cut short
        self.assertNotEqual(self.duel_time(), before)

    def test_without_a_duel_speed_has_no_verdict(self):
        done = self.good(*self.study(duel="0"))
        self.assertIsNone(self.results()["duel"])
        for comparison in self.speed():
            self.assertIsNone(comparison["verdict"])
            self.assertIn("no duel", comparison["explanation"])
        self.assertIn("no duel", done.stdout)
        self.assertFalse((self.folder / "study/duel.json").exists())

    def test_ctrl_c_in_the_duel_leaves_the_cells_and_the_same_command_goes_on(self):
        with subprocess.Popen([program.BINARY, *self.study(duel="600")], cwd=self.folder, env=self.environment(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            self.addCleanup(running.kill)
            for line in running.stderr:
                if line.startswith("duel"):
                    break
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, errors)
        self.assertEqual(output, "")
        self.assertIn("all 4 cells are finished", errors)
        self.assertIn("same command runs the duel", errors)
        self.assertFalse((self.folder / "study/duel.json").exists())
        self.assertEqual(self.results()["study"]["counts"]["done"], 4)
        self.good(*self.study())
        self.assertIsNotNone(self.results()["duel"])

    def test_a_record_that_cannot_be_read_is_named_and_made_anew(self):
        self.good(*self.study())
        (self.folder / "study/duel.json").write_text("{", encoding="ascii")
        done = self.good(*self.study(duel="0"))
        self.assertIsNone(self.results()["duel"])
        done = self.good(*self.study())
        self.assertIn("duel.json", done.stderr)
        self.assertIsNotNone(self.results()["duel"])

    def test_variants_that_do_not_fit_side_by_side_are_a_note(self):
        done = self.good("compare", "--preset", "tiny", "--norms", "rmsnorm,no_norm", "--seeds", "1", "--steps", "1",
                         "--set", "held_out_windows=1", "--context", "128", "--data", "text.txt", "--out", "study", "--threads", "1",
                         "--duel", "1", NORMLAB_MEMORY_MIB="150")
        self.assertIn("no speed duel: 2 variants side by side need about", " ".join(done.stderr.split()))
        self.assertIsNone(self.results()["duel"])

    def test_a_variant_that_diverges_is_a_note(self):
        done = self.good(*self.compare("--vary", "learning_rate=0.001,1e30", "--set", "grad_clip=0", "--set", "warmup_fraction=0",
                                       "--set", "norm_type=no_norm", "--seeds", "1", "--duel", "1", steps="20"))
        self.assertIn("no speed duel: learning_rate=1e30 diverged", " ".join(done.stderr.split()).replace("1e+30", "1e30"))


program.main()
