/** Searches all pages of a site: each word must occur; titles count more. */

/* global PAGES */
(() => {
  /** @type {{path: string, title: string, text: string}[]} */
  // @ts-ignore: index.js, which is written with the site, declares it
  const pages = PAGES;
  const form = /** @type {HTMLFormElement} */ (document.getElementById("search"));
  const field = /** @type {HTMLInputElement} */ (form.querySelector("input"));
  const list = /** @type {HTMLElement} */ (form.querySelector("ol"));
  const up = document.body.dataset.up ?? "";

  /** The words around the first hit. */
  function around(/** @type {string} */ text, /** @type {string} */ word) {
    const at = Math.max(0, text.toLowerCase().indexOf(word));
    return `… ${text.slice(Math.max(0, at - 60), at + 90)} …`;
  }

  function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length ? pages
      .map((page) => ({ page, title: page.title.toLowerCase(), text: page.text.toLowerCase() }))
      .filter(({ title, text }) => words.every((word) => title.includes(word) || text.includes(word)))
      .map(({ page, title, text }) => ({ page, score: words.reduce((sum, word) => sum + (title.includes(word) ? 50 : 0) + text.split(word).length - 1, 0) }))
      .sort((a, b) => b.score - a.score).slice(0, 12) : [];
    list.replaceChildren(...hits.map(({ page }) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = up + page.path.split("/").map(encodeURIComponent).join("/");
      link.textContent = page.title;
      const words_ = document.createElement("small");
      words_.textContent = around(page.text, words[0]);
      item.append(link, words_);
      return item;
    }));
    if (words.length && !hits.length) list.append(Object.assign(document.createElement("li"), { textContent: "Nothing was found." }));
  }

  field.addEventListener("input", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    /** @type {HTMLAnchorElement|null} */ (list.querySelector("a"))?.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") list.replaceChildren();
  });
})();
