#!/usr/bin/env python3
"""Lets a variant duel with itself, over and over: how often does the interval of the ratio hold 1?

    tools/check_duel.py PROGRAM                     20 duels on the machine as it is
    tools/check_duel.py PROGRAM --busy              20 more while another processor is kept busy
    tools/check_duel.py PROGRAM --repeats 5 --seconds 3 -- --norms rmsnorm --preset study

What stands behind -- goes to `normlab duel --aa`. Of 95% intervals, 17 or more of 20 hold the truth with a probability
of 0.98; the script exits 1 where fewer do (for other numbers of repeats: where so few have a chance below 2%).
"""

import argparse
import json
import math
import os
import subprocess
import sys


def least(repeats, level=0.95, error=0.02):
    """The largest count that a fair method reaches with probability 1 - error or more."""
    below = 0.0
    for count in range(repeats + 1):
        below += math.comb(repeats, count) * level**count * (1 - level) ** (repeats - count)
        if below > error:
            return count
    return repeats


def burn(processor):
    """A process that keeps one processor busy until it is terminated."""
    code = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    return subprocess.Popen([sys.executable, "-c", code])


def duels(arguments, options):
    """One record after another."""
    command = [arguments.program, "duel", "--aa", "--json", "--threads", "1", "--seconds", str(arguments.seconds),
               *options]
    for _ in range(arguments.repeats):
        yield json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program normlab")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10, help="of each duel")
    parser.add_argument("--busy", action="store_true", help="keep another processor busy meanwhile")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:at])
    options = sys.argv[at + 1:]

    processors = sorted(os.sched_getaffinity(0))
    if arguments.busy and len(processors) < 2:
        sys.exit("check_duel: one processor alone has no other that could be kept busy")
    burning = burn(processors[-1]) if arguments.busy else None
    os.sched_setaffinity(0, processors[:1] if arguments.busy else processors)
    held, verdicts = 0, {}
    try:
        for number, duel in enumerate(duels(arguments, options), 1):
            twin = duel["variants"][1]
            holds = twin["ci_low"] <= 1 <= twin["ci_high"]
            held += holds
            verdict = twin["verdict"] or "none"
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            print(f"{number:3d}  ratio {twin['ratio']:.4f}  95% interval {twin['ci_low']:.4f} to {twin['ci_high']:.4f}  "
                  f"{'holds' if holds else 'does not hold'} 1  {verdict}  {duel['batches']} x {duel['rounds_per_batch']}  "
                  f"interrupted blocks {duel['interrupted_blocks']}", flush=True)
    finally:
        if burning:
            burning.kill()
            burning.wait()
    wanted = least(arguments.repeats)
    words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"{held} of {arguments.repeats} intervals hold 1 ({wanted} wanted); verdicts: {words}")
    return 0 if held >= wanted else 1


if __name__ == "__main__":
    sys.exit(main())
