// Logs: the last lines, of a job or a worker; those with a word in them; followed while the page is open.
import { askText } from "./api.js";
import { el } from "./dom.js";

const LINES = 500;

// sources: [key, text, path] each.
export function logView(place, sources) {
  let chosen = sources[0];
  const search = el("input", { type: "search", id: "log-search", placeholder: "Only lines with …", oninput: () => show() });
  const follow = el("input", { type: "checkbox", id: "log-follow", checked: true });
  const which = el("select", { id: "log-which", onchange: () => ((chosen = sources.find(([key]) => key === which.value)), refresh()) }, sources.map(([key, text]) => el("option", { value: key }, text)));
  const log = el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": "Log" }), note = el("p", { class: "muted small", role: "status" });
  place.append(el("div", { class: "picker" }, el("div", {}, el("label", { for: "log-which" }, "Show"), which), el("div", {}, el("label", { for: "log-search" }, "Find"), search), el("div", { class: "check" }, follow, el("label", { for: "log-follow" }, "Follow"))), note, log);
  let text = null, why = "";

  function show() {
    const wanted = search.value.toLowerCase(), every = (text || "").split("\n").filter((l) => l && l.toLowerCase().includes(wanted)), lines = every.slice(-LINES);
    const at = log.scrollTop;
    log.replaceChildren(...lines.map((l) => el("span", { class: / (ERROR|CRITICAL) /.test(l) ? "error" : / WARN(ING)? /.test(l) ? "warn" : null }, `${l}\n`)));
    if (!lines.length) log.textContent = why || (wanted ? "No line has that in it." : "Nothing yet.");
    note.textContent = every.length > LINES ? `The last ${LINES} of ${every.length} lines.` : "";
    log.scrollTop = follow.checked ? log.scrollHeight : at;
  }

  async function refresh() {
    const before = text + why;
    try {
      text = await askText(chosen[2]);
      why = "";
    } catch (error) {
      text = "";
      why = error.message || String(error);
    }
    if (text + why !== before) show();
  }

  return { refresh };
}

export function logsTab(place, id) {
  return logView(place, [["log", "what is logged", `/jobs/${id}/log`], ["stdout", "what functions print", `/jobs/${id}/stdout`]]);
}
