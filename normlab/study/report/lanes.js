// Lanes: one row a variant (or an operation), with an estimate, its interval, the single values behind it, the
// margin and the line of no difference. The forest plot of losses, the duel, and the time of operations.

const NARROW = 620;  // pixels; below, a lane's words stand above it

function laneText(row) {
  return row.verdict ? `${row.name}: ${row.verdict}` : row.name;
}

function fitted(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && ctx.measureText(text.slice(0, end) + '…').width > width) --end;
  return text.slice(0, end) + '…';
}

const lanesPlugin = {
  id: 'lanes',
  beforeDatasetsDraw({ ctx, chartArea: area, scales: { x, y } }, _, options) {
    const spec = options.spec;
    const at = (value) => x.getPixelForValue(Math.min(x.max, Math.max(x.min, value)));
    ctx.save();
    if (spec.margin) {
      const [left, right] = spec.margin.map(at);
      ctx.fillStyle = colour('--margin-fill');
      ctx.fillRect(left, area.top, right - left, area.bottom - area.top);
      ctx.strokeStyle = colour('--soft');
      ctx.setLineDash([3, 3]);
      ctx.lineWidth = 1;
      for (const value of spec.margin) {
        if (value <= x.min || value >= x.max) continue;
        ctx.beginPath();
        ctx.moveTo(at(value), area.top); ctx.lineTo(at(value), area.bottom);
        ctx.stroke();
      }
      ctx.setLineDash([]);
      ctx.fillStyle = colour('--soft');
      ctx.font = `11px ${Chart.defaults.font.family}`;
      ctx.textBaseline = 'bottom';
      const words = spec.marginText, width = ctx.measureText(words).width;
      ctx.textAlign = 'left';
      ctx.fillText(words, Math.max(area.left, Math.min((left + right - width) / 2, area.right - width)), area.top - 4);
    }
    if (spec.zero !== null && spec.zero > x.min && spec.zero < x.max) {
      ctx.strokeStyle = colour('--ink');
      ctx.beginPath();
      ctx.moveTo(at(spec.zero), area.top); ctx.lineTo(at(spec.zero), area.bottom);
      ctx.stroke();
    }
    spec.rows.forEach((row, i) => drawLane(ctx, area, x, y, spec, row, i));
    ctx.restore();
  },
};

function drawLane(ctx, area, x, y, spec, row, place) {
  const middle = y.getPixelForValue(place);
  const inside = (value) => value >= x.min && value <= x.max;
  const at = (value) => x.getPixelForValue(Math.min(x.max, Math.max(x.min, value)));
  if (spec.wordsAbove) {
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.fillStyle = colour('--ink');
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    const text = fitted(ctx, laneText(row), area.right - area.left);
    ctx.lineWidth = 4;  // the lines of the plot stop short of the words
    ctx.lineJoin = 'round';
    ctx.strokeStyle = colour('--paper');
    ctx.strokeText(text, area.left, middle - 14);
    ctx.fillText(text, area.left, middle - 14);
  }
  for (const mark of row.marks) {
    const ink = colour(mark.look.hue);
    ctx.fillStyle = colour(mark.look.hue, mark.points.length > 60 ? 0.22 : 0.5);
    mark.points.forEach((value, i) => {
      if (!inside(value) && !spec.edgePoints) return;  // the other panel shows it
      // Many values are spread below and above the line, by a fixed sequence; few stand below it, clear of its thick part.
      const off = mark.points.length > 60 ? 13 * (((i * 0.618034) % 1) - 0.5) : 8.5;
      ctx.beginPath();
      ctx.arc(at(value), middle + off, mark.points.length > 60 ? 1.4 : 2.2, 0, 2 * Math.PI);
      ctx.fill();
    });
    if (mark.low === null || mark.high === null) continue;
    const beyond = mark.low > x.max ? 1 : mark.high < x.min ? -1 : 0;
    if (beyond) {  // all of it lies beyond the axis: an arrow, and where it is
      const tip = beyond > 0 ? area.right - 1 : area.left + 1;
      ctx.strokeStyle = ink;
      ctx.lineWidth = 1.75;
      ctx.beginPath();
      ctx.moveTo(tip - 16 * beyond, middle); ctx.lineTo(tip, middle);
      ctx.moveTo(tip - 5 * beyond, middle - 4); ctx.lineTo(tip, middle); ctx.lineTo(tip - 5 * beyond, middle + 4);
      ctx.stroke();
      ctx.fillStyle = colour('--soft');
      ctx.font = `11px ${Chart.defaults.font.family}`;
      ctx.textBaseline = 'middle';
      ctx.textAlign = beyond > 0 ? 'right' : 'left';
      ctx.fillText(spec.format(mark.mid), tip - 21 * beyond, middle);
      continue;
    }
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1.75;
    ctx.beginPath();
    ctx.moveTo(at(mark.low), middle); ctx.lineTo(at(mark.high), middle);
    for (const [value, direction] of [[mark.low, 1], [mark.high, -1]]) {
      const end = at(value);
      if (inside(value)) {
        ctx.moveTo(end, middle - 5); ctx.lineTo(end, middle + 5);
      } else {  // it goes on beyond the axis
        ctx.moveTo(end + 6 * direction, middle - 4); ctx.lineTo(end, middle); ctx.lineTo(end + 6 * direction, middle + 4);
      }
    }
    ctx.stroke();
    if (mark.inner && inside(mark.inner[0]) && inside(mark.inner[1])) {
      ctx.lineWidth = 5;
      ctx.beginPath();
      ctx.moveTo(at(mark.inner[0]), middle); ctx.lineTo(at(mark.inner[1]), middle);
      ctx.stroke();
    }
  }
}

// spec: { label, rows: [{ name, verdict, marks: [{ name, look, mid, low, high, inner, points }] }], zero, margin, marginText,
//         format, title, range }
function drawLanes(holder, spec) {
  const width = holder.clientWidth;
  spec.wordsAbove = width < NARROW && !spec.half;
  holder.style.height = `${spec.rows.length * (spec.wordsAbove ? 52 : 34) + 74}px`;
  const probe = document.createElement('canvas').getContext('2d');
  probe.font = `12px ${Chart.defaults.font.family}`;
  const widest = (texts) => Math.max(0, ...texts.map((text) => probe.measureText(text).width));
  spec.bare = spec.bare || spec.half === 'left';
  const right = spec.wordsAbove || spec.bare ? 12 : Math.min(180, widest(spec.rows.map((row) => row.verdict || '')) + 20);
  const left = spec.half === 'right' ? 12 : Math.min(0.38 * width, widest(spec.rows.map((row) => row.name)) + 22);

  const looks = [...new Set(spec.rows.flatMap((row) => row.marks.map((mark) => mark.look)))];
  const values = spec.rows.flatMap((row) => row.marks.flatMap((mark) => [mark.mid, mark.low, mark.high]))
    .concat(spec.zero === null ? [] : [spec.zero], spec.margin || []).filter(Number.isFinite);
  const [low, high] = spec.range || [Math.min(...values), Math.max(...values)];
  const room = spec.range ? 0 : 0.05 * (high - low || Math.abs(high) || 1);
  const datasets = looks.map((look) => ({
    parsing: false, pointStyle: look.marker, radius: 5, hoverRadius: 6, hitRadius: 8, borderWidth: 1.5,
    backgroundColor: colour(look.hue), borderColor: colour(look.hue),
    data: spec.rows.flatMap((row, place) => row.marks.filter((mark) => mark.look === look && Number.isFinite(mark.mid) &&
      mark.mid >= low - room && mark.mid <= high + room).map((mark) => ({ x: mark.mid, y: place, row, mark }))),
  }));
  drawChart(holder, spec.label, {
    type: 'scatter', data: { datasets },
    options: {
      layout: { padding: { top: 18, right: right } },
      interaction: { mode: 'nearest', intersect: true },
      scales: {
        x: { type: 'linear', min: low - room, max: high + room, title: axisTitle(spec.title),
             grid: { color: colour('--rule'), drawTicks: false, borderColor: colour('--soft') },
             ticks: { padding: 6, maxRotation: 0, autoSkipPadding: 18, includeBounds: false, callback: (value) => spec.format(value) } },
        y: { type: 'linear', reverse: true, min: spec.wordsAbove ? -0.75 : -0.5, max: spec.rows.length - (spec.wordsAbove ? 0.6 : 0.5),
             grid: { display: false, drawBorder: false },
             afterBuildTicks: (axis) => { axis.ticks = spec.wordsAbove ? [] : spec.rows.map((_, value) => ({ value })); },
             afterFit: (axis) => { axis.width = spec.wordsAbove ? 4 : left; },
             ticks: { color: colour('--ink'), autoSkip: false, padding: 8,
                      callback: (value) => (spec.half === 'right' ? '' : fitted(probe, spec.rows[value].name, left - 20)) } },
      },
      plugins: {
        lanes: { spec },
        tooltip: { callbacks: { title: (items) => (items.length ? items[0].raw.row.name : ''),
                                label: ({ raw }) => spec.words(raw.row, raw.mark) } },
      },
    },
    plugins: [lanesPlugin, verdictPlugin],
  });
}

const verdictPlugin = {
  id: 'verdicts',
  afterDraw({ ctx, chartArea: area, scales: { y }, config }) {
    const spec = config.options.plugins.lanes.spec;
    if (spec.wordsAbove || spec.bare) return;
    ctx.save();
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.fillStyle = colour('--ink');
    ctx.textBaseline = 'middle';
    spec.rows.forEach((row, place) => ctx.fillText(row.verdict || '', area.right + 14, y.getPixelForValue(place)));
    ctx.restore();
  },
};

// ---- what is drawn so

const WORDS = { better: ['lower loss', 'less time'], worse: ['higher loss', 'more time'] };

function verdictWords(comparison) {
  const word = comparison.verdict === null ? 'no verdict' : (WORDS[comparison.verdict] || [comparison.verdict])[0];
  return comparison.interim ? word + '*' : word;
}

function markOf(variant, mid, low, high, inner, points) {
  return { name: variant, look: lookOf(variant), mid, low, high, inner, points };
}

// Losses of the pairs of a comparison. Cells stand in the order of their seeds, so pairs have equal places.
function pairedValues(comparison, combine) {
  const known = (cell) => cell && cell.status === 'done' && Number.isFinite(cell.test_loss);
  const [mine, theirs] = [comparison.variant, comparison.baseline].map((name) => data.cells.filter((cell) => cell.variant === name));
  return mine.flatMap((cell, place) => (known(cell) && known(theirs[place]) ? [combine(cell.test_loss, theirs[place].test_loss)] : []));
}

// One panel, and a second one around the margin where the first is so wide that the margin would vanish in it.
function drawPanels(holder, spec) {
  forgetCharts(holder);
  holder.textContent = '';
  const reach = Math.max(...spec.rows.flatMap((row) => row.marks.flatMap((mark) => [mark.low, mark.high, mark.mid]))
    .filter(Number.isFinite).map((value) => Math.abs(value - spec.zero)));
  const margin = Math.max(...spec.margin.map((value) => Math.abs(value - spec.zero)));
  const ends = spec.rows.flatMap((row) => row.marks).filter((mark) => Number.isFinite(mark.low) && Number.isFinite(mark.high))
    .map((mark) => Math.max(Math.abs(mark.low - spec.zero), Math.abs(mark.high - spec.zero))).filter((end) => end < 5 * margin);
  const zoomed = reach > 8 * margin && ends.length > 0;
  const room = Math.max(2 * margin, 1.1 * Math.max(...ends));
  holder.classList.toggle('two', zoomed);
  const around = { ...spec, range: [spec.zero - room, spec.zero + room], title: `${spec.title}, around the margin` };
  const panels = zoomed ? [around, { ...spec, title: `${spec.title}, all of it` }] : [spec];
  const side = zoomed && getComputedStyle(holder).gridTemplateColumns.split(' ').length === 2;  // one list of names, one of verdicts
  panels.map((one, i) => [holder.appendChild(make('div', { class: 'plot' })), { ...one, ...(side ? { half: ['left', 'right'][i] } : {}) }])
    .forEach(([plot, one]) => drawLanes(plot, one));
}

function drawForest() {
  const figure = document.getElementById('loss-figure');
  if (!figure) return;
  const holder = figure.querySelector('.panels');
  const comparisons = data.comparisons.filter((comparison) => comparison.metric === 'test_loss');
  const rows = comparisons.map((comparison) => ({
    name: comparison.variant, verdict: verdictWords(comparison), comparison,
    marks: [markOf(comparison.variant, comparison.difference, comparison.ci_low, comparison.ci_high,
                   comparison.equivalence_ci_low === null ? null : [comparison.equivalence_ci_low, comparison.equivalence_ci_high],
                   pairedValues(comparison, (a, b) => a - b))],
  }));
  figure.hidden = !rows.some((row) => Number.isFinite(row.marks[0].mid));
  if (figure.hidden) return;
  const margin = data.study.margin_nats;
  const words = (row, mark) => `${signed(mark.mid)} [${signed(mark.low)}, ${signed(mark.high)}], n = ${row.comparison.n}: ${row.verdict}`;
  drawPanels(holder, {
    label: `${figure.querySelector('figcaption').textContent} ${rows.map((row) => `${row.name}: ${words(row, row.marks[0])}`).join('. ')}`,
    rows, words, zero: 0, format: (value) => signed(value, 3), margin: [-margin, margin], marginText: `margin ±${format(margin)}`,
    title: 'difference of test loss, nats',
  });
}

function drawDuel() {
  const figure = document.getElementById('duel-figure');
  if (!figure || !data.duel) return;
  const others = data.duel.variants.filter((variant) => Number.isFinite(variant.ratio));
  const rows = others.map((variant) => ({
    name: variant.name, verdict: (WORDS[variant.verdict] || [0, variant.verdict || 'no verdict'])[1],
    marks: [markOf(variant.name, variant.ratio, variant.ci_low, variant.ci_high, null, variant.round_ratios || [])] }));
  const margin = data.study.speed_margin;
  // The axis holds the intervals and nearly all rounds; the few beyond it stand at its edge, and are counted.
  const rounds = rows.flatMap((row) => row.marks[0].points).sort((a, b) => a - b);
  const quantile = (p) => rounds[Math.round(p * (rounds.length - 1))];
  const ends = rows.flatMap((row) => [row.marks[0].low, row.marks[0].high]).concat([1 / (1 + margin), 1 + margin])
    .concat(rounds.length ? [quantile(0.01), quantile(0.99)] : []).filter(Number.isFinite);
  const low = Math.min(...ends), high = Math.max(...ends), room = 0.04 * (high - low);
  const outside = rounds.filter((value) => value < low - room || value > high + room).length;
  const words = (row, mark) => `${percent(mark.mid)} [${percent(mark.low)}, ${percent(mark.high)}], ${mark.points.length} rounds: ${row.verdict}`;
  const holder = figure.querySelector('.plot');
  drawLanes(holder, {
    label: `${figure.querySelector('figcaption').textContent} ${rows.map((row) => `${row.name}: ${words(row, row.marks[0])}`).join('. ')}`,
    rows, words, zero: 1, format: (value) => percent(value, 3), margin: [1 / (1 + margin), 1 + margin],
    marginText: `margin ±${format(100 * margin)}%`, edgePoints: true,
    title: 'time of a step against the baseline', range: [low - room, high + room] });
  figure.querySelector('.remark').textContent =
    outside ? `${outside} of ${rounds.length} rounds lie beyond the axis and stand at its edge.` : '';
  const most = Math.max(0, ...rows.map((row) => row.marks[0].points.length));
  dataTable(figure, 'Ratio of every round', ['round', ...rows.map((row) => row.name)],
            [...Array(most).keys()].map((i) => [String(i + 1), ...rows.map((row) => format(row.marks[0].points[i], 6))]));
}

function drawProfile() {
  const figure = document.getElementById('profile-figure');
  if (!figure || !series.profiles.length) return;
  const operations = [...new Set(series.profiles.flatMap((profile) => profile.operations.map((one) => one.operation)))];
  const seconds = (profile, operation) => profile.operations.find((one) => one.operation === operation)?.step_s ?? null;
  const rows = operations.map((operation) => ({ name: operation, verdict: '', marks: series.profiles.map((profile) => {
    const time = seconds(profile, operation);
    return markOf(profile.variant, time === null ? null : 1000 * time, null, null, null, []);
  }) }));
  const most = Math.max(...rows.flatMap((row) => row.marks.map((mark) => mark.mid || 0)));
  drawLanes(figure.querySelector('.plot'), {
    label: `${figure.querySelector('figcaption').textContent} The table below has the numbers.`,
    rows, zero: null, margin: null, bare: true, format: (value) => format(value), range: [0, 1.05 * most],
    title: 'milliseconds of a step', words: (row, mark) => `${mark.name}: ${format(mark.mid)} ms` });
  dataTable(figure, 'Milliseconds of a step by operation', ['operation', ...series.profiles.map((profile) => profile.variant)],
    [...operations.map((operation) => [operation, ...series.profiles.map((profile) => {
      const time = seconds(profile, operation);
      return time === null ? '–' : format(1000 * time);
    })]), ['whole step', ...series.profiles.map((profile) => format(1000 * profile.step_s))]]);
}
