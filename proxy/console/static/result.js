// A result on the page: what it cost, its picture, its table, and ways to take it away.

import { bars, line } from "./chart.js";
import { byId, element, request, sentence } from "./dom.js";
import { origins, posteriorFigure } from "./posterior.js";
import { resultTable, written } from "./table.js";

const DAY = /^\d{4}-\d\d-\d\d/;

/** Show a result in its place; `base` is the address of the page. */
export function showResult(result, base) {
  const place = byId("result");
  const why = (row, column) => explain(result, base, row, column);
  const parts = [heading(result), earlier(result), sources(result)];
  for (const notice of result.notices) parts.push(element("p", { class: "notice" }, sentence(notice)));
  parts.push(picture(result, base), null);
  if (result.columns.length) parts.push(resultTable(result, why));
  for (const told of result.nulls) parts.push(element("p", { class: "quiet small" }, sentence(told)));
  if (result.columns.length) parts.push(away(result, base));
  place.replaceChildren(...parts.filter(Boolean));
  place.hidden = false;
}

function heading(result) {
  const title = element("h2", { id: "result-title" }, "Result");
  if (!result.columns.length) return element("div", { class: "result-head" }, title, element("span", { class: "done" }, `${result.tag || "Done"}`));
  const facts = [];
  if (result.measured || result.inferred) {
    facts.push(element("span", { class: "fact" }, element("strong", {}, result.free ? "free" : result.cost), result.free ? "" : " spent"));
    if (result.measured) facts.push(element("span", { class: "fact" }, element("strong", {}, result.measured.toLocaleString("en")), " measured"));
    if (result.inferred) facts.push(element("span", { class: "fact" }, element("strong", {}, result.inferred.toLocaleString("en")), " inferred"));
  }
  if (result.left !== "nan") facts.push(element("span", { class: "fact" }, element("strong", {}, result.left), " left"));
  return element("div", { class: "result-head" }, title, element("div", { class: "facts" }, ...facts));
}

function earlier(result) {
  return element("p", { id: "earlier", class: "quiet small", hidden: true }, "This is the result of an earlier statement:", element("code", { class: "origin" }, result.statement));
}

/** Say of the result on the page, if there is one, which statement it is of. */
export function markEarlier() {
  byId("earlier")?.removeAttribute("hidden");
}

function sources(result) {
  const told = Object.entries(result.sources);
  if (!told.length) return null;
  return element("details", { class: "legend" }, element("summary", {}, "What the sources mean"),
    element("dl", {}, ...told.flatMap(([source, text]) => [
      element("dt", {}, element("span", { class: `tag ${source}` }, source)), element("dd", {}, sentence(text))])));
}

function picture(result, base) {
  const drawn = result.picture;
  if (!drawn) return null;
  const figure = element("figure", { class: "picture" });
  const body = element("div");
  const draw = (number) => body.replaceChildren(...draw_(result, base, drawn, number));
  if (drawn.numbers.length > 1) {
    const select = element("select", { id: "picture-number", onchange: (event) => draw(Number(event.target.value)) },
      ...drawn.numbers.map((place) => element("option", { value: place }, result.columns[place].name)));
    figure.append(element("div", { class: "picture-choice" }, element("label", { for: "picture-number" }, "Picture of"), select));
  }
  figure.append(body);
  draw(drawn.numbers[0]);
  return figure;
}

function draw_(result, base, drawn, number) {
  const name = result.columns[number].name;
  if (drawn.kind === "density") return one(result, base, number, name);
  const label = (row) => drawn.keys.map((key) => written(row[key])).join(", ");
  const shown = (row) => ({ label: label(row), text: row[number][0], estimate: row[number][4], low: row[number][5], high: row[number][6] });
  const numbers = result.rows.filter((row) => Array.isArray(row[number]) && row[number][4] !== null);
  if (drawn.kind === "line") return along(result, drawn, number, numbers, shown);
  let rows = numbers.map(shown);
  let note = null;
  if (rows.length > drawn.most) {
    note = `The ${drawn.most} largest of ${rows.length.toLocaleString("en")} groups; the table has all of them.`;
    rows = rows.toSorted((a, b) => b.estimate - a.estimate).slice(0, drawn.most);
  }
  if (!rows.length) return [];
  const by = drawn.keys.map((key) => result.columns[key].name).join(" and ");
  const words = rows.slice(0, 12).map((row) => `${row.label} ${row.text}`).join("; ");
  const plot = element("div", { class: "plot", role: "img", "aria-label": `Bars of ${name} by ${by}, with intervals: ${words}${rows.length > 12 ? "; and so on, as in the table" : ""}` });
  bars(plot, rows);
  return [plot, caption(`${name} by ${by}. Lines across the ends of bars are the intervals.`, note)];
}

function along(result, drawn, number, numbers, shown) {
  const key = drawn.keys[0];
  const time = DAY.test(String(numbers.find((row) => row[key] !== null)?.[key]));
  const x = (value) => (time ? Date.parse(`${String(value).replace(" ", "T")}${String(value).length > 10 ? "Z" : ""}`) / 1000 : Number(value));
  const rows = numbers.filter((row) => row[key] !== null).map((row) => ({ ...shown(row), x: x(row[key]) }));
  rows.sort((a, b) => a.x - b.x);
  if (!rows.length) return [];
  const [xName, yName] = [result.columns[key].name, result.columns[number].name];
  const plot = element("div", { class: "plot", role: "img", "aria-label": `${yName} along ${xName}, from ${rows[0].label} (${rows[0].text}) to ${rows.at(-1).label} (${rows.at(-1).text}), with intervals; the table has every number` });
  line(plot, rows, { time, xName, yName });
  const without = numbers.length - rows.length;
  return [plot, caption(`${yName} along ${xName}, with intervals.`, without ? "The NULL group has no place along the axis; it is in the table." : null)];
}

function caption(text, note) {
  return element("figcaption", { class: "quiet small" }, [text, note].filter(Boolean).join(" "));
}

function one(result, base, number, name) {
  const cell = result.rows[0][number];
  const [text, interval, source] = cell;
  const big = element("div", { class: "big" }, element("span", { class: "big-name quiet" }, name), element("span", { class: "big-number" }, text ?? "NULL"),
    element("span", { class: "big-interval" }, interval), element("span", { class: `tag ${source}` }, source));
  const more = element("div", { class: "more" });
  told(result, base, 0, number).then((found) => {
    if (found) more.append(posteriorFigure(found, name), element("h3", {}, "Where it comes from"), origins(found));
  });
  return [big, more];
}

async function told(result, base, row, column) {
  const nth = result.rows[row].slice(0, column).filter(Array.isArray).length;
  if (!result.explained[row]?.[nth]) return null;
  const found = await request(`${base}/results/${result.name}/${row}/${column}`);
  return found.none ? null : found;
}

async function explain(result, base, row, column) {
  const found = await told(result, base, row, column);
  const dialog = byId("why");
  const keys = result.columns.flatMap((each, place) => (each.number ? [] : [`${each.name} ${written(result.rows[row][place])}`]));
  const name = result.columns[column].name;
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const head = element("div", { class: "why-head" }, element("h2", { id: "why-title" }, keys.length ? `${name} where ${keys.join(", ")}` : name), close);
  if (!found) {
    dialog.replaceChildren(head, element("p", {}, "This result is kept no longer: run the statement again."));
    dialog.showModal();
    return;
  }
  const [text, interval, source] = found.answer;
  const shown = result.rows[row][column][0] ?? text;
  dialog.replaceChildren(head,
    element("div", { class: "big" }, element("span", { class: "big-number" }, shown), element("span", { class: "big-interval" }, interval), element("span", { class: `tag ${source}` }, source)));
  dialog.showModal();
  dialog.append(posteriorFigure({ ...found, answer: [shown, ...found.answer.slice(1)] }, name), element("h3", {}, "Where it comes from"), origins(found));
}

function away(result, base) {
  const links = ["csv", "json", "parquet"].map((kind) =>
    element("a", { class: "button", href: `${base}/results/${result.name}.${kind}`, download: "" }, { csv: "CSV", json: "JSON", parquet: "Parquet" }[kind]));
  const copy = (what, text) => element("button", { type: "button", onclick: () => copied(what, text) }, what);
  return element("div", { class: "away" },
    element("span", { class: "quiet" }, "Download"), ...links,
    element("span", { class: "quiet" }, "Copy as"), copy("Python", result.python), copy("SQL", `${result.statement.trim().replace(/;$/, "")};\n`));
}

async function copied(what, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  byId("said").textContent = `Copied as ${what}.`;
  toast(`Copied as ${what}`);
}

function toast(text) {
  const shown = element("div", { class: "toast", "aria-hidden": "true" }, text);
  document.body.append(shown);
  setTimeout(() => shown.remove(), 1800);
}
