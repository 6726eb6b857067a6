// Curves over steps: the mean over seeds with a named band, every run on demand, and the difference to the
// baseline. What is not finite is marked, and what an axis cannot show is counted.

const QUANTITIES = { loss: 'training loss', grad_norm: 'gradient norm' };
const UNITS = { loss: 'nats', grad_norm: 'before clipping' };
const hidden = new Set();  // variants

function curveState() {
  const form = document.getElementById('curve-controls').elements;
  return { quantity: form.quantity.value, band: form.band.value, part: Number(form.steps.value), runs: form.runs.checked,
           logY: form.logy.checked, logX: form.logx.checked };
}

// The lower and upper edge of a band at place i of a mean over seeds; null where there is none.
function bandOf(mean, i, band) {
  if (mean.n < 2 || mean.mean[i] === null || mean.sd[i] === null) return null;
  if (band === 'range') return [mean.least[i], mean.greatest[i]];
  const half = band === 'interval' ? mean.t * mean.sd[i] / Math.sqrt(mean.n) : mean.sd[i];
  return [mean.mean[i] - half, mean.mean[i] + half];
}

function bandName(band) {
  return { interval: '95% interval of the mean, pointwise (Student’s t)', sd: '± one standard deviation (sd) over the seeds',
           range: 'range of the seeds, least to greatest' }[band];
}

function seedsText(curves) {
  const counts = [...new Set(curves.map((curve) => curve.mean.n))];
  const most = Math.max(...counts), few = curves.filter((curve) => curve.mean.n !== most);
  return [`n = ${most} ${most === 1 ? 'seed' : 'seeds'}`, ...few.map((curve) => `${curve.variant}: n = ${curve.mean.n}`)].join('; ');
}

// Points of a drawn line. What the axes cannot show breaks it and is counted by kind in `dropped`.
function pointsOf(steps, values, state, from, dropped) {
  const points = [];
  steps.forEach((x, i) => {
    const y = values[i];
    if (x < from) return;
    if (state.logX && x <= 0) { ++dropped.step; return; }
    if (y !== null && state.logY && y <= 0) { ++dropped[y === 0 ? 'zero' : 'negative']; points.push({ x, y: NaN }); return; }
    points.push({ x, y: y === null ? NaN : y });
  });
  return points;
}

// Radii: a point without neighbours would be no line; the others get a marker now and then, to tell variants apart.
function radiiOf(points, place, marked) {
  const every = Math.max(1, Math.floor(points.length / 7));
  const shift = Math.floor(every * ((place * 0.37) % 1));
  const gap = (i) => i < 0 || i >= points.length || Number.isNaN(points[i].y);
  return points.map((point, i) => (gap(i - 1) && gap(i + 1) ? 1.75 : marked && i % every === shift ? 3.5 : 0));
}

function lineDatasets(curve, state, from, kind, dropped) {
  const look = lookOf(curve.variant), ink = colour(look.hue), datasets = [];
  const line = { borderColor: ink, pointBackgroundColor: ink, pointBorderColor: ink, pointStyle: look.marker, parsing: false,
                 showLine: true, spanGaps: false, pointHitRadius: 6, variant: curve.variant };
  const mean = curve.mean;
  if (state.band !== 'none' && mean.n > 1) {
    const edges = [0, 1].map((side) => pointsOf(mean.step, mean.step.map((_, i) => {
      const band = bandOf(mean, i, state.band);
      return band && band[side];
    }), state, from, {}));
    const edge = { parsing: false, showLine: true, borderWidth: 0, pointRadius: 0, pointHitRadius: 0, role: 'band' };
    datasets.push({ ...edge, data: edges[0] },
                  { ...edge, data: edges[1], fill: '-1', backgroundColor: colour(look.hue, 0.16) });
  }
  if (mean.n > 0) {
    const points = pointsOf(mean.step, mean.mean, state, from, dropped);
    datasets.push({ ...line, role: 'mean', mean, data: points, borderDash: look.dash, borderWidth: 1.75,
                    pointRadius: radiiOf(points, look.place, true) });
  }
  for (const run of kind === 'level' ? curve.runs : []) {
    if (!state.runs && run.status === 'done') continue;
    const points = pointsOf(run.step, run.value, state, from, run.status === 'done' ? {} : dropped);
    datasets.push({ ...line, role: 'run', run, data: points, borderDash: look.dash, borderWidth: 0.8,
                    borderColor: colour(look.hue, run.status === 'done' ? 0.55 : 1), pointRadius: radiiOf(points, 0, false) });
  }
  if (kind === 'level' && state.quantity === 'loss') {
    const spikes = curve.runs.flatMap((run) => run.spikes.map((spike) => ({ x: spike.step, y: spike.loss, spike, run })))
      .filter((point) => point.x >= from && Number.isFinite(point.y) && !(state.logY && point.y <= 0));
    if (spikes.length)
      datasets.push({ ...line, role: 'spike', showLine: false, data: spikes, pointStyle: 'triangle', pointRotation: 180,
                      pointRadius: 6, pointBackgroundColor: 'transparent', borderWidth: 1.5 });
  }
  return datasets;
}

// Steps whose value is not finite: a band over them, and a cross above it in the variant's colour.
const notFinitePlugin = {
  id: 'notFinite',
  beforeDatasetsDraw(chart, _, options) {
    const { ctx, chartArea: area, scales } = chart;
    ctx.save();
    for (const { look, ranges } of options.marks || [])
      for (const range of ranges) {
        if (range.to < scales.x.min || range.from > scales.x.max) continue;
        const left = Math.max(area.left, scales.x.getPixelForValue(Math.max(range.from - 0.5, scales.x.min)));
        const right = Math.min(area.right, Math.max(left + 1.5, scales.x.getPixelForValue(range.to + 0.5)));
        ctx.fillStyle = colour(look.hue, 0.13);
        ctx.fillRect(left, area.top, right - left, area.bottom - area.top);
        ctx.strokeStyle = colour(look.hue);
        ctx.lineWidth = 1.5;
        const x = (left + right) / 2, y = area.top + 7 + 11 * (look.place % 8), arm = 3.5;
        ctx.beginPath();
        ctx.moveTo(x - arm, y - arm); ctx.lineTo(x + arm, y + arm);
        ctx.moveTo(x - arm, y + arm); ctx.lineTo(x + arm, y - arm);
        ctx.stroke();
      }
    ctx.restore();
  },
};

// What the axis of values must hold: all lines and markers; of the bands, which with few seeds can be many times as
// wide, no more than a quarter of the height of the lines above and below them.
function heightsOf(datasets, log) {
  const valuesOf = (wanted) => datasets.filter((dataset) => (dataset.role === 'band') === wanted)
    .flatMap((dataset) => dataset.data.map((point) => point.y)).filter((y) => Number.isFinite(y) && !(log && y <= 0));
  const lines = valuesOf(false), bands = valuesOf(true);
  if (log || !lines.length) return { values: lines.concat(bands), cut: false };
  const low = lines.reduce((a, b) => Math.min(a, b)), high = lines.reduce((a, b) => Math.max(a, b));
  const room = high > low ? (high - low) / 4 : Infinity;
  const kept = bands.map((y) => Math.min(high + room, Math.max(low - room, y)));
  return { values: lines.concat(kept), cut: kept.some((y, i) => y !== bands[i]) };
}

// Ends of a linear axis at round numbers, a little beyond the values.
function niceRange(low, high) {
  const span = high - low || Math.abs(high) || 1, rough = span / 6;
  const unit = 10 ** Math.floor(Math.log10(rough)), step = unit * [1, 2, 5, 10].find((multiple) => multiple * unit >= rough);
  const end = (value, round) => Number((round(value / step) * step).toPrecision(12));
  return { min: end(low - 0.02 * span, Math.floor), max: end(high + 0.02 * span, Math.ceil) };
}

function scaleOf(log, title, values, isStep) {
  const finite = values.filter((value) => Number.isFinite(value) && !(log && value <= 0));
  let low = Math.min(...finite), high = Math.max(...finite);
  const grid = { color: colour('--rule'), drawTicks: false, lineWidth: isStep ? 0 : 1 };
  const base = { title: axisTitle(title), grid: { ...grid, borderColor: colour('--soft') },
                 ticks: { padding: 6, maxRotation: 0, autoSkipPadding: 16, callback: (value) => format(value) } };
  if (!finite.length) return { ...base, type: 'linear', min: 0, max: 1 };
  if (!log) return { ...base, type: 'linear', ...(isStep ? { min: low, max: high === low ? low + 1 : high } : niceRange(low, high)) };
  if (high / low < 1.02) { low /= 1.1; high *= 1.1; }
  const margin = isStep ? 1 : (high / low) ** 0.03;
  return { ...base, type: 'logarithmic', min: low / margin, max: high * margin, title: axisTitle(title + ' (log)'),
           afterBuildTicks: (axis) => { axis.ticks = logTicks(axis.min, axis.max).map((value) => ({ value })); } };
}

function curveTooltip(state) {
  const band = (mean, i) => {
    const edges = state.band === 'none' ? null : bandOf(mean, i, state.band);
    const name = { interval: '95% interval', sd: '± sd', range: 'range' }[state.band];
    return edges ? `, ${name} ${format(edges[0])} to ${format(edges[1])}, n = ${mean.n}` : `, n = ${mean.n}`;
  };
  return {
    filter: (item) => item.dataset.role !== 'band',
    callbacks: {
      title: (items) => (items.length ? `step ${format(items[0].parsed.x, 7)}` : ''),
      label: ({ dataset, parsed, raw }) => {
        const value = `${dataset.variant}: ${format(parsed.y, 5)}`;
        if (dataset.role === 'mean') return value + band(dataset.mean, dataset.mean.step.indexOf(parsed.x));
        if (dataset.role === 'spike') return `${value}, spike of seed ${raw.run.seed}`;
        return `${value}, seed ${dataset.run.seed}`;
      },
    },
  };
}

function spikeText(curve, run, spike) {
  const first = spike.first ? `, first in ${spike.first.name} (${spike.first.what}) at step ${spike.first.step}` : '';
  const back = spike.recovered_after === null || spike.recovered_after === undefined
    ? ', not recovered' : `, recovered after ${spike.recovered_after} steps`;
  return `${curve.variant}, seed ${run.seed}: step ${spike.step}, ${format(spike.before)} to ${format(spike.loss)}${first}${back}`;
}

function curveRemark(curves, kind, state, dropped) {
  const parts = [];
  const lost = [['zero', 'at 0'], ['negative', 'below 0']].filter(([key]) => dropped[key])
    .map(([key, text]) => `${dropped[key]} ${dropped[key] === 1 ? 'value' : 'values'} ${text}`);
  if (lost.length) parts.push(`Not on a log axis: ${lost.join(' and ')}.`);
  if (dropped.step) parts.push(`Not on a log axis: ${dropped.step} at step 0 or before.`);
  if (kind === 'difference') return parts.join(' ');
  const broken = curves.flatMap((curve) => curve.runs.filter((run) => run.not_finite.length).map((run) => {
    const count = run.not_finite.reduce((sum, range) => sum + range.count, 0);
    return `${curve.variant}, seed ${run.seed}: ${run.not_finite[0].what} from step ${run.not_finite[0].from} ` +
           `(${count} of ${run.steps_logged} steps)`;
  }));
  if (broken.length) parts.push(`Crosses and bands: not finite (${broken.join('; ')}).`);
  const thin = curves.flatMap((curve) => curve.runs.filter((run) => run.status !== 'done')
    .map((run) => `${curve.variant}, seed ${run.seed} (${run.status})`));
  if (thin.length) parts.push(`Thin lines, in no mean: ${thin.join('; ')}.`);
  if (state.quantity === 'loss') {
    const spikes = curves.flatMap((curve) => curve.runs.flatMap((run) => run.spikes.map((spike) => spikeText(curve, run, spike))));
    if (spikes.length) parts.push(`Triangles: spikes (${spikes.slice(0, 6).join('; ')}${spikes.length > 6 ? '; …' : ''}).`);
  }
  return parts.join(' ');
}

function curveTable(figure, title, curves, state) {
  const longest = curves.reduce((a, b) => (b.mean.step.length > a.mean.step.length ? b : a));
  const steps = spread(longest.mean.step.length, 25).map((i) => longest.mean.step[i]);
  const nearest = (list, x) => list.reduce((best, value, i) => (Math.abs(value - x) < Math.abs(list[best] - x) ? i : best), 0);
  const rows = steps.map((step) => [format(step, 7), ...curves.map(({ mean }) => {
    if (!mean.step.length) return '–';
    const i = nearest(mean.step, step);
    if (mean.mean[i] === null) return 'not finite';
    const edges = state.band === 'none' ? null : bandOf(mean, i, state.band);
    return format(mean.mean[i], 5) + (edges ? ` [${format(edges[0], 5)}, ${format(edges[1], 5)}]` : '');
  })]);
  const note = (state.band === 'none' ? 'Means' : `Means, in brackets: ${bandName(state.band)}`) +
               `; ${seedsText(curves)}. At most 25 steps; all of them are in metrics.jsonl of each run.`;
  dataTable(figure, title, ['step', ...curves.map((curve) => curve.variant)], rows, note);
}

function drawCurves(kind) {
  const state = curveState();
  if (kind === 'difference') state.logY = false;
  const all = series[kind === 'level' ? 'curves' : 'differences'].filter((curve) => curve.quantity === state.quantity);
  const known = all.filter((curve) => curve.mean.n > 0 || (curve.runs || []).length);
  const figure = document.getElementById(`${kind}-figure`);
  figure.hidden = !known.length;
  if (!known.length) return;
  const curves = known.filter((curve) => !hidden.has(curve.variant));

  const last = Math.max(...known.flatMap((curve) => [curve.mean.step.at(-1) || 0, ...(curve.runs || []).map((run) => run.step.at(-1) || 0)]));
  const from = state.part === 1 ? -Infinity : last * (1 - state.part);
  const dropped = { zero: 0, negative: 0, step: 0 };
  const datasets = curves.flatMap((curve) => lineDatasets(curve, state, from, kind, dropped));
  const points = datasets.flatMap((dataset) => dataset.data);
  const heights = heightsOf(datasets, state.logY);
  const marks = kind === 'difference' ? [] : curves.map((curve) => ({
    look: lookOf(curve.variant), ranges: curve.runs.flatMap((run) => run.not_finite) }));
  const broken = marks.flatMap(({ ranges }) => ranges.flatMap((range) => [range.from, range.to])).filter((x) => x >= from);

  const what = QUANTITIES[state.quantity], n = seedsText(curves.length ? curves : known);
  const band = state.band === 'none' || known.every((curve) => curve.mean.n < 2) ? '' : `; band: ${bandName(state.band)}`;
  const caption = document.getElementById(`${kind}-caption`);
  caption.textContent = '';
  caption.append(make('b', {}, kind === 'level' ? `${what[0].toUpperCase()}${what.slice(1)} by step. ` : `Difference to ${baseline}. `),
    kind === 'level' ? `Mean over the seeds that are done, ${n}${band}.`
      : `${what[0].toUpperCase()}${what.slice(1)} minus that of the baseline, paired by seed and step; mean, ${n}${band}.`);

  const label = `${caption.textContent} Variants: ${curves.map((curve) => curve.variant).join(', ')}. The table below has the numbers.`;
  const yTitle = (kind === 'level' ? what : `difference of ${what}`) + `, ${UNITS[state.quantity]}`;
  drawChart(figure.querySelector('.plot'), label, {
    type: 'scatter', data: { datasets },
    options: {
      interaction: { mode: 'nearest', axis: 'x', intersect: false },
      scales: {
        x: scaleOf(state.logX, 'step', [...points.map((point) => point.x), ...broken], true),
        y: scaleOf(state.logY, yTitle, heights.values, false),
      },
      plugins: { tooltip: curveTooltip(state), notFinite: { marks }, zeroLine: { on: kind === 'difference' } },
    },
    plugins: [notFinitePlugin, zeroLinePlugin],
  });
  figure.querySelector('.remark').textContent =
    [curveRemark(curves, kind, state, dropped), heights.cut ? 'Some bands go beyond the axis.' : ''].filter(Boolean).join(' ');
  curveTable(figure, kind === 'level' ? what : `difference of ${what}`, curves.length ? curves : known, state);
}

const zeroLinePlugin = {
  id: 'zeroLine',
  beforeDatasetsDraw({ ctx, chartArea: area, scales }, _, options) {
    if (!options.on || scales.y.min > 0 || scales.y.max < 0) return;
    const y = scales.y.getPixelForValue(0);
    ctx.save();
    ctx.strokeStyle = colour('--ink');
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(area.left, y); ctx.lineTo(area.right, y);
    ctx.stroke();
    ctx.restore();
  },
};

// ---- the legend: a button a variant, with its line and marker

const SVG = 'http://www.w3.org/2000/svg';
const MARKER_PATHS = {
  circle: 'M18 3a3.2 3.2 0 1 0 .01 0z', triangle: 'M18 2.6l3.8 6.8h-7.6z', rect: 'M15 3.2h6v6h-6z', rectRot: 'M18 2l4.2 4.2-4.2 4.2-4.2-4.2z',
  star: 'M18 2v8.4M14 6.2h8M15.2 3.4l5.6 5.6M20.8 3.4l-5.6 5.6', crossRot: 'M15.2 3.4l5.6 5.6M20.8 3.4l-5.6 5.6',
  rectRounded: 'M16 3.2h4a1 1 0 0 1 1 1v4a1 1 0 0 1-1 1h-4a1 1 0 0 1-1-1v-4a1 1 0 0 1 1-1z', cross: 'M18 2v8.4M14 6.2h8',
};

function sampleOf(look) {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [name, value] of [['width', 36], ['height', 12.4], ['viewBox', '0 0 36 12.4'], ['aria-hidden', 'true']]) svg.setAttribute(name, value);
  const line = document.createElementNS(SVG, 'path'), marker = document.createElementNS(SVG, 'path');
  line.setAttribute('d', 'M0 6.2h36');
  line.setAttribute('stroke-dasharray', look.dash.join(' '));
  marker.setAttribute('d', MARKER_PATHS[look.marker]);
  for (const path of [line, marker]) path.setAttribute('style', `stroke: var(${look.hue}); stroke-width: 1.75; fill: none`);
  if (!['star', 'cross', 'crossRot'].includes(look.marker)) marker.style.fill = `var(${look.hue})`;
  svg.append(line, marker);
  return svg;
}

function drawLegend() {
  const list = document.getElementById('curve-legend');
  for (const name of names) {
    const button = make('button', { type: 'button', 'aria-pressed': 'true' }, sampleOf(lookOf(name)),
                        name === baseline ? `${name} (baseline)` : name);
    button.addEventListener('click', () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute('aria-pressed', String(!hidden.has(name)));
      drawCurves('level');
      drawCurves('difference');
    });
    list.append(make('li', {}, button));
  }
}
