#!/usr/bin/env python3
"""normlab as a library, seen from outside: installs the build tree into a temporary folder, moves the folder, and
builds the programs of examples/ against it as other projects would, with the compiler of the build and with clang.

    tests/consumer_test.py BUILD CMAKE C-COMPILER C++-COMPILER VERSION [unittest options]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = SOURCE / "examples"
BUILD, CMAKE, CC, CXX, VERSION = sys.argv[1:6]
FOREIGN_HEADER = re.compile(r"^\s*#\s*include\s*[<\"](hwy/|omp\.h|dnnl|oneapi/|boost/)", re.MULTILINE)
OUR_FLAGS = ("-ffp-contract", "-fno-math-errno", "-Wall", "-Wconversion", "-Werror", "-fopenmp", "-fvisibility")


def clang():
    """The C and C++ compiler of clang, or None."""
    for suffix in ("-14", ""):
        found = shutil.which("clang" + suffix), shutil.which("clang++" + suffix)
        if all(found):
            return found
    return None


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    done.shown = f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done


class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="normlab-consumer-")
        cls.folder = pathlib.Path(cls._folder.name)
        installed = run(CMAKE, "--install", BUILD, "--prefix", cls.folder / "first")
        if installed.returncode != 0:
            cls._folder.cleanup()
            raise AssertionError(installed.shown)
        cls.prefix = cls.folder / "moved"  # what is installed must work wherever it stands
        (cls.folder / "first").rename(cls.prefix)
        cls.include = cls.prefix / "include"
        cls.library = next(cls.prefix.rglob("libnormlab_c.so"))

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def good(self, *command, **options):
        done = run(*command, **options)
        self.assertEqual(done.returncode, 0, done.shown)
        return done.stdout

    def compilers(self):
        yield "build", (CC, CXX)
        if clang():
            yield "clang", clang()

    def configure(self, project, name, compilers, *options):
        build = self.folder / f"{project}-{name}"
        command = [CMAKE, "-S", SOURCE / "tests/consumer" / project, "-B", build, f"-DCMAKE_C_COMPILER={compilers[0]}",
                   f"-DEXAMPLES={EXAMPLES}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options]
        if project != "installed_c":
            command.append(f"-DCMAKE_CXX_COMPILER={compilers[1]}")
        return build, run(*command)

    def build(self, project, name, compilers, *options):
        build, configured = self.configure(project, name, compilers, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                           f"-DWANTED={VERSION}", *options)
        self.assertEqual(configured.returncode, 0, configured.shown)
        self.good(CMAKE, "--build", build, "--parallel", "2")
        return build

    def expect_no_flags_of_ours(self, build):
        """Our warnings and floating-point options are not for other people's sources."""
        commands = [c for c in json.loads((build / "compile_commands.json").read_text())
                    if "/normlab/normlab/" not in c["file"] and not c["file"].startswith(str(SOURCE / "normlab"))]
        self.assertTrue(commands)
        for command in commands:
            for flag in OUR_FLAGS:
                self.assertNotIn(flag, command["command"])

    def test_programs_build_and_give_right_answers(self):
        for name, compilers in self.compilers():
            with self.subTest(compiler=compilers[1]):
                build = self.build("installed", name, compilers)
                self.expect_no_flags_of_ours(build)
                for program in ("normalize", "normalize_c"):
                    self.assertRegex(self.good(build / program), rf"normlab {re.escape(VERSION)}: .*: right")
                self.assertIn("test loss", self.good(build / "train_tiny_gpt"))
                # P-09: our objects were built by one compiler, the program by another; one OpenMP runtime serves both.
                for program in ("normalize", "train_tiny_gpt", "normalize_c"):
                    loaded = re.findall(r"lib(?:gomp|omp|iomp5)\.so\S*", self.good("ldd", build / program))
                    self.assertEqual(len(set(loaded)), 1, f"{program} loads {loaded}")

    def test_a_project_in_c_needs_the_shared_library_alone(self):
        build = self.build("installed_c", "build", (CC, CXX))
        self.assertIn("right", self.good(build / "normalize_c"))

    def test_another_version_is_refused(self):
        major, minor, patch = map(int, VERSION.split("."))
        for wanted in (f"{major + 1}.0", f"{major}.{minor + 1}", f"{major}.{minor}.{patch + 1}"):
            with self.subTest(wanted=wanted):
                _, configured = self.configure("installed_c", f"version-{wanted}", (CC, CXX),
                                               f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DWANTED={wanted}")
                self.assertNotEqual(configured.returncode, 0, configured.shown)
                self.assertIn(f"version: {VERSION}", configured.shown)

    def test_an_unknown_component_is_refused_by_name(self):
        _, configured = self.configure("installed", "component", (CC, CXX), f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                       f"-DWANTED={VERSION};COMPONENTS;fortran")
        self.assertNotEqual(configured.returncode, 0, configured.shown)
        self.assertIn("fortran", configured.stderr)

    def test_a_project_that_adds_the_sources_keeps_its_own_settings(self):
        build, configured = self.configure("subdirectory", "build", (CC, CXX), f"-DNORMLAB_SOURCE={SOURCE}")
        self.assertEqual(configured.returncode, 0, configured.shown)
        self.expect_no_flags_of_ours(build)
        self.good(CMAKE, "--build", build, "--parallel", "2", "--target", "names")
        self.assertIn("fused_rmsnorm", self.good(build / "names"))

    def test_only_public_headers_are_installed_and_each_stands_alone(self):
        headers = sorted(p.relative_to(self.include).as_posix() for p in self.include.rglob("*.h"))
        for expected in ("normlab.h", "normlab/base/version.h", "normlab/kernels/device.h",
                         "normlab/kernels/cpu/cpu_device.h", "normlab/norms/norm_list.h", "normlab/model/gpt.h",
                         "normlab/data/tokens.h", "normlab/train/trainer.h", "normlab/stats/comparison.h"):
            self.assertIn(expected, headers)
        self.assertEqual(headers, sorted(p.relative_to(self.include).as_posix() for p in self.include.rglob("*.*")))
        compiler = clang()[1] if clang() else CXX
        for header in headers:
            with self.subTest(header=header):
                self.assertNotRegex(header, r"-inl\.h$|testing/|testdata/|_test|cpu/(?!cpu_device\.h)")
                self.assertIsNone(FOREIGN_HEADER.search((self.include / header).read_text(encoding="utf-8")))
                self.good(compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{self.include}",
                          "-x", "c++", "-", input=f"#include <{header}>\n#include <{header}>\n")

    def test_the_c_header_is_c99_and_cxx(self):
        source = "#include <normlab.h>\n#include <normlab.h>\nint main(void) { return normlab_version() == 0; }\n"
        for _, (c, cxx) in self.compilers():
            for compiler, language, standard in ((c, "c", "c99"), (cxx, "c++", "c++11"), (cxx, "c++", "c++20")):
                with self.subTest(compiler=compiler, standard=standard):
                    self.good(compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                              f"-I{self.include}", "-x", language, "-", input=source)

    def test_the_c_library_shows_its_own_functions_alone(self):
        header = (self.include / "normlab.h").read_text(encoding="utf-8")
        declared = set(re.findall(r"NORMLAB_API [^;]*?(normlab_\w+)\(", header))
        shown = self.good("nm", "-D", "--defined-only", "--format=just-symbols", self.library).split()
        self.assertEqual(set(shown), declared)
        self.assertGreaterEqual(len(declared), 10)

    def test_other_languages_can_call_the_c_library(self):
        self.assertIn("right", self.good(sys.executable, "-B", EXAMPLES / "normalize.py", self.library))

    def test_the_package_names_no_folder_of_the_build(self):
        files = list(self.prefix.rglob("*.cmake"))
        self.assertGreaterEqual(len(files), 4)
        for file in files:
            text = file.read_text(encoding="utf-8")
            for folder in (str(SOURCE) + os.sep, str(pathlib.Path(BUILD).resolve()) + os.sep, str(self.folder / "first")):
                self.assertNotIn(folder, text, file.name)

    def test_the_example_that_trains_is_short(self):
        self.assertLess(len((EXAMPLES / "train_tiny_gpt.cc").read_text(encoding="utf-8").splitlines()), 60)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]], verbosity=2)
