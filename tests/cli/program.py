"""Runs the real program on a tiny model and a tiny text. Used by the tests beside it; standard library alone."""

import functools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

BINARY = ""

# A model that trains in milliseconds.
TINY = [
    "--set", "emb_dim=32", "--set", "n_layers=1", "--set", "n_heads=2", "--set", "held_out_windows=8",
    "--context", "16", "--batch", "4",
]


@functools.cache
def sanitized():
    """Whether the program was built with AddressSanitizer, which maps terabytes: limits of memory say nothing then."""
    return b"__asan_init" in pathlib.Path(BINARY or sys.argv[1]).read_bytes()


class Case(unittest.TestCase):
    """Each test has a folder of its own, with text.txt in it, and works inside it."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="normlab-cli-")
        self.folder = pathlib.Path(self._folder.name)
        words = ["in", "the", "beginning", "was", "word", "and", "light", "day", "night"]
        order = random.Random(1)
        text = " ".join(order.choice(words) for _ in range(4000))
        (self.folder / "text.txt").write_text(text, encoding="ascii")

    def tearDown(self):
        self._folder.cleanup()

    def environment(self, **extra):
        kept = {k: v for k, v in os.environ.items() if k not in ("NORMLAB_ISA", "NORMLAB_FORCE_NORM", "NORMLAB_MEMORY_MIB", "NO_COLOR")}
        return {**kept, **extra}

    def run_program(self, *arguments, preexec_fn=None, **extra):
        """The finished process: returncode, stdout, stderr. `preexec_fn` sets limits of the process."""
        return subprocess.run([BINARY, *arguments], cwd=self.folder, env=self.environment(**extra),
                              timeout=600 if sanitized() else 120, preexec_fn=preexec_fn, capture_output=True, text=True,
                              check=False)

    def good(self, *arguments, **extra):
        done = self.run_program(*arguments, **extra)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done

    def refused(self, code, parts, *arguments, **extra):
        """The program must exit with `code` and one line on stderr that holds all parts, and print nothing else."""
        done = self.run_program(*arguments, **extra)
        shown = f"{arguments}\n{done.stderr}{done.stdout}"
        self.assertEqual(done.returncode, code, shown)
        self.assertEqual(done.stdout, "", shown)
        errors = [line for line in done.stderr.splitlines() if line.startswith("normlab: error: ")]
        self.assertEqual(len(errors), 1, shown)
        self.assertEqual(done.stderr.splitlines()[-1], errors[0], shown)
        for part in parts:
            self.assertIn(part, errors[0])

    # One thread unless a test is about threads: on a busy machine threads that wait for each other are slow. No duel
    # unless a test is about it.
    def compare(self, *arguments, steps="4", threads="1", out="study"):
        duel = [] if "--duel" in arguments else ["--duel", "0"]
        return ["compare", *TINY, "--steps", steps, "--data", "text.txt", "--out", out, "--threads", threads, *duel, *arguments]

    def train(self, *arguments, steps="4", threads="1", out="run"):
        return ["train", *TINY, "--steps", steps, "--data", "text.txt", "--out", out, "--threads", threads, *arguments]


def main():
    global BINARY
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
