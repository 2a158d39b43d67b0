// A vertex: its subtasks, its metrics, where its time goes, its state.
import { ask } from "./api.js";
import { el, renew, state, table, tabs } from "./dom.js";
import { flameView } from "./flame.js";
import { metricsView } from "./metrics.js";
import { plot } from "./plot.js";
import { stateView } from "./state.js";
import { bytes, count, eventTime, percent, rate } from "./words.js";

const TABS = [["subtasks", "Subtasks"], ["metrics", "Metrics"], ["time", "Where its time goes"], ["state", "State"]];
// So many of each subtask are shown.
const MOST = 5;
const WORDS = { ok: "is not held up", low: "is held up a little", high: "is held up" };

export function vertexDrawer(id) {
  const place = el("aside", { class: "drawer", "aria-label": "Vertex", hidden: true });
  const title = el("h2"), close = el("button", { type: "button", "aria-label": "Close", onclick: () => (location.hash = `#/jobs/${id}/graph`) }, "✕");
  const made = el("ul", { class: "small muted ops" }), bar = el("div"), body = el("div");
  place.append(el("div", { class: "titled" }, title, close), made, bar, body);
  place.addEventListener("keydown", (e) => e.key === "Escape" && close.click());
  let vertex = null, tab = "subtasks", view = null, last = null;

  function choose(chosen, name) {
    const next = TABS.some(([key]) => key === name) ? name : "subtasks";
    if (chosen === vertex && next === tab && view) return;
    vertex = chosen;
    tab = next;
    place.hidden = !vertex;
    if (!vertex) return (view = null);
    bar.replaceChildren(tabs("Vertex", TABS.map(([key, text]) => [key, text, `#/jobs/${id}/graph/${vertex}/${key}`]), tab));
    body.replaceChildren();
    view = VIEWS[tab](id, vertex, body);
    if (last) refresh(last);
  }

  async function refresh(job) {
    last = job;
    const found = job.vertices.find((v) => v.id === vertex);
    if (!found || !view) return;
    const node = job.plan.nodes.find((n) => n.id === vertex);
    title.textContent = found.name.replaceAll(" -> ", " → ");
    renew(made, (node.operators || []).map((o) => el("li", {}, o.name, o["made-at"] ? el("span", { class: "mono" }, ` ${o["made-at"]}`) : "", o.uid ? ` · uid ${o.uid}` : "")));
    await view.refresh(job, found, node);
  }

  return { place, choose, refresh };
}

const VIEWS = { subtasks: subtasksView, metrics: metricsView, time: timeView, state: stateView };

function subtasksView(id, vertex, body) {
  const said = el("p", { class: "small" }), list = el("div"), hot = el("div");
  body.append(said, list, hot);
  let tells = true;
  return {
    async refresh(job, found, node) {
      const path = `/jobs/${id}/vertices/${vertex}`;
      const [details, marks, pressure] = await Promise.all([ask(path), ask(`${path}/watermarks`), ask(`${path}/backpressure`)]);
      const level = pressure["backpressureLevel"] || pressure["backpressure-level"];
      said.textContent = found.status === "RUNNING" ? `This vertex ${WORDS[level] || "runs"}: back pressure ${(level || "unknown").toUpperCase()}.` : `This vertex is ${found.status.toLowerCase()}.`;
      const rows = details.subtasks.map((s, i) => {
        const p = (pressure.subtasks || [])[i] || { busyRatio: 0, ratio: 0 };
        return [s.subtask, state(s.status), count(s.metrics["read-records"]), count(s.metrics["write-records"]), bytes(s.metrics["write-bytes"]), timeBar(p.busyRatio, p.ratio), eventTime(marks[i] ? Number(marks[i].value) : null, job.now), el("a", { href: `#/workers/${encodeURIComponent(s["taskmanager-id"])}` }, s["taskmanager-id"]), s.attempt];
      });
      renew(list, table(["#", "State", "In", "Out", "Sent", "Time", "Event time", "Worker", "Attempt"], rows, { right: [2, 3, 4, 8], label: "Subtasks" }));
      if (tells) {
        const told = await ask(`${path}/diagnostics`).catch((e) => ((tells = e.status !== 404), null));
        if (told) renew(hot, insights(told, job.now, node));
      }
    },
  };
}

// What subtasks tell of themselves: keys that come most often, records that came too late, what waits, how far each split is.
function insights(told, now, node) {
  const name = (id) => ((node.operators || []).find((o) => o.id === id) || { name: id }).name;
  const of = (what, row) => told.subtasks.flatMap((s) => (s[what] || []).slice(0, MOST).map((x) => [s.subtask, ...row(x)]));
  const mono = (x) => el("span", { class: "mono" }, typeof x === "string" ? x : JSON.stringify(x));
  const keys = of("hottest-keys", (k) => [mono(k.key), percent(k.share)]);
  const late = of("late", (l) => [name(l.operator), mono(l.record), eventTime(l.timestamp, now), eventTime(l.watermark, now)]);
  const waiting = of("waiting", (w) => [name(w.operator), `${count(w.count)} ${w.kind}`, eventTime(w.earliest, now)]);
  const splits = of("splits", (x) => [mono(x.name || ""), eventTime(x.watermark, now), x.idle ? "idle" : ""]);
  return [
    keys.length ? [el("h3", {}, "Hottest keys"), table(["Subtask", "Key", "Share of its records"], keys, { right: [2], label: "Hottest keys" })] : null,
    late.length ? [el("h3", {}, "Came too late, for example"), table(["Subtask", "Operator", "Record", "Its time", "Watermark"], late, { label: "Late records" })] : null,
    waiting.length ? [el("h3", {}, "Waits for event time"), table(["Subtask", "Operator", "What", "Earliest"], waiting, { label: "Waiting" })] : null,
    splits.length ? [el("h3", {}, "Splits"), table(["Subtask", "Split", "Event time", ""], splits, { label: "Splits" })] : null,
  ];
}

function timeView(id, vertex, body) {
  const plots = el("div"), flames = flameView(id);
  body.append(plots, flames.place);
  const path = `/jobs/${id}/vertices/${vertex}/subtasks/metrics?get=busyTimeMsPerSecond,backPressuredTimeMsPerSecond,numRecordsInPerSecond`;
  const seen = [];
  return {
    async refresh(job) {
      const found = Object.fromEntries((await ask(path)).map((m) => [m.id, m]));
      const most = (name) => (found[name] ? found[name].max / 1000 : 0);
      seen.push({ at: job.now, rate: found.numRecordsInPerSecond ? found.numRecordsInPerSecond.sum : 0, busy: most("busyTimeMsPerSecond"), blocked: most("backPressuredTimeMsPerSecond") });
      if (seen.length > 200) seen.shift();
      const at = seen.map((s) => s.at);
      renew(plots, plot(seen.map((s) => s.rate), rate, { label: "Records a second", at }), plot(seen.map((s) => s.busy), percent, { label: "Busy", at, top: 1 }), plot(seen.map((s) => s.blocked), percent, { label: "Held up", at, top: 1 }));
      await flames.refresh(vertex);
    },
  };
}

export function timeBar(busy, blocked) {
  const says = `busy ${percent(busy)}, held up ${percent(blocked)}`;
  return el("div", { class: "bar", role: "img", "aria-label": says, title: says }, el("i", { class: "busy", style: `width:${busy * 100}%` }), el("i", { class: "blocked", style: `width:${blocked * 100}%` }));
}
