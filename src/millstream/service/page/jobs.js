// The list of jobs.
import { request } from "./api.js";
import { el, replaceContent, statusTag, table } from "./dom.js";
import { formatDuration, formatTime } from "./format.js";

// The maximum number of running jobs whose diagnostics are requested.
const MAX_DIAGNOSED = 12;

export function jobsPage(main) {
  const cards = el("div", { class: "cards" }), running = el("div"), completed = el("div");
  main.append(
    el("h1", {}, "Jobs"), cards, el("h2", {}, "Running jobs"), running, el("h2", {}, "Completed jobs"), completed);
  document.title = "Millstream";

  const name = (job) => el("a", { href: `#/jobs/${job.jid}` }, job.name);
  const row = (job) => [
    name(job), statusTag(job.state), formatTime(job["start-time"]), formatDuration(job.duration),
    taskCounts(job.tasks), el("span", { class: "mono muted" }, job.jid.slice(0, 8)),
  ];
  const header = ["Name", "Status", "Start time", "Duration", "Tasks", "ID"];

  return {
    async refresh() {
      const [overview, list] = await Promise.all([request("/overview"), request("/jobs/overview")]);
      const values = [
        ["running", overview["jobs-running"]], ["finished", overview["jobs-finished"]],
        ["canceled", overview["jobs-cancelled"]], ["failed", overview["jobs-failed"]],
        ["slots available", `${overview["slots-available"]} of ${overview["slots-total"]}`],
        ["workers", overview.taskmanagers],
      ];
      replaceContent(cards, values.map(([text, n]) =>
        el("div", { class: "card" }, el("b", {}, n), el("span", {}, text))));
      const jobs = list.jobs.slice().sort((a, b) => b["start-time"] - a["start-time"]);
      const runningJobs = jobs.filter((j) => j["end-time"] === -1);
      const completedJobs = jobs.filter((j) => j["end-time"] !== -1);
      const explanations = await Promise.all(runningJobs.slice(0, MAX_DIAGNOSED).map((j) =>
        request(`/jobs/${j.jid}/explanations`).then((response) => response.explanations, () => [])));
      const runningRows = runningJobs.map((j, i) => [...row(j), mainDiagnostic(explanations[i] || [])]);
      replaceContent(running, runningRows.length
        ? el("div", { class: "panel" }, table([...header, "Diagnostics"], runningRows, { label: "Running jobs" }))
        : el("p", { class: "muted" }, "No running jobs."));
      replaceContent(completed, completedJobs.length
        ? el("div", { class: "panel" }, table(header, completedJobs.map(row), { label: "Completed jobs" }))
        : el("p", { class: "muted" }, "No completed jobs."));
    },
  };
}

// The first explanation of level high, else the first one.
function mainDiagnostic(explanations) {
  const first = explanations.find((e) => e.level === "high") || explanations[0];
  if (!first) return "";
  const others = explanations.length - 1;
  return [
    el("span", { class: `tag ${first.level}` }, first.title),
    others > 0 ? el("span", { class: "muted small" }, ` and ${others} more`) : null,
  ];
}

function taskCounts(counts) {
  const states = Object.entries(counts).filter(([name, n]) => name !== "total" && n > 0);
  return states.map(([name, n]) => `${n} ${name}`).join(", ") || `${counts.total}`;
}
