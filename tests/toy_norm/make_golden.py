#!/usr/bin/env python3
"""Writes root_rmsnorm.json beside this file, with the formula that a real norm would have in tools/make_golden.py.

    python3 tests/toy_norm/make_golden.py [--check]
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools"))
sys.dont_write_bytecode = True

from make_golden import Norm, Normalized, cases, eps_of, mean, render  # noqa: E402
from decimal import Decimal  # noqa: E402


def root_rmsnorm(x, case):
    n = len(x)
    u = mean([v * v for v in x]) + eps_of(case)
    root = u.sqrt().sqrt()  # the square root of the rms

    def jacobian(j, c):  # of x_j u^(-1/4), u having the derivative 2 x_c / n
        same = Decimal(1) if j == c else Decimal(0)
        return same / root - x[j] * x[c] / (2 * n * root**5)

    return Normalized([v / root for v in x], jacobian)


text = render("root_rmsnorm", Norm(root_rmsnorm, has_gain=True), cases()["rmsnorm"])
path = HERE / "root_rmsnorm.json"
if "--check" not in sys.argv:
    path.write_text(text, encoding="utf-8")
elif path.read_text(encoding="utf-8") != text:
    sys.exit(f"{path} differs from what {pathlib.Path(__file__).name} writes")
