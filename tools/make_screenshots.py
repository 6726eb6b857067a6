#!/usr/bin/env python3
"""Makes the pictures of the report in docs/images/: a small study of a text, in a headless Chromium, two widths x two
themes. Needs Debian's chromium-headless-shell and fonts-inter, and makes files small with pngquant where it is there.

    tools/make_screenshots.py PROGRAM TEXT [--study DIR]      DIR: keep the study there, or use the one that is there

The study takes some minutes; losses are the same on every like machine, times are not."""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

HOME = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "tests" / "browser"))
import browser  # noqa: E402  (beside the tests that use it)

IMAGES = HOME / "docs" / "images"
STUDY = ["--norms", "fused_layernorm,fused_rmsnorm,dyt,no_norm", "--seeds", "5", "--steps", "120", "--context", "64", "--batch", "8",
         "--set", "emb_dim=64", "--set", "n_layers=2", "--set", "n_heads=2", "--profile", "--duel", "60"]
SHOTS = {1600: 2150, 400: 2600}  # width: height that is shown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text")
    parser.add_argument("--study", help="a folder for the study")
    parser.add_argument("--images", type=pathlib.Path, default=IMAGES, help="where the pictures go")
    arguments = parser.parse_args()
    if browser.find() is None:
        sys.exit("there is no Chromium; install Debian's chromium-headless-shell")
    program = str(pathlib.Path(arguments.program).resolve())
    with tempfile.TemporaryDirectory(prefix="normlab-screenshots-") as folder:
        study = pathlib.Path(arguments.study or folder + "/study")
        if not (study / "study.json").exists():
            subprocess.run([program, "compare", *STUDY, "--data", arguments.text, "--out", str(study)], check=True)
        page = pathlib.Path(folder) / "report.html"
        subprocess.run([program, "report", str(study), "--format", "html", "--out", str(page)], check=True)
        arguments.images.mkdir(parents=True, exist_ok=True)
        with browser.Browser() as chrome:
            for width, height in SHOTS.items():
                for theme in ("light", "dark"):
                    chrome.open(page, width=width, height=height, dark=theme == "dark")
                    picture = arguments.images / f"report-{width}-{theme}.png"
                    whole = chrome.run("document.documentElement.scrollHeight")
                    picture.write_bytes(chrome.screenshot(width, min(height, whole)))
                    if shutil.which("pngquant"):
                        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", str(picture), "64", str(picture)], check=False)
                    print(f"{picture}: {picture.stat().st_size} bytes")
            for error in chrome.errors:
                print(f"error in the page: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
