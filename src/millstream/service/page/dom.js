// Builds elements of the page. Strings become text nodes, never markup, so a job cannot inject HTML.
export function el(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  return build(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function build(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (!isOmitted(value)) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...present(children).map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

// null, undefined and false are no attributes and no children.
function isOmitted(value) {
  return value === null || value === undefined || value === false;
}

function present(children) {
  return children.flat(Infinity).filter((c) => !isOmitted(c));
}

// options: label, the accessible name; right, the indexes of right-aligned columns.
export function table(header, rows, options = {}) {
  const right = new Set(options.right || []);
  const alignment = (i) => (right.has(i) ? "numeric" : null);
  const head = el("tr", {}, header.map((h, i) => el("th", { scope: "col", class: alignment(i) }, h)));
  const body = rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { class: alignment(i) }, cell))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || header[0] },
    el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

// Replaces the content of a container; retains scroll positions and the focus, found by its position in the tree.
export function replaceContent(container, ...children) {
  const focusPath = [];
  let node = container.contains(document.activeElement) ? document.activeElement : container;
  for (; node !== container; node = node.parentNode) focusPath.unshift([...node.parentNode.children].indexOf(node));
  const scrolled = [...container.querySelectorAll(".scroll, pre")].map((s) => [s.scrollLeft, s.scrollTop]);
  container.replaceChildren(...present(children));
  container.querySelectorAll(".scroll, pre").forEach((s, i) => scrolled[i] && s.scrollTo(...scrolled[i]));
  if (focusPath.length) {
    focusPath.reduce((parent, i) => parent && parent.children[i], container)?.focus({ preventScroll: true });
  }
}

// Tabs as links; an entry is [key, text, href].
export function tabs(label, entries, selected) {
  return el("nav", { class: "tabs", "aria-label": label }, entries.map(([key, text, href]) =>
    el("a", { href, "aria-current": key === selected ? "page" : null }, text)));
}

const STATUS_CLASSES = {
  RUNNING: "ok", FINISHED: "ok", COMPLETED: "ok", FAILED: "high", FAILING: "high", RESTARTING: "low",
  CANCELLING: "low", CANCELING: "low", IN_PROGRESS: "low",
};

// The status of a job, a task or a checkpoint.
export function statusTag(status) {
  return el("span", { class: `tag ${STATUS_CLASSES[status] || ""}` }, status.toLowerCase().replace("_", " "));
}

// Shows a message for eight seconds.
export function showMessage(text) {
  const element = el("div", {}, text);
  document.getElementById("messages").append(element);
  setTimeout(() => element.remove(), 8000);
}

// Opens a dialog to confirm an action; resolves to the values of its fields, null if the user goes back.
export function formDialog(title, text, fields, action, isDangerous) {
  const input = (f) =>
    el("input", { id: `field-${f.name}`, name: f.name, value: f.value || "", type: f.type || "text", min: f.min });
  return new Promise((resolve) => {
    const form = el("form", { method: "dialog" },
      el("h2", {}, title), el("p", {}, text),
      fields.map((f) => [el("label", { for: `field-${f.name}` }, f.label), input(f)]),
      el("div", { class: "actions" },
        el("button", { value: "no", formnovalidate: true }, "Back"),
        el("button", { value: "yes", class: isDangerous ? "danger" : "primary" }, action)));
    const dialog = el("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(new FormData(form));
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? values : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
