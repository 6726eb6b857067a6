"""--out: what cannot be a folder, folders that are damaged, full and read-only disks. Each has one clear message and
loses nothing."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time
import unittest

import program

# A user and mount namespace of one's own, in which a small disk can be mounted.
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def namespaces_work():
    try:
        done = subprocess.run([*NAMESPACE, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, timeout=20,
                              check=False)
        return done.returncode == 0
    except OSError:
        return False


def small_files(limit):
    """For preexec_fn: `ulimit -f`, in bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


class Folders(program.Case):
    def both(self, parts, out):
        """train and compare must refuse this --out and leave the folder as it was."""
        before = self.tree()
        with self.subTest(out=out):
            self.refused(1, parts, *self.train(out=out))
            self.refused(1, parts, *self.compare(out=out))
        self.assertEqual(self.tree(), before)

    def tree(self, folder=None):
        """Every path with its content; .lock, which stays after a study, is none of it."""
        root = pathlib.Path(folder or self.folder)
        return {str(path.relative_to(root)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
                for path in sorted(root.rglob("*")) if path.name != ".lock"}

    def test_out_that_cannot_be_a_folder(self):
        (self.folder / "file").write_text("mine", encoding="ascii")
        (self.folder / "circle").symlink_to("circle")
        (self.folder / "nowhere").symlink_to("gone")
        os.mkfifo(self.folder / "pipe")
        self.both(["too long", "shorter"], "n" * 300)
        self.both(["is a file"], "file")
        self.both(["is a file"], "pipe")
        self.both(["\"file\" is a file"], "file/inside")
        self.both(["circle"], "circle")
        self.both(["links lead in a circle"], "circle/inside")
        self.both(["leads nowhere"], "nowhere")
        self.both(["is a file"], "/dev/null")
        self.both(["\"/proc/nothing/here\""], "/proc/nothing/here")
        self.both(["\"\" is no name of a folder; give it one"], "")
        self.both(["too long"], "/".join(["deep" * 10] * 150))

    @unittest.skipUnless(os.geteuid() == 0 and os.access("/bin/true", os.X_OK), "only root can become another user")
    def test_folders_without_permission(self):
        os.chmod(self.folder, 0o755)
        (self.folder / "closed").mkdir(mode=0o700)
        (self.folder / "shut").mkdir(mode=0o000)
        for out in ("new", "closed/new", "shut"):
            for command in (self.train(out=out), self.compare(out=out)):
                with self.subTest(command=command):
                    done = subprocess.run([program.BINARY, *command], cwd=self.folder, env=self.environment(), user=65534,
                                          group=65534, capture_output=True, text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn("ermission", done.stderr)
                    self.assertNotIn("internal", done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), ["closed", "shut", "text.txt"])

    def study(self, *more):
        return self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", *more)

    def losses(self):
        results = json.loads((self.folder / "study/results.json").read_bytes())
        return [cell["test_loss"] for cell in results["cells"]]

    def damaged(self, parts, damage, command=None):
        """The finished study is damaged; the next start must say so and leave every byte."""
        if not (self.folder / "kept").exists():
            self.good(*self.study())
            shutil.copytree(self.folder / "study", self.folder / "kept")
        shutil.rmtree(self.folder / "study")
        shutil.copytree(self.folder / "kept", self.folder / "study")
        damage(self.folder / "study")
        before = self.tree(self.folder / "study")
        self.refused(1, parts, *(command or self.study()))
        self.assertEqual(self.tree(self.folder / "study"), before)

    def edit(self, name, change):
        def damage(study):
            path = study / name
            record = json.loads(path.read_text(encoding="utf-8"))
            change(record)
            path.write_text(json.dumps(record), encoding="utf-8")
        return damage

    def test_a_newer_schema_is_not_written_over(self):
        run = "runs/rmsnorm/seed-1/run.json"
        for name in ("study.json", run, "results.json"):
            with self.subTest(name=name):
                self.damaged([pathlib.Path(name).name, "schema version 2", "newer normlab"],
                             self.edit(name, lambda record: record.update(schema_version=2)))
        for value in ("x", None, 1e30, -1):
            with self.subTest(value=value):
                for name in ("study.json", run):
                    self.damaged([pathlib.Path(name).name],
                                 self.edit(name, lambda record, value=value: record.update(schema_version=value)))

    def test_a_half_deleted_study_says_what_is_missing(self):
        self.damaged(["4 finished cells", "runs", "restore"], lambda study: shutil.rmtree(study / "runs"))
        self.damaged(["study.json", "missing", "restore"], lambda study: (study / "study.json").unlink())
        def only_runs(study):
            for path in study.iterdir():
                if path.is_file():
                    path.unlink()
        self.damaged(["study.json", "missing"], only_runs)

    def test_records_that_cannot_be_read_are_named(self):
        run = "runs/rmsnorm/seed-1/run.json"
        for name in ("study.json", run):
            short = pathlib.Path(name).name
            for what, damage in (
                    ("empty", lambda study, name=name: (study / name).write_text("", encoding="ascii")),
                    ("cut", lambda study, name=name: (study / name).write_bytes((study / name).read_bytes()[:200])),
                    ("binary", lambda study, name=name: (study / name).write_bytes(bytes(range(256)) * 9)),
                    ("list", lambda study, name=name: (study / name).write_text("[]", encoding="ascii")),
                    ("folder", lambda study, name=name: ((study / name).unlink(), (study / name).mkdir())),
                    ("circle", lambda study, name=name: ((study / name).unlink(), (study / name).symlink_to(short)))):
                with self.subTest(name=name, what=what):
                    self.damaged([short], damage)

    def test_another_study_is_refused(self):
        other = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", steps="5")
        self.damaged(["steps = 4", "steps = 5"], lambda study: None, other)
        self.damaged(["normlab compare"], lambda study: None, self.train(out="study"))

    # The lock of a study is in its own folder: a run in one of its cells would write beside `compare`, unseen.
    def test_train_keeps_out_of_the_cells_of_a_study(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", "--checkpoint-every", "100", steps="1500")
        running = subprocess.Popen([program.BINARY, *command], cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        def begun():
            return [path.parent.parent for path in (self.folder / "study").glob("runs/*/*/checkpoints/step-*")]
        while running.poll() is None and not begun():
            time.sleep(0.002)
        running.send_signal(signal.SIGSTOP)  # else the cell may end, and a finished run is shown
        [cell] = set(begun())
        inside = str(cell.relative_to(self.folder))
        other = "study/runs/rmsnorm/seed-2" if cell.name == "seed-1" else "study/runs/rmsnorm/seed-1"
        commands = (["train", "--resume", "--out", inside], self.train("--resume", out=inside), self.train(out=other))
        for stopped in (False, True):
            if stopped:
                running.kill()
                self.assertEqual(running.wait(timeout=60), -signal.SIGKILL, "it ended before it could be killed")
            for inner in commands:
                self.refused(1, ["cell of the study", "normlab compare", "--out"], *inner)
        self.assertFalse((self.folder / other / "run.json").exists())
        self.good(*command)
        self.assertIn("nothing to resume", self.good("train", "--resume", "--out", inside).stderr)  # shown, not written

    def test_a_finished_study_is_shown_where_no_run_would_fit(self):
        shown = self.good(*self.study()).stdout
        self.assertEqual(self.good(*self.study(), NORMLAB_MEMORY_MIB="1").stdout, shown)
        more = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "3")
        before = self.tree()
        self.refused(1, ["needs about", "NORMLAB_MEMORY_MIB"], *more, NORMLAB_MEMORY_MIB="1")
        self.assertEqual(self.tree(), before)
        self.assertEqual(self.good(*self.study()).stdout, shown)  # it was not extended
        self.good(*more)

    def test_what_can_be_made_again_is(self):
        self.good(*self.study())
        results = (self.folder / "study/results.json").read_bytes()
        losses = self.losses()
        for name in ("results.json", "results.csv", "runs/rmsnorm/seed-1/metrics.jsonl"):
            (self.folder / "study" / name).unlink()
        self.assertIn("nothing to run", self.good(*self.study()).stderr)
        self.assertEqual((self.folder / "study/results.json").read_bytes(), results)
        (self.folder / "study/results.json").write_text("half", encoding="ascii")
        self.good(*self.study())
        self.assertEqual((self.folder / "study/results.json").read_bytes(), results)
        shutil.rmtree(self.folder / "study/runs/rmsnorm")  # half of the runs
        self.good(*self.study())
        self.assertEqual(self.losses(), losses)

    def test_text_that_changes_during_a_study_changes_nothing_and_is_found_at_the_next_start(self):
        text = self.folder / "text.txt"
        kept = text.read_bytes()
        want = json.loads(self.good(*self.study("--json")).stdout)["cells"]
        shutil.rmtree(self.folder / "study")
        running = subprocess.Popen([program.BINARY, *self.study("--json")], cwd=self.folder, env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while running.poll() is None and not (self.folder / "study/study.json").exists():
            time.sleep(0.002)
        text.write_text("other " * 5000, encoding="ascii")
        stdout, stderr = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 0, stderr)
        self.assertEqual([cell["test_loss"] for cell in json.loads(stdout)["cells"]], [cell["test_loss"] for cell in want])
        self.refused(1, ["data hash"], *self.study())
        text.write_bytes(kept)
        self.good(*self.study())

    # C-08: `ulimit -f` for every file that the program writes, from the first byte on.
    def test_a_limit_on_the_size_of_files_is_told_and_leaves_no_half_file(self):
        sizes = {}
        self.good(*self.train())
        for path in (self.folder / "run").iterdir():
            sizes[path.name] = path.stat().st_size
        self.assertLess(max(sizes["run.json"], sizes["metrics.jsonl"]), sizes["model.safetensors"])
        for limit in (0, 1, 100, sizes["metrics.jsonl"] - 1, sizes["run.json"] + 100, sizes["model.safetensors"] - 1):
            with self.subTest(limit=limit):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                done = self.run_program(*self.train(), preexec_fn=small_files(limit))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, r"normlab: error: cannot write \".*\": File too large.*ulimit -f")
                self.whole_files(self.folder / "run")
        # The result is kept where only the weights were too large, and nobody is told that these are there.
        self.assertEqual(json.loads((self.folder / "run/run.json").read_bytes())["status"], "done")
        again = self.run_program("train", "--resume", "--out", "run")
        self.assertEqual(again.returncode, 1, again.stdout)
        self.assertRegex(again.stderr, r"normlab: error: .* left no weights: .*File too large.*--out")
        self.assertIn("run: run.json, metrics.jsonl, inside.jsonl\n", again.stdout)

    def test_a_duel_of_a_newer_normlab_is_not_written_over(self):
        self.good(*self.study())
        duel = self.folder / "study/duel.json"
        duel.write_text('{"schema_version": 99, "more": 1}', encoding="ascii")
        kept = self.tree()
        self.refused(1, ["duel.json", "newer normlab"], *self.study())
        self.assertEqual(self.tree(), kept)

    def test_a_cell_whose_weights_could_not_be_saved_runs_again(self):
        command = self.study("--save-models")
        done = self.run_program(*command, preexec_fn=small_files(20000))  # records fit, weights do not
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("4 of 4 cells failed", done.stderr)
        self.assertIn("the same command runs these again", done.stderr)
        self.good(*command)
        self.assertEqual(len(list((self.folder / "study").rglob("model.safetensors"))), 4)

    # C-08, and S-13's full disk: cells that cannot be written fail with the reason, and the next start runs them.
    def test_a_study_survives_a_limit_on_the_size_of_files(self):
        self.good(*self.study())
        biggest = max(path.stat().st_size for path in (self.folder / "study").rglob("*") if path.is_file())
        losses = self.losses()
        for limit in (0, 100, 2000, biggest * 9 // 10):  # the times in a file change its size a little
            with self.subTest(limit=limit):
                shutil.rmtree(self.folder / "study")
                done = self.run_program(*self.study(), preexec_fn=small_files(limit))
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("File too large", done.stderr)
                self.assertNotIn("internal", done.stderr)
                self.whole_files(self.folder / "study")
                if limit > 2000:  # only the page is so large
                    self.assertRegex(done.stderr, r"normlab: error: cannot write \"study/report.html\"")
                    self.assertEqual(self.losses(), losses)
                self.good(*self.study())
                self.assertEqual(self.losses(), losses)
                self.assertTrue((self.folder / "study/report.html").exists())

    # S-13: a sweep of 12 runs whose sixth fails and which is killed three times. The others go on, counts and reasons
    # are right, each start runs only what is missing, and a run that was cut off goes on from its checkpoint.
    def test_a_sweep_survives_failures_and_kills(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "6", "--checkpoint-every", "100", steps="400")
        runs = self.folder / "study/runs"

        def cell(number):
            place = json.loads((self.folder / "study/study.json").read_bytes())["order"][number - 1]
            return f"{place['variant']}/seed-{place['seed']}"

        def kill_in(number):
            running = subprocess.Popen([program.BINARY, *command], cwd=self.folder, env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while running.poll() is None and not (self.folder / "study/study.json").exists():
                time.sleep(0.002)
            checkpoints = runs / cell(number) / "checkpoints"
            while running.poll() is None and not list(checkpoints.glob("step-*")):
                time.sleep(0.002)
            running.kill()
            self.assertEqual(running.wait(timeout=60), -signal.SIGKILL, "it ended before it could be killed")

        def states():
            records = {}
            for path in runs.glob("*/*/run.json"):
                if json.loads(path.read_bytes())["status"] == "done":
                    records[str(path.parent.relative_to(runs))] = (path.stat().st_mtime_ns, path.read_bytes())
            return records

        kill_in(3)
        first = states()
        self.assertEqual(set(first), {cell(1), cell(2)})
        blocked = runs / cell(6)
        blocked.parent.mkdir(exist_ok=True)
        blocked.write_text("in the way", encoding="ascii")
        kill_in(8)
        kill_in(9)
        second = states()
        self.assertEqual(len(second), 7)
        self.assertEqual({run: second[run] for run in first}, first, "a finished cell ran again")
        results = json.loads((self.folder / "study/results.json").read_bytes())
        self.assertEqual(results["study"]["counts"], {"planned": 12, "done": 7, "diverged": 0, "failed": 1, "missing": 4})
        self.assertEqual([cell["reason"] is not None for cell in results["cells"]].count(True), 5)

        done = self.run_program(*command)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(cell(9).replace("/seed-", ", seed ") + ": goes on from step-", done.stderr)
        self.assertIn("12 planned: 11 done, 0 diverged, 1 failed, 0 missing", done.stdout)
        self.assertIn(cell(6).replace("/seed-", ", seed ") + ": failed", done.stdout)
        third = states()
        self.assertEqual({run: third[run] for run in second}, second, "a finished cell ran again")
        blocked.unlink()
        self.good(*command)
        last = states()
        self.assertEqual(set(last) - set(third), {cell(6)})
        self.assertEqual({run: last[run] for run in third}, third, "a finished cell ran again")

    def whole_files(self, folder):
        """Every file is complete, and no temporary is left."""
        for path in folder.rglob("*"):
            self.assertFalse(path.name.startswith(".normlab-tmp-"), path)
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            if path.suffix == ".jsonl":
                for line in path.read_text(encoding="ascii").splitlines(keepends=True):
                    json.loads(line)
                    self.assertTrue(line.endswith("\n"), path)

    def on_small_disk(self, size, options, script):
        """A shell script in a namespace where "disk" is a disk of its own; $@ is normlab."""
        (self.folder / "disk").mkdir(exist_ok=True)
        mount = f"mount -t tmpfs -o size={size} none disk && "
        return subprocess.run([*NAMESPACE, "sh", "-c", mount + script, program.BINARY, *options], cwd=self.folder,
                              env=self.environment(), capture_output=True, text=True, timeout=120, check=False)

    # C-08 and S-13: a disk that is full when a cell is written, and has room again at the next start.
    @unittest.skipUnless(namespaces_work(), "no mount namespaces here")
    def test_a_full_disk_fails_cells_and_the_next_start_runs_them(self):
        command = self.compare("--norms", "layernorm,rmsnorm", "--seeds", "3", out="disk/study")
        # Room for some cells only; then more, and the same command again.
        script = ('"$0" "$@" > out1 2> err1; echo $? > code1; cp -r disk/study half 2> /dev/null; '
                  'mount -o remount,size=16m disk; "$0" "$@" > out2 2> err2; echo $? > code2; cp -r disk/study whole')
        done = self.on_small_disk("48k", command, script)
        read = lambda name: (self.folder / name).read_text(encoding="utf-8")
        self.assertEqual(read("code1").strip(), "1", read("err1"))
        self.assertIn("No space left", read("err1"))
        self.assertNotIn("internal", read("err1"))
        self.assertEqual(read("code2").strip(), "0", read("err2") + done.stderr)
        for path in (self.folder / "half").rglob("run.json"):
            if json.loads(path.read_bytes())["status"] == "done":
                later = self.folder / "whole" / path.relative_to(self.folder / "half")
                self.assertEqual(later.read_bytes(), path.read_bytes(), "a finished cell ran again")
        cells = json.loads(read("whole/results.json"))["cells"]
        self.assertEqual([cell["status"] for cell in cells], ["done"] * 6)

    # C-08: a disk that may only be read.
    @unittest.skipUnless(namespaces_work(), "no mount namespaces here")
    def test_a_read_only_disk_is_told(self):
        for command in (make(out=out) for make in (self.train, self.compare) for out in ("disk/run", "disk/old")):
            done = self.on_small_disk("1m", command, 'mkdir disk/old && mount -o remount,ro disk && "$0" "$@"')
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, r"normlab: error: .*Read-only file system")


program.main()
