// Layer x step maps: darker is more (on dark paper: brighter). One scale for all variants of a quantity, so that they
// can be compared; a cross is a value that is not finite, an empty cell one that was not logged.

const MAP_WORDS = {
  input_rms: ['Activation RMS', 'root mean square of what each norm reads'],
  input_kurtosis: ['Kurtosis', 'of what each norm reads; 3 for a normal distribution, large where few channels dominate'],
  input_mean_share: ['Share of the mean', 'of the mean square of what each norm reads: what re-centring would remove'],
  gradient_norm: ['Gradient norm', 'of all tensors of a layer together, before clipping'],
  update_ratio: ['Update ratio', 'norm of the update over norm of the weights, by layer'],
};

function heatStops() {
  return [0, 1, 2, 3].map((stop) => [1, 3, 5].map((at) => parseInt(colour(`--heat-${stop}`).slice(at, at + 2), 16)));
}

function heatShade(scale, value) {
  if (!Number.isFinite(value)) return null;
  const { low, high, log } = scale;
  const share = high === low ? 0.5 : log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const place = 3 * Math.min(1, Math.max(0, share)), stop = Math.min(2, Math.floor(place));
  const [from, to] = [scale.stops[stop], scale.stops[stop + 1]];
  return `rgb(${from.map((part, i) => Math.round(part + (to[i] - part) * (place - stop))).join(', ')})`;
}

const heatPlugin = {
  id: 'heat',
  beforeDatasetsDraw({ ctx, scales: { x, y } }, _, { map, scale }) {
    ctx.save();
    map.values.forEach((row, r) => row.forEach((value, c) => {
      if (value === null) return;
      const left = x.getPixelForValue(c), top = y.getPixelForValue(r);
      const width = x.getPixelForValue(c + 1) - left, height = y.getPixelForValue(r + 1) - top;
      const shade = heatShade(scale, value);
      if (shade) {
        ctx.fillStyle = shade;
        ctx.fillRect(left, top, width + 0.5, height - 1);
      } else {
        ctx.strokeStyle = colour('--mark');
        ctx.lineWidth = 1.25;
        ctx.beginPath();
        ctx.moveTo(left + 1, top + 1); ctx.lineTo(left + width - 1, top + height - 2);
        ctx.moveTo(left + 1, top + height - 2); ctx.lineTo(left + width - 1, top + 1);
        ctx.stroke();
      }
    }));
    ctx.restore();
  },
};

function heatScale(maps) {
  const values = maps.flatMap((map) => map.values.flat()).filter(Number.isFinite);
  if (!values.length) return { low: 0, high: 1, log: false, stops: heatStops() };
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  return { low, high, log: low > 0 && high / low > 20, stops: heatStops() };
}

function drawHeatMap(holder, name, map, scale, title) {
  const rows = map.rows.length, columns = map.step.length;
  holder.style.height = `${Math.max(7, rows * Math.min(18, Math.max(8, 300 / rows))) + 52}px`;
  const short = map.rows.map((row) => row.replace('trf_blocks.', '').replace('block ', ''));
  const stride = Math.ceil(rows / 24);
  const points = map.values.flatMap((row, r) => row.map((value, c) => ({ x: c + 0.5, y: r + 0.5, value, r, c })));
  drawChart(holder, `${title}, ${name}: ${rows} rows by ${columns} logged steps, from ${format(scale.low)} to ${format(scale.high)}. ` +
            'The table below has the numbers.', {
    type: 'scatter',
    data: { datasets: [{ data: points, parsing: false, radius: 0, hoverRadius: 0, hitRadius: 12 }] },
    options: {
      interaction: { mode: 'nearest', intersect: false },
      scales: {
        x: { type: 'linear', min: 0, max: columns, title: axisTitle('step'), grid: { display: false, borderColor: colour('--soft') },
             afterBuildTicks: (axis) => { axis.ticks = spread(columns, Math.min(6, columns)).map((c) => ({ value: c + 0.5 })); },
             ticks: { maxRotation: 0, callback: (value) => format(map.step[Math.floor(value)], 7) } },
        y: { type: 'linear', min: 0, max: rows, reverse: true, grid: { display: false, drawBorder: false },
             afterBuildTicks: (axis) => { axis.ticks = short.map((_, r) => ({ value: r + 0.5 })).filter((_, r) => r % stride === 0); },
             ticks: { autoSkip: false, font: { size: 11 }, callback: (value) => short[Math.floor(value)] } },
      },
      plugins: {
        heat: { map, scale },
        tooltip: { displayColors: false, callbacks: {
          title: (items) => (items.length ? `${map.rows[items[0].raw.r]}, step ${format(map.step[items[0].raw.c], 7)}` : ''),
          label: ({ raw }) => (raw.value === null ? 'not logged' : format(raw.value)) } },
      },
    },
    plugins: [heatPlugin],
  });
}

function drawHeatMaps() {
  const figure = document.getElementById('inside-figure');
  if (!figure || !series.heat_maps.length) return;
  const quantity = document.getElementById('heat-quantity').value;
  const all = series.heat_maps.map((one) => ({ ...one, map: one.maps.find((map) => map.quantity === quantity) })).filter((one) => one.map);
  const scale = heatScale(all.map((one) => one.map));
  const [title, words] = MAP_WORDS[quantity];
  figure.querySelector('figcaption').replaceChildren(make('b', {}, `${title}: `), `${words}. ` +
    `${scale.log ? 'Logarithmic' : 'Linear'} scale, the same for all variants; seed ${[...new Set(all.map((one) => one.seed))].join(', ')}.`);
  figure.querySelector('.scale').replaceChildren(format(scale.low), make('i', { role: 'presentation' }), format(scale.high));
  const holder = figure.querySelector('.maps');
  forgetCharts(holder);
  holder.textContent = '';
  for (const { variant, map } of all) {
    const plot = make('div', { class: 'plot' });
    const cell = make('div', {}, make('h4', {}, variant), plot);
    holder.append(cell);
    drawHeatMap(plot, variant, map, scale, title);
    const steps = spread(map.step.length, 12);
    dataTable(cell, `${title}, ${variant}`, ['place', ...steps.map((c) => `step ${format(map.step[c], 7)}`)],
              map.rows.map((row, r) => [row, ...steps.map((c) => format(map.values[r][c]))]),
              'At most 12 of the logged steps; all of them are in inside.jsonl of the run.');
  }
}

function prepareHeatMaps() {
  const choice = document.getElementById('heat-quantity');
  if (!choice) return;
  const known = new Set(series.heat_maps.flatMap((one) => one.maps.map((map) => map.quantity)));
  for (const [quantity, [title]] of Object.entries(MAP_WORDS))
    if (known.has(quantity)) choice.append(make('option', { value: quantity }, title));
  choice.closest('form').hidden = false;
  choice.addEventListener('change', drawHeatMaps);
}
