"""normlab train --resume and its checkpoints: what is taken from the run, what is refused and in which words."""

import json
import os
import shutil
import signal
import subprocess
import time

import program


class Resume(program.Case):
    def stopped(self, *arguments, out="run", number=signal.SIGINT, steps="1000000"):
        """A run that was stopped after some steps; its stderr."""
        running = subprocess.Popen([program.BINARY, *self.train(*arguments, steps=steps, out=out)], cwd=self.folder,
                                   env=self.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = self.folder / out / "metrics.jsonl"
        while running.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.005)
        running.send_signal(number)
        _, stderr = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130 if number != signal.SIGKILL else -9, stderr)
        return stderr

    def with_checkpoints(self, *arguments, steps="20", out="run"):
        """A run of 20 steps that looks as if it had been killed behind its checkpoints of steps 5, 10 and 15."""
        self.good(*self.train("--checkpoint-every", "5", "--keep-checkpoints", "3", *arguments, steps=steps, out=out))
        record = self.folder / out / "run.json"
        record.write_text(record.read_text(encoding="utf-8").replace('"done"', '"running"'), encoding="utf-8")
        (self.folder / out / "model.safetensors").rename(self.folder / "straight.safetensors")

    def checkpoint(self, step):
        return self.folder / f"run/checkpoints/step-{step:08}"

    def contents(self):
        return {path: path.read_bytes() for path in sorted((self.folder / "run").rglob("*")) if path.is_file() and path.name != ".lock"}

    def test_signals_write_a_checkpoint_and_say_how_to_go_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                stderr = self.stopped(number=number)
                self.assertIn("normlab train --resume --out run", stderr)
                self.assertEqual(len(list((self.folder / "run/checkpoints").iterdir())), 1)

    # T-01
    def test_resume_alone_ends_as_the_run_would_have(self):
        self.with_checkpoints("--norm", "rmsnorm", "--set", "seed=7")
        want = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        lines = (self.folder / "run/metrics.jsonl").read_text(encoding="ascii")
        with open(self.folder / "run/metrics.jsonl", "a", encoding="ascii") as metrics:
            metrics.write('{"step": 21, "lo')  # torn by a kill
        done = self.good("train", "--resume", "--out", "run")
        self.assertIn("resumed   after 15 of 20 steps", done.stdout)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        for key in ("config", "steps_done", "tokens", "train_loss", "test_loss", "test_block_losses", "norm_implementation"):
            self.assertEqual(record[key], want[key], key)
        self.assertEqual(record["resumed_from"], [15])
        self.assertEqual((self.folder / "run/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())
        column = lambda text, key: [json.loads(line)[key] for line in text.splitlines()]
        now = (self.folder / "run/metrics.jsonl").read_text(encoding="ascii")
        for key in ("step", "loss", "grad_norm", "learning_rate"):
            self.assertEqual(column(now, key), column(lines, key))
        self.assertFalse((self.folder / "run/checkpoints").exists())

    #
    def test_looking_inside_can_be_switched_on_at_a_resumption(self):
        self.with_checkpoints("--inside", "0")
        self.assertFalse((self.folder / "run/inside.jsonl").exists())
        self.good("train", "--resume", "--out", "run", "--inside", "2")
        lines = (self.folder / "run/inside.jsonl").read_text(encoding="ascii").splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], [16, 18, 20])
        self.assertEqual((self.folder / "run/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())

    def test_a_finished_run_is_shown(self):
        self.good(*self.train())
        before = self.contents()
        done = self.good("train", "--resume", "--out", "run")
        self.assertIn("nothing to resume", done.stderr)
        self.assertIn("test loss", done.stdout)
        self.assertEqual(json.loads(self.good("train", "--resume", "--out", "run", "--json").stdout)["status"], "done")
        self.assertEqual(self.contents(), before)

    def test_a_run_that_reached_no_checkpoint_starts_again(self):
        self.stopped("--checkpoint-every", "1000", number=signal.SIGKILL, steps="10000")
        done = self.good(*self.train("--resume", steps="10000"))
        self.assertIn("starts again from step 1", done.stderr)
        shutil.rmtree(self.folder / "run")
        (self.folder / "run").mkdir()
        (self.folder / "run/.lock").touch()  # killed before it wrote anything
        self.assertIn("starts again", self.good(*self.train("--resume")).stderr)

    def test_without_resume_an_unfinished_run_is_not_destroyed(self):
        self.with_checkpoints()
        before = self.contents()
        self.refused(1, ["--resume", "--out", "delete"], *self.train(steps="20"))
        self.assertEqual(self.contents(), before)

    def test_options_that_are_given_again_must_agree(self):
        self.with_checkpoints()
        before = self.contents()
        resume = ["train", "--resume", "--out", "run"]
        for parts, arguments in (
                (["steps = 20 there", "steps = 30 asked for", "--out"], ["--steps", "30"]),
                (["learning_rate = 0.002 there", "0.1"], ["--set", "learning_rate=0.1"]),
                (["norm_type", "handrolled_layernorm", "no_norm"], ["--norm", "no_norm"]),
                (["emb_dim = 32 there", "emb_dim = 384 asked for"], ["--preset", "study"]),
                (["beta1 = 0.9 there", "0.5"], ["--set", "beta1=0.5"]),
        ):
            self.refused(1, parts, *resume, *arguments)
        (self.folder / "other.txt").write_text("another text " * 2000, encoding="ascii")
        self.refused(1, ["hash", "other.txt", "--data"], *resume, "--data", "other.txt")
        (self.folder / "text.txt").rename(self.folder / "moved.txt")
        self.refused(1, ["text.txt", "--data"], *resume)
        self.assertEqual(self.contents(), before)
        (self.folder / "text.txt").symlink_to("moved.txt")
        self.good(*self.train("--resume", steps="20", threads="2"))  # the same words again; threads may differ

    # C-11
    def test_a_damaged_checkpoint_stops_and_the_one_before_is_an_explicit_choice(self):
        self.with_checkpoints()
        weights = self.checkpoint(15) / "optimizer.safetensors"
        damaged = bytearray(weights.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        weights.write_bytes(damaged)
        before = self.contents()
        self.refused(1, ["optimizer.safetensors", "checksum", "step-00000015", "--resume run/checkpoints/step-00000010"],
                     "train", "--resume", "--out", "run")
        self.assertEqual(self.contents(), before)
        done = self.good("train", "--resume", "run/checkpoints/step-00000010", "--out", "run")
        self.assertIn("after 10 of 20", done.stdout)
        self.assertEqual((self.folder / "run/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())

    # C-11: of another run (seed, norm, text), put into this one's folder.
    def test_a_checkpoint_of_another_run_is_refused(self):
        self.with_checkpoints()
        (self.folder / "other.txt").write_text("another text " * 2000, encoding="ascii")
        for name, parts, options in (("seed", ["seed = 1 in run.json, 7 in the checkpoint"], ["--set", "seed=7"]),
                                     ("norm", ["norm_type", "no_norm"], ["--norm", "no_norm"]),
                                     ("text", ["hash of the text"], ["--data", "other.txt"])):
            with self.subTest(name=name):
                command = self.train("--checkpoint-every", "5", "--keep-checkpoints", "3", *options, steps="20", out=name)
                if name == "text":
                    command.remove("text.txt"), command.remove("--data")
                self.good(*command)
                shutil.rmtree(self.checkpoint(15))
                shutil.copytree(self.folder / name / "checkpoints/step-00000015", self.checkpoint(15))
                before = self.contents()
                for resume in (["--resume"], ["--resume", "run/checkpoints/step-00000015"]):
                    self.refused(1, ["is not of the run in \"run\"", "another --out", *parts], "train", *resume, "--out", "run")
                self.assertEqual(self.contents(), before)
                self.good("train", "--resume", "run/checkpoints/step-00000015", "--out", f"{name}2")
                self.assertEqual((self.folder / f"{name}2/model.safetensors").read_bytes(),
                                 (self.folder / name / "model.safetensors").read_bytes())

    # C-11: what is not there must not look like a run that has none.
    def test_checkpoints_out_of_reach_never_mean_a_new_start(self):
        self.with_checkpoints()
        checkpoints = self.folder / "run/checkpoints"
        away = self.folder / "away"
        checkpoints.rename(away)
        commands = (["train", "--resume", "--out", "run"], self.train(steps="20"))
        checkpoints.symlink_to(self.folder / "unmounted")
        for command in commands:
            self.refused(1, ["run/checkpoints", "leads nowhere", "mounted"], *command)
        checkpoints.unlink()
        checkpoints.write_text("mine", encoding="ascii")
        for command in commands:
            self.refused(1, ["run/checkpoints", "is a file"], *command)
        self.assertEqual(checkpoints.read_text(encoding="ascii"), "mine")
        checkpoints.unlink()
        checkpoints.symlink_to(away)
        self.assertIn("after 15 of 20", self.good(*commands[0]).stdout)
        self.assertEqual((self.folder / "run/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())
        # What a finished run does not need is gone from the other disk too.
        self.assertEqual(list(away.iterdir()), [])
        self.assertFalse(checkpoints.is_symlink())

    # The first look at the folder must be repeated under the lock: another start may have finished the run since.
    def test_a_run_that_ends_while_another_start_prepares_is_shown_and_not_begun_again(self):
        first = subprocess.Popen([program.BINARY, *self.train(steps="2000")], cwd=self.folder, env=self.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = self.folder / "run/metrics.jsonl"
        while first.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        # The second start looks, then reads its configuration, which comes through a pipe when the first has ended.
        os.mkfifo(self.folder / "pipe")
        second = subprocess.Popen([program.BINARY, *self.train("--resume", "--config", "pipe", steps="2000")], cwd=self.folder,
                                  env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pipe = None
        while second.poll() is None and pipe is None:
            try:
                pipe = os.open(self.folder / "pipe", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                time.sleep(0.001)
        first.send_signal(signal.SIGCONT)
        self.assertEqual(first.wait(timeout=60), 0)
        self.assertIsNotNone(pipe, "the second start did not wait for its configuration")
        before = self.contents()
        os.write(pipe, b"{}")
        os.close(pipe)
        _, stderr = second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0, stderr)
        self.assertIn("nothing to resume", stderr)
        self.assertEqual(self.contents(), before)

    def test_a_folder_or_a_pipe_in_place_of_a_file_is_damage_too(self):
        self.with_checkpoints()
        for name in ("model.safetensors", "metrics.jsonl"):
            for make in (lambda path: path.mkdir(), os.mkfifo):
                path = self.checkpoint(15) / name
                kept = path.read_bytes()
                path.unlink()
                make(path)
                self.refused(1, [name, "is no file", "step-00000010"], "train", "--resume", "--out", "run")
                path.rmdir() if path.is_dir() else path.unlink()
                path.write_bytes(kept)

    # A damaged file is no reason to send its bytes to the terminal.
    def test_bytes_of_a_damaged_file_are_not_printed(self):
        self.with_checkpoints()
        state = self.checkpoint(15) / "state.json"
        state.write_bytes(b'{"a": "\xed\xff"}')
        self.refused(1, ["state.json", "cannot be used"], "train", "--resume", "--out", "run")

    # C-10
    def test_an_empty_newer_folder_is_passed_over_and_told(self):
        self.with_checkpoints()
        self.checkpoint(200).mkdir()
        (self.folder / "run/checkpoints/.normlab-tmp-1").mkdir()
        done = self.good("train", "--resume", "--out", "run", "--checkpoint-every", "1", "--keep-checkpoints", "1")
        self.assertIn("after 15 of 20", done.stdout)
        self.assertIn("step-00000200", done.stderr)
        self.assertFalse((self.folder / "run/checkpoints/.normlab-tmp-1").exists())

    # T-26
    def test_weights_alone_need_the_flag_for_a_fresh_optimizer(self):
        self.with_checkpoints()
        for step in (5, 10, 15):
            for name in ("optimizer.safetensors", "state.json", "metrics.jsonl"):
                (self.checkpoint(step) / name).unlink()
        self.refused(1, ["optimizer.safetensors", "--init-weights", "fresh optimizer"], "train", "--resume", "--out", "run")
        weights = "run/checkpoints/step-00000015/model.safetensors"
        self.refused(1, ["--init-weights"], *self.train("--resume", weights, out="new"))
        self.refused(2, ["--resume", "--init-weights"], *self.train("--resume", "--init-weights", weights, out="new"))
        self.refused(1, ["\"tok_emb.weight\"", "[256, 32]", "[256, 64]"],
                     "train", "--init-weights", weights, "--set", "emb_dim=64", "--set", "n_layers=1", "--set", "n_heads=2",
                     "--data", "text.txt", "--out", "new")
        record = json.loads(self.good(*self.train("--init-weights", weights, "--json", out="new2")).stdout)
        self.assertEqual(record["initial_weights"]["path"], weights)
        (self.folder / "alone").mkdir()
        shutil.copy(self.folder / weights, self.folder / "alone")
        self.refused(1, ["alone/model.safetensors", "--init-weights"], "train", "--resume", "--out", "alone")

    def test_no_run_is_an_error_with_the_way_out(self):
        self.refused(1, ["holds no run", "--out"], *self.train("--resume"))
        self.refused(1, ["no such folder"], *self.train("--resume", "run/checkpoints/step-1"))
        self.assertFalse((self.folder / "run").exists())
        self.refused(2, ["--checkpoint-every x", "from 0"], *self.train("--checkpoint-every", "x"))
        self.refused(2, ["--keep-checkpoints 0", "from 1"], *self.train("--keep-checkpoints", "0"))

    # T-11, T-13
    def test_a_diverged_run_leaves_its_last_good_weights_and_is_not_resumed(self):
        command = self.train("--norm", "no_norm", "--set", "learning_rate=1e6", "--set", "grad_clip=0", steps="50")
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 1)
        [checkpoint] = (self.folder / "run/checkpoints").iterdir()
        self.assertIn(f"run/checkpoints/{checkpoint.name}/model.safetensors", done.stderr)
        self.refused(1, ["diverged"], "train", "--resume", "--out", "run")
        self.assertTrue((checkpoint / "model.safetensors").exists())
        # Named and elsewhere, it shows the divergence again.
        named = self.run_program("train", "--resume", str(checkpoint), "--out", "again")
        self.assertEqual(named.returncode, 1, named.stderr)
        where = lambda text: text[text.index("diverged: "):].split(";")[0]
        self.assertEqual(where(named.stderr), where(done.stderr))

    # T-11: the update that would leave fp32 is not made, and no later step is blamed for it.
    def test_a_rate_that_overflows_is_told_before_it_destroys_the_weights(self):
        done = self.run_program(*self.train("--norm", "rmsnorm", "--set", "learning_rate=1e39", "--checkpoint-every", "1"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("the bound of the next weights became inf at step 1", done.stderr)
        record = json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))
        self.assertEqual((record["status"], record["steps_done"], record["divergence"]["value"]), ("diverged", 0, "inf"))
        self.assertFalse((self.folder / "run/checkpoints").exists())

    def test_a_copied_checkpoint_goes_on_in_a_new_folder(self):
        self.with_checkpoints()
        shutil.copytree(self.checkpoint(10), self.folder / "moved/step-00000010")
        self.refused(1, ["no checkpoint of it", "new folder"], "train", "--resume", "moved/step-00000010", "--out", "run")
        self.good("train", "--resume", "moved/step-00000010", "--out", "new")
        self.assertEqual((self.folder / "new/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())

    def test_weights_that_could_not_be_saved_are_saved_by_going_on(self):
        self.with_checkpoints()
        record = self.folder / "run/run.json"
        text = record.read_text(encoding="utf-8").replace('"running"', '"done"').replace('"error": null', '"error": "disk full"')
        record.write_text(text, encoding="utf-8")
        self.good("train", "--resume", "--out", "run")
        self.assertEqual((self.folder / "run/model.safetensors").read_bytes(), (self.folder / "straight.safetensors").read_bytes())

    def test_a_folder_that_cannot_be_written_costs_the_checkpoint_alone(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/.lock").touch()
        # A limit on file sizes that run.json and metrics.jsonl stay below.
        command = ["sh", "-c", 'ulimit -f 60; exec "$0" "$@"', program.BINARY, *self.train("--checkpoint-every", "2", "--json")]
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertIn("no checkpoint of step 2", done.stderr)
        self.assertIn("ulimit", done.stderr)
        self.assertEqual(list((self.folder / "run/checkpoints").iterdir()), [])
        self.assertEqual(json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))["steps_done"], 4)

    def test_an_old_checkpoint_that_cannot_be_removed_is_told_as_that(self):
        self.with_checkpoints()
        (self.folder / "run/run.json").unlink()
        shutil.rmtree(self.checkpoint(15))
        self.checkpoint(5).chmod(0o555)  # what is in it cannot be removed, but for root
        root = os.geteuid() == 0
        if root:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, 65534, 65534)
        command = [program.BINARY, "train", "--resume", "--out", "run", "--checkpoint-every", "5", "--keep-checkpoints", "1"]
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=120,
                              user=65534 if root else None, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("no checkpoint of step", done.stderr)
        self.assertRegex(done.stderr, r"note: an older checkpoint stays: cannot remove .*step-00000005.*ermission")
        self.assertTrue((self.checkpoint(15) / "state.json").exists())


program.main()
