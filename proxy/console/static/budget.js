// The curves of the Budget page.

import uPlot from "/static/vendor/uplot.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const place = document.getElementById("chart");
const told = document.getElementById("curves");

if (place && told) {
  const { times, series, budget } = JSON.parse(told.textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chart = null;

  const iso = (seconds) => new Date(seconds * 1000).toISOString();
  const when = (_, splits) => {
    const span = splits.at(-1) - splits[0];
    const [from, to] = span > 2 * 86400 ? [0, 10] : span > 120 ? [11, 16] : [11, 19];
    return splits.map((each) => iso(each).slice(from, to));
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const draw = () => {
    chart?.destroy();
    const axis = {
      stroke: colour("--quiet"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const stepped = uPlot.paths.stepped({ align: 1 });
    chart = new uPlot(
      {
        width: Math.max(place.clientWidth, 200),
        height: 260,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { drag: { x: false, y: false } },
        scales: {
          x: { range: (_, first, last) => (last === first ? [first - 1800, last + 1800] : [first, last]) },
          y: { range: (_, low, high) => [0, Math.max(high * 1.1, budget / 20)] },
        },
        axes: [{ ...axis, values: when, space: 80 }, { ...axis, size: 56, label: "alpha", labelSize: 18, labelFont: axis.font }],
        series: [
          { label: "Time (UTC)", value: (_, each) => (each == null ? "" : iso(each).slice(0, 19).replace("T", " ")) },
          ...series.map(({ label, main }, index) => ({
            label: label || "embedded",
            stroke: colour(main ? "--text" : COLOURS[index % COLOURS.length]),
            width: main ? 3 : 1.75,
            paths: stepped,
            points: { show: times.length < 3 },
            value: (_, value) => (value == null ? "" : value.toPrecision(4)),
          })),
        ],
      },
      [times, ...series.map((each) => each.values)],
      place,
    );
  };

  draw();
  dark.addEventListener("change", draw);
  new ResizeObserver(() => {
    if (chart && Math.abs(chart.width - place.clientWidth) > 1 && place.clientWidth > 0) {
      chart.setSize({ width: place.clientWidth, height: 260 });
    }
  }).observe(place);
}
