// One job: what it does, in a graph; its checkpoints; what went wrong; and what can be done with it.
import { ask, finished } from "./api.js";
import { el, message, question, renew, state, tabs } from "./dom.js";
import { checkpointsTab, configurationTab, exceptionsTab, timelineTab } from "./tabs.js";
import { graphTab } from "./graph.js";
import { logsTab } from "./logs.js";
import { bytes, count, eventTime, length, rate, when } from "./words.js";

const TABS = [["graph", "Graph"], ["checkpoints", "Checkpoints"], ["exceptions", "Exceptions"], ["timeline", "Timeline"], ["logs", "Logs"], ["configuration", "Configuration"]];
const SHOWN = 2;
const MAKE = { graph: graphTab, checkpoints: checkpointsTab, exceptions: exceptionsTab, timeline: timelineTab, logs: logsTab, configuration: configurationTab };

export function jobPage(main, id, tab, vertex, part) {
  const title = el("h1"), tag = el("span"), about = el("p", { class: "muted small" }), sentence = el("p", { class: "lead" }), cards = el("div", { class: "cards" }), explained = el("div"), bar = el("div"), place = el("div");
  const actions = el("div", { class: "actions" });
  main.append(el("div", { class: "titled" }, title, tag, actions), sentence, about, cards, explained, bar, place);
  let shown = null, made = null, told = "", parallelism = 1;

  function route(name, chosen, chosenPart) {
    const next = name in MAKE ? name : "graph";
    if (shown !== next) {
      shown = next;
      renew(bar, tabs("Job", TABS.map(([key, text]) => [key, text, `#/jobs/${id}/${key}`]), next));
      place.replaceChildren();
      made = MAKE[next](place, id);
    }
    cards.hidden = next !== "graph";
    if (made.choose) made.choose(chosen, chosenPart);
  }
  route(tab, vertex, part);

  async function savepoint() {
    const said = await question("Take a savepoint", "The job goes on. The directory must be one that the service can write to.", [{ name: "directory", label: "Directory", value: "" }], "Take it");
    if (!said) return;
    const begun = await ask(`/jobs/${id}/savepoints`, "POST", { "target-directory": said.directory || null, "cancel-job": false });
    const done = await finished(`/jobs/${id}/savepoints`, begun["request-id"]);
    message(`Savepoint: ${done.location}`);
  }
  async function stop() {
    const said = await question("Stop the job with a savepoint", "It ends when the savepoint is complete, and can be started again from there.", [{ name: "directory", label: "Directory of the savepoint", value: "" }], "Stop it", true);
    if (!said) return;
    const begun = await ask(`/jobs/${id}/stop`, "POST", { targetDirectory: said.directory || null, drain: false });
    const done = await finished(`/jobs/${id}/savepoints`, begun["request-id"]);
    message(`Stopped, with a savepoint: ${done.location}`);
  }
  async function cancel() {
    if (!(await question("Cancel the job", "It ends now. What was not in a checkpoint is lost, unless its sources can be read again.", [], "Cancel the job", true))) return;
    await ask(`/jobs/${id}?mode=cancel`, "PATCH", {});
    message("The job is being cancelled.");
  }
  async function rescale() {
    const said = await question("Change the parallelism", "The job takes a checkpoint, stops for a moment, and goes on with so many subtasks.", [{ name: "parallelism", label: "Parallelism", type: "number", min: 1, value: String(parallelism) }], "Rescale", true);
    if (!said) return;
    const begun = await ask(`/jobs/${id}/rescaling?parallelism=${Number(said.parallelism)}`, "PATCH", {});
    await finished(`/jobs/${id}/rescaling`, begun["request-id"]);
    message(`The job runs with parallelism ${said.parallelism}.`);
  }
  const buttons = [["Savepoint", savepoint], ["Rescale", rescale], ["Stop", stop, true], ["Cancel", cancel, true]].map(([text, act, danger]) =>
    el("button", { type: "button", class: danger ? "danger" : null, onclick: () => act().catch((e) => message(e.message)) }, text));

  function explain(explanations) {
    const now = JSON.stringify(explanations);
    if (now === told) return;
    const open = new Set([...explained.querySelectorAll("details[open]")].map((d) => d.dataset.kind));
    told = now;
    const all = explanations.map((e, i) => {
      const kind = `${e.kind} ${e.vertex || ""}`;
      return el("details", { class: `explain ${e.level}`, "data-kind": kind, open: open.has(kind) || (i === 0 && e.level === "high") },
        el("summary", {}, el("strong", {}, e.title)), el("p", {}, e.text), e.vertex ? el("a", { class: "small", href: `#/jobs/${id}/graph/${e.vertex}` }, "Look at that vertex") : null);
    });
    // The most urgent are in sight.
    const first = all.slice(0, SHOWN), rest = all.slice(SHOWN);
    renew(explained, first, rest.length ? el("details", { class: "more", "data-kind": "more", open: open.has("more") }, el("summary", { class: "small muted" }, `${rest.length} more ${rest.length === 1 ? "thing" : "things"} worth knowing`), rest) : null);
  }

  return {
    route,
    async refresh() {
      const [job, found, metrics] = await Promise.all([ask(`/jobs/${id}`), ask(`/jobs/${id}/explanations`).catch(() => ({ explanations: [] })), ask(`/jobs/${id}/metrics?get=lastCheckpointSize,lastCompletedCheckpointId,numRestarts,numberOfCompletedCheckpoints`).catch(() => [])]);
      title.textContent = job.name;
      document.title = `${job.name} - Millstream`;
      tag.replaceChildren(state(job.state));
      const over = job["end-time"] !== -1;
      parallelism = Math.max(...job.vertices.map((v) => v.parallelism));
      // Only when that has changed: a button that is put there anew loses the click it is in the middle of.
      if (actions.childElementCount !== (over ? 0 : buttons.length)) actions.replaceChildren(...(over ? [] : buttons));
      sentence.textContent = whatItDoes(job);
      about.textContent = `started ${when(job["start-time"])}, ${over ? "ran" : "runs"} ${length(job.duration)}, parallelism ${parallelism}, id ${id}`;
      explain(found.explanations);
      if (!cards.hidden) await fillCards(job, Object.fromEntries(metrics.map((m) => [m.id, m.value])), over);
      await made.refresh(job);
    },
  };

  async function fillCards(job, metrics, over) {
    const sources = job.vertices.filter((v) => isSource(job, v)), ends = job.vertices.filter((v) => !job.plan.nodes.some((n) => (n.inputs || []).some((i) => i.id === v.id)));
    const read = sources.reduce((sum, v) => sum + v.metrics["read-records"], 0);
    const shown = [[count(read), "records read"]];
    if (!over) {
      const [speeds, marks] = await Promise.all([
        Promise.all(sources.map((v) => ask(`/jobs/${id}/vertices/${v.id}/subtasks/metrics?get=numRecordsInPerSecond`))),
        Promise.all(ends.map((v) => ask(`/jobs/${id}/vertices/${v.id}/watermarks`))),
      ]);
      const speed = speeds.flat().reduce((sum, m) => sum + m.sum, 0), least = Math.min(...marks.flat().map((m) => Number(m.value)));
      shown.unshift([rate(speed), "read now"]);
      shown.push([marks.flat().length ? eventTime(least, job.now) : "–", "event time at the end"]);
    }
    shown.push([metrics.lastCheckpointSize === undefined ? "none" : bytes(Number(metrics.lastCheckpointSize)), `last checkpoint, of ${metrics.numberOfCompletedCheckpoints || 0}`]);
    shown.push([metrics.numRestarts || "0", Number(metrics.numRestarts) === 1 ? "restart" : "restarts"]);
    renew(cards, shown.map(([n, name]) => el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
  }
}

function isSource(job, vertex) {
  return !(job.plan.nodes.find((n) => n.id === vertex.id) || {}).inputs;
}

// What a job does, in a sentence, from the names of what it is made of.
function whatItDoes(job) {
  const named = (v) => (job.plan.nodes.find((n) => n.id === v.id).operators || []).map((o) => o.name);
  const sources = job.vertices.filter((v) => isSource(job, v)).map((v) => named(v)[0].replace(/^Source: /, ""));
  const ends = job.vertices.filter((v) => !job.plan.nodes.some((n) => (n.inputs || []).some((i) => i.id === v.id))).map((v) => named(v).at(-1).replace(/^Sink: /, ""));
  const between = job.vertices.flatMap(named).filter((n) => !/^(Source|Sink): |^Timestamps/.test(n) && !sources.includes(n) && !ends.includes(n));
  const words = (list) => (list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`);
  const over = job["end-time"] !== -1;
  const middle = between.length ? `, ${over ? "did" : "does"} ${words(between.slice(0, 4).map((n) => `“${n}”`))}${between.length > 4 ? " and more" : ""}` : "";
  return `${over ? "Has read" : "Reads"} ${words(sources.map((n) => `“${n}”`))}${middle}, and ${over ? "handed" : "hands"} the results to ${words(ends.map((n) => `“${n}”`))}.`;
}
