"""Wrong values for every option and every key, and what the system refuses: one message that says what was given and
what to do, exit code 1 or 2, and nothing written."""

import concurrent.futures
import json
import os
import re
import resource
import subprocess
import unittest

import program

DATA = ["--data", "text.txt", "--out", "out"]

# What no number is.
NO_NUMBERS = ["abc", "nan", "NaN", "inf", "-inf", "1e999", "3x", "1 2", "0x10", "true", "[1]", "{}", "'4'", "1,5", "--4"]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, "-1", "2.5", "1e30", "1e-3", "9223372036854775808", "18446744073709551616",
                    "-9223372036854775809", "99999999999999999999999999"]


def wrong_values(key):
    """Values that a key must refuse, by the type of its value in the preset tiny."""
    value = json.loads(key["tiny"])
    if isinstance(value, bool):
        return ["1", "0", "yes", "True", "null", "\"true\"", "[true]"]
    if isinstance(value, int):
        return NO_WHOLE_NUMBERS
    if isinstance(value, float):
        return [*NO_NUMBERS, "-1", "-1e-9", "-1e30", "\"0.1\""]
    return ["nonsense", "1", "null", "true", "[\"a\"]", "{}"]


def names_value(message, value):
    """Whether a message shows a value, as it was written or as the same number."""
    if value.strip("\"'[]{}-")[:16] in message:
        return True
    try:
        return any(float(word) == float(value) for word in re.findall(r"-?\d[\d.e+-]*\d|\d", message))
    except ValueError:
        return False


class Limits(program.Case):
    def check(self, code, parts, arguments):
        """Like refused, and nothing may have been written; returns what is wrong, for tables."""
        done = self.run_program(*arguments)
        errors = [line for line in done.stderr.splitlines() if line.startswith("normlab: error: ")]
        wrong = []
        if done.returncode != code:
            wrong.append(f"exit code {done.returncode} instead of {code}")
        if len(errors) != 1 or done.stderr.splitlines()[-1:] != errors or done.stdout:
            wrong.append("not one message")
        message = errors[0] if errors else ""
        wrong += [f"no {part!r}" for part in parts if not names_value(message, part)]
        wrong += [f"{bad!r}" for bad in ("internal", "check failed", "terminate", "Traceback", "std::") if bad in done.stderr]
        if len(message) > 700:
            wrong.append("a message without end")
        return f"{arguments}: {'; '.join(wrong)}\n{done.stderr}{done.stdout}" if wrong else ""

    def check_all(self, rows):
        # The program looks at the machine for a moment before it works: many at a time.
        before = sorted(os.listdir(self.folder))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            wrong = [text for text in pool.map(lambda row: self.check(*row), rows) if text]
        self.assertFalse(wrong, "\n".join(wrong))
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_every_key_refuses_what_it_cannot_take(self):
        rows = []
        data = ["--data", "text.txt", "--out", "out"]
        for number, key in enumerate(json.loads(self.good("list", "keys", "--json").stdout)["keys"]):
            name = key["name"]
            for value in wrong_values(key):
                # train and compare read keys with the same code: each is asked for half of them.
                command = "train" if number % 2 == 0 or name == "seed" else "compare"
                set_it = ["--set", f"{name}={value}"]
                if command == "compare" and name == "norm_type":
                    set_it = ["--norms", f"{value},no_norm"] if "," not in value else ["--vary", f"norm_type={value},no_norm"]
                rows.append((1, [name, value], [command, *set_it, *data]))
            rows.append((2, [name, "no value"], ["train", "--set", f"{name}=", *data]))
            rows.append((2, [name, "twice"], ["train", "--set", f"{name}=1", "--set", f"{name}=1", *data]))
            rows.append((2, ["key=value"], ["train", "--set", name, *data]))
        self.assertGreater(len(rows), 250)
        self.check_all(rows)

    def test_whole_numbers_of_options(self):
        rows = []
        for command, option in (("train", "--threads"), ("compare", "--threads"), ("compare", "--seeds"), ("compare", "--looks")):
            for value in [*NO_WHOLE_NUMBERS, "0", "1e3", "1000000", "", " 2", "2 ", "+2"]:
                rows.append((2, [option, "whole number from 1 to", value], [command, option, value, *DATA]))
        self.check_all(rows)

    def test_numbers_of_options(self):
        rows = []
        for option in ("--margin", "--speed-margin"):
            for value in [*NO_NUMBERS, "-1", "-0.0", "1e-999", "", " 1", "1e400"]:
                rows.append((2, [option, "number of 0 or more", value], ["compare", option, value, *DATA]))
        for value in ["-1", "nan", "abc", "", "0.0", "10%"]:
            rows.append((2, ["--duel", "0 for no duel"], ["compare", "--duel", value, "--data", "text.txt", "--out", "out"]))
        self.check_all(rows)

    def test_lists_of_options(self):
        rows = []
        data = ["--data", "text.txt", "--out", "out"]
        for value in ["", ",", "1,", ",1", "1,,2", "-1", "x", "1.5", "1e3", "9223372036854775808", "1,1", "1;2", "1 2", "1, 2"]:
            rows.append((2, ["--seed-list" if value != "1,1" else "twice"], ["compare", "--seed-list", value, *data]))
        for value in ["", ",", "rmsnorm,", ",rmsnorm", "rmsnorm,,no_norm"]:
            rows.append((2, ["norm_type"], ["compare", "--norms", value, *data]))
        for value in ["", "=", "=1", "steps", "steps=", "steps=1,,2", "steps=,"]:
            rows.append((2, ["key=value1,value2"], ["compare", "--vary", value, *data]))
        for value in ["nokey=1,2", "steps=[1,", "steps=[[1],[2]]", "norm_type=[\"rmsnorm\",7]", "emb_dim=128,130",
                      "steps=1e30,2"]:
            rows.append((1, [value.split("=")[0]], ["compare", "--vary", value, *data]))
        rows.append((2, ["twice"], ["compare", "--vary", "steps=1,2", "--vary", "steps=3,4", *data]))
        self.check_all(rows)

    def test_words_of_options(self):
        (self.folder / "empty.json").write_text("", encoding="ascii")
        (self.folder / "list.json").write_text("[1, 2]", encoding="ascii")
        (self.folder / "cut.json").write_text('{"steps": ', encoding="ascii")
        (self.folder / "twice.json").write_text('{"steps": 1, "steps": 2}', encoding="ascii")
        (self.folder / "binary.json").write_bytes(bytes(range(256)))
        (self.folder / "folder").mkdir()
        rows = []
        for command in ("train", "compare"):
            data = ["--data", "text.txt", "--out", "out"]
            for value in ("", "nope", "Tiny", "tiny "):
                rows.append((1, ["preset", value], [command, "--preset", value, *data]))
            for value in ("f16", "bf8", "1", "f32 x"):
                rows.append((1, ["dtype", value], [command, "--dtype", value, *data]))
            for option, key in (("--steps", "steps"), ("--batch", "batch"), ("--context", "window")):
                rows += [(1, [key, value], [command, option, value, *data]) for value in [*NO_WHOLE_NUMBERS, "0"]]
                rows.append((2, [key, "no value"], [command, option, "", *data]))
            for value, part in (("empty.json", "empty.json"), ("list.json", "object"), ("cut.json", "line 1"),
                                ("twice.json", "twice"), ("binary.json", "binary.json"), ("folder", "folder"),
                                ("none.json", "none.json"), ("", "\"\"")):
                rows.append((1, [part], [command, "--config", value, *data]))
        data = ["--data", "text.txt", "--out", "out"]
        rows.append((1, ["unknown norm"], ["train", "--norm", "nope", *data]))
        rows.append((2, ["norm_type", "no value"], ["train", "--norm", "", *data]))
        rows.append((1, ["baseline", "nope"], ["compare", "--baseline", "nope", *data]))
        rows.append((1, ["baseline", "\"\""], ["compare", "--baseline", "", *data]))
        rows.append((2, ["topic", "nope"], ["list", "nope"]))
        self.check_all(rows)

    def test_an_option_given_twice_is_a_usage_error(self):
        rows = []
        both = ["--preset=tiny", "--config=x", "--steps=1", "--batch=1", "--context=16", "--dtype=f32", "--threads=1"]
        of_compare = ["--norms=no_norm,rmsnorm", "--seeds=1", "--seed-list=1", "--baseline=x", "--margin=1",
                      "--speed-margin=1", "--looks=1", "--duel=0"]
        for command, options in (("train", ["--norm=no_norm"]), ("compare", of_compare)):
            for option in [*options, *both]:
                rows.append((2, [option.split("=")[0] + " is given more than once; give it once"], [command, option, option, "--data", "text.txt", "--out", "out"]))
            rows.append((2, ["--out is given more than once"], [command, "--data", "text.txt", "--out", "out", "--out", "other"]))
        self.check_all(rows)

    def test_keys_that_do_not_fit_each_other(self):
        data = ["--data", "text.txt", "--out", "out"]
        for parts, keys in (
                (["emb_dim = 100", "n_heads = 3", "102"], ["emb_dim=100", "n_heads=3"]),
                (["window = 17", "context_length = 16"], ["context_length=16", "window=17"]),
                (["micro_batch = 5", "batch = 16"], ["micro_batch=5"]),
                (["min_learning_rate = 1", "learning_rate = 0.5"], ["learning_rate=0.5", "min_learning_rate=1"]),
                (["drop_rate = 0.1", "must be 0"], ["drop_rate=0.1"]),
                (["vocab"], ["vocab_size=10"])):
            settings = [word for key in keys for word in ("--set", key)]
            with self.subTest(keys=keys):
                self.refused(1, parts, "train", *settings, *data)
                self.refused(1, parts, "compare", *settings, *data)

    # T-27: 808 tokens with T 512 and B 8.
    def test_a_text_that_is_too_short_is_told_in_windows(self):
        (self.folder / "short.txt").write_text("abcdefgh" * 101, encoding="ascii")
        for command in ("train", "compare"):
            self.refused(1, ["1 window", "512", "8", "smaller"], command, "--set", "context_length=512", "--context", "512",
                         "--batch", "8", "--data", "short.txt", "--out", "out")

    # T-27: a model that needs 10 times the memory there is.
    def test_memory_that_will_not_do_is_told_before_it_is_taken(self):
        data = ["--data", "text.txt", "--out", "out"]
        parts = ["GiB", "NORMLAB_MEMORY_MIB leaves 1.0 GiB", "most goes to", "activations", "micro_batch"]
        big = ["--set", "n_layers=12", "--set", "emb_dim=512", "--batch", "64", "--set", "micro_batch=64"]
        self.refused(1, parts, "train", *big, *data, NORMLAB_MEMORY_MIB="1024")
        self.refused(1, ["variant handrolled_layernorm", *parts], "compare", *big, *data, NORMLAB_MEMORY_MIB="1024")
        self.refused(1, ["preset", "moments"], "train", "--preset", "gpt2-small", "--batch", "1", "--context", "16", *data,
                     NORMLAB_MEMORY_MIB="1024")
        self.refused(1, ["at least", "PiB"], "train", "--set", "emb_dim=1048576", "--set", "n_layers=10000", *data)
        self.refused(1, ["NORMLAB_MEMORY_MIB=much"], *self.train(), NORMLAB_MEMORY_MIB="much")
        self.assertEqual(sorted(os.listdir(self.folder)), ["text.txt"])

    def limited(self, limit, value, *arguments):
        """Runs with a limit of the process, as `ulimit` sets it."""
        return self.run_program(*arguments, preexec_fn=lambda: resource.setrlimit(limit, (value, value)))

    @unittest.skipIf(program.sanitized(), "needs address space without end")
    def test_a_limited_address_space_is_told_before_it_is_full(self):
        done = self.limited(resource.RLIMIT_AS, 600 << 20, "train", "--batch", "64", "--set", "micro_batch=64", *DATA)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("`ulimit -v` leaves", done.stderr)
        self.assertFalse((self.folder / "out").exists())

    # T-27, and the banner's promise: what a run takes is what was said, and no more.
    def test_the_banner_says_what_the_run_takes(self):
        done = self.good(*self.train("--json"))
        self.assertRegex(done.stderr.replace("\n          ", " "), r"memory +needs about [\d.]+ MiB of [\d.]+ [GMT]iB available")
        record = json.loads(done.stdout)
        needs = float(done.stderr.split("needs about ")[1].split()[0]) * 2**20
        self.assertGreater(needs, record["peak_bytes"])
        if not program.sanitized():
            self.assertLess(record["process_peak_bytes"], needs * 1.25)
        study = self.good(*self.compare("--norms", "handrolled_layernorm,no_norm", "--seeds", "1"))
        self.assertIn("handrolled_layernorm, the largest variant", study.stderr.replace("\n          ", " "))

    # P-03
    def test_threads_that_the_system_refuses_are_told_before_openmp_ends_the_program(self):
        most = self.run_program(*self.train(threads="1000000")).stderr.split(" to ")[1].split()[0]
        for threads in ("0", "-1", str(max(512, 1 + int(most))), "1000000", "abc"):
            self.refused(2, [f"--threads {threads} ", "whole number from 1 to"], *self.train(threads=threads))
        if program.sanitized():
            return
        done = self.limited(resource.RLIMIT_AS, 400 << 20, *self.train(threads=most))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"--threads {most}: the system lets normlab start only ", done.stderr)
        self.assertFalse((self.folder / "run").exists())

    # P-03: `ulimit -u`, which root is free of.
    @unittest.skipUnless(os.geteuid() == 0, "only root can become a user of whom no process runs")
    def test_a_limit_on_processes_is_told_or_kept(self):
        os.chmod(self.folder, 0o777)

        def as_somebody(processes, *arguments):
            def limit():
                resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
                os.setgroups([])
                os.setgid(54321)
                os.setuid(54321)
            return self.run_program(*arguments, preexec_fn=limit)

        done = as_somebody(4, *self.train(threads="64"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("--threads 64: the system lets normlab start only 3", done.stderr)
        command = [argument for argument in self.train() if argument not in ("--threads", "1")]
        cpus = json.loads(self.good("list", "devices", "--json").stdout)["devices"][0]["threads"]
        done = as_somebody(2, *command)
        self.assertEqual(done.returncode, 0, done.stderr)
        if cpus > 1:
            self.assertIn(f"start only 1 of {cpus} threads", done.stderr)
            self.assertIn("it runs with 1", done.stderr)
        done = as_somebody(1, *self.train(out="other"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"normlab: error: .*(ulimit -u|start only 0)")
        self.assertNotIn("internal", done.stderr)

    # P-01: taskset -c 0
    def test_threads_follow_the_affinity(self):
        cpu = min(os.sched_getaffinity(0))
        command = [argument for argument in self.train("--json") if argument not in ("--threads", "1")]
        done = self.run_program(*command, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["machine"]["threads"], 1)
        self.assertRegex(done.stderr, r"1 thread \(OpenMP lib")

    # P-09: one OpenMP runtime, named in the header and in the record.
    def test_one_thread_runtime_is_loaded_and_named(self):
        record = json.loads(self.good(*self.train("--json")).stdout)
        runtime = record["machine"]["thread_runtime"]
        self.assertRegex(runtime, r"^OpenMP lib(gomp|omp|iomp5)\.so")
        libraries = subprocess.run(["ldd", program.BINARY], capture_output=True, text=True, check=True).stdout
        names = [line.split()[0] for line in libraries.splitlines() if re.search("lib(gomp|omp|iomp)", line)]
        self.assertEqual(names, [runtime.removeprefix("OpenMP ")])
        self.assertIn(runtime, self.good("list", "devices").stdout)

    # T-08: the rates that are written are those of the formula, the first above 0.
    def test_the_rates_that_are_written_are_the_schedules(self):
        keys = ("learning_rate=1", "min_learning_rate=0", "warmup_fraction=0.4")
        self.good(*self.train(*[word for key in keys for word in ("--set", key)], steps="10"))
        lines = (self.folder / "run/metrics.jsonl").read_text(encoding="ascii").splitlines()
        rates = [json.loads(line)["learning_rate"] for line in lines]
        self.assertEqual(rates[:5], [0.25, 0.5, 0.75, 1, 1])
        self.assertAlmostEqual(rates[9], 0, places=15)
        self.assertEqual(rates[4:], sorted(rates[4:], reverse=True))

    # T-14: both groups are listed at the start. One block: 2 embeddings, 6 matrices and the head; 3 biases and 3 norms.
    def test_the_groups_of_the_decay_are_listed(self):
        text = " ".join(self.good(*self.train("--norm", "layernorm")).stdout.split())
        self.assertIn("0.1 on 9 tensors", text)
        self.assertIn("matrices and embeddings; none on 9 tensors", text)

    def test_data_that_is_no_file_of_text(self):
        os.mkfifo(self.folder / "pipe")
        (self.folder / "empty").write_text("", encoding="ascii")
        with open(self.folder / "huge", "wb") as huge:
            huge.truncate(1 << 42)
        before = sorted(os.listdir(self.folder))
        for parts, name in ((["device or a pipe"], "/dev/zero"), (["device or a pipe"], "pipe"), (["folder"], "."),
                            (["empty"], "empty"), (["4.0 TiB", "does not fit", "memory"], "huge"), (["none"], "none"),
                            ([""], ""), (["long"], "n" * 300)):
            for command in ("train", "compare"):
                with self.subTest(data=name, command=command):
                    self.refused(1, parts, command, "--data", name, "--out", "out")
        self.refused(1, ["same text"], "train", "--data", "text.txt", "./text.txt", "--out", "out")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_names_of_the_same_code_are_noted(self):
        done = self.good(*self.compare("--norms", "rmsnorm,fused_rmsnorm,layernorm", "--seeds", "1"))
        self.assertIn("rmsnorm and fused_rmsnorm run the same code here (fused)", done.stderr)
        self.assertNotIn("layernorm run the same", done.stderr)

    def test_variants_that_differ_in_an_option_that_their_norm_does_not_read_are_noted(self):
        done = self.good(*self.compare("--norms", "rmsnorm,layernorm", "--vary", "norm_bias=true,false", "--seeds", "1"))
        notes = [line for line in done.stderr.splitlines() if "the same code" in line]
        self.assertEqual(len(notes), 1, done.stderr)
        self.assertIn("norm_type=rmsnorm,norm_bias=true and norm_type=rmsnorm,norm_bias=false run the same code", notes[0])


program.main()
