"""The report page in a real browser: draws, fits, reads by keyboard, and shows the numbers of results.json."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import browser
import study_fixture

PROGRAM = ""

# How far the text of a number may be from it: half a unit of its last digit.
NUMBERS = """[...document.querySelectorAll('data[value]')].map((one) => [one.value, one.textContent, one.closest('table').id])"""
CANVASES = """[...document.querySelectorAll('canvas')].filter((one) => one.offsetParent).map((canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(pixels[i] << 24 | pixels[i + 1] << 16 | pixels[i + 2] << 8 | pixels[i + 3]);
  return [canvas.closest('figure').id, colours.size, canvas.width, canvas.getAttribute('aria-label')]; })"""
# What stands in a closed <details> takes no focus; its summary does.
FOCUSABLE = """[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')].filter((one) => {
  const closed = one.closest('details:not([open])');
  return one.offsetParent && (!closed || (one.tagName === 'SUMMARY' && one.parentElement === closed)); })"""
CHART = "Chart.getChart(document.querySelector('#{0}-figure canvas'))"


def numbers_of(value):
    """All numbers of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from numbers_of(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="normlab-report-")
        cls.study = study_fixture.make(PROGRAM, cls.folder.name)
        cls.page = pathlib.Path(cls.folder.name) / "page.html"
        cls.report("html", cls.page)
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    @classmethod
    def report(cls, form, out):
        subprocess.run([PROGRAM, "report", str(cls.study), "--format", form, "--out", str(out)], check=True, timeout=60)

    def open(self, **how):
        self.browser.errors.clear()
        self.browser.open(self.page, **how)

    def good(self):
        self.assertEqual(self.browser.errors, [])

    def choose(self, **values):
        """Sets controls of the curves as a user does."""
        self.browser.run("""(() => { const form = document.getElementById('curve-controls').elements;
          for (const [name, value] of Object.entries(%s)) {
            const control = form[name];
            if (control.type === 'checkbox') control.checked = value; else control.value = value;
            control.dispatchEvent(new Event('change', { bubbles: true }));
          } })()""" % json.dumps(values))
        self.browser.settle()

    def test_both_themes_and_widths_draw_without_an_error_and_without_scrolling_sideways(self):
        papers = set()
        for dark in (False, True):
            for width in (400, 1600):
                with self.subTest(dark=dark, width=width):
                    self.open(width=width, dark=dark)
                    self.good()
                    self.assertEqual(self.browser.run("document.documentElement.scrollWidth"), width)
                    canvases = self.browser.run(CANVASES)
                    self.assertEqual({figure for figure, *_ in canvases}, {"loss-figure", "level-figure", "difference-figure",
                                     "duel-figure", "profile-figure", "inside-figure"})
                    for figure, colours, wide, label in canvases:
                        self.assertGreater(colours, 20, figure)
                        self.assertLess(wide, width, figure)
                        self.assertGreater(len(label), 60, figure)
                    papers.add((dark, self.browser.run("getComputedStyle(document.body).backgroundColor")))
        self.assertEqual(len(papers), 2)

    def test_the_button_changes_the_theme_and_printing_is_light(self):
        self.open(width=800)
        before = self.browser.run("getComputedStyle(document.body).backgroundColor")
        self.browser.run("document.getElementById('theme').click()")
        self.assertEqual(self.browser.run("document.documentElement.dataset.theme"), "dark")
        self.assertNotEqual(self.browser.run("getComputedStyle(document.body).backgroundColor"), before)
        self.assertGreater(len(self.browser.pdf()), 20000)
        self.assertEqual(self.browser.run("document.documentElement.dataset.theme"), "dark")
        self.browser.run("document.getElementById('theme').click()")
        self.good()

    def test_the_data_is_results_json_and_every_number_shown_is_its_rounding(self):
        self.open()
        exported = pathlib.Path(self.folder.name) / "again.json"
        self.report("json", exported)
        results = json.loads(exported.read_text(encoding="utf-8"))
        data = json.loads(self.browser.run("document.getElementById('data').textContent"))
        for key, value in results.items():
            self.assertEqual(data[key], value, key)
        known = set(numbers_of(results))
        numbers = self.browser.run(NUMBERS)
        self.assertGreater(len(numbers), 150)
        for value, text, table in numbers:
            with self.subTest(value=value, text=text, table=table):
                value = float(value)
                self.assertIn(value, known)
                if text.startswith("<"):
                    self.assertLess(value, float(text[1:]))
                    continue
                shown = float(text.lstrip("x+").rstrip("%").replace(",", ""))
                digits = text.rstrip("%").replace(",", "").partition("e")[0].partition(".")[2]
                unit = 10.0 ** -len(digits) * (10 ** int(text.partition("e")[2]) if "e" in text else 1)
                means = {value, 100 * (value - 1), value / 1048576, 1000 * value}  # plain, %, MiB, ms
                if table == "duel-table" and "." in text and not text.startswith("0."):
                    unit *= 10
                self.assertTrue(any(abs(shown - one) <= 0.5000001 * unit for one in means) or
                                any(abs(shown / one - 1) < 0.0006 for one in means if one and table == "duel-table"), (shown, value))

    def test_names_are_text_whatever_they_hold(self):
        self.open()
        self.good()
        self.assertTrue(self.browser.run("document.title").startswith("normlab"))
        rows = self.browser.run("[...document.querySelectorAll('#variants-table tbody th')].map((one) => one.textContent)")
        self.assertIn("a,\"b\"\\n</script><script>document.title = 'broken'</script>", rows)

    def test_everything_is_reached_by_keyboard_and_focus_is_seen(self):
        self.open(width=1000)
        count = self.browser.run(f"window.left = new Set({FOCUSABLE}); left.size")
        self.assertGreater(count, 25)
        for _ in range(3 * count):
            self.browser.press("Tab")
            left, outline = self.browser.run("""left.delete(document.activeElement);
              [left.size, document.activeElement === document.body ? 'none' : getComputedStyle(document.activeElement).outlineStyle]""")
            if not left:
                break
        self.assertEqual(left, 0, self.browser.run("[...left].map((one) => one.outerHTML.slice(0, 80))"))
        self.assertNotEqual(outline, "none")

    def test_a_table_stands_behind_every_chart(self):
        self.open()
        for figure, *_ in self.browser.run(CANVASES):
            own = self.browser.run(f"document.querySelectorAll('#{figure} details.data tbody tr').length")
            beside = self.browser.run(f"document.querySelectorAll('#{figure} + .table tbody tr').length")
            self.assertGreater(own + beside, 2, figure)

    def test_a_spike_is_drawn_at_every_zoom_and_zeros_to_the_end(self):
        self.open()
        for steps in ("1", "0.5"):
            self.choose(steps=steps)
            chart = CHART.format("level")
            points = self.browser.run(f"{chart}.data.datasets.filter((one) => one.role === 'mean' && one.variant === 'layernorm')[0].data")
            self.assertIn({"x": study_fixture.SPIKE_STEP, "y": 9.5}, points)
            self.assertEqual(points[-1], {"x": study_fixture.LONG_STEPS, "y": 0})
            scales = self.browser.run(f"(({{x, y}}) => [x.max, y.min, y.max, y.getPixelForValue(0), y.bottom])({chart}.scales)")
            self.assertEqual(scales[0], study_fixture.LONG_STEPS)
            self.assertLessEqual(scales[1], 0)
            self.assertGreaterEqual(scales[2], 9.5)
            self.assertLessEqual(scales[3], scales[4])
        self.assertIn("first in trf_blocks.0.norm1.scale", self.browser.run("document.querySelector('#level-figure .remark').textContent"))

    def test_log_axes_are_logarithmic_and_say_what_they_cannot_show(self):
        self.open()
        self.choose(logy=True)
        decades = self.browser.run(f"[...Array(7).keys()].map((k) => {CHART.format('level')}.scales.y.getPixelForValue(10 ** -k))")
        gaps = [after - before for before, after in zip(decades, decades[1:])]
        self.assertGreater(gaps[0], 10)
        for gap in gaps:
            self.assertAlmostEqual(gap, gaps[0], delta=0.01)
        remark = self.browser.run("document.querySelector('#level-figure .remark').textContent")
        self.assertRegex(remark, r"Not on a log axis: \d+ values at 0 and 1 value below 0")
        self.choose(logx=True)
        self.assertIn("at step 0", self.browser.run("document.querySelector('#level-figure .remark').textContent"))
        for figure, colours, *_ in self.browser.run(CANVASES):
            self.assertGreater(colours, 20, figure)
        self.good()

    def test_what_is_not_finite_is_marked_in_the_chart_and_in_the_table(self):
        self.open()
        # Only the variant with NaN: its steps are few, its bands wide.
        self.browser.run("""document.querySelectorAll('#curve-legend button').forEach((one) => {
          if (!one.textContent.startsWith('rmsnorm')) one.click(); })""")
        chart = CHART.format("level")
        self.assertEqual(self.browser.run(f"{chart}.options.plugins.notFinite.marks[0].ranges.length"), 21)
        alpha = lambda step: self.browser.run(f"""(() => {{ const chart = {chart}, {{ x }} = chart.scales, {{ bottom }} = chart.chartArea;
          const ratio = chart.currentDevicePixelRatio;
          return [...chart.ctx.getImageData(x.getPixelForValue({step}) * ratio, (bottom - 3) * ratio, 1, 1).data]; }})()""")
        self.assertNotEqual(alpha(52.5)[3], 0)
        self.assertEqual(alpha(55)[3], 0)
        remark = self.browser.run("document.querySelector('#level-figure .remark').textContent")
        self.assertIn("rmsnorm, seed 1: nan from step 1 (80 of 100 steps)", remark)
        self.assertIn("rmsnorm, seed 2: inf from step 99 (2 of 100 steps)", remark)
        cells = self.browser.run("[...document.querySelectorAll('#cells-table tbody tr')].slice(-2).map((row) => row.textContent)")
        self.assertIn("nan from step 1 (80 of 100 steps)", cells[0])
        self.assertIn("inf from step 99", cells[1])

    def test_wide_bands_leave_room_for_the_lines(self):
        self.open()
        sets = "[{ role: 'mean', data: [{ y: 0 }, { y: 1 }] }, { role: 'band', data: [{ y: 9 }, { y: 0.5 }] }]"
        self.assertEqual(self.browser.run(f"heightsOf({sets}, false)"), {"values": [0, 1, 1.25, 0.5], "cut": True})
        self.assertEqual(self.browser.run("niceRange(2.5, 5.5)"), {"min": 2, "max": 6})
        self.assertEqual(self.browser.run("niceRange(0, 0).min"), -0.2)

    def test_a_large_difference_does_not_hide_the_margin(self):
        self.open(width=1200)
        widths = self.browser.run("""(() => { const holder = document.querySelector('#loss-figure .panels');
          const row = (name, mid, half) => ({ name, verdict: '', marks: [markOf(baseline, mid, mid - half, mid + half, null, [])] });
          const draw = (...rows) => drawPanels(holder, { label: '', rows, words: () => '', zero: 0, margin: [-0.01, 0.01],
            marginText: '', title: '', format: String });
          return [[row('a', 0.02, 0.01), row('b', 1, 0.1)], [row('a', 0.02, 0.01)], [row('b', 1, 0.1)]].map((rows) => {
            draw(...rows);
            return [...holder.querySelectorAll('canvas')].map((canvas) => Chart.getChart(canvas).scales.x.max); }); })()""")
        self.assertEqual([len(panels) for panels in widths], [2, 1, 1])
        self.assertAlmostEqual(widths[0][0], 0.033)
        self.assertGreater(widths[0][1], 1.1)
        self.good()

    def test_bands_are_what_they_are_called(self):
        self.open()
        for band, words, half in (("interval", "95% interval of the mean", 4.302652729911275 * 0.1 / 3 ** 0.5),
                                  ("sd", "standard deviation (sd)", 0.1), ("range", "least to greatest", 0.1)):
            with self.subTest(band=band):
                self.choose(band=band)
                caption = self.browser.run("document.getElementById('level-caption').textContent")
                self.assertIn(words, caption)
                self.assertIn("n = 3 seeds", caption)
                edges = self.browser.run(f"""(() => {{ const sets = {CHART.format('level')}.data.datasets;
                  const mean = sets.findIndex((one) => one.role === 'mean' && one.variant === 'layernorm');
                  return [sets[mean - 2].data[0].y, sets[mean - 1].data[0].y]; }})()""")
                self.assertAlmostEqual((edges[1] - edges[0]) / 2, half, delta=2e-6)
        self.choose(runs=True)
        self.assertEqual(self.browser.run(f"{CHART.format('level')}.data.datasets.filter((one) => one.role === 'run' && one.variant === 'layernorm').length"), 3)

    def test_without_a_duel_times_of_whole_runs_carry_no_verdict(self):
        path = self.study / "duel.json"
        kept = path.read_bytes()
        self.addCleanup(path.write_bytes, kept)
        path.unlink()
        page = pathlib.Path(self.folder.name) / "no_duel.html"
        self.report("html", page)
        self.browser.errors.clear()
        self.browser.open(page, width=1200)
        self.good()
        self.assertNotIn("duel-figure", {figure for figure, *_ in self.browser.run(CANVASES)})
        text = self.browser.run("document.getElementById('speed').textContent")
        self.assertIn("has no speed duel", text)
        self.assertIn("decide nothing", text)

    def test_what_the_browser_says_stays_off_its_protocol(self):
        held = []
        try:
            for _ in range(3):  # the lowest free descriptors come to be what the browser reads and writes
                with browser.Browser() as started:
                    output = [os.readlink(f"/proc/{started.process}/fd/{number}") for number in (1, 2)]
                    self.assertEqual(output, [os.devnull] * 2)
                held.append(os.open(os.devnull, os.O_RDONLY))
        finally:
            for descriptor in held:
                os.close(descriptor)

    def test_every_round_of_the_duel_is_shown(self):
        duel = json.loads((self.study / "duel.json").read_text(encoding="utf-8"))
        rounds = duel["batches"] * duel["rounds_per_batch"]
        self.assertGreaterEqual(rounds, 6)
        self.open()
        rows = self.browser.run(f"{CHART.format('duel')}.options.plugins.lanes.spec.rows.map((row) => row.marks[0].points.length)")
        self.assertEqual(rows, [rounds] * 3)
        self.assertEqual(self.browser.run("document.querySelectorAll('#duel-figure details.data tbody tr').length"), rounds)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if browser.find() is None:
        print("there is no Chromium here (Debian's chromium-headless-shell): skipped")
        sys.exit(77)
    unittest.main()
