// What the editors of both pages are: CodeMirror as it is set up here, apart from its language.

import { acceptCompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, drawSelection, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";

/**
 * Take over what is typed in the place of a selection: Chromium would keep the look of what was
 * there by an inline style, which the page forbids.
 */
const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main;
    if (empty || event.inputType !== "insertText" || !event.data || view.composing) return false;
    const insert = () =>
      view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handler) => handler(view, from, to, event.data, insert))) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

/**
 * Put an editor into an element, and return its view.
 *
 * `own` are the extensions of one page, before the others; Ctrl+Enter calls `onRun`.
 */
export function createView({ parent, text, nonce, label, describedBy, onChange, onRun, own }) {
  const run = () => {
    onRun();
    return true;
  };
  return new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        EditorView.cspNonce.of(nonce),
        lineNumbers(),
        own,
        history(),
        drawSelection(),
        highlightSpecialChars(),
        typing,
        bracketMatching(),
        search({ top: true }),
        highlightSelectionMatches(),
        EditorState.tabSize.of(2),
        EditorView.contentAttributes.of({
          "aria-label": label,
          "aria-describedby": describedBy,
          autocapitalize: "off",
          spellcheck: "false",
        }),
        Prec.highest(
          keymap.of([
            { key: "Mod-Enter", run },
            { key: "Ctrl-Enter", run },
            { key: "Tab", run: acceptCompletion }, // elsewhere Tab leaves the editor
          ]),
        ),
        keymap.of([...completionKeymap, ...searchKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(update.state.doc.toString());
        }),
      ],
    }),
  });
}
