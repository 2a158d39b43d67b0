// Workers, and the service itself.
import { ask } from "./api.js";
import { el, table } from "./dom.js";
import { bytes } from "./words.js";

export function workersPage(main) {
  const list = el("div");
  main.append(el("h1", {}, "Workers"), list);
  return {
    async refresh() {
      const { taskmanagers } = await ask("/taskmanagers");
      const rows = taskmanagers.map((t) => [t.id, t.path, `${t.freeSlots} of ${t.slotsNumber}`, t.assignedTasks ?? "", t.hardware.cpuCores, bytes(t.hardware.physicalMemory)]);
      list.replaceChildren(el("div", { class: "panel" }, table(["Worker", "Where", "Slots free", "Tasks", "Cores", "Memory"], rows, { right: [3, 4, 5], label: "Workers" })));
    },
  };
}

export function servicePage(main) {
  const about = el("div"), settings = el("div"), log = el("pre", { tabindex: "0", "aria-label": "Log" });
  main.append(el("h1", {}, "Service"), about, el("h2", {}, "Settings"), settings, el("h2", {}, "Log"), log);
  return {
    async refresh() {
      const [config, found, environment, text] = await Promise.all([ask("/config"), ask("/jobmanager/config"), ask("/jobmanager/environment"), fetch("/v1/jobmanager/log").then((a) => (a.ok ? a.text() : ""))]);
      about.replaceChildren(el("p", { class: "muted" }, `${config["flink-revision"]}, REST as of Flink ${config["flink-version"]}, ${environment.jvm.version}`));
      settings.replaceChildren(el("div", { class: "panel" }, table(["Key", "Value"], found.map((s) => [el("span", { class: "mono" }, s.key), el("span", { class: "mono" }, s.value)]), { label: "Settings" })));
      log.textContent = text.split("\n").slice(-200).join("\n") || "Nothing was logged.";
    },
  };
}
