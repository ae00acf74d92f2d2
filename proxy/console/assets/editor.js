// The editor of the Ask page: CodeMirror with PostgreSQL's SQL, and completion of what a dataset has.

import {
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  snippetCompletion,
} from "@codemirror/autocomplete";
import { PostgreSQL, SQLDialect, sql } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, placeholder } from "@codemirror/view";
import { tags } from "@lezer/highlight";

import { createView } from "./base.js";

const MOST = 200; // completions offered at once: a longer list is filtered by what is typed
const KEYWORDS =
  "SELECT FROM WHERE AND OR NOT IN BETWEEN IS NULL LIKE AS CASE WHEN THEN ELSE END DISTINCT " +
  "HAVING LIMIT DESC ASC UNION ALL WITH JOIN ON USING ROLLUP CUBE FILTER OVER";
const SNIPPETS = [
  ["COUNT(*)", "COUNT(*)", "how many"],
  ["SUM", "SUM(${measure})", "a total"],
  ["AVG", "AVG(${measure})", "a mean"],
  ["MEDIAN", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ${column})", "the middle value"],
  ["GROUP BY", "GROUP BY ${column}", "a number for each value"],
  ["ORDER BY", "ORDER BY ${column}", "sorted"],
  ["WITH UTILITY", "WITH UTILITY (${50}, ${0.05})", "how good the numbers must be"],
  ["MAX COST", "MAX COST ${0.05}", "the most the statement may cost"],
].map(([label, text, detail]) =>
  snippetCompletion(text, { label, detail, type: "keyword", boost: 5 }),
);
const WORDS = KEYWORDS.split(" ").map((label) => ({ label, type: "keyword", boost: -10 }));

const dialect = SQLDialect.define({
  ...PostgreSQL.spec,
  keywords: `${PostgreSQL.spec.keywords} utility percent cost`,
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--sql-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--sql-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--sql-number)" },
  { tag: [tags.lineComment, tags.blockComment], color: "var(--sql-comment)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--sql-name)" },
]);

const looks = EditorView.theme({
  "&": { color: "var(--sql-text)", backgroundColor: "transparent", fontSize: "0.9375rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": {
    fontFamily: "var(--sql-font)",
    lineHeight: "1.6",
    minHeight: "8.5rem",
    maxHeight: "22rem",
  },
  ".cm-content": { caretColor: "var(--sql-text)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--sql-text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection": {
    backgroundColor: "var(--sql-selection) !important",
  },
  ".cm-gutters": {
    backgroundColor: "transparent",
    border: "none",
    color: "var(--sql-gutter)",
    paddingLeft: "0.25rem",
  },
  ".cm-placeholder": { color: "var(--sql-gutter)" },
  ".cm-matchingBracket": {
    backgroundColor: "var(--sql-selection) !important",
    outline: "1px solid var(--sql-gutter)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--sql-popup)",
    border: "1px solid var(--sql-border)",
    borderRadius: "6px",
    color: "var(--sql-text)",
    boxShadow: "0 6px 24px rgb(0 0 0 / 0.18)",
    overflow: "hidden",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: "var(--sql-font)",
    fontSize: "0.875rem",
    maxHeight: "16rem",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.25rem 0.6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": {
    backgroundColor: "var(--sql-chosen)",
    color: "var(--sql-chosen-text)",
  },
  ".cm-completionDetail": { fontStyle: "normal", color: "inherit" },
  ".cm-diagnostic": { fontSize: "0.875rem", padding: "0.4rem 0.7rem" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--sql-error)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--sql-error) 1.5px",
    textUnderlineOffset: "4px",
    textDecorationSkipInk: "none",
  },
  ".cm-panels": { backgroundColor: "var(--sql-popup)", color: "var(--sql-text)" },
  ".cm-panels.cm-panels-top, .cm-panels.cm-panels-bottom": { borderColor: "var(--sql-border)" },
  ".cm-searchMatch": { backgroundColor: "var(--sql-selection)" },
});

/** Return what may be compared with a column, if the text before the cursor compares one. */
function compared(before, schema) {
  const found = /("(?:[^"]|"")+"|[\p{L}_][\p{L}\d_$]*)\s*(?:=|<>|!=|(?:not\s+)?in\s*\((?:[^()']|'(?:[^']|'')*')*|(?:not\s+)?like)\s*$/iu.exec(before);
  if (!found) return null;
  const name = found[1].startsWith('"') ? found[1].slice(1, -1).replaceAll('""', '"') : found[1].toLowerCase();
  for (const table of schema.tables) {
    const column = table.columns.find((each) => each.name === name);
    if (column?.values?.length) return column;
  }
  return null;
}

/** Return the declared values of the column that is compared, as completions. */
function values(schema) {
  return (context) => {
    const node = syntaxTree(context.state).resolveInner(context.pos, -1);
    const inside = node.name === "String" && context.pos > node.from;
    const word = inside ? null : context.matchBefore(/[\w'.:-]*$/);
    const from = inside ? node.from : word ? word.from : context.pos;
    if (!inside && !context.explicit && context.pos === from && !/[=(,]\s*$|\b(in|like)\s*$/i.test(context.state.sliceDoc(Math.max(0, from - 20), from))) return null;
    const column = compared(context.state.sliceDoc(Math.max(0, from - 4000), from), schema);
    if (!column) return null;
    const end = inside && context.state.sliceDoc(context.pos, context.pos + 1) === "'" ? 1 : 0;
    const typed = context.state.sliceDoc(from, context.pos).toLowerCase();
    return {
      from,
      to: context.pos + end,
      filter: false,
      options: chosen(column, typed).map((label) => ({ label, type: "constant", detail: column.name })),
    };
  };
}

/** Return the values that what is typed begins, and then those that it is in, as far as they fit. */
function chosen(column, typed) {
  column.folded ??= column.values.map((value) => value.toLowerCase());
  const word = typed.replace(/^'/, "");
  const first = column.values.filter((_, i) => column.folded[i].replace(/^'/, "").startsWith(word));
  if (first.length >= MOST) return first.slice(0, MOST);
  const found = new Set(first);
  const rest = column.values.filter((value, i) => !found.has(value) && column.folded[i].includes(word));
  return [...first, ...rest].slice(0, MOST);
}

/** Return tables, columns and words of SQL, as completions. */
function names(schema) {
  const options = [...WORDS, ...SNIPPETS];
  for (const table of schema.tables) {
    options.push({ label: table.written, type: "class", detail: "dataset", boost: 20 });
    for (const column of table.columns) {
      options.push({
        label: column.written,
        type: "property",
        detail: column.type,
        info: column.comment || undefined,
        boost: 30,
      });
    }
  }
  return (context) => {
    const node = syntaxTree(context.state).resolveInner(context.pos, -1);
    if (/Comment|String/.test(node.name)) return null;
    const word = context.matchBefore(/"?[\p{L}_][\p{L}\d_$]*$/u);
    if (!word && !context.explicit) return null;
    return { from: word ? word.from : context.pos, options, validFor: /^"?[\p{L}\d_$]*"?$/u };
  };
}

function completion(schema) {
  const byValue = values(schema);
  const byName = names(schema);
  return autocompletion({
    override: [(context) => byValue(context) ?? byName(context)],
    maxRenderedOptions: MOST,
    icons: false,
  });
}

/**
 * Put an editor into an element.
 *
 * `schema` is {tables: [{name, written, columns: [{name, written, type, comment, values}]}]}.
 */
export function createEditor({ schema, ...rest }) {
  const completing = new Compartment();
  const view = createView({
    ...rest,
    own: [
      closeBrackets(),
      Prec.highest(EditorState.languageData.of(() => [{ closeBrackets: { brackets: ["(", "'"] } }])),
      EditorView.lineWrapping,
      sql({ dialect }),
      syntaxHighlighting(colours),
      looks,
      completing.of(completion(schema ?? { tables: [] })),
      placeholder("SELECT COUNT(*) FROM …"),
      keymap.of(closeBracketsKeymap),
    ],
  });
  return {
    view,
    text: () => view.state.doc.toString(),
    focus: () => view.focus(),
    /** Replace a span, so that the cursor and what can be undone stay. */
    replace(from, to, insert) {
      view.dispatch({ changes: { from, to, insert }, userEvent: "input.fill" });
    },
    /** Replace all of the text. */
    setText(all) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: all },
        selection: { anchor: all.length },
        userEvent: "input.fill",
      });
    },
    setSchema(found) {
      view.dispatch({ effects: completing.reconfigure(completion(found)) });
    },
    /** Mark the word at a place, counted in characters from 1, as wrong; nothing clears the mark. */
    mark(position, message) {
      const { doc } = view.state;
      if (!position) {
        view.dispatch(setDiagnostics(view.state, []));
        return null;
      }
      const units = [...doc.toString()].slice(0, position - 1).join("").length;
      const from = Math.min(units, doc.length);
      const rest = /^(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|[\p{L}\d_.$]+|\S+)/u.exec(doc.sliceString(from));
      let start = from;
      const to = from + (rest ? rest[0].length : 0);
      if (start === to) start = Math.max(0, from - 1);
      const found = { from: start, to: Math.max(to, start), severity: "error", message };
      view.dispatch(setDiagnostics(view.state, [found]));
      const line = doc.lineAt(from);
      return { line: line.number, column: from - line.from + 1 };
    },
    select(position) {
      const units = [...view.state.doc.toString()].slice(0, position - 1).join("").length;
      view.dispatch({ selection: { anchor: Math.min(units, view.state.doc.length) }, scrollIntoView: true });
      view.focus();
    },
  };
}
