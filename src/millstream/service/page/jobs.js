// The list of jobs.
import { ask } from "./api.js";
import { el, state, table } from "./dom.js";
import { length, when } from "./words.js";

export function jobsPage(main) {
  const cards = el("div", { class: "cards" }), running = el("div"), ended = el("div");
  main.append(el("h1", {}, "Jobs"), cards, el("h2", {}, "Running"), running, el("h2", {}, "Ended"), ended);

  const row = (j) => [el("a", { href: `#/jobs/${j.jid}` }, j.name), state(j.state), when(j["start-time"]), length(j.duration), tasks(j.tasks), el("span", { class: "mono muted" }, j.jid)];
  const header = ["Name", "State", "Started", "For", "Tasks", "Id"];

  return {
    async refresh() {
      const [overview, listed] = await Promise.all([ask("/overview"), ask("/jobs/overview")]);
      const shown = [["running", overview["jobs-running"]], ["finished", overview["jobs-finished"]], ["cancelled", overview["jobs-cancelled"]], ["failed", overview["jobs-failed"]], ["slots free", `${overview["slots-available"]} of ${overview["slots-total"]}`]];
      cards.replaceChildren(...shown.map(([name, n]) => el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
      const jobs = listed.jobs.slice().sort((a, b) => b["start-time"] - a["start-time"]);
      const live = jobs.filter((j) => j["end-time"] === -1), over = jobs.filter((j) => j["end-time"] !== -1);
      running.replaceChildren(live.length ? el("div", { class: "panel" }, table(header, live.map(row), { label: "Running jobs" })) : el("p", { class: "muted" }, "No job runs now."));
      ended.replaceChildren(over.length ? el("div", { class: "panel" }, table(header, over.map(row), { label: "Ended jobs" })) : el("p", { class: "muted" }, "None yet."));
    },
  };
}

function tasks(counts) {
  const parts = Object.entries(counts).filter(([name, n]) => name !== "total" && n > 0).map(([name, n]) => `${n} ${name}`);
  return parts.join(", ") || `${counts.total}`;
}
