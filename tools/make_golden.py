#!/usr/bin/env python3
"""Writes tests/golden/<norm>.json: inputs and right answers of every norm, in 50-digit decimal arithmetic.

Written from the formulas of the papers, independently of the C++ (standard library only), so that a mistake in a
norm's header cannot also be in its golden file. Inputs are exact in fp32; answers are rounded to 20 digits once.
Backward is the derivative of sum(dy * y), taken here from its definition: with y_c = f_c(x), each dx_c is the sum
over j of dy_j * dy_j/dx_c with the Jacobian written out, not the simplified three-term form that the C++ uses.

    python3 tools/make_golden.py            writes the files
    python3 tools/make_golden.py --check    fails where a file differs from what would be written

A list shorter than its tensor is repeated to fill it. To add a norm: one function here, one entry in NORMS.
"""

# Imported, this file renders norms that are defined elsewhere: render(name, norm, cases).

import argparse
import json
import math
import pathlib
import random
import struct
import sys
from collections.abc import Callable
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from typing import NamedTuple

getcontext().prec = 50
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"


def f32(value):
    """The nearest fp32 number, exactly."""
    return Decimal(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def mean(values):
    return sum(values, Decimal(0)) / len(values)


class Norm(NamedTuple):
    function: Callable  # row, case -> Normalized
    has_gain: bool = False
    has_bias: bool = False
    has_alpha: bool = False


class Normalized(NamedTuple):
    xhat: list  # y before gain and bias
    jacobian: Callable  # j, c -> d xhat_j / d x_c
    by_alpha: Callable = lambda j: Decimal(0)  # j -> d xhat_j / d alpha


def eps_of(case):
    return Decimal(case["eps"])


def layernorm(x, case):
    n = len(x)
    eps = eps_of(case)
    m = mean(x)
    deviation = [v - m for v in x]
    std = (mean([d * d for d in deviation]) + eps).sqrt()

    def jacobian(j, c):
        same = Decimal(1) if j == c else Decimal(0)
        return (same - Decimal(1) / n) / std - deviation[j] * deviation[c] / (n * std**3)

    return Normalized([d / std for d in deviation], jacobian)


def rmsnorm(x, case):
    n = len(x)
    rms = (mean([v * v for v in x]) + eps_of(case)).sqrt()

    def jacobian(j, c):
        same = Decimal(1) if j == c else Decimal(0)
        return same / rms - x[j] * x[c] / (n * rms**3)

    return Normalized([v / rms for v in x], jacobian)


def partial_rmsnorm(x, case):
    k = math.ceil(len(x) * Fraction(case["fraction"]))
    rms = (mean([v * v for v in x[:k]]) + eps_of(case)).sqrt()

    def jacobian(j, c):
        same = Decimal(1) if j == c else Decimal(0)
        return same / rms - (x[j] * x[c] / (k * rms**3) if c < k else 0)

    return Normalized([v / rms for v in x], jacobian)


def recenter(x, case):
    del case
    m = mean(x)
    return Normalized([v - m for v in x], lambda j, c: (Decimal(1) if j == c else Decimal(0)) - Decimal(1) / len(x))


def dyt(x, case):
    alpha = case["alpha"]

    def tanh(v):  # 1 - 2 / (e^2v + 1), with digits to spare for v near 0
        with localcontext() as context:
            context.prec = 100
            return 1 - 2 / ((2 * v).exp() + 1)

    t = [tanh(alpha * v) for v in x]
    slope = [1 - v * v for v in t]  # of tanh
    return Normalized(t, lambda j, c: alpha * slope[j] if j == c else Decimal(0), lambda j: slope[j] * x[j])


def no_norm(x, case):
    del case
    return Normalized(list(x), lambda j, c: Decimal(1) if j == c else Decimal(0))


NORMS = {
    "layernorm": Norm(layernorm, has_gain=True, has_bias=True),
    "rmsnorm": Norm(rmsnorm, has_gain=True),
    "partial_rmsnorm": Norm(partial_rmsnorm, has_gain=True),
    "recenter": Norm(recenter),
    "rescale": Norm(rmsnorm),
    "dyt": Norm(dyt, has_gain=True, has_bias=True, has_alpha=True),
    "no_norm": Norm(no_norm),
}


def tile(values, count):
    return [values[i % len(values)] for i in range(count)]


def short(values):
    """The shortest list that fills the tensor when repeated, as 20-digit numbers."""
    text = [format(v.normalize(), ".20g") if v else "0" for v in values]
    for period in range(1, len(text) // 2 + 1):
        if len(text) % period == 0 and text == tile(text[:period], len(text)):
            return text[:period]
    return text


def make_case(norm, case):
    function, has_gain, has_bias, has_alpha = norm
    rows, cols = case["rows"], case["cols"]
    case = {"fraction": "0.0625", "alpha": Decimal("0.5"), **case}
    offset = Decimal(case.get("weight_offset", 0))
    x, dy = tile(case["x"], rows * cols), tile(case["dy"], rows * cols)
    weight = tile(case.get("weight", [Decimal(1) - offset]), cols) if has_gain else None
    bias = tile(case.get("bias", [Decimal(0)]), cols) if has_bias else None
    gain = [w + offset for w in weight] if has_gain else [Decimal(1)] * cols
    y, dx = [], []
    dgain, dbias, dalpha = [Decimal(0)] * cols, [Decimal(0)] * cols, Decimal(0)
    for r in range(rows):
        row, dy_row = x[r * cols:(r + 1) * cols], dy[r * cols:(r + 1) * cols]
        xhat, jacobian, by_alpha = function(row, case)
        dalpha += sum((dy_row[c] * gain[c] * by_alpha(c) for c in range(cols)), Decimal(0))
        y += [xhat[c] * gain[c] + (bias[c] if has_bias else 0) for c in range(cols)]
        for c in range(cols):
            dgain[c] += dy_row[c] * xhat[c]
            dbias[c] += dy_row[c]
        # Columns of equal value share a derivative when the others agree too: wide cases are periodic or
        # sparse on purpose, and the cache keeps them fast.
        cache = {}
        for c in range(cols):
            key = (row[c], dy_row[c], gain[c], c < math.ceil(cols * Fraction(case["fraction"])))
            if key not in cache:
                cache[key] = sum((dy_row[j] * gain[j] * jacobian(j, c) for j in range(cols)), Decimal(0))
            dx.append(cache[key])
    out = {"name": case["name"], "rows": rows, "cols": cols, "eps": case["eps"], "weight_offset": str(offset),
           "fraction": case["fraction"]}
    fields = {"x": x, "dy": dy, "y": y, "dx": dx}
    if has_gain:
        fields |= {"weight": weight, "dweight": dgain}
    if has_bias:
        fields |= {"bias": bias, "dbias": dbias}
    if has_alpha:
        fields |= {"alpha": [case["alpha"]], "dalpha": [dalpha]}
    return out, {name: short(values) for name, values in fields.items()}


def random_case(name, rows, cols, seed, spread="1", mean_x=0, offset=0):
    source = random.Random(seed)

    def draw(count, mu, sigma):
        return [f32(source.gauss(mu, sigma)) for _ in range(count)]

    return {"name": name, "rows": rows, "cols": cols, "eps": "1e-5", "weight_offset": offset,
            "x": draw(rows * cols, mean_x, float(spread)), "dy": draw(rows * cols, 0, 1),
            "weight": draw(cols, 1 - offset, 0.3), "bias": draw(cols, 0, 1)}


def cases():
    one = [Decimal(1)]
    varied = [f32(v) for v in (1, -2, 0.5, 0.25)]
    random_cases = [random_case("random 3x5", 3, 5, 1), random_case("random 2x8, mean 100", 2, 8, 2, mean_x=100),
                    random_case("random 2x33, spread 0.01", 2, 33, 3, spread="0.01"),
                    random_case("random 2x17, gain stored as 1 + g", 2, 17, 4, offset=1)]
    common = random_cases + [
        {"name": "N-06 zero row", "rows": 1, "cols": 64, "eps": "1e-5", "x": [Decimal(0)], "dy": one},
        {"name": "N-06 zero row, varied dy", "rows": 2, "cols": 64, "eps": "1e-5", "x": [Decimal(0)], "dy": varied},
        {"name": "N-09 one hot", "rows": 1, "cols": 4, "eps": "1e-4", "x": one + [Decimal(0)] * 3,
         "dy": one + [Decimal(0)] * 3},
        {"name": "N-18 width 1", "rows": 3, "cols": 1, "eps": "1e-5", "x": [f32(3.7)], "dy": one,
         "weight": [Decimal(2)], "bias": [Decimal("0.5")]},
    ]
    layer = [{"name": f"N-04 mean {m}", "rows": 1, "cols": 16, "eps": "1e-5", "dy": varied,
              "x": [f32(m + i * 1e-3) for i in range(16)]} for m in (0, 100, 1000, 10000)]
    layer.append({"name": "N-04 mean 1e6, two values", "rows": 1, "cols": 1024, "eps": "1e-5", "dy": varied,
                  "x": [f32(1e6), f32(1e6 + 0.0625)]})
    rms = [{"name": f"N-01 every x 300, width {cols}", "rows": 1, "cols": cols, "eps": "1e-5", "x": [f32(300)],
            "dy": varied} for cols in (8, 1024, 4096)]
    rms.append({"name": "N-03 one large value", "rows": 1, "cols": 1024, "eps": "1e-5",
                "x": [f32(1000)] + [Decimal(0)] * 1023, "dy": varied})
    partial = [{**random_case(f"random 2x{cols}, fraction {fraction}", 2, cols, 5), "fraction": fraction}
               for cols, fraction in ((33, "0.25"), (16, "0.5"), (20, "1"), (65, "0.0625"))]
    saturating = [{**random_case("random 3x9, alpha 0.8", 3, 9, 6), "alpha": f32(0.8)},
                  {"name": "R-07 x 1, alpha 0.5", "rows": 1, "cols": 2, "eps": "1e-5", "x": one, "dy": one},
                  {**random_case("random 2x17, spread 30: saturated", 2, 17, 7, spread="30"), "alpha": f32(0.5)}]
    return {"layernorm": common + layer, "rmsnorm": common + rms, "partial_rmsnorm": common + partial,
            "recenter": common + layer, "rescale": common + rms, "dyt": common + saturating,
            "no_norm": random_cases[:2]}


def render(name, norm, norm_cases):
    lines = []
    for case in norm_cases:
        head, fields = make_case(norm, case)
        text = json.dumps(head)[:-1]
        for field, values in fields.items():
            text += f',\n   "{field}": [{", ".join(values)}]'
        lines.append("  " + text + "}")
    return f'{{"norm": "{name}",\n "made_by": "tools/make_golden.py",\n "cases": [\n' + ",\n".join(lines) + "\n ]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    GOLDEN.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, norm in NORMS.items():
        path = GOLDEN / f"{name}.json"
        text = render(name, norm, cases()[name])
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    if stale:
        sys.exit("differs from what tools/make_golden.py writes: " + ", ".join(stale))


if __name__ == "__main__":
    main()
