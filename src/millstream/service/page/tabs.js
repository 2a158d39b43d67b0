// The other tabs of a job.
import { ask } from "./api.js";
import { el, state, table } from "./dom.js";
import { bars } from "./plot.js";
import { bytes, length, when } from "./words.js";

export function checkpointsTab(place, id) {
  const cards = el("div", { class: "cards" }), plots = el("div"), list = el("div"), about = el("p", { class: "muted small" });
  place.append(cards, about, plots, list);
  return {
    async refresh() {
      const [found, config] = await Promise.all([ask(`/jobs/${id}/checkpoints`), ask(`/jobs/${id}/checkpoints/config`)]);
      const latest = found.latest.completed;
      const shown = [["completed", found.counts.completed], ["in progress", found.counts.in_progress], ["failed", found.counts.failed], ["last size", latest ? bytes(latest.state_size) : "–"], ["last took", latest ? length(latest.end_to_end_duration) : "–"]];
      cards.replaceChildren(...shown.map(([name, n]) => el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
      about.textContent = config.interval > 9e15 ? "No checkpoints are taken by themselves: set execution.checkpointing.interval." : `Every ${length(config.interval)}, at most ${length(config.timeout)} each; state in ${config.state_backend}, checkpoints in ${config.checkpoint_storage}.`;
      const old = found.history.slice().reverse();
      const mark = (name, text) => old.map((c) => ({ value: Math.max(c[name], 0), bad: c.status === "FAILED", title: `checkpoint ${c.id}: ${text(c[name])}` }));
      plots.replaceChildren(...(old.length ? [el("div", { class: "panel" }, el("h3", {}, "Duration"), bars(mark("end_to_end_duration", length), length)), el("div", { class: "panel" }, el("h3", {}, "Size"), bars(mark("state_size", bytes), bytes))] : []));
      const rows = found.history.map((c) => [c.id, state(c.status), when(c.trigger_timestamp), length(c.end_to_end_duration), bytes(c.state_size), el("span", { class: "mono" }, c.failure_message || c.external_path || "")]);
      list.replaceChildren(rows.length ? el("div", { class: "panel" }, table(["Id", "State", "Begun", "Took", "Size", "Where, or why not"], rows, { right: [0, 3, 4], label: "Checkpoints" })) : el("p", { class: "empty" }, "No checkpoint yet."));
    },
  };
}

export function exceptionsTab(place, id) {
  const list = el("div");
  place.append(list);
  let before = "";
  return {
    async refresh() {
      const found = await ask(`/jobs/${id}/exceptions?maxExceptions=20`);
      const entries = found.exceptionHistory.entries, now = JSON.stringify(entries);
      if (now === before && list.childElementCount) return;
      before = now;
      list.replaceChildren(...(entries.length ? entries.map((e, i) => el("details", { class: "panel", open: i === 0 }, el("summary", {}, el("strong", {}, e.exceptionName || "failure"), el("span", { class: "muted small" }, ` – ${when(e.timestamp)}${e.taskName ? `, in ${e.taskName}` : ""}`)), el("pre", { tabindex: "0" }, e.stacktrace))) : [el("p", { class: "empty" }, "Nothing has gone wrong.")]));
    },
  };
}

export function timelineTab(place, id) {
  const lanes = el("div", { class: "panel timeline" }), states = el("div");
  place.append(el("h2", {}, "States of the job"), states, el("h2", {}, "Vertices"), lanes);
  return {
    async refresh(job) {
      const reached = Object.entries(job.timestamps).filter(([, at]) => at > 0).sort((a, b) => a[1] - b[1]);
      states.replaceChildren(el("div", { class: "panel" }, table(["State", "Since", "After"], reached.map(([name, at]) => [state(name), when(at), length(at - job["start-time"])]), { label: "States" })));
      const start = job["start-time"], end = job["end-time"] === -1 ? job.now : job["end-time"], span = Math.max(end - start, 1);
      lanes.replaceChildren(...job.vertices.map((v) => {
        const from = v["start-time"] > 0 ? v["start-time"] : end, to = v["end-time"] > 0 ? v["end-time"] : end;
        return el("div", { class: "lane" }, el("span", { title: v.name }, v.name.length > 40 ? `${v.name.slice(0, 39)}…` : v.name), el("div", { class: "track", role: "img", "aria-label": `${v.name}: ${length(to - from)}` }, el("i", { style: `left:${((from - start) / span) * 100}%;width:${((to - from) / span) * 100}%` })));
      }));
    },
  };
}

export function configurationTab(place, id) {
  const list = el("div");
  place.append(list);
  return {
    async refresh() {
      const found = await ask(`/jobs/${id}/config`);
      const rows = Object.entries(found["execution-config"]["user-config"]).sort().map(([k, v]) => [el("span", { class: "mono" }, k), el("span", { class: "mono" }, v)]);
      list.replaceChildren(el("div", { class: "panel" }, table(["Key", "Value"], rows, { label: "Configuration" })));
    },
  };
}
