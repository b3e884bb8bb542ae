/**
 * A form field that reads a date as people write it: `<human-date name="birthday" required></human-date>`.
 *
 * The form sends the date in ISO 8601. Below the field stands the date that was understood. If a text can mean two dates, the
 * field asks which one; if it is not a date, the form cannot be sent. The model runs in the page; it is loaded when the field
 * first gets the focus.
 *
 * Attributes: `name`, `required`, `disabled`, `placeholder`; `order`, `day` or `month`, the first number of 03/04/2020; `src`,
 * the model’s folder, by default the folder of this script. Properties: `value`, the date or an empty string; `text`, the text in
 * the field.
 */

import { load } from "./seq2see.js";

/** @typedef {import("./seq2see.d.ts").Model} Model */
/** @typedef {import("./seq2see.d.ts").Answer} Answer */

const WAIT = 120; // milliseconds after the last key
const UNSURE = 0.9; // below this confidence the field asks the user to check the date
/** @type {Map<string, Promise<Model>>} */ const models = new Map();

/** Return the model of a folder. All fields share it. */
function modelOf(/** @type {string} */ folder) {
  const found = models.get(folder) ?? load(folder);
  models.set(folder, found);
  return found;
}

const STYLE = `
:host { display: inline-block; max-width: 100%; width: 22rem; }
:host([hidden]) { display: none; }
input { box-sizing: border-box; font: inherit; color: inherit; background: Field; color: FieldText; border: 1px solid color-mix(in srgb, currentColor 55%, transparent); border-radius: 6px; padding: .5em .6em; width: 100%; }
input:focus-visible, button:focus-visible { outline: 2px solid Highlight; outline-offset: 1px; }
:host([data-state="refused"]) input, :host([data-state="two"]) input { border-color: var(--human-date-warning, #b3541e); }
p { margin: .35em 0 0; min-height: 1.4em; line-height: 1.4; }
:host([data-state="refused"]) p { color: var(--human-date-warning, light-dark(#9a3f0b, #ffb38a)); }
button { font: inherit; border: 1px solid color-mix(in srgb, currentColor 45%, transparent); border-radius: 6px; background: transparent; color: inherit; padding: .3em .6em; margin: .2em .3em 0 0; cursor: pointer; }
`.replaceAll("\n", "");

export class HumanDate extends HTMLElement {
  static formAssociated = true;

  static observedAttributes = ["required", "disabled", "placeholder", "order"];

  constructor() {
    super();
    this.internals = this.attachInternals();
    const root = this.attachShadow({ mode: "open", delegatesFocus: true });
    root.innerHTML = `<style>${STYLE}</style><input part="input" type="text" autocomplete="off" spellcheck="false"><p part="reading" role="status"></p>`;
    this.input = /** @type {HTMLInputElement} */ (root.querySelector("input"));
    this.said = /** @type {HTMLElement} */ (root.querySelector("p"));
    this.asked = 0; // counts the changes of the text: an answer to an earlier text is not shown
    this.iso = "";
    this.input.addEventListener("focus", () => this.model().catch(() => {}));
    this.input.addEventListener("input", () => this.changed());
    this.input.addEventListener("change", () => this.dispatchEvent(new Event("change", { bubbles: true })));
    this.input.addEventListener("keydown", (event) => event.key === "Enter" && this.internals.form?.requestSubmit());
  }

  connectedCallback() {
    this.input.setAttribute("aria-label", [...this.internals.labels].map((label) => label.textContent?.trim()).join(" ") || this.getAttribute("aria-label") || "date");
    this.show("empty", "");
  }

  attributeChangedCallback(/** @type {string} */ name) {
    this.input.placeholder = this.getAttribute("placeholder") ?? "";
    this.input.disabled = this.hasAttribute("disabled");
    if (name === "order" && this.text) this.changed();
    else if (this.isConnected) this.judge();
  }

  formResetCallback() {
    this.text = "";
  }

  formDisabledCallback(/** @type {boolean} */ disabled) {
    this.input.disabled = disabled;
  }

  /** The date in ISO 8601, or an empty string. */
  get value() {
    return this.iso;
  }

  /** The text in the field. */
  get text() {
    return this.input.value;
  }

  set text(written) {
    this.input.value = written;
    this.changed();
  }

  get form() {
    return this.internals.form;
  }

  get validity() {
    return this.internals.validity;
  }

  get validationMessage() {
    return this.internals.validationMessage;
  }

  model() {
    return modelOf(new URL(this.getAttribute("src") ?? new URL(".", import.meta.url), document.baseURI).href);
  }

  /** Read the text, a moment after the last key. */
  async changed() {
    const mine = (this.asked += 1);
    this.iso = "";
    if (!this.text.trim()) return this.show("empty", "");
    this.show("reading", "…");
    await new Promise((resolve) => { setTimeout(resolve, WAIT); });
    if (mine !== this.asked) return undefined;
    const order = /** @type {"day"|"month"|undefined} */ (this.getAttribute("order") ?? undefined);
    try {
      const answer = await (await this.model()).answer(this.text, { order });
      if (mine === this.asked) this.take(answer);
    } catch (error) {
      if (mine === this.asked) this.show("refused", /** @type {Error} */ (error).message);
    }
    return undefined;
  }

  take(/** @type {Answer} */ { output, error, confidence, readings = [] }) {
    if (!output && readings.length === 2) return this.choose(readings);
    if (!output) return this.show("refused", error ?? "");
    this.iso = output;
    const doubt = confidence !== null && confidence < UNSURE ? ` – is that right? The confidence is ${Math.round(100 * confidence)}%.` : "";
    return this.show("read", this.inWords(output) + doubt);
  }

  /** Ask the user which of two dates is meant. */
  choose(/** @type {string[]} */ readings) {
    this.show("two", "Which one? ");
    this.said.append(...readings.map((iso) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = this.inWords(iso);
      button.addEventListener("click", () => {
        this.iso = iso;
        this.show("read", this.inWords(iso));
        this.input.focus();
        this.dispatchEvent(new Event("change", { bubbles: true }));
      });
      return button;
    }));
  }

  /** Write a date in words, in the language of the page. */
  inWords(/** @type {string} */ iso) {
    const [year, month, day] = iso.split("-").map(Number);
    const date = new Date(Date.UTC(2000, month - 1, day));
    date.setUTCFullYear(year, month - 1, day);
    const language = /** @type {HTMLElement|null} */ (this.closest("[lang]"))?.lang || navigator.language;
    return new Intl.DateTimeFormat(language, { weekday: "long", day: "numeric", month: "long", year: "numeric", timeZone: "UTC", calendar: "gregory" }).format(date);
  }

  show(/** @type {string} */ state, /** @type {string} */ said) {
    this.dataset.state = state;
    this.said.textContent = said;
    this.judge();
    if (state !== "reading") this.dispatchEvent(new CustomEvent("read", { bubbles: true, detail: { state, value: this.iso } }));
  }

  /** Tell the form which value to send, and whether it is valid. */
  judge() {
    const { state } = this.dataset;
    this.internals.setFormValue(this.iso || null);
    this.input.setAttribute("aria-invalid", String(state === "refused" || state === "two"));
    if (state === "read" || (state === "empty" && !this.hasAttribute("required"))) return this.internals.setValidity({});
    const why = { empty: "Please enter a date.", reading: "The date is being read.", two: "Please choose one of the two dates." }[state ?? ""] ?? this.said.textContent ?? "";
    return this.internals.setValidity(state === "empty" ? { valueMissing: true } : { customError: true }, why || "No date was read.", this.input);
  }
}

if (!customElements.get("human-date")) customElements.define("human-date", HumanDate);
