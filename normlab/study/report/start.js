// Draws everything once, and again when the theme changes or the width crosses what a layout holds.

function start() {
  prepareTheme();
  prepareRefresh();
  prepareHeatMaps();
  const form = document.getElementById('curve-controls');
  if (series.curves.some((curve) => curve.runs.length)) {
    form.hidden = false;
    drawLegend();
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', () => { drawCurves('level'); drawCurves('difference'); });
  }
  drawers.push(() => drawForest(), () => drawCurves('level'), () => drawCurves('difference'),
               drawDuel, drawProfile, drawHeatMaps);
  redraw();

  let width = innerWidth, waiting = 0;
  addEventListener('resize', () => {
    if (innerWidth === width) return;  // a bar of the browser came or went
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
}

start();
