// The page of a job: its summary, diagnostics, tabs and actions.
import { request, waitForOperation } from "./api.js";
import { el, formDialog, replaceContent, showMessage, statusTag, tabs } from "./dom.js";
import { checkpointsTab, configurationTab, exceptionsTab, timelineTab } from "./tabs.js";
import { graphTab } from "./graph.js";
import { logsTab } from "./logs.js";
import { formatBytes, formatCount, formatDuration, formatEventTime, formatRate, formatTime } from "./format.js";

const TABS = [
  ["graph", "Graph"], ["checkpoints", "Checkpoints"], ["exceptions", "Exceptions"], ["timeline", "Timeline"],
  ["logs", "Logs"], ["configuration", "Configuration"],
];
const TAB_VIEWS = {
  graph: graphTab, checkpoints: checkpointsTab, exceptions: exceptionsTab, timeline: timelineTab, logs: logsTab,
  configuration: configurationTab,
};
// The number of diagnostics that are not folded.
const MAX_UNFOLDED = 2;
// The maximum number of operators in the summary.
const MAX_OPERATORS = 4;
const JOB_METRICS = "lastCheckpointSize,lastCompletedCheckpointId,numRestarts,numberOfCompletedCheckpoints";

export function jobPage(main, id, tab, vertex, vertexTab) {
  const title = el("h1"), status = el("span"), actions = el("div", { class: "actions" });
  const summary = el("p", { class: "lead" }), about = el("p", { class: "muted small" });
  const cards = el("div", { class: "cards" }), diagnostics = el("div"), tabBar = el("div"), body = el("div");
  main.append(
    el("div", { class: "heading" }, title, status, actions), summary, about, cards, diagnostics, tabBar, body);
  let selectedTab = null, view = null, renderedDiagnostics = "", parallelism = 1;

  function route(name, selectedVertex, selectedVertexTab) {
    const next = name in TAB_VIEWS ? name : "graph";
    if (selectedTab !== next) {
      selectedTab = next;
      replaceContent(tabBar, tabs("Job", TABS.map(([key, text]) => [key, text, `#/jobs/${id}/${key}`]), next));
      body.replaceChildren();
      view = TAB_VIEWS[next](body, id);
    }
    cards.hidden = next !== "graph";
    if (view.select) view.select(selectedVertex, selectedVertexTab);
  }
  route(tab, vertex, vertexTab);

  async function takeSavepoint() {
    const values = await formDialog(
      "Trigger savepoint", "The job continues. The service must be able to write to the directory.",
      [{ name: "directory", label: "Directory", value: "" }], "Trigger");
    if (!values) return;
    const parameters = { "target-directory": values.directory || null, "cancel-job": false };
    const trigger = await request(`/jobs/${id}/savepoints`, "POST", parameters);
    const savepoint = await waitForOperation(`/jobs/${id}/savepoints`, trigger["request-id"]);
    showMessage(`Savepoint completed: ${savepoint.location}`);
  }
  async function stop() {
    const values = await formDialog(
      "Stop with savepoint", "The job ends when the savepoint is complete, and can be restored from it.",
      [{ name: "directory", label: "Savepoint directory", value: "" }], "Stop job", true);
    if (!values) return;
    const parameters = { targetDirectory: values.directory || null, drain: false };
    const trigger = await request(`/jobs/${id}/stop`, "POST", parameters);
    const savepoint = await waitForOperation(`/jobs/${id}/savepoints`, trigger["request-id"]);
    showMessage(`Stopped with savepoint: ${savepoint.location}`);
  }
  async function cancel() {
    const text =
      "The job ends immediately. Progress since the last checkpoint is lost unless the sources can be read again.";
    if (!(await formDialog("Cancel job", text, [], "Cancel job", true))) return;
    await request(`/jobs/${id}?mode=cancel`, "PATCH", {});
    showMessage("The job is being canceled.");
  }
  async function rescale() {
    const values = await formDialog(
      "Rescale job", "The job takes a checkpoint, pauses briefly, and continues with the new parallelism.",
      [{ name: "parallelism", label: "Parallelism", type: "number", min: 1, value: String(parallelism) }],
      "Rescale", true);
    if (!values) return;
    const trigger = await request(`/jobs/${id}/rescaling?parallelism=${Number(values.parallelism)}`, "PATCH", {});
    await waitForOperation(`/jobs/${id}/rescaling`, trigger["request-id"]);
    showMessage(`The job runs with parallelism ${values.parallelism}.`);
  }
  const buttons = [
    ["Savepoint", takeSavepoint], ["Rescale", rescale], ["Stop", stop, true], ["Cancel", cancel, true],
  ].map(([text, action, isDangerous]) =>
    el("button", {
      type: "button", class: isDangerous ? "danger" : null,
      onclick: () => action().catch((e) => showMessage(e.message)),
    }, text));

  function showDiagnostics(explanations) {
    const current = JSON.stringify(explanations);
    if (current === renderedDiagnostics) return;
    renderedDiagnostics = current;
    const open = new Set([...diagnostics.querySelectorAll("details[open]")].map((d) => d.dataset.kind));
    const entries = explanations.map((e, i) => {
      const kind = `${e.kind} ${e.vertex || ""}`, isOpen = open.has(kind) || (i === 0 && e.level === "high");
      return el("details", { class: `diagnostic ${e.level}`, "data-kind": kind, open: isOpen },
        el("summary", {}, el("strong", {}, e.title)), el("p", {}, e.text),
        e.vertex ? el("a", { class: "small", href: `#/jobs/${id}/graph/${e.vertex}` }, "Show the vertex") : null);
    });
    // The service lists the most urgent first.
    const unfolded = entries.slice(0, MAX_UNFOLDED), folded = entries.slice(MAX_UNFOLDED);
    const count = `${folded.length} more ${folded.length === 1 ? "diagnostic" : "diagnostics"}`;
    replaceContent(diagnostics, unfolded, folded.length
      ? el("details", { class: "more", "data-kind": "more", open: open.has("more") },
        el("summary", { class: "small muted" }, count), folded)
      : null);
  }

  return {
    route,
    async refresh() {
      const [job, { explanations }, metrics] = await Promise.all([
        request(`/jobs/${id}`),
        request(`/jobs/${id}/explanations`).catch(() => ({ explanations: [] })),
        request(`/jobs/${id}/metrics?get=${JOB_METRICS}`).catch(() => []),
      ]);
      title.textContent = job.name;
      document.title = `${job.name} - Millstream`;
      status.replaceChildren(statusTag(job.state));
      const hasEnded = job["end-time"] !== -1;
      parallelism = Math.max(...job.vertices.map((v) => v.parallelism));
      // Replace the buttons only if they change: replacing a button during a click discards the click.
      if (actions.childElementCount !== (hasEnded ? 0 : buttons.length)) {
        actions.replaceChildren(...(hasEnded ? [] : buttons));
      }
      summary.textContent = summaryOf(job);
      about.textContent =
        `started ${formatTime(job["start-time"])}, ${hasEnded ? "ran" : "running"} for ` +
        `${formatDuration(job.duration)}, parallelism ${parallelism}, id ${id}`;
      showDiagnostics(explanations);
      if (!cards.hidden) await fillCards(job, Object.fromEntries(metrics.map((m) => [m.id, m.value])), hasEnded);
      await view.refresh(job);
    },
  };

  async function fillCards(job, metrics, hasEnded) {
    const sources = sourcesOf(job), sinks = sinksOf(job);
    const recordsRead = sources.reduce((sum, v) => sum + v.metrics["read-records"], 0);
    const values = [[formatCount(recordsRead), "records read"]];
    if (!hasEnded) {
      const metricsOf = (v) => request(`/jobs/${id}/vertices/${v.id}/subtasks/metrics?get=numRecordsInPerSecond`);
      const [throughputs, watermarks] = await Promise.all([
        Promise.all(sources.map(metricsOf)),
        Promise.all(sinks.map((v) => request(`/jobs/${id}/vertices/${v.id}/watermarks`))),
      ]);
      const throughput = throughputs.flat().reduce((sum, m) => sum + m.sum, 0);
      const minWatermark = Math.min(...watermarks.flat().map((m) => Number(m.value)));
      values.unshift([formatRate(throughput), "source throughput"]);
      values.push([watermarks.flat().length ? formatEventTime(minWatermark, job.now) : "–", "sink watermark"]);
    }
    const size = metrics.lastCheckpointSize, completed = metrics.numberOfCompletedCheckpoints || 0;
    values.push([size === undefined ? "none" : formatBytes(Number(size)), `last checkpoint (of ${completed})`]);
    values.push([metrics.numRestarts || "0", Number(metrics.numRestarts) === 1 ? "restart" : "restarts"]);
    replaceContent(cards, values.map(([n, name]) =>
      el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
  }
}

function sourcesOf(job) {
  return job.vertices.filter((v) => !(job.plan.nodes.find((n) => n.id === v.id) || {}).inputs);
}

// The vertices without outputs.
function sinksOf(job) {
  const inputs = new Set(job.plan.nodes.flatMap((n) => n.inputs || []).map((i) => i.id));
  return job.vertices.filter((v) => !inputs.has(v.id));
}

// Summarizes a job in a sentence with the names of its operators.
function summaryOf(job) {
  const names = (v) => (job.plan.nodes.find((n) => n.id === v.id).operators || []).map((o) => o.name);
  const sources = sourcesOf(job).map((v) => names(v)[0].replace(/^Source: /, ""));
  const sinks = sinksOf(job).map((v) => names(v).at(-1).replace(/^Sink: /, ""));
  const isBetween = (name) =>
    !/^(Source|Sink): |^Timestamps/.test(name) && !sources.includes(name) && !sinks.includes(name);
  const between = job.vertices.flatMap(names).filter(isBetween);
  const quoted = (list) => list.map((name) => `“${name}”`);
  const enumerated = (list) =>
    list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`;
  const hasEnded = job["end-time"] !== -1;
  const others = between.length > MAX_OPERATORS ? " and more" : "";
  const middle = between.length
    ? `, ${hasEnded ? "applied" : "applies"} ${enumerated(quoted(between.slice(0, MAX_OPERATORS)))}${others}`
    : "";
  return `${hasEnded ? "Read" : "Reads"} ${enumerated(quoted(sources))}${middle}, and ` +
    `${hasEnded ? "wrote" : "writes"} the results to ${enumerated(quoted(sinks))}.`;
}
