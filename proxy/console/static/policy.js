// The editor of the Policy page: completion of keys, faults in their lines.

import { createPolicyEditor } from "/static/vendor/policy-editor.js";

const area = document.getElementById("text");
const place = document.getElementById("editor");
const review = document.getElementById("review");

if (area && place) {
  area.hidden = true;
  place.hidden = false; // an editor that is made unseen measures its lines wrong
  const editor = createPolicyEditor({
    parent: place,
    text: area.value,
    nonce: document.querySelector('meta[name="csp-nonce"]').content,
    label: document.querySelector('label[for="text"]').textContent,
    describedBy: "review",
    schema: JSON.parse(document.getElementById("schema").textContent),
    onChange(text) {
      area.value = text;
      review.replaceChildren(); // what was said is of another text
    },
    onCheck: () => document.querySelector("#edit button").click(),
  });
  document.querySelector('label[for="text"]').addEventListener("click", (event) => {
    event.preventDefault();
    editor.focus();
  });
  document.getElementById("keys").textContent = "Ctrl+Enter checks; Ctrl+Space completes keys";
  const mark = () =>
    editor.mark(
      [...review.querySelectorAll("[data-line]")].map((each) => ({
        line: Number(each.dataset.line),
        message: each.closest("li").innerText.trim(),
      })),
    );
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target === review) mark();
  });
  review.addEventListener("click", (event) => {
    const line = event.target.closest("[data-line]")?.dataset.line;
    if (line) editor.go(Number(line));
  });
}
