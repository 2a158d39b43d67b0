// The drawer of a vertex: its subtasks, metrics, flame graph and state.
import { request } from "./api.js";
import { el, replaceContent, statusTag, table, tabs } from "./dom.js";
import { flameGraphView } from "./flame.js";
import {
  formatBytes, formatChain, formatCount, formatEventTime, formatPercent, formatRate,
} from "./format.js";
import { metricsView } from "./metrics.js";
import { plot } from "./plot.js";
import { stateView } from "./state.js";

const TABS = [["subtasks", "Subtasks"], ["metrics", "Metrics"], ["time", "Flame graph"], ["state", "State"]];
const VIEWS = { subtasks: subtasksView, metrics: metricsView, time: timeView, state: stateView };
// The maximum number of hot keys, late records, pending operators or splits shown per subtask.
const MAX_ENTRIES = 5;
// The maximum number of points in the plots of load.
const MAX_SAMPLES = 200;
const LEVELS = { ok: "is not backpressured", low: "is slightly backpressured", high: "is backpressured" };

export function vertexDrawer(id) {
  const container = el("aside", { class: "drawer", "aria-label": "Vertex", hidden: true });
  const title = el("h2"), operators = el("ul", { class: "small muted operators" });
  const tabBar = el("div"), body = el("div");
  const close = el("button",
    { type: "button", "aria-label": "Close", onclick: () => (location.hash = `#/jobs/${id}/graph`) }, "✕");
  container.append(el("div", { class: "heading" }, title, close), operators, tabBar, body);
  container.addEventListener("keydown", (e) => e.key === "Escape" && close.click());
  let vertex = null, tab = "subtasks", view = null, lastJob = null;

  // Opens a vertex at a tab; null closes the drawer.
  function select(selected, name) {
    const next = TABS.some(([key]) => key === name) ? name : "subtasks";
    if (selected === vertex && next === tab && view) return;
    vertex = selected;
    tab = next;
    container.hidden = !vertex;
    if (!vertex) return (view = null);
    const entries = TABS.map(([key, text]) => [key, text, `#/jobs/${id}/graph/${vertex}/${key}`]);
    tabBar.replaceChildren(tabs("Vertex", entries, tab));
    body.replaceChildren();
    view = VIEWS[tab](id, vertex, body);
    if (lastJob) refresh(lastJob);
  }

  async function refresh(job) {
    lastJob = job;
    const details = job.vertices.find((v) => v.id === vertex);
    if (!details || !view) return;
    const node = job.plan.nodes.find((n) => n.id === vertex);
    title.textContent = formatChain(details.name);
    replaceContent(operators, (node.operators || []).map((o) =>
      el("li", {}, o.name, o["made-at"] ? el("span", { class: "mono" }, ` ${o["made-at"]}`) : "",
        o.uid ? ` · uid ${o.uid}` : "")));
    await view.refresh(job, details, node);
  }

  return { container, select, refresh };
}

function subtasksView(id, vertex, body) {
  const summary = el("p", { class: "small" }), list = el("div"), diagnosticsContainer = el("div");
  body.append(summary, list, diagnosticsContainer);
  let hasDiagnostics = true;
  // Records in and out, bytes sent: short, so that the table fits the drawer.
  const header = ["ID", "Status", "In", "Out", "Sent", "Load", "Watermark", "Worker", "Attempt"];
  return {
    async refresh(job, details, node) {
      const path = `/jobs/${id}/vertices/${vertex}`;
      const [{ subtasks }, watermarks, backpressure] = await Promise.all([
        request(path), request(`${path}/watermarks`), request(`${path}/backpressure`),
      ]);
      const level = backpressure["backpressureLevel"] || backpressure["backpressure-level"];
      summary.textContent = details.status === "RUNNING"
        ? `This vertex ${LEVELS[level] || "is running"}: backpressure ${(level || "unknown").toUpperCase()}.`
        : `This vertex is ${details.status.toLowerCase()}.`;
      const rows = subtasks.map((s, i) => {
        const { busyRatio, ratio } = (backpressure.subtasks || [])[i] || { busyRatio: 0, ratio: 0 };
        const worker = s["taskmanager-id"];
        return [
          s.subtask, statusTag(s.status), formatCount(s.metrics["read-records"]),
          formatCount(s.metrics["write-records"]), formatBytes(s.metrics["write-bytes"]), loadBar(busyRatio, ratio),
          formatEventTime(watermarks[i] ? Number(watermarks[i].value) : null, job.now),
          el("a", { href: `#/workers/${encodeURIComponent(worker)}` }, worker), s.attempt,
        ];
      });
      replaceContent(list, table(header, rows, { right: [2, 3, 4, 8], label: "Subtasks" }));
      if (hasDiagnostics) {
        // The archive of a job may not contain them.
        const diagnostics = await request(`${path}/diagnostics`).catch((e) => {
          hasDiagnostics = e.status !== 404;
          return null;
        });
        if (diagnostics) replaceContent(diagnosticsContainer, diagnosticTables(diagnostics, job.now, node));
      }
    },
  };
}

// The diagnostics of subtasks: hot keys, late records, pending timers and windows, the watermarks of splits.
function diagnosticTables(diagnostics, now, node) {
  const name = (id) => ((node.operators || []).find((o) => o.id === id) || { name: id }).name;
  const rows = (field, cells) =>
    diagnostics.subtasks.flatMap((s) => (s[field] || []).slice(0, MAX_ENTRIES).map((x) => [s.subtask, ...cells(x)]));
  const mono = (x) => el("span", { class: "mono" }, typeof x === "string" ? x : JSON.stringify(x));
  const time = (timestamp) => formatEventTime(timestamp, now);
  const hotKeys = rows("hottest-keys", (k) => [mono(k.key), formatPercent(k.share)]);
  const late = rows("late", (l) => [name(l.operator), mono(l.record), time(l.timestamp), time(l.watermark)]);
  const pending = rows("waiting", (w) => [name(w.operator), `${formatCount(w.count)} ${w.kind}`, time(w.earliest)]);
  const splits = rows("splits", (s) => [mono(s.name || ""), time(s.watermark), s.idle ? "idle" : ""]);
  const section = (title, header, cells, options = {}) =>
    cells.length ? [el("h3", {}, title), table(["Subtask", ...header], cells, { label: title, ...options })] : null;
  return [
    section("Hot keys", ["Key", "Share of records"], hotKeys, { right: [2] }),
    section("Late records", ["Operator", "Record", "Timestamp", "Watermark"], late),
    section("Pending timers and windows", ["Operator", "Pending", "Earliest"], pending),
    section("Splits", ["Split", "Watermark", ""], splits),
  ];
}

function timeView(id, vertex, body) {
  const plots = el("div"), flameGraph = flameGraphView(id);
  body.append(plots, flameGraph.container);
  const names = "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,numRecordsInPerSecond";
  const path = `/jobs/${id}/vertices/${vertex}/subtasks/metrics?get=${names}`;
  const samples = [];
  return {
    async refresh(job) {
      const metrics = Object.fromEntries((await request(path)).map((m) => [m.id, m]));
      const max = (name) => (metrics[name] ? metrics[name].max / 1000 : 0);
      samples.push({
        time: job.now,
        rate: metrics.numRecordsInPerSecond ? metrics.numRecordsInPerSecond.sum : 0,
        busy: max("busyTimeMsPerSecond"),
        backpressured: max("backPressuredTimeMsPerSecond"),
      });
      if (samples.length > MAX_SAMPLES) samples.shift();
      const times = samples.map((s) => s.time), values = (name) => samples.map((s) => s[name]);
      replaceContent(plots,
        plot(values("rate"), formatRate, { label: "Records in per second", times }),
        plot(values("busy"), formatPercent, { label: "Busy", times, top: 1 }),
        plot(values("backpressured"), formatPercent, { label: "Backpressured", times, top: 1 }));
      await flameGraph.refresh(vertex);
    },
  };
}

export function loadBar(busy, backpressured) {
  const text = `busy ${formatPercent(busy)}, backpressured ${formatPercent(backpressured)}`;
  return el("div", { class: "bar", role: "img", "aria-label": text, title: text },
    el("i", { class: "busy", style: `width:${busy * 100}%` }),
    el("i", { class: "backpressured", style: `width:${backpressured * 100}%` }));
}
