// Logs of a job, a worker or the service: the last lines, filtered by text, followed while the page is open.
import { requestText } from "./api.js";
import { el } from "./dom.js";

const MAX_LINES = 500;

// logs: entries [key, text, path].
export function logView(container, logs) {
  let selected = logs[0];
  const search = el("input", { type: "search", id: "log-search", placeholder: "Filter lines", oninput: () => show() });
  const follow = el("input", { type: "checkbox", id: "log-follow", checked: true });
  const select = el("select", {
    id: "log-select",
    onchange: () => ((selected = logs.find(([key]) => key === select.value)), refresh()),
  }, logs.map(([key, text]) => el("option", { value: key }, text)));
  const log = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log" });
  const note = el("p", { class: "muted small", role: "status" });
  container.append(
    el("div", { class: "controls" },
      el("div", {}, el("label", { for: "log-select" }, "Show"), select),
      el("div", {}, el("label", { for: "log-search" }, "Filter"), search),
      el("div", { class: "check" }, follow, el("label", { for: "log-follow" }, "Follow"))),
    note, log);
  let text = null, error = "";

  function show() {
    const pattern = search.value.toLowerCase();
    const matches = (text || "").split("\n").filter((l) => l && l.toLowerCase().includes(pattern));
    const lines = matches.slice(-MAX_LINES), scrollTop = log.scrollTop;
    log.replaceChildren(...lines.map((l) => el("span", { class: levelClass(l) }, `${l}\n`)));
    if (!lines.length) log.textContent = error || (pattern ? "No matching lines." : "The log is empty.");
    note.textContent = matches.length > MAX_LINES ? `The last ${MAX_LINES} of ${matches.length} lines.` : "";
    log.scrollTop = follow.checked ? log.scrollHeight : scrollTop;
  }

  async function refresh() {
    const previous = text + error;
    try {
      text = await requestText(selected[2]);
      error = "";
    } catch (e) {
      text = "";
      error = e.message || String(e);
    }
    if (text + error !== previous) show();
  }

  return { refresh };
}

function levelClass(line) {
  if (/ (ERROR|CRITICAL) /.test(line)) return "error";
  return / WARN(ING)? /.test(line) ? "warn" : null;
}

export function logsTab(container, id) {
  return logView(container, [
    ["log", "Log", `/jobs/${id}/log`],
    ["stdout", "Stdout of user functions", `/jobs/${id}/stdout`],
  ]);
}
