// The two sliders that fill the clause WITH UTILITY of the statement.

import { Scale, filled, read, written } from "./clause.js";
import { byId } from "./dom.js";

const CONFIDENCES = [80, 90, 95, 98, 99, 99.9];
const PERCENT = new Scale(0.1, 100);

const half = byId("half");
const halfSlider = byId("half-slider");
const confidence = byId("confidence");
const confidenceSlider = byId("confidence-slider");

/** Connect the sliders with a text: `text()` returns it, `replace(from, to, insert)` changes it. */
export class Dials {
  constructor(editor, known) {
    this.editor = editor;
    this.known = known;
    this.numbers = [];
    this.scale = new Scale(1, 1e6);
    half.addEventListener("input", () => this.fill());
    confidence.addEventListener("input", () => this.fill());
    halfSlider.addEventListener("input", () => {
      half.value = written(this.scale.value(Number(halfSlider.value)));
      this.fill();
    });
    confidenceSlider.addEventListener("input", () => {
      confidence.value = CONFIDENCES[Number(confidenceSlider.value)];
      this.fill();
    });
  }

  /** Write what the fields say into the clause. */
  fill() {
    const [width, percent] = [Number(half.value), Number(confidence.value)];
    if (!(width > 0) || !(percent > 0 && percent < 100)) return;
    const change = filled(this.editor.text(), width, Number((1 - percent / 100).toPrecision(6)));
    if (change) this.editor.replace(change.from, change.to, change.insert);
    this.sliders(width, percent);
  }

  /** Show what the text asks for, or the policy's default where it says nothing. */
  show(numbers = this.numbers) {
    this.numbers = numbers;
    const clause = read(this.editor.text());
    const kinds = new Set(numbers.map(({ label }) => (/^COUNT\b/i.test(label) ? "COUNT" : label)));
    let why = clause.why;
    if (!why && !clause.found && kinds.size > 1) {
      why = "Its numbers differ in kind: say how good each must be in the text, as WITH UTILITY people (50, 0.05), wages (170000, 0.05).";
    }
    byId("dials").disabled = Boolean(why);
    byId("dials-why").textContent = why ?? "";
    byId("dials-why").hidden = !why;
    if (why) return;
    const [kind] = kinds;
    const [width, delta] = clause.found && clause.halfWidth !== null
      ? [clause.halfWidth, clause.delta]
      : (this.known.utility[kind ?? "COUNT"] ?? [100, 0.05]);
    this.scale = clause.percent ? PERCENT : new Scale(width < 1 ? 0.001 : 1, Math.max(this.known.largest, 10 * width));
    byId("half-unit").hidden = !clause.percent;
    if (document.activeElement !== half) half.value = written(width);
    const percent = Number((100 * (1 - delta)).toPrecision(7));
    if (document.activeElement !== confidence) confidence.value = percent;
    this.sliders(width, percent);
  }

  sliders(width, percent) {
    if (document.activeElement !== halfSlider) halfSlider.value = this.scale.step(width);
    halfSlider.setAttribute("aria-valuetext", `within ${written(width)}${byId("half-unit").hidden ? "" : " per cent"}`);
    const distances = CONFIDENCES.map((each) => Math.abs(Math.log((100 - each) / (100 - percent || 1e-9))));
    if (document.activeElement !== confidenceSlider) confidenceSlider.value = distances.indexOf(Math.min(...distances));
    confidenceSlider.setAttribute("aria-valuetext", `${percent} per cent`);
  }
}
