#!/usr/bin/env python3
"""Makes each mistake of mutants.toml in a copy of the sources and demands that a named test fails.

    ./dev mutants                 all of them, as a table; exit 1 where one survives
    ./dev mutants --part 2/3      every third, beginning with the second: what CI does, another part at each commit
    ./dev mutants --only norm     those whose name contains the word
    ./dev mutants --list          names, files and tests
    run_mutants.py --check        only that each `find` stands once in its file, and that the named tests exist

The copy and its build live in build/mutants and are kept, so a second start compiles little. A mutant counts as killed
where the test ends with failures, by a crash or by running for two minutes; a mistake that does not compile, and a test
that fails without it or does not exist, are errors of the list.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCE = ROOT / "build" / "mutants" / "source"
BUILD = ROOT / "build" / "mutants" / "build"
TIMEOUT_S = 120
COPIED = ["CMakeLists.txt", "cmake", "examples", "normlab", "tests", "tools"]


def die(message):
    sys.exit(f"mutants: {message}")


def read_list():
    mutants = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for mutant in mutants:
        mutant["edits"] = [{key: mutant[key] for key in ("file", "find", "replace")}] + mutant.get("edits", [])
    names = [mutant["name"] for mutant in mutants]
    if len(set(names)) != len(names):
        die("two mutants have one name")
    return mutants


def tests_named(gtest_filter):
    """The pattern of the macro of a test that the filter finds: [instance/]Suite.Name[/parameter], * anywhere. A test
    with parameters has an instance before its name."""
    suite, _, name = gtest_filter.rpartition(".")
    suite, name = suite.split("/")[-1], name.split("/")[0]
    words = [re.escape(part or "*").replace(r"\*", r"\w*") for part in (suite, name)]
    macro = "TEST_P" if "/" in gtest_filter else r"(TEST(_F)?|RC_GTEST_PROP)"
    if gtest_filter.startswith("*"):
        macro = r"(TEST\w*|RC_GTEST_PROP)"
    return rf"{macro}\(\s*{words[0]}\s*,\s*{words[1]}\s*[,)]"


def check(mutants):
    """Every faulty entry, in words."""
    faults = []
    for mutant in mutants:
        for edit in mutant["edits"]:
            path = ROOT / edit["file"]
            count = path.read_text(encoding="utf-8").count(edit["find"]) if path.exists() else 0
            if count != 1:
                faults.append(f"{mutant['name']}: its text stands {count} times in {edit['file']}: {edit['find']}")
        sources = list(ROOT.glob(f"normlab/**/{mutant['test']}.cc")) + list(ROOT.glob(f"tests/{mutant['test']}.cc"))
        if len(sources) != 1:
            faults.append(f"{mutant['name']}: there is no {mutant['test']}.cc")
            continue
        text = sources[0].read_text(encoding="utf-8")
        if not re.search(tests_named(mutant["filter"]), text):
            faults.append(f"{mutant['name']}: {sources[0].relative_to(ROOT)} has no {mutant['filter']}")
    return faults


def copy_tree():
    """Brings the copy up to date; files that are equal keep their time, so that nothing is compiled for them."""
    wanted = set()
    for name in COPIED:
        top = ROOT / name
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted.add(path.relative_to(ROOT))
    for path in SOURCE.rglob("*"):
        if path.is_file() and path.relative_to(SOURCE) not in wanted:
            path.unlink()
    for relative in wanted:
        source, target = ROOT / relative, SOURCE / relative
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def run(command, log, timeout=None):
    """(exit status, or None where it ran out of time; output)."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                              stdin=subprocess.DEVNULL, env=environment)
        status, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as ended:
        status, output = None, (ended.stdout or b"").decode(errors="replace")
    log.write("$ " + " ".join(map(str, command)) + "\n" + output + "\n")
    log.flush()
    return status, output


def build(targets, log, jobs):
    status, output = run(["ninja", "-C", BUILD, "-j", str(jobs), *sorted(targets)], log)
    return status == 0, output


def run_test(mutant, log):
    """killed, survived, or what is wrong with the entry."""
    status, output = run([BUILD / "bin" / mutant["test"], f"--gtest_filter={mutant['filter']}", "--gtest_brief=1"], log,
                         TIMEOUT_S)
    if status is None:
        return "killed (time)"
    if re.search(r"\[==========\] 0 tests", output) or "[==========]" not in output and status == 0:
        return "no such test"
    if status == 0:
        return "SURVIVED"
    return "killed" if "[  FAILED  ]" in output else "killed (crash)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", metavar="I/N", help="every N-th mutant, from the I-th on")
    parser.add_argument("--only", metavar="WORD", help="those whose name contains the word")
    parser.add_argument("--list", action="store_true", help="prints the list")
    parser.add_argument("--check", action="store_true", help="checks the list against the sources")
    parser.add_argument("--json", metavar="FILE", help="writes the table for programs")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile")
    arguments = parser.parse_args()

    mutants = read_list()
    faults = check(mutants)
    if faults:
        die("\n  ".join([f"{len(faults)} entries do not fit the sources:"] + faults))
    if arguments.check:
        print(f"{len(mutants)} mutants fit the sources")
        return
    if arguments.part:
        match = re.fullmatch(r"(\d+)/(\d+)", arguments.part)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            die(f"--part {arguments.part}: write I/N with I from 1 to N, for example 2/3")
        mutants = mutants[int(match[1]) - 1::int(match[2])]
    if arguments.only:
        mutants = [mutant for mutant in mutants if arguments.only.lower() in mutant["name"].lower()]
    if not mutants:
        die("nothing is left to do")
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant['name']}\n    {mutant['file']}\n    {mutant['test']} --gtest_filter={mutant['filter']}")
        return

    copy_tree()
    start = time.monotonic()
    with open(ROOT / "build" / "mutants" / "log.txt", "w", encoding="utf-8") as log:
        # -O1 compiles in half the time, and what is right does not depend on it.
        status, output = run(["cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                              "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"], log)
        if status != 0:
            die(f"cmake failed\n{output[-3000:]}")
        print(f"building the tests without mistakes ({len(mutants)} mutants follow)", flush=True)
        good, output = build({mutant["test"] for mutant in mutants}, log, arguments.jobs)
        if not good:
            die(f"the sources do not compile\n{output[-3000:]}")
        passes = {id(mutant): run_test(mutant, log) == "SURVIVED" for mutant in mutants}
        table, width = [], max(len(mutant["name"]) for mutant in mutants)
        for number, mutant in enumerate(mutants, 1):
            began = time.monotonic()
            verdict = (with_mistake(mutant, log, arguments.jobs) if passes[id(mutant)]
                       else "ERROR: the test fails, or is not there, without the mistake")
            seconds = time.monotonic() - began
            table.append({"name": mutant["name"], "file": mutant["file"], "test": mutant["test"],
                          "filter": mutant["filter"], "verdict": verdict, "seconds": round(seconds, 1)})
            print(f"{number:3}/{len(mutants)}  {mutant['name']:<{width}}  {verdict:<14} {seconds:5.0f} s  "
                  f"{mutant['test']}", flush=True)
        build({mutant["test"] for mutant in mutants}, log, arguments.jobs)  # the next start begins with a clean build

    bad = [row for row in table if not row["verdict"].startswith("killed")]
    print(f"{len(table) - len(bad)} of {len(table)} killed in {time.monotonic() - start:.0f} s (log: build/mutants/log.txt)")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    if bad:
        sys.exit("\n".join(["not killed:"] + [f"  {row['name']}: {row['verdict']}" for row in bad]))


def with_mistake(mutant, log, jobs):
    """Makes the mistake, builds, runs the test, and takes the mistake back."""
    before = {}
    try:
        for edit in mutant["edits"]:
            path = SOURCE / edit["file"]
            text = path.read_text(encoding="utf-8")
            before.setdefault(path, text)
            path.write_text(text.replace(edit["find"], edit["replace"]), encoding="utf-8")
        good, _ = build({mutant["test"]}, log, jobs)
        return run_test(mutant, log) if good else "ERROR: the mistake does not compile"
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
