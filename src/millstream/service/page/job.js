// One job: what it does, in a graph; its checkpoints; what went wrong; and what can be done with it.
import { ask, finished } from "./api.js";
import { el, message, question, state } from "./dom.js";
import { checkpointsTab, configurationTab, exceptionsTab, timelineTab } from "./tabs.js";
import { graphTab } from "./graph.js";
import { count, length, rate, when } from "./words.js";

const TABS = [["graph", "Graph"], ["checkpoints", "Checkpoints"], ["exceptions", "Exceptions"], ["timeline", "Timeline"], ["configuration", "Configuration"]];
const MAKE = { graph: graphTab, checkpoints: checkpointsTab, exceptions: exceptionsTab, timeline: timelineTab, configuration: configurationTab };

export function jobPage(main, id, tab, vertex) {
  const title = el("h1"), tag = el("span"), about = el("p", { class: "muted small" }), explained = el("div"), tabs = el("nav", { class: "tabs", "aria-label": "Job" }), place = el("div");
  const actions = el("div", { class: "actions" });
  main.append(el("div", { class: "titled" }, title, tag, actions), about, explained, tabs, place);
  let shown = null, made = null;

  function route(name, chosen) {
    tabs.replaceChildren(...TABS.map(([key, text]) => el("a", { href: `#/jobs/${id}/${key}`, "aria-current": key === name ? "page" : null }, text)));
    if (shown !== name) {
      shown = name;
      place.replaceChildren();
      made = MAKE[name](place, id);
    }
    if (made.choose) made.choose(chosen);
  }
  route(tab, vertex);

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
    const said = await question("Change the parallelism", "The job takes a checkpoint, and goes on with so many subtasks.", [{ name: "parallelism", label: "Parallelism", type: "number", min: 1, value: "2" }], "Rescale", true);
    if (!said) return;
    const begun = await ask(`/jobs/${id}/rescaling?parallelism=${Number(said.parallelism)}`, "PATCH", {});
    await finished(`/jobs/${id}/rescaling`, begun["request-id"]);
    message(`The job runs with parallelism ${said.parallelism}.`);
  }
  const buttons = [["Savepoint", savepoint], ["Rescale", rescale], ["Stop", stop, true], ["Cancel", cancel, true]].map(([text, act, danger]) =>
    el("button", { type: "button", class: danger ? "danger" : null, onclick: () => act().catch((e) => message(e.message)) }, text));

  return {
    route,
    async refresh() {
      const [job, told] = await Promise.all([ask(`/jobs/${id}`), ask(`/jobs/${id}/explanations`).catch(() => ({ explanations: [] }))]);
      title.textContent = job.name;
      document.title = `${job.name} - Millstream`;
      tag.replaceChildren(state(job.state));
      const over = job["end-time"] !== -1;
      // Only when that has changed: a button that is put there anew loses the click it is in the middle of.
      if (actions.childElementCount !== (over ? 0 : buttons.length)) actions.replaceChildren(...(over ? [] : buttons));
      const read = job.vertices.filter((v) => !(job.plan.nodes.find((n) => n.id === v.id) || {}).inputs).reduce((sum, v) => sum + v.metrics["read-records"], 0);
      about.textContent = `started ${when(job["start-time"])}, ${over ? "ran" : "runs"} ${length(job.duration)}, ${count(read)} records read, parallelism ${Math.max(...job.vertices.map((v) => v.parallelism))}`;
      explained.replaceChildren(...told.explanations.map((e) => el("div", { class: `panel explain ${e.level}` }, el("strong", {}, e.title), el("div", {}, e.text))));
      await made.refresh(job);
    },
  };
}
