#!/usr/bin/env python3
"""Checks that what the documents say can be done: README.md, CONTRIBUTING.md and docs/*.md against the repository
and the program.

  link     a relative link leads to a file, and its #anchor to a heading
  path     a file or folder in backticks is in the repository, from its root or from normlab/, or is in OUTPUTS
  dev      ./dev COMMAND is one that ./dev help tells of, and a preset is one of CMakePresets.json
  command  a normlab command runs. Made small first: --data becomes a text of some kilobytes, --out a fresh folder,
           --steps, --seeds, --batch and --context a few, and the model tiny; a bare `normlab compare` only shows
           its help; --resume finds a run of the same kind, --status and report a study. Of python3 and ctest, the script and the preset must exist
  option   an --option in code is in the help of normlab or of ./dev, or one of our scripts', or in FOREIGN_OPTIONS
  example  each line of a block marked cpp or c stands in a file of examples/, which the tests compile and run

    tools/check_docs.py PROGRAM [ROOT]        prints what is wrong, exit 1 if anything is
    tools/check_docs.py --self-test PROGRAM   puts faults into a good document and demands that each is found
"""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HOME = pathlib.Path(__file__).resolve().parent.parent
# What a build, a run, a study or a reader makes: not in the repository.
OUTPUTS = ["build/*", "run.json", "metrics.jsonl", "inside.jsonl", "signals.json", "model.safetensors", "study.json", "results.json", "results.csv", "report.html",
           "checkpoints/*", "speeds.json", "steps.json", "duel.json", "peers.json", "optimizer.safetensors", "gradients.safetensors", "state.json", ".lock", "runs/*", "kjv.txt", "text.txt", "x.h", "x.cc", "x_test.cc", "your_norm.h"]
FOREIGN_OPTIONS = {"--gtest_filter", "--install", "--prefix"}
FILE = re.compile(r"[\w.*<>-]+(/[\w.*<>-]+)*(/|\.(h|hpp|c|cc|py|md|txt|json|jsonl|csv|cmake|safetensors|so))")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
TINY = {"emb_dim": "32", "n_heads": "2", "n_layers": "1", "vocab_size": "256", "held_out_windows": "4"}


class Document:
    """The prose, code spans and code lines of a Markdown file, each with its line number."""

    def __init__(self, text):
        self.headings, self.links, self.spans, self.code = [], [], [], []
        fence, indented, paragraph = None, False, False
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("```"):
                fence = line[3:].strip() if fence is None else None
                continue
            indented = fence is None and line.startswith("    ") and (indented or not paragraph)
            paragraph = bool(line.strip()) and not indented
            if fence is not None or indented:
                self.code.append((number, line.strip(), fence or ""))
                continue
            if line.startswith("#"):
                self.headings.append(re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).strip().replace(" ", "-"))
            self.spans += [(number, span.strip()) for span in re.findall(r"`([^`]+)`", line)]
            self.links += [(number, target) for target in LINK.findall(re.sub(r"`[^`]*`", "``", line))]

    def commands(self):
        """Commands of blocks, continued lines joined and comments cut, one at a time; then those in backticks."""
        waiting = ""
        for number, line, _ in self.code:
            line = waiting + re.split(r"(?:^|\s)#", line)[0].strip()
            if line.endswith("\\"):
                waiting = line[:-1]
                continue
            waiting = ""
            yield from ((number, part.strip()) for part in line.split("&&"))
        yield from ((n, span) for n, span in self.spans if span.startswith(("normlab ", "./dev ", "python3 ", "ctest ")))


class Checker:
    def __init__(self, root, program):
        self.root, self.program = root, program
        self.files = []
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "__pycache__") and not f.startswith("build")]
            here = pathlib.Path(folder).relative_to(root)
            self.files += [(here / name).as_posix() for name in names] + [(here / f).as_posix() + "/" for f in folders]
        self.examples = {line.strip() for path in sorted((root / "examples").glob("*"))
                         for line in path.read_text(encoding="utf-8").splitlines()}
        self.dev_help = self.output(root / "dev", "help")
        helps = [self.output(program, *command, "--help") for command in
                 ([], ["list"], ["train"], ["compare"], ["report"], ["duel"], ["bench", "kernels"], ["bench", "step"])]
        scripts = [root / name for name in self.files if name.endswith(".py")]
        declared = [re.findall(r'add_argument\("(--[\w-]+)"', script.read_text(encoding="utf-8")) for script in scripts]
        self.options = set(OPTION.findall(" ".join(helps) + self.dev_help)) | FOREIGN_OPTIONS | set(sum(declared, []))
        presets = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))
        self.presets = {preset["name"] for preset in presets["configurePresets"]}

    @staticmethod
    def output(*command):
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout

    def check(self, path):
        """(line number, kind, message) of everything that is wrong in a document."""
        document = Document(path.read_text(encoding="utf-8"))
        for number, target in document.links:
            yield from self.check_link(path, document, number, target)
        for number, span in document.spans:
            if FILE.fullmatch(span) and not self.exists(span):
                yield number, "path", f"`{span}` is not in the repository"
        for number, command in document.commands():
            yield from self.check_command(number, command)
        for number, code in document.spans + [(number, line) for number, line, _ in document.code]:
            for option in OPTION.findall(code):
                if option not in self.options:
                    yield number, "option", f"no help tells of {option}"
        for number, line, language in document.code:
            if language in ("cpp", "c") and line not in self.examples and line != "...":
                yield number, "example", f"no file of examples/ has the line: {line}"

    def exists(self, span):
        pattern = re.sub(r"<\w+>", "*", span)
        return (any(fnmatch.fnmatch(span, output) for output in OUTPUTS)
                or any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, "*/" + pattern) for name in self.files))

    def check_link(self, path, document, number, target):
        if re.match(r"[a-z]+:", target):
            return
        name, _, anchor = target.partition("#")
        there = path.parent / name if name else path
        if not there.exists():
            yield number, "link", f"{target}: there is no such file"
        elif anchor and anchor not in (Document(there.read_text(encoding="utf-8")) if name else document).headings:
            yield number, "link", f"{target}: there is no such heading"

    def check_command(self, number, command):
        try:
            words = shlex.split(command)
        except ValueError:  # not a command: prose or output in a block
            return
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if not words:
            return
        program, arguments = words[0], words[1:]
        if program == "./dev":
            if arguments and f"./dev {arguments[0]}" not in self.dev_help and arguments[0] != "help":
                yield number, "dev", f"./dev help does not tell of \"{arguments[0]}\""
            if arguments[:1] == ["build"] and arguments[1:] and arguments[1] not in self.presets:
                yield number, "dev", f"no preset {arguments[1]}"
        elif program == "python3" and arguments and not (self.root / arguments[0]).is_file():
            yield number, "command", f"there is no {arguments[0]}"
        elif program == "ctest" and arguments[:1] == ["--preset"] and arguments[1] not in self.presets:
            yield number, "command", f"no preset {arguments[1]}"
        elif program == "normlab" or program.endswith("/bin/normlab"):
            yield from self.try_normlab(number, arguments)

    def try_normlab(self, number, arguments):
        with tempfile.TemporaryDirectory(prefix="normlab-docs-") as folder:
            if arguments in (["train"], ["compare"], ["report"], ["duel"], ["bench"], ["bench", "kernels"], ["bench", "step"], []):
                arguments = [*arguments, "--help"]
            (pathlib.Path(folder) / "text.txt").write_text("in the beginning was the word. " * 500, encoding="utf-8")
            commands = [self.small(arguments)]
            if "--resume" in arguments:
                commands = [self.small([word for word in arguments if word != "--resume"]),
                            [arguments[0], "--resume", "--out", "out"]]
            if "--status" in arguments:
                others = [word for word in arguments if not word.startswith("--")]
                commands = [self.small(["compare", "--norms", "layernorm,rmsnorm"]),
                            ["compare", *(["--json"] if "--json" in arguments else []), "--status", "out"]]
                if len(others) != 2:
                    yield number, "command", "--status takes one folder"
            if arguments[0] == "report" and "--help" not in arguments:  # of a study that is made first
                commands = [self.small(["compare"]), ["report", "out", *arguments[2:]]]
            for command in commands:
                done = subprocess.run([self.program, *command], cwd=folder, capture_output=True, text=True, check=False,
                                      timeout=300)
        if done.returncode != 0:
            yield number, "command", f"normlab {' '.join(arguments)}: {(done.stderr.splitlines() or ['?'])[-1]}"

    @staticmethod
    def small(arguments):
        """The same command over a tiny model, a tiny text and few steps."""
        command = arguments[:2] if arguments[:1] == ["bench"] else arguments[:1]
        if command not in (["train"], ["compare"], ["duel"], ["bench", "kernels"], ["bench", "step"]) or "--help" in arguments:
            return arguments
        replaced = {"--steps": "1", "--batch": "2", "--context": "16", "--threads": "1", "--data": "text.txt",
                    "--out": "out"}
        if command == ["compare"] and "--seed-list" not in arguments:
            replaced["--seeds"] = "1"
        if command == ["compare"] and "--duel" not in arguments:
            replaced["--duel"] = "0"
        if "--jobs" in arguments:
            replaced |= {"--jobs": "2", "--threads": "2"}
        if command in (["duel"], ["bench", "step"]):
            replaced = {"--batch": "2", "--context": "16", "--threads": "1", "--seconds": "0.1"}
        if command == ["bench", "kernels"]:
            replaced = {"--threads": "1", "--seconds": "0.02", "--caches": "warm",
                        **({"--sweep": "64,96"} if "--sweep" in arguments else {"--shapes": "16x64,1x64"})}
        kept, skip = [], False
        for word in arguments[len(command):]:
            if word.startswith("--"):
                skip = word in replaced
            if not skip:
                kept.append(word)
        for option, value in replaced.items():
            kept += [option, value]
        for key, value in ({} if command == ["bench", "kernels"] else TINY).items():
            if not any(word.startswith(key + "=") for word in kept):
                kept += ["--set", f"{key}={value}"]
        return [*command, *kept]


def check_all(root, program):
    checker, wrong, documents = Checker(root, program), 0, 0
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        documents += 1
        for number, kind, message in checker.check(path):
            wrong += 1
            print(f"{path.relative_to(root)}:{number}: [{kind}] {message}")
    print(f"{documents} documents, {wrong} faults")
    return 1 if wrong else 0


GOOD = """# A title, and more

Read [the README](README.md), [this](#a-title-and-more) and [that](docs/design.md#decisions). `normlab/base/view.h`,
`base/`, `stats/*_test.cc` and `run.json` are files; `./dev test` and `normlab list norms` are commands.

    ./dev build asan && normlab compare --data x.txt --out y   # with a comment
    normlab bench kernels --norms fused_rmsnorm --json speeds.json
    normlab report study --format markdown
    normlab train --data book.txt --out run --preset gpt2-small \\
                  --norm rmsnorm --steps 100000
    ctest --preset asan
    NORMLAB_JOBS=4 ./dev test -R norm
    some output -- that is no command, isn't it

```cpp
int main() {
```
"""
FAULTS = [  # (kind, text that is added)
    ("link", "[x](docs/missing.md)"),
    ("link", "[x](docs/design.md#no-such-heading)"),
    ("link", "[x](#no-such-heading)"),
    ("path", "`normlab/base/missing.h`"),
    ("path", "`missing/`"),
    ("path", "`result.json`"),
    ("dev", "`./dev tets`"),
    ("dev", "    ./dev build fast"),
    ("command", "    normlab list nroms"),
    ("command", "    normlab report study --format pdf"),
    ("command", "    normlab train --data a.txt --out b --norm rmsnrom"),
    ("command", "    normlab compare --data a.txt --out b \\\n            --set emb_dmi=4"),
    ("command", "    true && normlab lits"),
    ("command", "    normlab bench kernels --ops forwards"),
    ("command", "    normlab bench step --vary emb_dmi=4,8"),
    ("command", "`normlab compare --out b --preset huge`"),
    ("command", "    python3 tools/missing.py"),
    ("command", "    ctest --preset fast"),
    ("option", "`--sede 1`"),
    ("example", "```cpp\nint mian() {\n```"),
]


def self_test(program):
    failures = 0
    checker = Checker(HOME, program)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "docs").mkdir()
        for name in ("README.md", "docs/design.md"):
            (pathlib.Path(folder) / name).write_text((HOME / name).read_text(encoding="utf-8"), encoding="utf-8")
        path = pathlib.Path(folder) / "document.md"
        for kind, fault in [(None, ""), *FAULTS]:
            path.write_text(f"{GOOD}\n{fault}\n", encoding="utf-8")
            found = [kind for _, kind, _ in checker.check(path)]
            if found != ([kind] if kind else []):
                failures += 1
                print(f"FAILED: {fault!r} must be found as {kind}, alone; found {list(checker.check(path))}")
    print(f"{len(FAULTS)} faults tried, {failures} failures")
    return 1 if failures else 0


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--self-test":
        return self_test(pathlib.Path(arguments[1]).resolve())
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[1]).resolve() if len(arguments) == 2 else HOME
    return check_all(root, pathlib.Path(arguments[0]).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
