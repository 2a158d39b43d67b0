// The list of jobs.
import { ask } from "./api.js";
import { el, renew, state, table } from "./dom.js";
import { length, when } from "./words.js";

// Of so many jobs it is asked what holds them up.
const ASKED = 12;

export function jobsPage(main) {
  const cards = el("div", { class: "cards" }), running = el("div"), ended = el("div");
  main.append(el("h1", {}, "Jobs"), cards, el("h2", {}, "Running"), running, el("h2", {}, "Ended"), ended);
  document.title = "Millstream";

  const name = (j) => el("a", { href: `#/jobs/${j.jid}` }, j.name);
  const row = (j) => [name(j), state(j.state), when(j["start-time"]), length(j.duration), tasks(j.tasks), el("span", { class: "mono muted" }, j.jid.slice(0, 8))];
  const header = ["Name", "State", "Started", "For", "Tasks", "Id"];

  return {
    async refresh() {
      const [overview, listed] = await Promise.all([ask("/overview"), ask("/jobs/overview")]);
      const shown = [["running", overview["jobs-running"]], ["finished", overview["jobs-finished"]], ["cancelled", overview["jobs-cancelled"]], ["failed", overview["jobs-failed"]], ["slots free", `${overview["slots-available"]} of ${overview["slots-total"]}`], ["workers", overview.taskmanagers]];
      renew(cards, shown.map(([text, n]) => el("div", { class: "card" }, el("b", {}, n), el("span", {}, text))));
      const jobs = listed.jobs.slice().sort((a, b) => b["start-time"] - a["start-time"]);
      const live = jobs.filter((j) => j["end-time"] === -1), over = jobs.filter((j) => j["end-time"] !== -1);
      const told = await Promise.all(live.slice(0, ASKED).map((j) => ask(`/jobs/${j.jid}/explanations`).then((e) => e.explanations, () => [])));
      renew(running, live.length ? el("div", { class: "panel" }, table([...header, "Worth knowing"], live.map((j, i) => [...row(j), worth(told[i] || [])]), { label: "Running jobs" })) : el("p", { class: "muted" }, "No job runs now."));
      renew(ended, over.length ? el("div", { class: "panel" }, table(header, over.map(row), { label: "Ended jobs" })) : el("p", { class: "muted" }, "None yet."));
    },
  };
}

function worth(explanations) {
  const first = explanations.find((e) => e.level === "high") || explanations[0];
  if (!first) return "";
  return [el("span", { class: `tag ${first.level}` }, first.title), explanations.length > 1 ? el("span", { class: "muted small" }, ` and ${explanations.length - 1} more`) : null];
}

function tasks(counts) {
  const parts = Object.entries(counts).filter(([name, n]) => name !== "total" && n > 0).map(([name, n]) => `${n} ${name}`);
  return parts.join(", ") || `${counts.total}`;
}
