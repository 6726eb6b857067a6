"""normlab train."""

import json
import random
import shutil
import signal
import subprocess
import time

import program


class Train(program.Case):
    def test_a_run_is_described_trained_and_kept(self):
        done = self.good(*self.train("--norm", "pytorch_rmsnorm"), OMP_WAIT_POLICY="PASSIVE")
        for part in ("fused_rmsnorm", "sqrt(mean(x^2) + eps)", "computed by: fused", "unused", "epochs", "decay",
                     "test loss"):
            self.assertIn(part, done.stdout)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        self.assertEqual(record["status"], "done")
        self.assertEqual(record["machine"]["wait_policy"], "passive")
        self.assertEqual(record["config"]["norm_type"], "fused_rmsnorm")
        self.assertEqual(len((self.folder / "run/metrics.jsonl").read_text(encoding="ascii").splitlines()), 4)
        self.assertTrue((self.folder / "run/model.safetensors").exists())
        self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_the_bound_of_a_step_is_told_and_recorded(self):
        text = self.good(*self.train()).stdout
        for part in ("bound ", "matrix products", "GB/s, the speed of a copy", "tokens/s at the most"):
            self.assertIn(part, " ".join(text.split()) + " ")
        record = json.loads((self.folder / "run" / "run.json").read_text(encoding="utf-8"))
        self.assertGreater(record["bound_s"], record["products_bound_s"])
        self.assertGreater(record["copy_bytes_per_s"], 0)
        if record["bound_share"] is not None:
            self.assertLessEqual(record["bound_share"], 1)
            self.assertGreater(record["bound_share"], record["products_share"])

    def test_the_options_of_the_norm_are_told(self):
        # The line that says which norm runs says what was set, and nothing that its formula does not have.
        for number, (norm, options, said, unsaid) in enumerate((
                ("rmsnorm", ["norm_gain=false"], ["eps 1e-05; without its gain;"], ["bias", "alpha", "note:"]),
                ("layernorm", ["norm_bias=false", "norm_weight_offset=1", "norm_eps=0.001"],
                 ["eps 0.001; without its bias; gains stored as 1 + g;"], ["note:"]),
                ("partial_rmsnorm", ["norm_fraction=0.25"], ["first columns: 8 of 32; eps"], ["note:"]),
                ("dyt", ["norm_alpha_init=0.75"], ["alpha starts at 0.75;"], ["+ bias; eps", "note:"]),
                ("no_norm", [], ["no_norm: x; before each sublayer"], ["note:"]),
                # What a norm does not read is no error, since a study sets it for all, but it is told.
                ("rmsnorm", ["norm_bias=false"], ["norm_bias = false changes nothing: rmsnorm does not use it"], []),
                ("rmsnorm", ["norm_gain=false", "norm_weight_offset=1"],
                 ["norm_weight_offset = 1.0 changes nothing: rmsnorm does not use it without its gain"], ["1 + g"]),
                ("rmsnorm", ["norm_cast=before_gain"],
                 ["norm_cast = \"before_gain\" changes nothing: rmsnorm does not use it in fp32"], []),
                ("dyt", ["norm_eps=0.1"], ["norm_eps = 0.1 changes nothing: dyt does not use it"], []))):
            with self.subTest(norm=norm, options=options):
                set_all = [part for option in options for part in ("--set", option)]
                done = self.good(*self.train("--norm", norm, *set_all, out=f"run{number}"))
                text = " ".join(done.stdout.split("\ndata ")[0].split()) + done.stderr.replace("note: other", "")
                for part in said:
                    self.assertIn(part, text)
                for part in unsaid:
                    self.assertNotIn(part, text.replace("gain * x / sqrt(mean(x^2) + eps)", ""))

    def test_a_profile_adds_up_to_the_steps(self):
        done = self.good(*self.train("--profile", "--dtype", "bf16"))
        for part in ("products, gradients of weights", "norms, backward", "between operations"):
            self.assertIn(part, done.stdout)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        seconds = sum(row["seconds"] for row in record["profile"])
        self.assertLess(seconds, record["time_s"])
        self.assertGreater(seconds, 0.5 * record["time_s"])  # the steps of this test take a millisecond each
        self.assertEqual({row["operation"]: row["calls"] for row in record["profile"]}["AdamW"], 4)

    def test_bf16_is_told_and_recorded(self):
        for number, (isa, products) in enumerate((("", None), ("avx2", "emulated"))):
            if isa and products == "emulated" and "avx2" not in self.good("list", "devices").stdout:
                continue
            done = self.good(*self.train("--dtype", "bf16", out=f"run{number}"), NORMLAB_ISA=isa)
            record = json.loads((self.folder / f"run{number}/run.json").read_text(encoding="utf-8"))
            self.assertEqual(record["config"]["dtype"], "bf16")
            self.assertIn("bf16 operands", done.stdout)
            if products:
                self.assertEqual(record["machine"]["bf16_products"], products)
                self.assertIn("bf16 emulated", " ".join(done.stdout.split()))

    #
    def test_looking_inside_is_on_by_default_and_told(self):
        done = self.good(*self.train("--norm", "dyt", steps="8"))
        self.assertRegex(" ".join(done.stdout.split()), r"inside the mean of a row holds [\d.]+% of its mean square")
        self.assertIn("inside.jsonl", done.stdout)
        lines = [json.loads(line) for line in (self.folder / "run/inside.jsonl").read_text(encoding="ascii").splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 5, 8])
        self.assertEqual([norm["site"] for norm in lines[0]["norms"]], ["trf_blocks.0.norm1", "trf_blocks.0.norm2", "final_norm"])
        self.assertEqual(lines[0]["norms"][0]["saturated_share"], 0)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        metrics = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text(encoding="ascii").splitlines()]
        for line, step in ((line, metrics[line["step"] - 1]) for line in lines):
            squares = sum(tensor["gradient_norm"] ** 2 for tensor in line["tensors"])
            self.assertAlmostEqual(squares ** 0.5 / step["grad_norm"], 1, delta=1e-6)
        self.assertEqual(record["inside_every"], 5)
        self.assertGreater(record["inside_time_s"], 0)
        self.assertEqual(record["spikes"], [])
        for value in ("-1", "x", "1.5"):
            self.refused(2, ["--inside", value, "whole number"], *self.train("--inside", value, out="other"))
            self.refused(2, ["--inside", value], *self.compare("--inside", value, out="other"))
        self.assertFalse((self.folder / "other").exists())

    def test_json_is_all_that_stands_on_stdout(self):
        record = json.loads(self.good(*self.train("--json")).stdout)
        self.assertEqual(record["steps_done"], 4)

    def test_a_finished_run_is_not_written_over(self):
        self.good(*self.train())
        before = (self.folder / "run/run.json").read_bytes()
        self.refused(1, ["finished run", "--out", "delete"], *self.train())
        self.assertEqual((self.folder / "run/run.json").read_bytes(), before)

    def test_threads_change_no_bit_and_too_many_are_noted(self):
        one = json.loads(self.good(*self.train("--json")).stdout)
        many = self.good(*self.train("--json", threads="64", out="other"))
        self.assertIn("--threads 64 is more than", many.stderr)
        self.assertEqual(json.loads(many.stdout)["test_block_losses"], one["test_block_losses"])

    def test_configuration_files_come_before_the_command_line(self):
        (self.folder / "config.json").write_text('{"learning_rate": 0.5, // high\n "norm_type": "no_norm"}', encoding="ascii")
        record = json.loads(self.good(*self.train("--config", "config.json", "--set", "learning_rate=0.001", "--json")).stdout)
        self.assertEqual(record["config"]["learning_rate"], 0.001)
        self.assertEqual(record["config"]["norm_type"], "no_norm")

    def test_divergence_is_told_with_step_and_tensor_and_recorded(self):
        done = self.run_program(*self.train("--norm", "no_norm", "--set", "learning_rate=1e6", "--set", "grad_clip=0", steps="50"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"normlab: error: diverged: .* at step \d+")
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        self.assertEqual(record["status"], "diverged")

    def test_a_loss_that_rises_gives_advice(self):
        done = self.good(*self.train("--set", "learning_rate=1", "--set", "warmup_fraction=0", steps="20"))
        self.assertIn("above the", done.stderr)
        self.assertIn("learning_rate", done.stderr)

    def test_folders_with_something_else_are_refused(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/notes.txt").write_text("mine", encoding="ascii")
        self.refused(1, ["not empty"], *self.train())

    def test_ctrl_c_ends_well(self):
        running = subprocess.Popen([program.BINARY, *self.train(steps="1000000")], cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = self.folder / "run/metrics.jsonl"
        while running.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, stderr)
        self.assertIn("interrupted", stderr)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        self.assertEqual(record["status"], "interrupted")
        self.refused(1, ["--resume"], *self.train())  # nothing is lost by the same command

    # A handler on the normal stack corrupts the heap in about one of ten of these: oneDNN's products use the stack
    # pointer for other things.
    def test_a_signal_at_any_moment_ends_well(self):
        moments = random.Random(3)
        for _ in range(25):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            running = subprocess.Popen([program.BINARY, *self.train(steps="1000000")], cwd=self.folder,
                                       env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                       text=True)
            metrics = self.folder / "run/metrics.jsonl"
            while running.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.05))
            running.send_signal(signal.SIGINT)
            _, stderr = running.communicate(timeout=60)
            self.assertEqual(running.returncode, 130, stderr)

    def test_a_second_signal_kills_at_once(self):
        # The first signal waits for the end of a micro-batch: here one that takes seconds.
        command = ["train", "--set", "emb_dim=256", "--context", "128", "--batch", "64", "--set", "micro_batch=64",
                   "--data", "text.txt", "--out", "run", "--threads", "1"]
        running = subprocess.Popen([program.BINARY, *command], cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while running.poll() is None and not (self.folder / "run/run.json").exists():  # signals are taken by then
            time.sleep(0.005)
        running.send_signal(signal.SIGTERM)
        for line in running.stderr:
            if "once more to stop at once" in line:
                break
        running.send_signal(signal.SIGTERM)
        _, stderr = running.communicate(timeout=60)
        self.assertEqual(running.returncode, -signal.SIGTERM, stderr)

    def test_a_damaged_record_says_what_to_do(self):
        self.good(*self.train())
        record = self.folder / "run/run.json"
        record.write_text(record.read_text(encoding="utf-8")[:300], encoding="utf-8")
        self.refused(1, ["run.json", "delete the folder"], *self.train())

    def test_closed_output_is_an_error_and_reaches_no_file(self):
        command = [program.BINARY, *self.train()]
        done = subprocess.run(["sh", "-c", '"$0" "$@" >&-', *command], cwd=self.folder, env=self.environment(),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        for path in (self.folder / "run").rglob("*"):
            if path.is_file() and path.suffix != ".safetensors":
                self.assertNotIn("machine   ", path.read_text(encoding="utf-8"), path)


program.main()
