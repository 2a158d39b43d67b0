// Metrics of a vertex: those that are picked are plotted, over all subtasks or of one.
import { ask } from "./api.js";
import { el, renew } from "./dom.js";
import { plot } from "./plot.js";
import { bytes, count, eventTime, length, percent, rate } from "./words.js";

const HOW = [["sum", "sum of all subtasks"], ["max", "largest"], ["min", "smallest"], ["avg", "average"]];
const FIRST = ["numRecordsInPerSecond", "numRecordsOutPerSecond"];
const KEPT = 300;
// What was seen is kept for as long as the page is open, whatever is looked at meanwhile.
const seen = new Map();

export function metricsView(id, vertex, body) {
  const key = `millstream-metrics ${id} ${vertex}`;
  let picked = JSON.parse(sessionStorage.getItem(key) || "null"), names = [], how = "sum";
  const search = el("input", { type: "search", id: "metric-search", placeholder: "Find a metric", oninput: () => list() });
  const over = el("select", { id: "metric-how", onchange: () => ((how = over.value), show()) });
  const choices = el("ul", { class: "choices", "aria-label": "Metrics to plot" }), plots = el("div", { class: "plots" });
  body.append(el("div", { class: "picker" }, el("div", {}, el("label", { for: "metric-search" }, "Metrics"), search), el("div", {}, el("label", { for: "metric-how" }, "Show"), over)), choices, plots);

  function pick(name, on) {
    picked = on ? [...picked, name] : picked.filter((n) => n !== name);
    sessionStorage.setItem(key, JSON.stringify(picked));
    look();
  }

  function list() {
    const wanted = search.value.toLowerCase();
    const shown = names.filter((n) => n.toLowerCase().includes(wanted));
    renew(choices, shown.map((n, i) => el("li", {}, el("input", { type: "checkbox", id: `metric-${i}`, checked: picked.includes(n), onchange: (e) => pick(n, e.target.checked) }), el("label", { for: `metric-${i}` }, n))), shown.length ? null : el("li", { class: "muted" }, "None of that name."));
  }

  let subtasks = 1, at = 0;
  async function look() {
    if (!picked.length) return show();
    const got = picked.map(encodeURIComponent).join(","), path = `/jobs/${id}/vertices/${vertex}`;
    const one = how.startsWith("#") ? `&subtasks=${how.slice(1)}` : "";
    for (const m of await ask(`${path}/subtasks/metrics?get=${got}${one}`)) {
      const kept = seen.get(`${key} ${m.id} ${one}`) || [];
      if (!kept.length || kept[kept.length - 1].at !== at) kept.push({ at, ...m });
      seen.set(`${key} ${m.id} ${one}`, kept.slice(-KEPT));
    }
    show();
  }

  function show() {
    const one = how.startsWith("#") ? `&subtasks=${how.slice(1)}` : "", which = one ? "sum" : how;
    const drawn = picked.map((name) => {
      const kept = seen.get(`${key} ${name} ${one}`) || [], numbers = kept.map((k) => Number(k[which]));
      return plot(numbers.filter(Number.isFinite), words(name, at), { label: name, at: kept.map((k) => k.at) });
    });
    renew(plots, drawn.length ? drawn : el("p", { class: "muted small" }, "Pick metrics above, and they are plotted here."));
  }

  return {
    async refresh(job, found) {
      at = job.now;
      names = (await ask(`/jobs/${id}/vertices/${vertex}/subtasks/metrics`)).map((m) => m.id);
      picked = picked || FIRST.filter((n) => names.includes(n));
      if (subtasks !== found.parallelism || !over.options.length) {
        subtasks = found.parallelism;
        over.replaceChildren(...HOW.map(([value, text]) => el("option", { value }, text)), ...Array.from({ length: Math.min(subtasks, 1000) }, (_, i) => el("option", { value: `#${i}` }, `subtask ${i}`)));
        over.value = how;
      }
      list();
      await look();
    },
  };
}

function words(name, now) {
  if (/Bytes.*PerSecond/.test(name)) return (n) => `${bytes(n)}/s`;
  if (/TimeMsPerSecond/.test(name)) return (n) => percent(n / 1000);
  if (/PerSecond/.test(name)) return rate;
  if (/Bytes|Size|memory/i.test(name)) return bytes;
  if (/Watermark$/.test(name)) return (n) => eventTime(n, now);
  if (/(Lag|Latency|Duration|Time)$/.test(name)) return length;
  return (n) => (Math.abs(n) < 100 && n % 1 ? n.toFixed(2) : count(n));
}
