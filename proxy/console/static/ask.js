// The page Ask: an editor, what a statement would cost as one types, and its result.

import { Dials } from "./dials.js";
import { Ended, byId, element, request, sentence } from "./dom.js";
import { markEarlier, showResult } from "./result.js";
import { createEditor } from "./vendor/editor.js";

const DELAY = 250; // milliseconds without a key before the price is asked for
const page = JSON.parse(byId("ask-data").textContent);
const run = byId("run");
const cancel = byId("cancel");
const none = { tables: [], utility: {}, largest: 1e6 };

const editor = createEditor({
  parent: byId("editor"),
  text: page.text,
  nonce: document.querySelector('meta[name="csp-nonce"]').content,
  label: "SQL statement",
  describedBy: "editor-help",
  schema: none,
  onChange: changed,
  onRun: () => start(),
});
const dials = new Dials(editor, none);

// --- the price ----------------------------------------------------------------------------------

let priced = null; // {text, price}: the latest price, and of which text
let asking = null; // {text, promise, abort}: the price that is being asked for
let timer = 0;
let running = false;
let refusal = null; // {text, error}: of the latest run, until the text is edited or run again

function changed() {
  byId("save-sql").value = editor.text();
  dials.show();
  clearTimeout(timer);
  timer = setTimeout(() => look().catch(failed), DELAY);
  if (refusal?.text !== editor.text()) refusal = null;
  if (priced?.text !== editor.text()) {
    priced = null;
    button();
    byId("preview").classList.add("old");
    byId("problem").classList.add("old");
  }
}

/** Ask what the text of the editor would cost; of several answers only the last one counts. */
function look() {
  clearTimeout(timer);
  const text = editor.text();
  if (asking?.text === text) return asking.promise;
  asking?.abort.abort();
  const abort = new AbortController();
  const mine = { text, abort };
  mine.promise = (async () => {
    try {
      if (!text.trim()) return set(text, { command: true, empty: true });
      const price = await request(`${page.base}/preview`, { sql: text }, abort.signal);
      if (asking !== mine || price.command === false) return null; // overtaken, here or in another window
      return set(text, price);
    } catch (error) {
      if (error.name === "AbortError") return null;
      throw error;
    } finally {
      if (asking === mine) asking = null;
    }
  })();
  asking = mine;
  return mine.promise;
}

/** Take a price for a text, and show it. */
function set(text, price) {
  if (text !== editor.text()) return null;
  priced = { text, price };
  problem(refusal?.error ?? price.error ?? null);
  dials.show(price.numbers ?? []);
  preview(price);
  button();
  return price;
}

function preview(price) {
  const place = byId("preview");
  place.classList.remove("old");
  place.replaceChildren();
  if (price.error || price.empty) return;
  if (price.command) {
    place.append(element("p", {}, price.unpriced
      ? `What ${price.unpriced} costs is not known before, so that it spends nothing here: it gives what is known already. A SELECT shows its price.`
      : "A command: it asks for no numbers, and costs nothing."));
    return;
  }
  if (price.refused) {
    place.append(element("p", { class: "bad" }, element("strong", {}, "Would be refused. "), sentence(price.refused)));
    return;
  }
  const all = price.numbers.reduce((sum, each) => sum + each.groups, 0);
  const measured = price.numbers.reduce((sum, each) => sum + each.measured, 0);
  const count = (n) => `${n.toLocaleString("en")} number${n === 1 ? "" : "s"}`;
  const what = measured === 0 ? `${count(all)}, all known from earlier answers` : measured === all ? `${count(all)} to measure` : `${count(measured)} to measure, ${(all - measured).toLocaleString("en")} known already`;
  const within = price.numbers.filter((each) => each.half).map((each) => `${each.label} within ±${each.half}`);
  const first = element("p", {}, element("strong", { class: price.free ? "good" : "paid" }, price.free ? "Free" : `Costs ${price.cost}`),
    price.free || !price.of ? ` · ${price.left}` : `${price.of}, leaves ${price.leaves}`);
  place.append(first, element("p", { class: "quiet small" }, all ? [`${what}`, ...within.slice(0, 4)].join(" · ") : "It shows no number of anybody."));
  for (const notice of price.notices) place.append(element("p", { class: "quiet small" }, sentence(notice)));
}

function button() {
  const price = priced?.text === editor.text() ? priced.price : null;
  let label = "Run";
  if (running) label = "Running …";
  else if (price && !price.error && !price.command && !price.refused) label = price.free ? "Run · free" : `Run · costs ${price.cost}${price.of}`;
  run.textContent = label;
  run.disabled = running || !editor.text().trim();
  cancel.hidden = !running;
}

// --- errors -------------------------------------------------------------------------------------

/** Show an error beside the clause that caused it, and below the editor; nothing takes it away. */
function problem(error) {
  const place = byId("problem");
  const at = editor.mark(error?.position ?? null, error?.message ?? "");
  place.hidden = !error;
  place.classList.remove("old");
  place.replaceChildren();
  if (!error) return;
  const where = at && element("button", { type: "button", class: "plain", onclick: () => editor.select(error.position) }, `line ${at.line}, column ${at.column}`);
  place.append(element("p", {}, sentence(error.message), where ? " " : null, where));
  if (error.detail && !where) place.append(element("p", { class: "small" }, sentence(error.detail)));
  if (error.hint) place.append(element("p", { class: "hint" }, sentence(error.hint)));
}

function failed(error) {
  if (error.name === "AbortError") return;
  const ended = error instanceof Ended;
  problem({ message: ended ? error.message : "the console does not answer", hint: ended ? null : "try again in a moment" });
  if (ended) byId("problem").append(element("a", { href: `/login?next=${encodeURIComponent(location.pathname)}` }, "Log in again"));
}

// --- running ------------------------------------------------------------------------------------

async function start() {
  if (running || !editor.text().trim()) return;
  const text = editor.text();
  try {
    if (priced?.text !== text) {
      const price = await look();
      if (!price || price.error) return;
      if (!price.command && !price.free && !price.refused) {
        say(`This costs ${price.cost}${price.of}. Run it again to spend that.`, true);
        return;
      }
    }
    const { price } = priced;
    if (price.error && price.error.position) editor.select(price.error.position);
    running = true;
    refusal = null;
    keepPlace();
    button();
    say("Running.");
    const fields = { sql: text };
    if (typeof price.limit === "number") fields.limit = String(price.limit);
    finish(text, await request(`${page.base}/run`, fields));
  } catch (error) {
    failed(error);
  } finally {
    running = false;
    run.removeAttribute("style");
    button();
  }
}

/** Keep the size of the button that runs, so that the one that cancels is not where it was. */
function keepPlace() {
  const { width, height } = run.getBoundingClientRect();
  Object.assign(run.style, { minWidth: `${width}px`, minHeight: `${height}px` });
}

function finish(text, found) {
  if (found.dearer) {
    running = false;
    set(text, found.dearer);
    say("The price has changed meanwhile, and nothing was run: look at it, and run it again.", true);
  } else if (found.error) {
    refusal = { text, error: found.error };
    problem(found.error);
    say("");
    markEarlier();
  } else {
    problem(null);
    showResult(found, page.base);
    say(`The result has ${found.rows.length.toLocaleString("en")} row${found.rows.length === 1 ? "" : "s"}.`);
    reveal();
  }
  document.body.dispatchEvent(new CustomEvent("asked"));
  if (!found.dearer) {
    priced = null;
    look().catch(failed);
  }
}

function reveal() {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  byId("result").scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
}

/** Say something to who cannot see the page; `shown` shows it, too. */
function say(text, shown = false) {
  byId("said").textContent = text;
  if (shown) byId("preview").append(element("p", { class: "notice" }, text));
}

run.addEventListener("click", start);
cancel.addEventListener("click", () => request(`${page.base}/cancel`, {}).catch(failed));

// --- what is beside the editor --------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const chosen = event.target.closest?.("[data-sql]");
  if (!chosen) return;
  editor.setText(chosen.dataset.sql);
  editor.focus();
});
byId("save-form").addEventListener("submit", () => {
  byId("save-sql").value = editor.text();
}, true);
document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt.id === "save-form" && !byId("saved").querySelector(".problem")) byId("save-name").value = "";
});

function columns(known) {
  const many = 30;
  byId("columns").replaceChildren(
    ...known.tables.flatMap((table) =>
      table.columns.map((column) => {
        const insert = (text) => () => {
          const { from, to } = editor.view.state.selection.main;
          editor.replace(from, to, text);
          editor.focus();
        };
        const name = element("button", { type: "button", class: "plain", onclick: insert(column.written), title: "Put it into the statement" }, column.name);
        const kind = element("span", { class: "quiet small" }, /^(measure|level)/.test(column.comment) ? column.comment : column.type);
        if (!column.values.length) return element("li", {}, element("div", { class: "column" }, name, kind));
        const rest = column.values.length - many;
        const values = element("div", { class: "values" }, ...column.values.slice(0, many).map((value) => element("button", { type: "button", class: "chip", onclick: insert(value) }, value)),
          rest > 0 ? element("span", { class: "quiet small" }, `and ${rest.toLocaleString("en")} more, which the editor completes`) : null);
        return element("li", {}, element("div", { class: "column" }, name, kind),
          element("details", {}, element("summary", {}, `${column.values.length.toLocaleString("en")} values`, element("span", { class: "unseen" }, ` of ${column.name}`)), values));
      }),
    ),
  );
}

byId("save-sql").value = editor.text();
dials.show();
button();
look().catch(failed);
request(`${page.base}/known`).then((known) => {
  editor.setSchema(known);
  dials.known = known;
  dials.show();
  columns(known);
}, failed);
if (page.newcomer && matchMedia("(min-width: 60rem)").matches) editor.focus();
