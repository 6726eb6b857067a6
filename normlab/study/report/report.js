// The page: data, small helpers, theme, refresh. The charts are in curves.js, lanes.js and heat_maps.js; start.js
// draws them. All texts enter as text, never as markup.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const series = data.series;
const baseline = data.study.baseline;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- numbers

const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

function powerOfTen(exponent) {
  const digits = String(Math.abs(exponent)).split('').map((digit) => SUPERSCRIPTS[digit]).join('');
  return '10' + (exponent < 0 ? '⁻' : '') + digits;
}

// At most `digits` significant ones; very large and small values as 3.2 × 10⁻⁵.
function format(value, digits = 4) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'string' || !Number.isFinite(value)) return String(value).toLowerCase();
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-3)) {
    const [mantissa, exponent] = value.toExponential(Math.min(digits, 3) - 1).split('e');
    const power = powerOfTen(Number(exponent));
    return Number(mantissa) === 1 ? power : minus(Number(mantissa)) + ' × ' + power;
  }
  return minus(Number(value.toPrecision(digits)).toLocaleString('en-US', { maximumFractionDigits: 8 }));
}

function minus(number) {
  return String(number).replace('-', '−');
}

function signed(value, digits = 3) {
  return value > 0 ? '+' + format(value, digits) : format(value, digits);
}

function percent(ratio, digits = 3) {
  return signed(100 * (ratio - 1), digits) + '%';
}

// ---- looks of a variant: the baseline in ink and solid; the others differ in colour, dash and marker

const DASHES = [[], [7, 3], [2, 2.5], [10, 3, 2, 3], [14, 4], [6, 2, 1.5, 2, 1.5, 2], [1.5, 4], [10, 2, 4, 2]];
const MARKERS = ['circle', 'triangle', 'rect', 'rectRot', 'star', 'crossRot', 'rectRounded', 'cross'];
const names = data.variants.map((variant) => variant.name);

function colour(name, alpha = 1) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  if (alpha === 1 || !value.startsWith('#')) return value;
  const part = (from) => parseInt(value.slice(from, from + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
}

function lookOf(name) {
  const others = names.filter((other) => other !== baseline);
  const place = name === baseline ? 0 : 1 + others.indexOf(name);
  const hue = place === 0 ? 0 : 1 + (place - 1) % 7;
  const turn = place === 0 ? 0 : Math.floor((place - 1) / 7);  // beyond eight variants colours return, dashes shift
  return { place, hue: `--v${hue}`, dash: DASHES[(place + turn) % DASHES.length], marker: MARKERS[(place + 2 * turn) % MARKERS.length] };
}

// ---- charts: drawn anew when the theme changes

const drawn = new Map();  // by holder
const drawers = [];

function drawChart(holder, label, config) {
  if (drawn.has(holder)) drawn.get(holder).destroy();
  holder.textContent = '';
  const canvas = make('canvas', { role: 'img', 'aria-label': label });
  holder.append(canvas);
  const chart = new Chart(canvas, config);
  drawn.set(holder, chart);
  return chart;
}

function forgetCharts(parent) {
  for (const [holder, chart] of drawn)
    if (parent.contains(holder)) {
      chart.destroy();
      drawn.delete(holder);
    }
}

function redraw() {
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Chart.defaults.color = colour('--soft');
  Chart.defaults.borderColor = colour('--rule');
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.display = false;
  Object.assign(Chart.defaults.plugins.tooltip, {
    backgroundColor: colour('--paper'), titleColor: colour('--ink'), bodyColor: colour('--ink'),
    borderColor: colour('--soft'), borderWidth: 1, cornerRadius: 3, padding: 8, usePointStyle: true, boxPadding: 4,
    titleFont: { weight: '600' },
  });
  for (const draw of drawers) draw();
}

function axisTitle(text) {
  return { display: true, text, color: colour('--soft'), font: { size: 12, weight: '400' } };
}

// Ticks of a logarithmic axis: 1, 2, 5 of each decade, powers of ten where there are many, plain steps within one.
function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const ticks = [];
  if (decades < 1) {
    const rough = (high - low) / 5;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((multiple) => multiple * unit >= rough);
    for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-9); ++k) ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
  }
  const multiples = decades <= 3 ? [1, 2, 5] : [1];
  const stride = Math.ceil(decades / 8);
  for (let exponent = Math.floor(Math.log10(low)); exponent <= Math.ceil(Math.log10(high)); ++exponent) {
    if (exponent % stride !== 0) continue;
    for (const multiple of multiples) {
      const tick = Number(`${multiple}e${exponent}`);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
    }
  }
  return ticks;
}

// ---- the table behind a chart

function dataTable(figure, title, columns, rows, note = '') {
  figure.querySelector('details.data')?.remove();
  const table = make('table', {}, make('caption', {}, title));
  table.append(make('thead', {}, make('tr', {}, ...columns.map((name, i) =>
    make('th', { scope: 'col', ...(i === 0 ? { class: 'words' } : {}) }, name)))));
  table.append(make('tbody', {}, ...rows.map((row) => make('tr', {}, ...row.map((field, i) =>
    i === 0 ? make('th', { scope: 'row' }, field) : make('td', {}, field))))));
  const scroll = make('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': title }, table);
  const details = make('details', { class: 'data' }, make('summary', {}, 'Table behind this chart'), scroll);
  if (note) details.append(make('p', { class: 'note' }, note));
  figure.append(details);
}

// At most `most` indices, evenly spread, first and last among them.
function spread(count, most) {
  if (count <= most) return [...Array(count).keys()];
  return [...Array(most).keys()].map((i) => Math.round(i * (count - 1) / (most - 1)));
}

// ---- theme and refresh

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById('theme');
  button.textContent = theme === 'dark' ? 'Light' : 'Dark';
  button.setAttribute('aria-label', `Switch to the ${theme === 'dark' ? 'light' : 'dark'} theme`);
}

function prepareTheme() {
  const button = document.getElementById('theme');
  button.hidden = false;
  setTheme(document.documentElement.dataset.theme || 'light');
  button.addEventListener('click', () => {
    const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('normlab-theme', theme); } catch (error) { /* storage is off */ }
    setTheme(theme);
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => {
    let chosen = null;
    try { chosen = localStorage.getItem('normlab-theme'); } catch (error) { /* storage is off */ }
    if (chosen) return;
    setTheme(event.matches ? 'dark' : 'light');
    redraw();
  });
  // Paper is white.
  let before = null;
  addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme;
    if (before === 'dark') { setTheme('light'); redraw(); }
  });
  addEventListener('afterprint', () => {
    if (before === 'dark') { setTheme('dark'); redraw(); }
  });
}

// While the study runs, the page is loaded again; not while a reader uses a control, and not once this is off.
function prepareRefresh() {
  const live = data.report.live;
  if (!live) return;
  const box = document.getElementById('refresh');
  box.closest('label').hidden = false;
  const age = (Date.now() - Date.parse(data.report.written_at)) / 1000;
  if (age > 120 + 6 * live.refresh_s)
    box.closest('p').append(' Nothing new since then: the study may have been stopped.');
  try { box.checked = sessionStorage.getItem('normlab-refresh') !== 'off'; } catch (error) { /* storage is off */ }
  box.addEventListener('change', () => {
    try { sessionStorage.setItem('normlab-refresh', box.checked ? 'on' : 'off'); } catch (error) { /* storage is off */ }
  });
  setInterval(() => {
    const busy = document.activeElement && document.activeElement.matches('select, input:not(#refresh)');
    if (box.checked && !busy) location.reload();
  }, 1000 * live.refresh_s);
}
