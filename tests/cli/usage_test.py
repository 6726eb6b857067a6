"""Help, and what the program says to command lines that are wrong: exit codes and messages are a contract."""

import program


class Usage(program.Case):
    def test_help_teaches_and_fits_80_columns(self):
        for command in ([], ["compare"], ["report"], ["train"], ["duel"], ["list"], ["bench"], ["bench", "kernels"], ["bench", "step"]):
            text = self.good(*command, "--help").stdout
            self.assertIn("Examples:", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
            self.assertNotIn("\x1b", text)

    def test_help_names_every_option_of_the_contract(self):
        text = self.good("compare", "--help").stdout
        for option in ("--config", "--set", "--data", "--out", "--preset", "--norms", "--vary", "--seeds", "--seed-list",
                       "--baseline", "--steps", "--batch", "--context", "--dtype", "--threads", "--margin", "--speed-margin",
                       "--looks", "--duel", "--fail-if-worse", "--fail-if-slower", "--json"):
            self.assertIn(option, text)
        text = self.good("duel", "--help").stdout
        for option in ("--norms", "--vary", "--baseline", "--precision", "--seconds", "--speed-margin", "--data", "--json",
                       "--out", "--aa"):
            self.assertIn(option, text)
        text = self.good("train", "--help").stdout
        for option in ("--norm", "--out", "--resume", "--checkpoint-every", "--keep-checkpoints", "--threads"):
            self.assertIn(option, text)

    def test_version_is_one_line(self):
        self.assertRegex(self.good("--version").stdout, r"^normlab \d+\.\d+\.\d+[^\n]*\n$")

    def test_command_lines_that_cannot_be_understood_exit_2(self):
        data = ["--data", "text.txt", "--out", "study"]
        for parts, arguments in (
                (["compare, report, train, list, duel or bench"], []),
                (["\"compre\"", "\"compare\""], ["compre"]),
                (["\"--seed\"", "\"--seeds\"", "normlab compare --help"], ["compare", "--seed", "3", *data]),
                (["--out is required"], ["compare", "--data", "text.txt"]),
                (["--data is required"], ["train", "--out", "run"]),
                (["\"extra\" is not expected here"], ["list", "norms", "extra"]),
                (["--out is given without its value"], ["train", "--data", "text.txt", "--out"]),
                (["--data is given without its value"], ["train", "--out", "run", "--data"]),
                (["\"nrms\"", "norms"], ["list", "nrms"]),
                (["--threads 0", "from 1"], ["compare", "--threads", "0", *data]),
                (["--threads -1"], ["compare", "--threads", "-1", *data]),
                (["--threads abc"], ["train", "--threads", "abc", "--data", "text.txt", "--out", "run"]),
                (["--seeds 0"], ["compare", "--seeds", "0", *data]),
                (["--seeds 2.5"], ["compare", "--seeds", "2.5", *data]),
                (["seed 1", "twice"], ["compare", "--seed-list", "1,2,1", *data]),
                (["\"x\"", "--seed-list"], ["compare", "--seed-list", "1,x", *data]),
                (["--seeds", "--seed-list"], ["compare", "--seeds", "2", "--seed-list", "1", *data]),
                (["--margin -0.1", "0 or more"], ["compare", "--margin", "-0.1", *data]),
                (["--margin nan"], ["compare", "--margin", "nan", *data]),
                (["--speed-margin -1"], ["compare", "--speed-margin", "-1", *data]),
                (["--looks 0"], ["compare", "--looks", "0", *data]),
                (["--duel -1", "0 for no duel"], ["compare", "--duel", "-1", *data]),
                (["--precision 0", "above 0"], ["duel", "--precision", "0%"]),
                (["--precision x"], ["duel", "--precision", "x%"]),
                (["--speed-margin", "0 or more"], ["duel", "--speed-margin", "-1"]),
                (["--seconds -1"], ["duel", "--seconds", "-1"]),
                (["--out", "empty name"], ["duel", "--out", ""]),
                (["\"--seed\"", "normlab duel --help"], ["duel", "--seed", "3"]),
                (["--checkpoint-every -1", "from 0"], self.train("--checkpoint-every", "-1")),
                (["--keep-checkpoints 0", "from 1"], ["compare", "--keep-checkpoints", "0", *data]),
                (["--resume", "--init-weights"], self.train("--resume", "--init-weights", "w.safetensors")),
                (["steps", "twice", "--set", "--steps"], ["compare", "--set", "steps=5", "--steps", "6", *data]),
                (["norm_type", "--norms"], ["compare", "--set", "norm_type=no_norm", *data]),
                (["--seeds"], ["compare", "--set", "seed=3", *data]),
                (["--seeds"], ["compare", "--vary", "seed=3,4", *data]),
                (["\"steps\""], ["compare", "--vary", "steps", *data]),
                (["empty"], ["compare", "--norms", "no_norm,,rmsnorm", *data]),
                (["key=value"], ["compare", "--set", "steps", *data]),
                (["norm_type", "twice"], self.train("--norm", "no_norm", "--set", "norm_type=rmsnorm")),
        ):
            with self.subTest(arguments=arguments):
                self.refused(2, parts, *arguments)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["text.txt"])

    def test_wrong_values_of_keys_exit_1_and_write_nothing(self):
        (self.folder / "bad.json").write_text('{"stepps": 3}', encoding="ascii")
        (self.folder / "empty.txt").write_text("", encoding="ascii")
        (self.folder / "short.txt").write_text("too short", encoding="ascii")
        before = sorted(path.name for path in self.folder.iterdir())
        data = ["--data", "text.txt", "--out", "study"]
        for parts, arguments in (
                (["\"fussed_rmsnorm\"", "\"fused_rmsnorm\""], ["compare", "--norms", "fussed_rmsnorm,layernorm", *data]),
                (["\"fussed_rmsnorm\"", "\"fused_rmsnorm\""], self.train("--norm", "fussed_rmsnorm")),
                (["\"tinny\"", "\"tiny\""], ["compare", "--preset", "tinny", *data]),
                (["steps", "\"abc\""], ["compare", "--steps", "abc", *data]),
                (["steps", "0"], ["compare", "--steps", "0", *data]),
                (["batch", "-4"], ["compare", "--batch", "-4", *data]),
                (["window = 512", "context_length = 256"], ["compare", "--context", "512", *data]),
                (["dtype", "bf8", "bf16"], ["compare", "--dtype", "bf8", *data]),
                (["dtype", "f16"], ["compare", "--vary", "dtype=f32,f16", *data]),
                (["residual_dtype = bf16", "dtype = f32"], ["compare", "--set", "residual_dtype=bf16", *data]),
                (["\"stepps\"", "\"steps\"", "bad.json"], ["compare", "--config", "bad.json", *data]),
                (["nofile.json"], ["compare", "--config", "nofile.json", *data]),
                (["micro_batch = 3", "batch = 4"], ["compare", "--set", "micro_batch=3", "--batch", "4", *data]),
                (["two variants"], ["compare", "--norms", "rmsnorm", *data]),
                (["\"nosuch\""], ["compare", "--baseline", "nosuch", *data]),
                (["nofile"], ["compare", "--data", "nofile", "--out", "study"]),
                (["empty.txt", "empty"], ["compare", "--data", "empty.txt", "--out", "study"]),
                (["short"], ["compare", "--data", "short.txt", "--out", "study"]),
                (["short"], ["train", "--data", "short.txt", "--out", "run"]),
                (["text.txt", "folder"], ["compare", "--data", "text.txt", "--out", "text.txt"]),
        ):
            with self.subTest(arguments=arguments):
                self.refused(1, parts, *arguments)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)

    def test_an_unknown_instruction_set_is_refused_by_the_name_of_the_variable(self):
        self.refused(1, ["NORMLAB_ISA", "avx3"], "list", "norms", NORMLAB_ISA="avx3")

    def test_a_full_disk_behind_a_redirection_is_an_error(self):
        import subprocess
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([program.BINARY, "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


program.main()
