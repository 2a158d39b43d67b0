// Workers, and the service itself.
import { ask } from "./api.js";
import { el, renew, table, tabs } from "./dom.js";
import { logView } from "./logs.js";
import { bytes, count, length } from "./words.js";

export function workersPage(main) {
  const list = el("div");
  main.append(el("h1", {}, "Workers"), el("p", { class: "muted small" }, "Spark's executors, on which the subtasks of jobs run."), list);
  return {
    async refresh() {
      const { taskmanagers } = await ask("/taskmanagers");
      const rows = taskmanagers.map((t) => [el("a", { href: `#/workers/${encodeURIComponent(t.id)}` }, t.id), t.path, slots(t), t.assignedTasks ?? "", t.hardware.cpuCores, bytes(t.hardware.physicalMemory)]);
      renew(list, rows.length ? el("div", { class: "panel" }, table(["Worker", "Where", "Slots", "Subtasks", "Cores", "Memory"], rows, { right: [3, 4, 5], label: "Workers" })) : el("p", { class: "empty" }, "There are no workers: all jobs here have ended."));
    },
  };
}

function slots(t) {
  const taken = t.slotsNumber - t.freeSlots, says = `${taken} of ${t.slotsNumber} taken`;
  return el("div", { class: "slots" }, el("div", { class: "bar", role: "img", "aria-label": says }, el("i", { class: "busy", style: `width:${(taken / Math.max(t.slotsNumber, 1)) * 100}%` })), el("span", { class: "small" }, says));
}

const PARTS = [["metrics", "Metrics"], ["log", "Logs"], ["threads", "Threads"]];

export function workerPage(main, id, part) {
  const path = `/taskmanagers/${encodeURIComponent(id)}`, about = el("p", { class: "muted small" }), bar = el("div"), place = el("div");
  main.append(el("h1", {}, `Worker ${id}`), about, bar, place);
  let shown = null, view = null;
  const make = {
    metrics: () => ({
      async refresh() {
        const names = (await ask(`${path}/metrics`)).map((m) => m.id);
        const found = await ask(`${path}/metrics?get=${names.map(encodeURIComponent).join(",")}`);
        renew(place, el("div", { class: "panel" }, table(["Metric", "Value"], found.map((m) => [el("span", { class: "mono" }, m.id), value(m)]), { right: [1], label: "Metrics" })));
      },
    }),
    log: () => {
      let inner = null;
      return {
        async refresh() {
          if (!inner) {
            const { logs } = await ask(`${path}/logs`);
            inner = logView(place, [...logs.map((l) => [l.name, l.name === "taskmanager.log" ? "what functions log" : `Spark's ${l.name}`, `${path}/logs/${encodeURIComponent(l.name)}`]), ["printed", "what functions print", `${path}/stdout`]]);
          }
          await inner.refresh();
        },
      };
    },
    threads: () => {
      let asked = false;
      return {
        async refresh() {
          if (asked) return;
          asked = true;
          const { threadInfos } = await ask(`${path}/thread-dump`).catch((e) => ({ threadInfos: [{ threadName: "", stringifiedThreadInfo: e.message }] }));
          renew(place, el("p", { class: "muted small" }, `${threadInfos.length} threads, as of now.`), threadInfos.map((t) => el("details", { class: "panel thread" }, el("summary", {}, t.threadName), el("pre", { tabindex: "0", role: "region", "aria-label": t.threadName }, t.stringifiedThreadInfo))));
        },
      };
    },
  };

  function route(name) {
    const next = name in make ? name : "metrics";
    if (next === shown) return;
    shown = next;
    renew(bar, tabs("Worker", PARTS.map(([key, text]) => [key, text, `#/workers/${encodeURIComponent(id)}/${key}`]), next));
    place.replaceChildren();
    view = make[next]();
  }
  route(part);
  return {
    route,
    async refresh() {
      const t = await ask(path);
      about.textContent = `at ${t.path}, ${t.slotsNumber - t.freeSlots} of ${t.slotsNumber} slots taken, ${t.assignedTasks} subtasks, ${t.hardware.cpuCores} cores, ${bytes(t.hardware.physicalMemory)} of memory`;
      await view.refresh();
    },
  };
}

function value(m) {
  const n = Number(m.value);
  if (/Memory|Bytes/.test(m.id)) return bytes(n);
  if (/uptime|Time$/.test(m.id)) return length(n);
  return Number.isFinite(n) ? count(n) : m.value;
}

export function servicePage(main) {
  const about = el("div"), settings = el("div"), log = el("div");
  main.append(el("h1", {}, "Service"), about, el("h2", {}, "Settings"), settings, el("h2", {}, "Log"), log);
  const lines = logView(log, [["log", "what is logged", "/jobmanager/log"]]);
  return {
    async refresh() {
      const [config, found, environment] = await Promise.all([ask("/config"), ask("/jobmanager/config"), ask("/jobmanager/environment")]);
      renew(about, el("p", { class: "muted small" }, `${config["flink-revision"]}, REST as of Flink ${config["flink-version"]}, ${environment.jvm.version}`));
      renew(settings, el("div", { class: "panel" }, table(["Key", "Value"], found.map((s) => [el("span", { class: "mono" }, s.key), el("span", { class: "mono" }, s.value)]), { label: "Settings" })));
      await lines.refresh();
    },
  };
}
