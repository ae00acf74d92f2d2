// Pictures of results: bars with intervals, lines with bands, and the density of one number.

import uPlot from "./vendor/uplot.js";

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const ROW = 30; // pixels of a bar
const SMOOTH = uPlot.paths.spline();

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    text: of("--text"), quiet: of("--quiet"), line: of("--line"), card: of("--card"),
    accent: of("--accent"), bar: of("--bar"), band: of("--band"), claim: of("--claim"),
  };
}

/** Draw into an element with `make(width, colours)`, again when it or the colours change. */
function living(parent, make) {
  let plot = null;
  let width = 0;
  const draw = () => {
    plot?.destroy();
    plot = make(width, colours());
  };
  const watch = new ResizeObserver(() => {
    const now = Math.floor(parent.clientWidth);
    if (!now || now === width) return;
    width = now;
    draw();
  });
  watch.observe(parent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const again = () => {
    if (!parent.isConnected) dark.removeEventListener("change", again);
    else if (width) draw();
  };
  dark.addEventListener("change", again);
  return { redraw: () => plot?.redraw(false), draw: again };
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

function tick(value) {
  if (value === null) return "";
  return Math.abs(value) >= 100_000 ? short.format(value) : Number(value.toPrecision(6)).toLocaleString("en");
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && context.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}

function axis(colour, more) {
  return { stroke: colour.quiet, font: FONT, grid: { stroke: colour.line, width: 1 }, ticks: { show: false }, ...more };
}

/** Draw horizontal bars, each with its interval and its number: rows of {label, text, estimate, low, high}. */
export function bars(parent, rows) {
  return living(parent, (width, colour) => {
    const n = rows.length;
    const measure = document.createElement("canvas").getContext("2d");
    measure.font = FONT;
    const most = Math.min(Math.max(...rows.map((row) => measure.measureText(row.label).width)) + 14, width * 0.36);
    const labels = rows.map((row) => fitted(measure, row.label, most - 12));
    const room = Math.max(...rows.map((row) => measure.measureText(row.text ?? "").width)) + 14;
    const low = Math.min(0, ...rows.map((row) => row.low ?? row.estimate ?? 0));
    const high = Math.max(0, ...rows.map((row) => row.high ?? row.estimate ?? 0)) || 1;
    const scale = (width - most - 20) / Math.max(width - most - 20 - room, 40);
    const indices = rows.map((_, i) => i);
    return new uPlot(
      {
        width,
        height: n * ROW + 34,
        padding: [4, 8, 0, 4],
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, ori: 1, dir: -1, range: [-0.5, n - 0.5] },
          y: { ori: 0, range: [low < 0 ? low * 1.05 : 0, low + (high - low) * scale] },
        },
        axes: [
          axis(colour, { side: 3, size: most, gap: 6, stroke: colour.text, splits: () => indices, values: () => labels, grid: { show: false } }),
          axis(colour, { side: 2, size: 26, space: 70, values: (_, ticks) => ticks.map(tick) }),
        ],
        series: [{}, { paths: () => null, points: { show: false } }],
        hooks: {
          draw: [
            (u) => {
              const { ctx } = u;
              const ratio = devicePixelRatio;
              const x = (value) => u.valToPos(value, "y", true);
              ctx.save();
              ctx.font = FONT.replace("12px", `${12 * ratio}px`);
              ctx.textBaseline = "middle";
              ctx.textAlign = "left";
              rows.forEach((row, i) => {
                if (row.estimate === null) return;
                const middle = u.valToPos(i, "x", true);
                const half = 0.32 * ROW * ratio;
                ctx.fillStyle = colour.bar;
                ctx.fillRect(Math.min(x(0), x(row.estimate)), middle - half, Math.abs(x(row.estimate) - x(0)), 2 * half);
                const ends = row.low !== null && row.high !== null;
                if (ends) whisker(ctx, x(row.low), x(row.high), middle, 5 * ratio, colour.text, ratio, true);
                ctx.fillStyle = colour.text;
                ctx.fillText(row.text ?? "NULL", Math.max(x(ends ? row.high : row.estimate), x(row.estimate), x(0)) + 7 * ratio, middle);
              });
              ctx.restore();
            },
          ],
        },
      },
      [indices, rows.map((row) => row.estimate)],
      parent,
    );
  });
}

function whisker(ctx, from, to, at, size, colour, ratio, across) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  ctx.beginPath();
  const segments = [[from, at, to, at], [from, at - size, from, at + size], [to, at - size, to, at + size]];
  for (const [a, b, c, d] of segments) {
    ctx.moveTo(across ? a : b, across ? b : a);
    ctx.lineTo(across ? c : d, across ? d : c);
  }
  ctx.stroke();
}

/** Draw numbers along an axis with their intervals: rows of {x, estimate, low, high} in order. */
export function line(parent, rows, { time, xName, yName }) {
  const data = ["x", "estimate", "low", "high"].map((name) => rows.map((row) => row[name]));
  return living(parent, (width, colour) => {
    const few = rows.length <= 80;
    const values = [...data[1], ...data[2], ...data[3]].filter((each) => each !== null);
    return new uPlot(
      {
        width,
        height: Math.max(220, Math.min(340, width * 0.42)),
        padding: [10, 14, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
        scales: { x: { time }, y: { range: () => spread(values) } },
        axes: [
          axis(colour, { label: xName, labelFont: FONT, labelSize: 20, ...(time ? {} : { values: (_, ticks) => ticks.map(tick) }) }),
          axis(colour, { label: yName, labelFont: FONT, labelSize: 20, size: 56, values: (_, ticks) => ticks.map(tick) }),
        ],
        series: [
          {},
          { stroke: colour.accent, width: 2, points: { show: few, size: 6, fill: colour.accent } },
          { stroke: few ? "transparent" : colour.band, points: { show: false } },
          { stroke: few ? "transparent" : colour.band, points: { show: false } },
        ],
        bands: [{ series: [3, 2], fill: colour.band }],
        hooks: {
          draw: [
            (u) => {
              if (!few) return;
              for (const row of rows) {
                if (row.low === null || row.high === null) continue;
                const y = (value) => u.valToPos(value, "y", true);
                whisker(u.ctx, y(row.low), y(row.high), u.valToPos(row.x, "x", true), 4 * devicePixelRatio, colour.text, devicePixelRatio, false);
              }
            },
          ],
        },
      },
      data,
      parent,
    );
  });
}

function spread(values) {
  const low = Math.min(...values, 0);
  const high = Math.max(...values, 0);
  const room = (high - low || 1) * 0.05;
  return [low < 0 ? low - room : 0, high + room];
}

/** Return the points of a curve with further ones, on the lines between them. */
function withEnds(points, ends) {
  const more = ends.flatMap((x) => {
    const i = points.findIndex((point) => point[0] >= x);
    if (i <= 0 || points[i][0] === x) return [];
    const [[v, p], [w, q]] = [points[i - 1], points[i]];
    return [[x, p + ((q - p) * (x - v)) / (w - v)]];
  });
  return [...points, ...more].sort((a, b) => a[0] - b[0]);
}

/** Draw the density of one number, its interval shaded, and a claim as a line that can be moved. */
export function density(parent, { density: points, low, high, claim }) {
  let at = claim;
  const all = withEnds(points, [low, high]);
  const xs = all.map((point) => point[0]);
  const ys = all.map((point) => point[1]);
  const inside = all.map(([x, y]) => (x >= low && x <= high ? y : null));
  const living_ = living(parent, (width, colour) => {
    return new uPlot(
      {
        width,
        height: Math.max(170, Math.min(240, width * 0.34)),
        padding: [10, 14, 0, 14],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false }, y: { range: (_, __, most) => [0, most * 1.08 || 1] } },
        axes: [axis(colour, { grid: { show: false }, size: 28, space: 80, values: (_, ticks) => ticks.map((each) => each.toLocaleString("en")) }), { show: false }],
        series: [
          {},
          { stroke: colour.accent, width: 2, paths: SMOOTH, points: { show: points.length < 3 } },
          { stroke: "transparent", fill: colour.band, paths: SMOOTH, points: { show: false } },
        ],
        hooks: {
          draw: [
            (u) => {
              if (at < u.scales.x.min || at > u.scales.x.max) return;
              const { ctx, bbox } = u;
              const x = Math.round(u.valToPos(at, "x", true));
              ctx.save();
              ctx.strokeStyle = colour.claim;
              ctx.lineWidth = 2 * devicePixelRatio;
              ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
              ctx.beginPath();
              ctx.moveTo(x, bbox.top);
              ctx.lineTo(x, bbox.top + bbox.height);
              ctx.stroke();
              ctx.restore();
            },
          ],
        },
      },
      [xs, ys, inside],
      parent,
    );
  });
  return {
    claim(value) {
      at = value;
      living_.redraw();
    },
  };
}
