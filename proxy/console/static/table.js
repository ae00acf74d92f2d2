// The table of a result: sorted and paged, so that thousands of groups stay quick.

import { element } from "./dom.js";

const PAGE = 50;

/** Return the text of a value without an interval. */
export const written = (value) => value ?? "NULL";

const texts = new Intl.Collator("en", { numeric: true });

/** Compare two estimates, or two texts; where a double tells `numeric` texts not apart, by their digits. */
function compare(a, b, numeric) {
  if (a === null || b === null) return 0;
  if (typeof a === "number") return a - b;
  if (!numeric) return texts.compare(a, b);
  return Number(a) - Number(b) || (Number(a) < 0 ? -1 : 1) * texts.compare(a, b);
}

const sortable = (cell) => (Array.isArray(cell) ? cell[4] : cell);
const isNumeric = (type) => /int|numeric|real|double/.test(type);

/** Return the table of a result; `onWhy(row, place)` is called for a number that is explained. */
export function resultTable(result, onWhy) {
  const { columns, rows, explained } = result;
  let order = rows.map((_, i) => i);
  let sorted = { place: -1, down: false };
  let page = 0;
  const body = element("tbody");
  const heads = columns.map((column, place) =>
    element("th", { scope: "col", class: column.number || isNumeric(column.type) ? "number" : null },
      element("button", { type: "button", class: "sort", onclick: () => sort(place) }, column.name)),
  );
  const head = element("tr");
  columns.forEach((column, place) => {
    head.append(heads[place]);
    if (column.number) head.append(element("th", { scope: "col" }, "interval"), element("th", { scope: "col" }, "source"));
  });
  const caption = element("caption", { class: "unseen" }, "The result, each number with its interval, its source and its cost");
  const table = element("table", { class: "rows" }, caption, element("thead", {}, head), body);
  const status = element("span", { class: "quiet", role: "status" });
  const back = element("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const on = element("button", { type: "button", onclick: () => turn(1) }, "Next");
  const pages = Math.ceil(rows.length / PAGE);
  const pager = element("div", { class: "pager" }, back, on, status);

  function sort(place) {
    const down = sorted.place === place ? !sorted.down : columns[place].number;
    sorted = { place, down };
    order = rows.map((_, i) => i).sort((a, b) => {
      const [x, y] = [sortable(rows[a][place]), sortable(rows[b][place])];
      const last = (x === null) - (y === null);
      return last || (down ? -1 : 1) * compare(x, y, isNumeric(columns[place].type)) || a - b;
    });
    page = 0;
    fill();
  }

  function turn(by) {
    page = Math.min(Math.max(page + by, 0), pages - 1);
    fill();
    (by < 0 ? (back.disabled ? on : back) : on.disabled ? back : on).focus();
  }

  function fill() {
    const from = page * PAGE;
    const to = Math.min(from + PAGE, rows.length);
    body.replaceChildren(...order.slice(from, to).map(line));
    heads.forEach((th, place) => {
      if (place === sorted.place) th.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    back.disabled = page === 0;
    on.disabled = to === rows.length;
    status.textContent = `Rows ${(from + 1).toLocaleString("en")} to ${to.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  }

  function line(i) {
    const tr = element("tr");
    let nth = -1;
    rows[i].forEach((cell, place) => {
      if (Array.isArray(cell)) {
        nth += 1;
        tr.append(...number(cell, i, place, explained[i]?.[nth]));
        return;
      }
      const text = written(cell);
      const kinds = { number: isNumeric(columns[place].type), null: cell === null, long: text.length > 40 };
      const kind = Object.keys(kinds).filter((name) => kinds[name]).join(" ");
      tr.append(element("td", { class: kind || null }, text));
      if (columns[place].number) tr.append(element("td"), element("td"));
    });
    return tr;
  }

  function number([text, interval, source, cost], i, place, why) {
    const tag = element("span", { class: `tag ${source}` }, source);
    const known = cost === "free" ? cost : `cost ${cost}`;
    const label = `Where ${columns[place].name} ${text ?? "NULL"} comes from: ${source}`;
    return [
      element("td", { class: "number strong" }, text ?? "NULL"),
      element("td", { class: "interval" }, interval),
      element("td", { class: "source" },
        why ? element("button", { type: "button", class: "plain why-button", "aria-label": label, onclick: () => onWhy(i, place) }, tag) : tag,
        element("span", { class: "quiet small" }, known)),
    ];
  }

  fill();
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows of the result" }, table);
  return element("div", { class: "table" }, scroll, rows.length ? null : element("p", { class: "quiet" }, "No rows."), pages > 1 ? pager : null);
}
