"""normlab report: a study again from its folder, in every form, finished or not, without touching it."""

import fcntl
import json
import os
import re
import shlex
import shutil
import unittest

import program


class Report(program.Case):
    def study(self, *more):
        return self.compare("--norms", "layernorm,rmsnorm", "--seeds", "2", *more)

    def tree(self):
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def test_every_form_is_what_compare_left(self):
        shown = self.good(*self.study()).stdout
        before = self.tree()
        self.assertEqual(self.good("report", "study").stdout, shown)
        self.assertEqual(self.good("report", "study", "--format", "json").stdout, before["study/results.json"].decode())
        self.assertEqual(self.good("report", "study", "--format", "csv").stdout, before["study/results.csv"].decode().replace("\r", ""))
        self.assertIn("| variant |", self.good("report", "study", "--format", "markdown").stdout)
        written = re.compile("20[0-9-]+T[0-9:]+Z")
        self.assertEqual(written.sub("", self.good("report", "study", "--format", "html").stdout),
                         written.sub("", before["study/report.html"].decode()))
        self.assertEqual(self.tree(), before)
        self.good("report", "study", "--format", "html", "--out", "page.html")
        self.assertTrue((self.folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>"))

    def test_a_study_that_is_held_by_another_process_or_half_finished_is_shown(self):
        self.good(*self.study())
        shutil.rmtree(self.folder / "study/runs/rmsnorm/seed-2")
        with open(self.folder / "study/.lock", "r+", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.tree()
            self.assertIn("3 done, 0 diverged, 0 failed, 1 missing", self.good("report", "study").stdout)
            self.assertIn("Interim, 3 of 4 runs have ended", self.good("report", "study", "--format", "html").stdout)
            self.assertEqual(self.tree(), before)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_folder_that_may_only_be_read_is_enough(self):
        self.good(*self.study())
        os.chmod(self.folder, 0o755)
        done = self.run_program("report", "study", preexec_fn=lambda: os.setuid(65534))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_command_of_the_page_makes_the_study_again(self):
        self.good(*self.study("--set", "norm_eps=1e-6", "--vary", "learning_rate=0.001,0.002", "--margin", "0.02"))
        page = (self.folder / "study/report.html").read_text(encoding="utf-8")
        command = re.search(r'<code id="command">(.*?)</code>', page, re.S).group(1)
        words = shlex.split(command.replace("&#39;", "'").replace("&quot;", '"').replace("\\\n", " "))
        self.assertEqual(words[0], "normlab")
        words[words.index("--out") + 1] = "again"
        self.good(*words[1:])
        results = [json.loads((self.folder / out / "results.json").read_bytes()) for out in ("study", "again")]
        self.assertEqual(*[[(cell["variant"], cell["seed"], cell["test_loss"]) for cell in one["cells"]] for one in results])
        self.assertEqual(*[one["study"]["margin_nats"] for one in results])

    def test_profiles_are_kept_on_demand(self):
        self.good(*self.study("--profile"))
        page = (self.folder / "study/report.html").read_text(encoding="utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
        self.assertEqual([profile["n"] for profile in data["series"]["profiles"]], [2, 2])

    def test_what_is_no_study_is_refused(self):
        self.refused(1, ["no folder \"nothing\"", "compare"], "report", "nothing")
        self.refused(1, ["\"text.txt\" is a file"], "report", "text.txt")
        (self.folder / "empty").mkdir()
        self.refused(1, ["no study", "study.json"], "report", "empty")
        self.good(*self.train())
        self.refused(1, ["single run"], "report", "run")
        self.good(*self.study())
        self.refused(2, ["\"htm\"", "\"html\""], "report", "study", "--format", "htm")
        self.refused(2, ["DIR is required"], "report")

    def test_no_file_of_the_study_is_written_over(self):
        self.good(*self.study())
        before = self.tree()
        (self.folder / "link").symlink_to("study/results.csv")
        for out in ("study/study.json", "study/runs/rmsnorm/seed-1/run.json", "link"):
            self.refused(1, ["file of the study itself", "another name"], "report", "study", "--out", out)
        (self.folder / "link").unlink()
        self.assertEqual(self.tree(), before)
        self.good("report", "study", "--format", "html", "--out", "study/report.html")


if __name__ == "__main__":
    program.main()
