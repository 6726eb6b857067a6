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

import argparse
import json
import pathlib
import random
import struct
import sys
from decimal import Decimal, getcontext

getcontext().prec = 50
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"


def f32(value):
    """The nearest fp32 number, exactly."""
    return Decimal(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def mean(values):
    return sum(values, Decimal(0)) / len(values)


# Each norm: row, gain, bias, eps -> (y, function j -> the gradient of y_j/gain_j with respect to x as a list,
# xhat), xhat being y before gain and bias.
def layernorm(x, eps):
    n = len(x)
    m = mean(x)
    deviation = [v - m for v in x]
    std = (mean([d * d for d in deviation]) + eps).sqrt()

    def jacobian(j, c):  # d xhat_j / d x_c
        same = Decimal(1) if j == c else Decimal(0)
        return (same - Decimal(1) / n) / std - deviation[j] * deviation[c] / (n * std**3)

    return [d / std for d in deviation], jacobian


def rmsnorm(x, eps):
    n = len(x)
    rms = (mean([v * v for v in x]) + eps).sqrt()

    def jacobian(j, c):
        same = Decimal(1) if j == c else Decimal(0)
        return same / rms - x[j] * x[c] / (n * rms**3)

    return [v / rms for v in x], jacobian


def no_norm(x, eps):
    del eps
    return list(x), lambda j, c: Decimal(1) if j == c else Decimal(0)


# name -> function, has gain, has bias
NORMS = {"layernorm": (layernorm, True, True), "rmsnorm": (rmsnorm, True, False), "no_norm": (no_norm, False, False)}


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
    function, has_gain, has_bias = NORMS[norm]
    rows, cols = case["rows"], case["cols"]
    eps = Decimal(case["eps"])
    offset = Decimal(case.get("weight_offset", 0))
    x, dy = tile(case["x"], rows * cols), tile(case["dy"], rows * cols)
    weight = tile(case.get("weight", [Decimal(1) - offset]), cols) if has_gain else None
    bias = tile(case.get("bias", [Decimal(0)]), cols) if has_bias else None
    gain = [w + offset for w in weight] if has_gain else [Decimal(1)] * cols
    y, dx = [], []
    dgain, dbias = [Decimal(0)] * cols, [Decimal(0)] * cols
    for r in range(rows):
        row, dy_row = x[r * cols:(r + 1) * cols], dy[r * cols:(r + 1) * cols]
        xhat, jacobian = function(row, eps)
        y += [xhat[c] * gain[c] + (bias[c] if has_bias else 0) for c in range(cols)]
        for c in range(cols):
            dgain[c] += dy_row[c] * xhat[c]
            dbias[c] += dy_row[c]
        # Columns of equal value share a derivative when the others agree too: wide cases are periodic or
        # sparse on purpose, and the cache keeps them fast.
        cache = {}
        for c in range(cols):
            key = (row[c], dy_row[c], gain[c])
            if key not in cache:
                cache[key] = sum((dy_row[j] * gain[j] * jacobian(j, c) for j in range(cols)), Decimal(0))
            dx.append(cache[key])
    out = {"name": case["name"], "rows": rows, "cols": cols, "eps": case["eps"], "weight_offset": str(offset)}
    fields = {"x": x, "dy": dy, "y": y, "dx": dx}
    if has_gain:
        fields |= {"weight": weight, "dweight": dgain}
    if has_bias:
        fields |= {"bias": bias, "dbias": dbias}
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
    return {"layernorm": common + layer, "rmsnorm": common + rms, "no_norm": random_cases[:2]}


def render(norm):
    lines = []
    for case in cases()[norm]:
        head, fields = make_case(norm, case)
        text = json.dumps(head)[:-1]
        for name, values in fields.items():
            text += f',\n   "{name}": [{", ".join(values)}]'
        lines.append("  " + text + "}")
    return f'{{"norm": "{norm}",\n "made_by": "tools/make_golden.py",\n "cases": [\n' + ",\n".join(lines) + "\n ]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    GOLDEN.mkdir(parents=True, exist_ok=True)
    stale = []
    for norm in NORMS:
        path = GOLDEN / f"{norm}.json"
        text = render(norm)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
    if stale:
        sys.exit("differs from what tools/make_golden.py writes: " + ", ".join(stale))


if __name__ == "__main__":
    main()
