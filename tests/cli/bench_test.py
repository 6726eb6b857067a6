"""normlab bench: does it run, does it say what it refuses, does its JSON hold what it must. Never how fast anything is."""

import json
import signal
import subprocess
import time

import program

WITHOUT_BATCH = ["--set", "emb_dim=32", "--set", "n_layers=1", "--set", "n_heads=2", "--context", "16", "--threads", "1"]
SMALL = [*WITHOUT_BATCH, "--batch", "4"]
QUICK = ["bench", "kernels", "--quick", "--threads", "1"]


class BenchKernels(program.Case):
    def report(self, *arguments, **extra):
        self.good(*arguments, "--json", "report.json", **extra)
        return json.loads((self.folder / "report.json").read_text(encoding="utf-8"))

    def test_quick_measures_every_implementation_and_operation(self):
        text = self.good(*QUICK, "--norms", "layernorm,rmsnorm").stdout
        for part in ("layernorm forward f32, warm", "rmsnorm accumulate f32, warm", "512x256 stream 2r+rw", "1x4096 memcpy",
                     "512x256 fused", "512x256 generic", "512x256 handrolled", "GB/s", "limited by", "parallel region"):
            self.assertIn(part, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)

    def test_json_holds_every_case_and_contender(self):
        report = self.report(*QUICK, "--norms", "fused_rmsnorm,dyt", "--shapes", "64x96", "--ops", "forward,accumulate",
                             "--caches", "warm,cold", NORMLAB_MEMORY_MIB="64")
        self.assertEqual((report["kind"], report["schema_version"], report["status"]), ("bench_kernels", 1, "done"))
        self.assertEqual(len(report["cases"]), 2 * 2 * 2)
        self.assertIsNone(report["sweep"])
        for key in ("machine", "settings", "busy_cpus", "last_level_cache_bytes", "cold_bytes", "fork_s"):
            self.assertIn(key, report)
        self.assertLessEqual(report["cold_bytes"], 32 << 20)
        for case in report["cases"]:
            self.assertEqual(case["bytes"], 64 * 96 * 4 * (2 if case["op"] == "forward" else 4))
            self.assertEqual(case["yardstick"], case["contenders"][0]["name"])
            self.assertIsNone(case["contenders"][0]["share"])
            self.assertEqual("copy 1r1w" in [c["name"] for c in case["contenders"]], case["op"] != "forward")
            for contender in case["contenders"][1:]:
                if contender["implementation"] is None:  # the copy
                    self.assertIsNone(contender["share"])
                    continue
                self.assertEqual(contender["copy_share"] is None, contender["refusal"] is not None or case["op"] == "forward")
                if contender["refusal"] is not None:
                    self.assertIsNone(contender["gb_per_s"])
                    continue
                time_s = contender["time_s"]
                self.assertLessEqual(time_s["least"], time_s["first_quartile"])
                self.assertLessEqual(time_s["first_quartile"], time_s["median"])
                self.assertLessEqual(time_s["median"], time_s["third_quartile"])
                self.assertAlmostEqual(contender["gb_per_s"], case["bytes"] / time_s["median"] / 1e9)
                self.assertLess(contender["share_low"], contender["share_high"])
                self.assertGreater(contender["call_s"], 0)
                self.assertIn(contender["limited_by"], ("the call", "memory", "cache", "compute", "its passes"))
        ran = {c["implementation"] for case in report["cases"] if case["norm"] == "rmsnorm" for c in case["contenders"][1:]}
        self.assertEqual(ran - {None}, {"fused"})

    def test_types_that_the_device_takes_are_measured_and_others_refused_with_the_reason(self):
        report = self.report(*QUICK, "--norms", "rmsnorm", "--shapes", "8x64", "--dtypes", "f32,bf16,f16,mixed")
        for case in report["cases"]:
            for contender in case["contenders"][1:]:
                if contender["implementation"] is None:
                    continue
                self.assertEqual(contender["refusal"] is None, contender["blocks"] > 0, case)
                self.assertTrue(contender["refusal"] is None or contender["refusal"])
                if case["dtype"] == "f32" and contender["implementation"] != "library":  # there is none of rmsnorm
                    self.assertIsNone(contender["refusal"])

    def test_how_threads_wait_is_chosen_told_and_left_to_the_user(self):
        arguments = [*QUICK, "--norms", "fused_rmsnorm", "--shapes", "8x64", "--ops", "forward", "--json", "-"]
        settings = json.loads(self.good(*arguments, OMP_WAIT_POLICY="active", GOMP_SPINCOUNT="1234").stdout)["settings"]
        self.assertEqual((settings["environment"]["OMP_WAIT_POLICY"], settings["environment"]["GOMP_SPINCOUNT"]),
                         ("active", "1234"))
        unset = {k: v for k, v in self.environment().items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        done = subprocess.run([program.BINARY, *arguments], cwd=self.folder, env=unset, timeout=120, capture_output=True,
                              text=True, check=True)
        chosen = json.loads(done.stdout)["settings"]["environment"]
        self.assertIn((chosen["OMP_WAIT_POLICY"], chosen.get("GOMP_SPINCOUNT")), (("passive", None), ("active", "infinite")))

    def test_json_to_standard_output_is_all_of_it(self):
        report = json.loads(self.good(*QUICK, "--shapes", "8x64", "--ops", "forward", "--json", "-").stdout)
        self.assertEqual(report["kind"], "bench_kernels")

    # N-23: widths that are odd or just beyond a power of two, looked at one beside the other.
    def test_a_sweep_tells_of_cliffs(self):
        arguments = [*QUICK, "--norms", "fused_rmsnorm", "--ops", "forward", "--sweep", "128,96,100"]
        self.assertIn("neighbour", self.good(*arguments).stdout)
        lines = self.report(*arguments)["sweep"]
        self.assertEqual([line["name"] for line in lines], ["stream 1r1w", "fused"])
        for line in lines:
            self.assertEqual(line["widths"], [96, 100, 128])
            self.assertEqual(len(line["gb_per_s"]), 3)
            self.assertLessEqual(set(line["cliffs"]), set(line["widths"]))
        self.assertIn("1024", self.good("bench", "kernels", "--help").stdout)

    def test_wrong_requests_are_refused_before_anything_is_measured(self):
        for code, parts, arguments in (
                (2, ["--shapes", "\"2048\"", "ROWSxCOLS"], ["--shapes", "2048"]),
                (2, ["--shapes", "\"0x4\""], ["--shapes", "0x4"]),
                (2, ["empty"], ["--shapes", "4x4,"]),
                (1, ["\"rmsnrom\"", "\"rmsnorm\""], ["--norms", "rmsnrom"]),
                (2, ["--dtypes", "\"f33\"", "f32"], ["--dtypes", "f33"]),
                (2, ["--ops", "\"backwards\"", "\"backward\""], ["--ops", "backwards"]),
                (2, ["--caches", "\"hot\""], ["--caches", "hot"]),
                (2, ["--seconds 0", "above 0"], ["--seconds", "0"]),
                (2, ["--precision nan"], ["--precision", "nan"]),
                (2, ["--threads 0"], ["--threads", "0"]),
                (2, ["--sweep", "two or more"], ["--sweep", "128"]),
                (2, ["--sweep", "--shapes"], ["--sweep", "128,256", "--shapes", "4x4"]),
                (2, ["\"--shape\"", "\"--shapes\"", "normlab bench kernels --help"], ["--shape", "4x4"]),
                (2, ["--json"], ["--json", ""]),
                (1, ["nowhere"], ["--json", "nowhere/report.json"]),
        ):
            with self.subTest(arguments=arguments):
                self.refused(code, parts, "bench", "kernels", *arguments)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_what_does_not_fit_into_memory_is_refused_with_both_numbers(self):
        self.refused(1, ["16384x16384", "needs", "16 MiB are there"], "bench", "kernels", "--norms", "rmsnorm", "--shapes",
                     "16384x16384", NORMLAB_MEMORY_MIB="32")

    def test_without_a_command_of_its_own_bench_says_what_there_is(self):
        self.refused(2, ["kernels or step"], "bench")
        self.refused(2, ["\"kernel\"", "\"kernels\""], "bench", "kernel")

    def test_an_interrupt_prints_what_is_there(self):
        environment = self.environment(OMP_WAIT_POLICY="passive")
        with subprocess.Popen([program.BINARY, "bench", "kernels", "--norms", "rmsnorm", "--dtypes", "f32", "--shapes",
                               "64x64", "--caches", "warm", "--ops", "forward,backward", "--seconds", "600", "--precision",
                               "0.0001", "--threads", "1", "--json", "report.json"], cwd=self.folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            self.addCleanup(running.kill)
            for line in running.stdout:  # the header says that it has begun
                if "parallel region" in line:
                    break
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, errors)
        self.assertIn("interrupted; ", errors)
        report = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        self.assertEqual(report["status"], "interrupted")


class BenchStep(program.Case):
    def test_variants_take_turns_and_get_ratios(self):
        text = self.good("bench", "step", *SMALL, "--norms", "fused_layernorm,no_norm", "--seconds", "0.5").stdout
        for part in ("fused_layernorm", "no_norm", "ms/step", "tokens/s", "MiB", "prod.", "bound", "ratio", "batches of"):
            self.assertIn(part, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80, text)

    def test_json_holds_shares_ratios_and_every_block(self):
        self.good("bench", "step", *WITHOUT_BATCH, "--norms", "rmsnorm", "--vary", "batch=2,4", "--seconds", "0.5", "--json", "steps.json")
        report = json.loads((self.folder / "steps.json").read_text(encoding="utf-8"))
        self.assertEqual((report["kind"], report["schema_version"], report["status"]), ("bench_step", 1, "done"))
        self.assertEqual([variant["varied"]["batch"] for variant in report["variants"]], [2, 4])
        self.assertIsNone(report["variants"][0]["ratio"])
        other = report["variants"][1]
        self.assertLess(other["ci_low"], other["ratio"])
        self.assertLess(other["ratio"], other["ci_high"])
        for variant in report["variants"]:
            self.assertEqual(len(variant["block_s"]), report["batches"] * report["rounds_per_batch"])
            self.assertGreater(variant["peak_bytes"], 0)
            self.assertGreater(variant["step_bytes"], 30 * 32 * 256)
            self.assertAlmostEqual(variant["bound_s"], variant["products_bound_s"] + variant["step_bytes"] / report["copy_bytes_per_s"])
            for share in (variant["products_share"], variant["bound_share"]):
                self.assertTrue(share is None or 0 < share <= 1)

    def test_one_variant_alone_and_a_text_of_the_users(self):
        text = self.good("bench", "step", *SMALL, "--norms", "rmsnorm", "--seconds", "0.3", "--data", "text.txt").stdout
        self.assertNotIn("random tokens", text)
        self.assertIn("ms/step", text)

    def test_wrong_requests_are_refused(self):
        for code, parts, arguments in (
                (1, ["\"rmsnrom\"", "\"rmsnorm\""], ["--norms", "rmsnrom"]),
                (2, ["norm_type", "--set"], ["--norms", "rmsnorm", "--set", "norm_type=dyt"]),
                (2, ["--seconds -1"], ["--seconds", "-1"]),
                (2, ["--precision 0"], ["--precision", "0"]),
                (1, ["\"tinny\""], ["--preset", "tinny"]),
                (1, ["nofile"], ["--data", "nofile"]),
                (2, ["\"--out\""], ["--out", "x"]),
        ):
            with self.subTest(arguments=arguments):
                self.refused(code, parts, "bench", "step", *arguments)
        self.refused(1, ["2 variants side by side", "NORMLAB_MEMORY_MIB"], "bench", "step", "--norms", "rmsnorm,no_norm",
                     NORMLAB_MEMORY_MIB="330")


program.main()
