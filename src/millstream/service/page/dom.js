// Small words for building what is on the page. Text is always text: nothing that a job says becomes markup.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  set(made, attributes);
  made.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  set(made, attributes);
  made.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

function set(made, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
}

export function table(header, rows, options = {}) {
  const right = new Set(options.right || []);
  const head = el("tr", {}, header.map((h, i) => el("th", { scope: "col", class: right.has(i) ? "n" : null }, h)));
  const body = rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: right.has(i) ? "n" : null }, cell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || header[0] }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

// Puts something new in a place: not if it is the same, and whoever has the focus in there, or has scrolled, keeps that.
export function renew(place, ...children) {
  const fresh = children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
  const path = [];
  for (let at = place.contains(document.activeElement) ? document.activeElement : place; at !== place; at = at.parentNode) path.unshift([...at.parentNode.children].indexOf(at));
  const scrolled = [...place.querySelectorAll(".scroll, pre")].map((s) => [s.scrollLeft, s.scrollTop]);
  place.replaceChildren(...fresh);
  place.querySelectorAll(".scroll, pre").forEach((s, i) => scrolled[i] && s.scrollTo(...scrolled[i]));
  if (path.length) path.reduce((at, i) => at && at.children[i], place)?.focus({ preventScroll: true });
}

// Links that are tabs.
export function tabs(label, entries, chosen) {
  return el("nav", { class: "tabs", "aria-label": label }, entries.map(([key, text, href]) => el("a", { href, "aria-current": key === chosen ? "page" : null }, text)));
}

const LEVELS = { RUNNING: "ok", FINISHED: "ok", COMPLETED: "ok", FAILED: "high", FAILING: "high", RESTARTING: "low", CANCELLING: "low", CANCELING: "low", IN_PROGRESS: "low" };

export function state(name) {
  return el("span", { class: `tag ${LEVELS[name] || ""}` }, name.toLowerCase().replace("_", " "));
}

export function message(text) {
  const shown = el("div", {}, text);
  document.getElementById("messages").append(shown);
  setTimeout(() => shown.remove(), 8000);
}

// Asks before something is done; answers with the form's values, or null.
export function question(title, text, fields, action, danger) {
  return new Promise((answer) => {
    const form = el("form", { method: "dialog" },
      el("h2", {}, title), el("p", {}, text),
      fields.map((f) => [el("label", { for: `q-${f.name}` }, f.label), el("input", { id: `q-${f.name}`, name: f.name, value: f.value || "", type: f.type || "text", min: f.min })]),
      el("div", { class: "actions" }, el("button", { value: "no", formnovalidate: true }, "Back"), el("button", { value: "yes", class: danger ? "danger" : "main" }, action)));
    const dialog = el("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(new FormData(form));
      dialog.remove();
      answer(dialog.returnValue === "yes" ? values : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
