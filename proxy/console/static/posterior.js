// How probable the values of one number are: a picture with the interval shaded, and a claim.

import { element } from "./dom.js";
import { density } from "./chart.js";

/** Return P(number <= value), as the proxy computes it; see Posterior in proxy/engine/answers.py. */
export function atMost({ values, below, zero, step }, value) {
  const at = step ? zero + (Math.floor((value - zero) / step + 1e-9) + 0.5) * step : value;
  const i = values.findIndex((each) => each >= at);
  if (i <= 0) return i === 0 ? 0 : 1;
  const [v, w, p, q] = [values[i - 1], values[i], below[i - 1], below[i]];
  return p + ((q - p) * (at - v)) / (w - v);
}

/** Return a probability in words, which never says that something is certain. */
export function percent(p) {
  if (p < 0.001) return "less than 0.1 %";
  if (p > 0.999) return "more than 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}

function numberOf(text) {
  return Number(text.replaceAll(",", ""));
}

/** Return the figure of a number: its density, and a claim that can be moved. */
export function posteriorFigure(told, name) {
  const { values, answer } = told;
  const [shown, interval, , , estimate, low, high] = answer;
  const first = values[0];
  const last = values.at(-1);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(last - first, 1e-12))));
  const round = (value) => Number(value.toFixed(Math.min(digits, 10)));
  const start = Number.isFinite(numberOf(shown ?? "")) ? numberOf(shown) : round(estimate);
  const plot = element("div", {
    class: "plot",
    role: "img",
    "aria-label": `How probable the values of ${name} are: ${shown}, ${interval} credible`,
  });
  const picture = density(plot, { ...told, low, high, claim: start });
  const id = `claim-${Math.random().toString(36).slice(2)}`;
  const slider = element("input", {
    type: "range",
    min: 0,
    max: 400,
    step: 1,
    "aria-label": `The claim about ${name}: more than this`,
  });
  const field = element("input", { type: "number", step: "any", id, value: start, inputmode: "decimal" });
  const output = element("output", { for: id, class: "probability" });
  const toStep = (value) => Math.round((400 * (value - first)) / (last - first || 1));
  const show = (claim) => {
    picture.claim(claim);
    const p = 1 - atMost(told, claim);
    output.textContent = percent(p);
    slider.setAttribute("aria-valuetext", `more than ${claim.toLocaleString("en")}: ${percent(p)}`);
  };
  slider.value = toStep(start);
  slider.addEventListener("input", () => {
    const claim = round(first + ((last - first) * slider.value) / 400);
    field.value = claim;
    show(claim);
  });
  field.addEventListener("input", () => {
    if (field.value === "" || !Number.isFinite(Number(field.value))) {
      output.textContent = "not a number";
      return;
    }
    slider.value = toStep(Number(field.value));
    show(Number(field.value));
  });
  queueMicrotask(() => show(start));
  return element(
    "div",
    { class: "posterior" },
    plot,
    element(
      "div",
      { class: "claim" },
      element("label", { for: id }, "How probable is more than"),
      field,
      element("span", {}, "?"),
      slider,
      output,
    ),
  );
}

/** Return where a number came from: a table of the statements that it rests on. */
export function origins(told) {
  if (!told.origins.length) return element("p", { class: "quiet" }, "Nobody can be counted here, so that no noise was needed.");
  const rows = told.origins.map((each) =>
    element(
      "tr",
      {},
      element("td", {}, each.what, each.time && each.kind !== "this" ? element("span", { class: "quiet small" }, ` ${each.time}`) : null,
        each.statement && each.kind !== "this" ? element("code", { class: "origin" }, each.statement) : null),
      element("td", { class: "number" }, each.weights ?? "–"),
      element("td", { class: "number" }, `${each.share} %`),
    ),
  );
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Where the number comes from" },
    element(
      "table",
      { class: "origins" },
      element("caption", {}, "The noisy numbers that it adds up, with their weights and their share of its uncertainty."),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Follows from"), element("th", { scope: "col", class: "number" }, "Weight"), element("th", { scope: "col", class: "number" }, "Share of noise"))),
      element("tbody", {}, ...rows),
    ),
  );
}
