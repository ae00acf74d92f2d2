// The clause WITH UTILITY in a statement's text: found, read, and written anew.

const TOKEN = /\s+|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|\$(\w*)\$[\s\S]*?(?:\$\1\$|$)|[\p{L}_][\p{L}\d_$]*|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[\s\S]/giu;
const NUMBER = /^(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i;

/** Return the tokens of a text that are neither blanks nor comments, and its comments. */
export function tokens(text) {
  const words = [];
  const comments = [];
  for (const match of text.matchAll(TOKEN)) {
    const token = { text: match[0], from: match.index, to: match.index + match[0].length };
    if (/^(--|\/\*)/.test(token.text)) comments.push(token);
    else if (token.text.trim()) words.push(token);
  }
  return { words, comments };
}

const is = (token, word) => token !== undefined && token.text.toUpperCase() === word;

/** Return whether a text is a query, which may have a clause. */
export function isQuery(text) {
  const first = tokens(text).words.find((token) => token.text !== "(");
  return ["SELECT", "WITH", "FROM"].some((word) => is(first, word));
}

/**
 * Return what a text says of its numbers: {found, from, to, halfWidth, delta, percent, rest}, where
 * `rest` is what the clause says besides; or {why} where two sliders cannot say it.
 */
export function read(text) {
  if (!isQuery(text)) return { why: "Only a query has numbers." };
  const { words, comments } = tokens(text);
  if (comments.some((each) => /^(--|\/\*)\s*\+?\s*(UTILITY|MAX_COST)\s*\(/i.test(each.text) && /UTILITY\s*\(/i.test(each.text))) {
    return { why: "A comment in the text says how good the numbers must be." };
  }
  const starts = words.flatMap((token, i) => (is(token, "WITH") && is(words[i + 1], "UTILITY") ? [i] : []));
  if (starts.length > 1) return { why: "The text has several clauses: change them there." };
  if (!starts.length) return { found: false, at: end(text, words) };
  let i = starts[0] + 2;
  const clause = { found: true, from: words[starts[0]].from, to: words[i - 1].to, halfWidth: null, delta: null, percent: false, rest: [] };
  for (;;) {
    if (is(words[i], "MAX") && is(words[i + 1], "COST") && words[i + 2]) {
      clause.rest.push(text.slice(words[i].from, words[i + 2].to));
      clause.to = words[i + 2].to;
      i += 3;
    } else if (words[i]?.text === "(" && clause.halfWidth === null) {
      const percent = is(words[i + 2], "PERCENT") || is(words[i + 2], "%") ? 1 : 0;
      const [half, comma, delta, close] = [1, 2, 3, 4].map((n) => words[i + n + (n > 1 ? percent : 0)]);
      if (!NUMBER.test(half?.text) || comma?.text !== "," || !NUMBER.test(delta?.text) || close?.text !== ")") {
        return { why: "The clause is not finished." };
      }
      clause.halfWidth = Number(half.text);
      clause.delta = Number(delta.text);
      clause.percent = percent === 1;
      clause.to = close.to;
      i += 5 + percent;
    } else {
      return { why: "The clause says something for a column: change it in the text." };
    }
    if (words[i]?.text !== ",") return clause;
    i += 1;
  }
}

/** Return where a clause is put: behind the last word that is no semicolon. */
function end(text, words) {
  const last = words.findLast((token) => token.text !== ";");
  return last ? last.to : text.length;
}

/** Return a number as it is written in SQL. */
export function written(number) {
  return String(Number(number.toPrecision(6))).replace("e+", "e");
}

/** Return the change {from, to, insert} that makes a text ask for this. */
export function filled(text, halfWidth, delta) {
  const clause = read(text);
  if (clause.why) return null;
  const unit = clause.percent ? " PERCENT" : "";
  const pair = `(${written(halfWidth)}${unit}, ${written(delta)})`;
  const said = `WITH UTILITY ${[pair, ...(clause.rest ?? [])].join(", ")}`;
  if (clause.found) return { from: clause.from, to: clause.to, insert: said };
  const gap = text.slice(0, clause.at).includes("\n") ? "\n" : " ";
  return { from: clause.at, to: clause.at, insert: `${gap}${said}` };
}

/** The half-widths that the slider stands at: two digits, evenly on a logarithmic scale. */
export class Scale {
  constructor(least, most, steps = 200) {
    this.least = Math.log10(least);
    this.most = Math.log10(most);
    this.steps = steps;
  }

  value(step) {
    const log = this.least + ((this.most - this.least) * step) / this.steps;
    return Number((10 ** log).toPrecision(2));
  }

  step(value) {
    const share = (Math.log10(Math.max(value, 1e-300)) - this.least) / (this.most - this.least);
    return Math.round(Math.min(Math.max(share, 0), 1) * this.steps);
  }
}
