// The metrics of a vertex: plots the selected ones, over all subtasks or for one.
import { request } from "./api.js";
import { el, replaceContent } from "./dom.js";
import { plot } from "./plot.js";
import {
  formatBytes, formatCount, formatDuration, formatEventTime, formatPercent, formatRate,
} from "./format.js";

const AGGREGATIONS = [["sum", "sum of all subtasks"], ["max", "maximum"], ["min", "minimum"], ["avg", "average"]];
const DEFAULT_METRICS = ["numRecordsInPerSecond", "numRecordsOutPerSecond"];
// Limits of the points of a plot, and of the subtasks to select from.
const MAX_SAMPLES = 300, MAX_SUBTASKS = 1000;
// The samples of each metric, stored while the page is open, also while other views are shown.
const history = new Map();

export function metricsView(id, vertex, body) {
  const key = `millstream-metrics ${id} ${vertex}`;
  // An aggregation, or "#" and the number of a subtask.
  let aggregation = "sum";
  let selected = JSON.parse(sessionStorage.getItem(key) || "null"), names = [];
  const search =
    el("input", { type: "search", id: "metric-search", placeholder: "Filter metrics", oninput: () => showList() });
  const select =
    el("select", { id: "metric-aggregation", onchange: () => ((aggregation = select.value), showPlots()) });
  const choices = el("ul", { class: "choices", "aria-label": "Metrics to plot" });
  const plots = el("div", { class: "plots" });
  body.append(
    el("div", { class: "controls" },
      el("div", {}, el("label", { for: "metric-search" }, "Metrics"), search),
      el("div", {}, el("label", { for: "metric-aggregation" }, "Show"), select)),
    choices, plots);

  function toggle(name, isSelected) {
    selected = isSelected ? [...selected, name] : selected.filter((n) => n !== name);
    sessionStorage.setItem(key, JSON.stringify(selected));
    sample();
  }

  function showList() {
    const pattern = search.value.toLowerCase();
    const matches = names.filter((n) => n.toLowerCase().includes(pattern));
    const checkbox = (name, i) => el("input", {
      type: "checkbox", id: `metric-${i}`, checked: selected.includes(name),
      onchange: (e) => toggle(name, e.target.checked),
    });
    replaceContent(choices,
      matches.map((name, i) => el("li", {}, checkbox(name, i), el("label", { for: `metric-${i}` }, name))),
      matches.length ? null : el("li", { class: "muted" }, "No matching metrics."));
  }

  let subtasks = 1, time = 0;

  function subtaskFilter() {
    return aggregation.startsWith("#") ? `&subtasks=${aggregation.slice(1)}` : "";
  }

  // Requests the selected metrics and plots them.
  async function sample() {
    if (!selected.length) return showPlots();
    const filter = subtaskFilter(), parameters = `get=${selected.map(encodeURIComponent).join(",")}${filter}`;
    for (const metric of await request(`/jobs/${id}/vertices/${vertex}/subtasks/metrics?${parameters}`)) {
      const samples = history.get(`${key} ${metric.id} ${filter}`) || [];
      if (!samples.length || samples[samples.length - 1].time !== time) samples.push({ time, ...metric });
      history.set(`${key} ${metric.id} ${filter}`, samples.slice(-MAX_SAMPLES));
    }
    showPlots();
  }

  function showPlots() {
    const filter = subtaskFilter(), field = filter ? "sum" : aggregation;
    const figures = selected.map((name) => {
      const samples = history.get(`${key} ${name} ${filter}`) || [];
      const values = samples.map((s) => Number(s[field])).filter(Number.isFinite);
      return plot(values, formatterOf(name, time), { label: name, times: samples.map((s) => s.time) });
    });
    replaceContent(plots,
      figures.length ? figures : el("p", { class: "muted small" }, "Select metrics above to plot them."));
  }

  return {
    async refresh(job, details) {
      time = job.now;
      names = (await request(`/jobs/${id}/vertices/${vertex}/subtasks/metrics`)).map((m) => m.id);
      selected = selected || DEFAULT_METRICS.filter((n) => names.includes(n));
      if (subtasks !== details.parallelism || !select.options.length) {
        subtasks = details.parallelism;
        const option = ([value, text]) => el("option", { value }, text);
        const numbers = Array.from({ length: Math.min(subtasks, MAX_SUBTASKS) }, (_, i) => [`#${i}`, `subtask ${i}`]);
        select.replaceChildren(...[...AGGREGATIONS, ...numbers].map(option));
        select.value = aggregation;
      }
      showList();
      await sample();
    },
  };
}

// Returns the function that formats the values of a metric, by its name.
function formatterOf(name, now) {
  if (/Bytes.*PerSecond/.test(name)) return (n) => `${formatBytes(n)}/s`;
  if (/TimeMsPerSecond/.test(name)) return (n) => formatPercent(n / 1000);
  if (/PerSecond/.test(name)) return formatRate;
  if (/Bytes|Size|memory/i.test(name)) return formatBytes;
  if (/Watermark$/.test(name)) return (n) => formatEventTime(n, now);
  if (/(Lag|Latency|Duration|Time)$/.test(name)) return formatDuration;
  return (n) => (Math.abs(n) < 100 && n % 1 ? n.toFixed(2) : formatCount(n));
}
