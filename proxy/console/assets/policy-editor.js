// The editor of the Policy page: CodeMirror with YAML, and completion of keys by the JSON Schema.

import { autocompletion } from "@codemirror/autocomplete";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

import { createView } from "./base.js";

const colours = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--link)", fontWeight: "600" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: tags.lineComment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--quiet)" },
]);

const looks = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", fontSize: "0.9rem", border: "1px solid var(--line-strong)", borderRadius: "8px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", maxHeight: "36rem" },
  ".cm-content": { caretColor: "var(--text)", padding: "0.6rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-gutters": { backgroundColor: "var(--card)", border: "none", color: "var(--quiet)", paddingLeft: "0.25rem" },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--card)", border: "1px solid var(--line-strong)", borderRadius: "6px", color: "var(--text)", maxWidth: "30rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionInfo": { padding: "0.5rem 0.7rem" },
  ".cm-diagnostic": { padding: "0.4rem 0.7rem" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--bad)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad) 1.5px", textUnderlineOffset: "3px" },
  ".cm-panels": { backgroundColor: "var(--card)", color: "var(--text)" },
});

/** Return the schemas that one stands for: itself, or its alternatives. */
const forms = (schema) => (schema?.anyOf ? schema.anyOf.flatMap(forms) : schema ? [schema] : []);

/** Return the schemas of what is under a key of a mapping; those of free names are all alike. */
const under = (schemas, key) =>
  schemas.flatMap((each) => forms(each.properties?.[key] ?? (each.additionalProperties || undefined)));

/** Return the schemas of the items of lists, or of what is no list itself. */
const inside = (schemas) => schemas.flatMap((each) => (each.items ? forms(each.items) : [each]));

/**
 * Return the keys that lead to a place: by indentation, and within braces by what is open.
 *
 * `key` is that whose value is being written, if there is one.
 */
function path(doc, pos) {
  const line = doc.lineAt(pos);
  const before = line.text.slice(0, pos - line.from);
  const keys = [];
  let indent = before.search(/[^\s-]|$/);
  for (let number = line.number - 1; number > 0 && indent > 0; number--) {
    const found = /^([\s-]*)("[^"]*"|'[^']*'|[^\s#:'"{}[\],]+)\s*:\s*(#.*)?$/.exec(doc.line(number).text);
    if (found && found[1].length < indent) {
      keys.unshift(found[2].replace(/^["']|["']$/g, ""));
      indent = found[1].length;
    }
  }
  const open = [];
  let key = null;
  for (const token of before.matchAll(/#.*|"[^"]*"?|'[^']*'?|[{}[\],]|([^\s#:'"{}[\],]+)\s*:|\S+/g)) {
    if (token[0] === "{" || token[0] === "[") {
      open.push(key);
      key = null;
    } else if (token[0] === "}" || token[0] === "]") {
      open.pop();
      key = null;
    } else if (token[0] === ",") key = null;
    else if (token[1]) key = token[1];
    else if (token[0].startsWith("#")) return null;
  }
  return { keys: [...keys, ...open.filter((each) => each !== null)], key };
}

/** Return what the schema allows at a place, as completions. */
function completion(schema) {
  return (context) => {
    const word = context.matchBefore(/[\w.]*$/);
    if (!word.text && !context.explicit) return null;
    const place = path(context.state.doc, word.from);
    if (!place) return null;
    let here = [schema];
    for (const key of place.keys) here = inside(under(inside(here), key));
    if (place.key !== null) here = inside(under(inside(here), place.key));
    const values = place.key !== null || here.some((each) => each.enum);
    const options = values
      ? [...new Set(here.flatMap((each) => each.enum ?? []))].map((label) => ({ label: `${label}`, type: "constant" }))
      : here.flatMap((each) =>
          Object.entries(each.properties ?? {}).map(([label, of]) => ({
            label,
            apply: `${label}: `,
            type: "property",
            info: of.description,
            detail: each.required?.includes(label) ? "required" : undefined,
          })),
        );
    return options.length ? { from: word.from, options, validFor: /^[\w.]*$/ } : null;
  };
}

/** Put an editor of a policy into an element; `schema` is the JSON Schema of policies. */
export function createPolicyEditor({ schema, onCheck, ...rest }) {
  const view = createView({
    ...rest,
    onRun: onCheck,
    own: [
      lintGutter(),
      yaml(),
      syntaxHighlighting(colours),
      looks,
      autocompletion({ override: [completion(schema)], icons: false }),
      EditorView.contentAttributes.of({ tabindex: "0" }),
    ],
  });
  const line = (number) => view.state.doc.line(Math.min(Math.max(number, 1), view.state.doc.lines));
  return {
    view,
    focus: () => view.focus(),
    /** Show faults, each with its line; none takes away those that were shown. */
    mark(faults) {
      const shown = faults.map(({ line: number, message }) => {
        const { from, to, text: words } = line(number);
        return { from: Math.min(from + words.search(/\S|$/), to), to, severity: "error", message };
      });
      view.dispatch(setDiagnostics(view.state, shown));
    },
    /** Put the cursor into a line. */
    go(number) {
      view.dispatch({ selection: { anchor: line(number).from }, effects: EditorView.scrollIntoView(line(number).from, { y: "center" }) });
      view.focus();
    },
  };
}
