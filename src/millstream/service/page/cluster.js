// The pages of the workers, of one worker, and of the service.
import { request } from "./api.js";
import { el, replaceContent, table, tabs } from "./dom.js";
import { logView } from "./logs.js";
import { formatBytes, formatCount, formatDuration } from "./format.js";

export function workersPage(main) {
  const list = el("div");
  main.append(
    el("h1", {}, "Workers"), el("p", { class: "muted small" }, "Spark executors that run the subtasks of jobs."), list);
  return {
    async refresh() {
      const { taskmanagers } = await request("/taskmanagers");
      const rows = taskmanagers.map((worker) => [
        el("a", { href: `#/workers/${encodeURIComponent(worker.id)}` }, worker.id), worker.path, slotUse(worker),
        worker.assignedTasks ?? "", worker.hardware.cpuCores, formatBytes(worker.hardware.physicalMemory),
      ]);
      const header = ["Worker", "Address", "Slots", "Subtasks", "Cores", "Memory"];
      replaceContent(list, rows.length
        ? el("div", { class: "panel" }, table(header, rows, { right: [3, 4, 5], label: "Workers" }))
        : el("p", { class: "empty" }, "There are no workers: all jobs have ended."));
    },
  };
}

function slotUse(worker) {
  const used = worker.slotsNumber - worker.freeSlots, text = `${used} of ${worker.slotsNumber} in use`;
  const width = (used / Math.max(worker.slotsNumber, 1)) * 100;
  return el("div", { class: "slots" },
    el("div", { class: "bar", role: "img", "aria-label": text }, el("i", { class: "busy", style: `width:${width}%` })),
    el("span", { class: "small" }, text));
}

const WORKER_TABS = [["metrics", "Metrics"], ["log", "Logs"], ["threads", "Thread dump"]];

export function workerPage(main, id, tab) {
  const path = `/taskmanagers/${encodeURIComponent(id)}`;
  const about = el("p", { class: "muted small" }), tabBar = el("div"), body = el("div");
  main.append(el("h1", {}, `Worker ${id}`), about, tabBar, body);
  let selected = null, view = null;
  const views = {
    metrics: () => ({
      async refresh() {
        const names = (await request(`${path}/metrics`)).map((m) => m.id);
        const metrics = await request(`${path}/metrics?get=${names.map(encodeURIComponent).join(",")}`);
        const rows = metrics.map((m) => [el("span", { class: "mono" }, m.id), formatValue(m)]);
        replaceContent(body, el("div", { class: "panel" },
          table(["Metric", "Value"], rows, { right: [1], label: "Metrics" })));
      },
    }),
    log: () => {
      let logs = null;
      return {
        async refresh() {
          if (!logs) {
            const response = await request(`${path}/logs`);
            const files = response.logs.map((l) => [
              l.name,
              l.name === "taskmanager.log" ? "Log of user functions" : `Spark's ${l.name}`,
              `${path}/logs/${encodeURIComponent(l.name)}`,
            ]);
            logs = logView(body, [...files, ["printed", "Stdout of user functions", `${path}/stdout`]]);
          }
          await logs.refresh();
        },
      };
    },
    threads: () => {
      let isLoaded = false;
      return {
        async refresh() {
          if (isLoaded) return;
          isLoaded = true;
          const { threadInfos } = await request(`${path}/thread-dump`).catch((e) => ({
            threadInfos: [{ threadName: "", stringifiedThreadInfo: e.message }],
          }));
          replaceContent(body,
            el("p", { class: "muted small" }, `${threadInfos.length} threads when this tab was opened.`),
            threadInfos.map(({ threadName, stringifiedThreadInfo }) =>
              el("details", { class: "panel thread" }, el("summary", {}, threadName),
                el("pre", { tabindex: "0", role: "region", "aria-label": threadName }, stringifiedThreadInfo))));
        },
      };
    },
  };

  function route(name) {
    const next = name in views ? name : "metrics";
    if (next === selected) return;
    selected = next;
    const entries = WORKER_TABS.map(([key, text]) => [key, text, `#/workers/${encodeURIComponent(id)}/${key}`]);
    replaceContent(tabBar, tabs("Worker", entries, next));
    body.replaceChildren();
    view = views[next]();
  }
  route(tab);
  return {
    route,
    async refresh() {
      const worker = await request(path), used = worker.slotsNumber - worker.freeSlots;
      about.textContent =
        `at ${worker.path}, ${used} of ${worker.slotsNumber} slots in use, ${worker.assignedTasks} subtasks, ` +
        `${worker.hardware.cpuCores} cores, ${formatBytes(worker.hardware.physicalMemory)} of memory`;
      await view.refresh();
    },
  };
}

function formatValue(metric) {
  const n = Number(metric.value);
  if (/Memory|Bytes/.test(metric.id)) return formatBytes(n);
  if (/uptime|Time$/.test(metric.id)) return formatDuration(n);
  return Number.isFinite(n) ? formatCount(n) : metric.value;
}

export function servicePage(main) {
  const about = el("div"), configuration = el("div"), logContainer = el("div");
  main.append(el("h1", {}, "Service"), about, el("h2", {}, "Configuration"), configuration, el("h2", {}, "Log"),
    logContainer);
  const log = logView(logContainer, [["log", "Log of the service", "/jobmanager/log"]]);
  return {
    async refresh() {
      const [config, settings, environment] = await Promise.all([
        request("/config"), request("/jobmanager/config"), request("/jobmanager/environment"),
      ]);
      const versions =
        `${config["flink-revision"]}, REST API of Flink ${config["flink-version"]}, ${environment.jvm.version}`;
      replaceContent(about, el("p", { class: "muted small" }, versions));
      const mono = (text) => el("span", { class: "mono" }, text);
      const rows = settings.map((s) => [mono(s.key), mono(s.value)]);
      replaceContent(configuration, el("div", { class: "panel" },
        table(["Key", "Value"], rows, { label: "Configuration" })));
      await log.refresh();
    },
  };
}
