#!/usr/bin/env python3
"""Checks the rules that the compiler cannot see, over the sources of normlab/:

  layer     a folder includes itself and the layers that cmake/layers.txt allows, no others
  testing   a folder testing/ is included by *_test.cc and by testing/ only; what normlab/testing/ includes counts
            as included by the test, so a test cannot reach an upper layer through it
  path      our own headers are included by their full path, "normlab/..."
  dnnl      only normlab/kernels/cpu/onednn*.cc include oneDNN
  openmp    only normlab/base/threads.cc and normlab/kernels/cpu/onednn*.cc use OpenMP
  fast-math no build file and no source turns on inexact mathematics or compiles for one processor only

    tests/layers_test.py [ROOT]         prints every violation, exit 1 if there is one
    tests/layers_test.py --self-test    breaks each rule in a small tree and demands that it is reported
"""

import pathlib
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
DNNL = re.compile(r"^(oneapi/dnnl/|dnnl)")
OPENMP = re.compile(r"^\s*#\s*pragma\s+omp\s+(?!simd\b|declare\s+simd\b)")
FAST_FLAG = re.compile(
    r"-ffast-math|-Ofast|-funsafe-math-optimizations|-fassociative-math|-ffinite-math-only|use_fast_math|-march=native"
)
FAST_SOURCE = re.compile(r"(optimize|GCC\s+optimize|float_control)\b.*(fast-math|Ofast|unsafe-math|precise\s*,\s*off)")
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def read_layers(path):
    """cmake/layers.txt as {layer: every layer that it may include, itself among them}."""
    allowed = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"(\w+):((?: +\w+)*)", line)
        if not match or match[1] in allowed:
            raise SystemExit(f"{path}: cannot read the line \"{line}\"; each is \"layer: layers below it\", once")
        allowed[match[1]] = {match[1]}
        for lower in match[2].split():
            if lower not in allowed or lower == match[1]:
                raise SystemExit(f"{path}: {match[1]} names {lower}, which does not stand above it in the file")
            allowed[match[1]] |= allowed[lower]
    if not allowed:
        raise SystemExit(f"{path}: no layers")
    return allowed


def lines_of(path):
    return list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))


def includes_of(path):
    """(line number, opening mark, included path) of every #include."""
    for number, line in lines_of(path):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def layer_of(name):
    """The layer of normlab/<layer>/..., or None for a file that is in no folder."""
    parts = name.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "normlab" else None


def is_test_code(name):
    return name.endswith("_test.cc") or "testing" in name.split("/")[:-1]


def reached_through(root, helper, seen):
    """Headers outside testing/ that a header of normlab/testing/ includes, through others of testing/ too."""
    if helper in seen or not (root / helper).is_file():
        return
    seen.add(helper)
    for _, _, target in includes_of(root / helper):
        if layer_of(target) == "testing":
            yield from reached_through(root, target, seen)
        elif target.startswith("normlab/"):
            yield target


def check_includes(root, allowed, name):
    layer = layer_of(name)
    may_use_dnnl = bool(re.fullmatch(r"normlab/kernels/cpu/onednn\w*\.cc", name))
    may_use_openmp = may_use_dnnl or name == "normlab/base/threads.cc"

    def judge(number, target, through=""):
        target_layer = layer_of(target)
        if target_layer is None or target_layer not in allowed:
            yield number, "layer", f"{target} is in none of the layers of cmake/layers.txt{through}"
        elif target_layer not in allowed[layer]:
            known = " ".join(name for name in allowed if name in allowed[layer])
            yield number, "layer", f"{layer} includes {target}{through}; it may include: {known}"

    for number, mark, target in includes_of(root / name):
        if DNNL.match(target) and not may_use_dnnl:
            yield number, "dnnl", f"{target}: only normlab/kernels/cpu/onednn*.cc include oneDNN"
        elif target == "omp.h" and not may_use_openmp:
            yield number, "openmp", "omp.h: use ParallelFor of normlab/base/threads.h"
        elif not target.startswith("normlab/"):
            beside = (root / name).parent / target
            if mark == '"' and (target.startswith(".") or beside.is_file()):
                yield number, "path", f"\"{target}\": write the full path, \"normlab/...\""
        elif is_test_code(target) and not is_test_code(name):
            yield number, "testing", f"{target} is for *_test.cc only"
        elif layer == "testing":
            continue  # judged for each test that uses it
        elif layer_of(target) == "testing":
            for reached in reached_through(root, target, set()):
                yield from judge(number, reached, f" (through {target})")
        else:
            yield from judge(number, target)

    for number, line in lines_of(root / name):
        if OPENMP.match(line) and not may_use_openmp:
            yield number, "openmp", "#pragma omp: use ParallelFor of normlab/base/threads.h"
        if FAST_SOURCE.search(line):
            yield number, "fast-math", line.strip()


def build_files(root):
    yield from (root / n for n in ("CMakeLists.txt", "CMakePresets.json", "dev") if (root / n).is_file())
    for folder in ("cmake", "normlab", "tests", "bench"):
        for pattern in ("CMakeLists.txt", "*.cmake"):
            yield from sorted((root / folder).rglob(pattern))


def violations(root):
    """(file, line number, rule, message) of everything that breaks a rule; and the number of files looked at."""
    allowed = read_layers(root / "cmake/layers.txt")
    sources = sorted(p for p in (root / "normlab").rglob("*") if p.suffix in SOURCE_SUFFIXES)
    found = []
    for path in sources:
        name = path.relative_to(root).as_posix()
        layer = layer_of(name)
        if layer != "testing" and layer not in allowed:
            found.append((name, 1, "layer", "this folder is not in cmake/layers.txt"))
            continue
        found += [(name, *violation) for violation in check_includes(root, allowed, name)]
    for path in build_files(root):
        for number, line in lines_of(path):
            if path.suffix != ".json":
                line = line.split("#")[0]
            if FAST_FLAG.search(line):
                found.append((path.relative_to(root).as_posix(), number, "fast-math", line.strip()))
    return found, len(sources)


# A small tree that keeps every rule. The self-test puts one line into one of its files at a time.
CLEAN = {
    "cmake/layers.txt": "# comment\nbase:\nstats: base\nnorms: base\nkernels: norms\napps: kernels stats\n",
    "CMakeLists.txt": "project(x)  # never -ffast-math\n",
    "CMakePresets.json": "{}\n",
    "normlab/base/error.h": "#pragma once\n#include <string>\n",
    "normlab/base/threads.cc": '#include "normlab/base/error.h"\n#include <omp.h>\n#pragma omp parallel\n',
    "normlab/base/error_test.cc": '#include "normlab/base/testing/files.h"\n#include "normlab/testing/near.h"\n',
    "normlab/base/testing/files.h": '#include "normlab/base/error.h"\n#include "normlab/testing/near.h"\n',
    "normlab/stats/mean.h": '#include "normlab/base/error.h"\n// Sums in order, without fast-math.\n',
    "normlab/norms/rmsnorm.h": '#include "normlab/base/error.h"\n',
    "normlab/norms/testdata/rows.h": '#include "normlab/norms/rmsnorm.h"\n',
    "normlab/kernels/device.h": '#include "normlab/norms/rmsnorm.h"\n#include "hwy/highway.h"\n',
    "normlab/kernels/cpu/onednn.cc": '#include <dnnl.h>\n#include "oneapi/dnnl/dnnl.h"\n#include <omp.h>\n',
    "normlab/kernels/cpu/gelu.cc": '#include "normlab/kernels/device.h"\n#pragma omp simd\n',
    "normlab/apps/main.cc": '#include "normlab/stats/mean.h"\n#include "normlab/kernels/device.h"\n',
    "normlab/testing/near.h": "#include <cmath>\n",
    "normlab/testing/models.h": '#include "normlab/testing/near.h"\n#include "normlab/kernels/device.h"\n',
    "normlab/kernels/device_test.cc": '#include "normlab/testing/models.h"\n',
}
BROKEN = [  # (rule, file, line added at its end)
    ("layer", "normlab/base/error.h", '#include "normlab/stats/mean.h"'),
    ("layer", "normlab/base/error.h", '  #  include <normlab/apps/x.h>'),
    ("layer", "normlab/stats/mean.h", '#include "normlab/norms/rmsnorm.h"'),
    ("layer", "normlab/norms/rmsnorm.h", '#include "normlab/kernels/device.h"'),
    ("layer", "normlab/norms/testdata/rows.h", '#include "normlab/kernels/device.h"'),
    ("layer", "normlab/kernels/device.h", '#include "normlab/stats/mean.h"'),
    ("layer", "normlab/kernels/device.h", '#include "normlab/tools/x.h"'),
    ("layer", "normlab/kernels/device.h", '#include "normlab/x.h"'),
    ("layer", "normlab/kernels/device_test.cc", '#include "normlab/stats/mean.h"'),
    ("layer", "normlab/base/error_test.cc", '#include "normlab/testing/models.h"'),
    ("layer", "normlab/tools/new.cc", "// a folder that is no layer"),
    ("testing", "normlab/kernels/cpu/gelu.cc", '#include "normlab/testing/near.h"'),
    ("testing", "normlab/base/threads.cc", '#include "normlab/base/testing/files.h"'),
    ("layer", "normlab/base/testing/files.h", '#include "normlab/stats/mean.h"'),
    ("path", "normlab/kernels/cpu/gelu.cc", '#include "../device.h"'),
    ("path", "normlab/kernels/cpu/gelu.cc", '#include "onednn.cc"'),
    ("dnnl", "normlab/kernels/cpu/gelu.cc", "#include <dnnl.hpp>"),
    ("dnnl", "normlab/kernels/device.h", '#include "oneapi/dnnl/dnnl.h"'),
    ("dnnl", "normlab/testing/near.h", "#include <dnnl.h>"),
    ("openmp", "normlab/kernels/cpu/gelu.cc", "#include <omp.h>"),
    ("openmp", "normlab/stats/mean.h", "#pragma omp parallel for"),
    ("openmp", "normlab/base/threads_test.cc", "#include <omp.h>"),
    ("fast-math", "CMakeLists.txt", "add_compile_options(-ffast-math)"),
    ("fast-math", "CMakePresets.json", '{"CMAKE_CXX_FLAGS": "-Ofast"}'),
    ("fast-math", "normlab/kernels/CMakeLists.txt", "target_compile_options(x PRIVATE -march=native)"),
    ("fast-math", "normlab/kernels/cpu/gelu.cc", '#pragma GCC optimize("fast-math")'),
    ("fast-math", "normlab/kernels/cpu/gelu.cc", '__attribute__((optimize("-Ofast"))) void F();'),
]


def write_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "clean"
        write_tree(root, CLEAN)
        found, looked_at = violations(root)
        expected = sum(pathlib.PurePath(name).suffix in SOURCE_SUFFIXES for name in CLEAN)
        if found or looked_at != expected:
            failures += 1
            print(f"FAILED: the clean tree ({looked_at} of {expected} sources seen): {found}")
        for i, (rule, name, line) in enumerate(BROKEN):
            root = pathlib.Path(folder) / str(i)
            write_tree(root, CLEAN | {name: CLEAN.get(name, "") + line + "\n"})
            found, _ = violations(root)
            if [(v[0], v[2]) for v in found] != [(name, rule)]:
                failures += 1
                print(f"FAILED: {name} with '{line}' must break the rule \"{rule}\" alone; found {found}")
    print(f"{len(BROKEN)} violations tried, {failures} failures")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    found, looked_at = violations(root)
    for name, number, rule, message in found:
        print(f"{name}:{number}: [{rule}] {message}")
    print(f"{looked_at} source files, {len(found)} violations")
    return 1 if found or looked_at == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
