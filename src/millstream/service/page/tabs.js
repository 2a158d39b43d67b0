// The other tabs of a job.
import { ask } from "./api.js";
import { el, renew, state, table } from "./dom.js";
import { bars } from "./plot.js";
import { bytes, length, when } from "./words.js";

export function checkpointsTab(place, id) {
  const cards = el("div", { class: "cards" }), plots = el("div", { class: "plots two" }), list = el("div"), about = el("p", { class: "muted small" });
  place.append(cards, about, plots, list);
  return {
    async refresh() {
      const [found, config] = await Promise.all([ask(`/jobs/${id}/checkpoints`), ask(`/jobs/${id}/checkpoints/config`)]);
      const latest = found.latest.completed;
      const shown = [["completed", found.counts.completed], ["in progress", found.counts.in_progress], ["failed", found.counts.failed], ["last size", latest ? bytes(latest.state_size) : "–"], ["last took", latest ? length(latest.end_to_end_duration) : "–"]];
      renew(cards, shown.map(([name, n]) => el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
      about.textContent = config.interval > 9e15 ? "No checkpoints are taken by themselves: set execution.checkpointing.interval." : `Every ${length(config.interval)}, at most ${length(config.timeout)} each; state in ${config.state_backend}, checkpoints in ${config.checkpoint_storage}.`;
      const old = found.history.filter((c) => c.status !== "IN_PROGRESS").reverse();
      const mark = (name, text) => old.map((c) => ({ value: Math.max(c[name], 0), bad: c.status === "FAILED", title: `checkpoint ${c.id}: ${text(c[name])}` }));
      renew(plots, old.length ? [el("div", { class: "panel" }, bars(mark("end_to_end_duration", length), length, "Duration")), el("div", { class: "panel" }, bars(mark("state_size", bytes), bytes, "Size"))] : []);
      const rows = found.history.map((c) => [c.id, state(c.status), when(c.trigger_timestamp), length(c.end_to_end_duration), bytes(c.state_size), el("span", { class: "mono" }, c.failure_message || c.external_path || "")]);
      renew(list, rows.length ? el("div", { class: "panel" }, table(["Id", "State", "Begun", "Took", "Size", "Where, or why not"], rows, { right: [0, 3, 4], label: "Checkpoints" })) : el("p", { class: "empty" }, "No checkpoint yet."));
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
      renew(list, entries.length ? alike(entries).map((group, i) => failure(id, group, i === 0)) : el("p", { class: "empty" }, "Nothing has gone wrong."));
    },
  };
}

// Failures that follow each other and are the same are one, with how often.
function alike(entries) {
  const groups = [];
  for (const e of entries) {
    const last = groups[groups.length - 1];
    if (last && last[0].exceptionName === e.exceptionName && last[0].taskName === e.taskName) last.push(e);
    else groups.push([e]);
  }
  return groups;
}

function failure(id, group, open) {
  const [e] = group, { trace, where, rest } = parts(e.stacktrace);
  const times = group.length > 1 ? `${group.length} times, last ${when(e.timestamp)}` : when(e.timestamp);
  return el("details", { class: "panel failure", open },
    el("summary", {}, el("strong", {}, e.exceptionName || "failure"), el("span", { class: "muted small" }, ` – ${times}${e.taskName ? `, in ${e.taskName.replaceAll(" -> ", " → ")}` : ""}`)),
    where ? el("p", { class: "small" }, where) : null,
    el("pre", { tabindex: "0", role: "region", "aria-label": "Traceback" }, trace),
    e.replay && e.replay.command ? el("p", { class: "small" }, "Run that operator on this record alone: ", el("code", {}, e.replay.command)) : null,
    rest ? el("details", {}, el("summary", { class: "small muted" }, "All that was said"), el("pre", { tabindex: "0", role: "region", "aria-label": "All that was said" }, rest)) : null);
}

// The user's own lines first; then which operator, subtask and record it was; what is of the engine is folded away.
function parts(text) {
  const lines = text.split("\n"), at = lines.findIndex((l) => /^(in operator|record: )/.test(l));
  const traceback = lines.findIndex((l) => l.startsWith("Traceback"));
  if (at < 0) return traceback > 0 ? { trace: lines.slice(traceback).join("\n"), where: lines.slice(0, traceback).join(" "), rest: "" } : { trace: text, where: "", rest: "" };
  const facts = lines.slice(at).findIndex((l) => l.startsWith("Traceback"));
  const end = facts < 0 ? lines.length : at + facts;
  return { trace: lines.slice(0, at).join("\n"), where: lines.slice(at, end).filter(Boolean).join(" · "), rest: facts < 0 ? "" : lines.slice(end).join("\n") };
}

const SHADES = { RUNNING: "ok", FINISHED: "ok", RESTARTING: "low", FAILING: "high", FAILED: "high", CANCELLING: "low" };

export function timelineTab(place, id) {
  const lanes = el("div", { class: "panel timeline" }), states = el("div");
  place.append(lanes, el("h2", {}, "States of the job"), states);
  return {
    async refresh(job) {
      const [checkpoints, failures] = await Promise.all([ask(`/jobs/${id}/checkpoints`).catch(() => ({ history: [] })), ask(`/jobs/${id}/exceptions`).catch(() => ({ exceptionHistory: { entries: [] } }))]);
      const reached = Object.entries(job.timestamps).filter(([, at]) => at > 0).sort((a, b) => a[1] - b[1]);
      renew(states, el("div", { class: "panel" }, table(["State", "Since", "After"], reached.map(([name, at]) => [state(name), when(at), length(at - job["start-time"])]), { label: "States" })));
      const start = job["start-time"], end = job["end-time"] === -1 ? job.now : job["end-time"], span = Math.max(end - start, 1);
      const left = (at) => `${Math.max(0, Math.min(100, ((at - start) / span) * 100))}%`, wide = (from, to) => `${Math.max(0, ((to - from) / span) * 100)}%`;
      const lane = (name, says, ...marks) => el("div", { class: "lane" }, el("span", { title: name }, name), el("div", { class: "track", role: "img", "aria-label": `${name}: ${says}` }, marks));
      const segment = (level, from, to, title) => el("i", { class: level, style: `left:${left(from)};width:${wide(from, to)}`, title });
      const tick = (level, at, title) => el("i", { class: `tick ${level}`, style: `left:${left(at)}`, title });
      const history = (checkpoints.history || []).filter((c) => c.trigger_timestamp > 0), entries = failures.exceptionHistory.entries;
      renew(lanes,
        lane("Job", reached.map(([name]) => name.toLowerCase()).join(", "), reached.map(([name, at], i) => segment(entries.length && name === "CREATED" ? "ok" : SHADES[name] || "idle", at, i + 1 < reached.length ? reached[i + 1][1] : end, entries.length && name === "CREATED" ? "ran, with the failures below" : `${name.toLowerCase()} from ${when(at)}`))),
        lane("Checkpoints", `${history.length} of the last ones`, history.map((c) => tick(c.status === "FAILED" ? "high" : "ok", c.trigger_timestamp, `checkpoint ${c.id}, ${length(c.end_to_end_duration)}`))),
        lane("Failures", `${entries.length}`, entries.map((e) => tick("high", e.timestamp, `${when(e.timestamp)}: ${e.exceptionName}`))),
        job.vertices.map((v) => {
          const from = v["start-time"] > 0 ? v["start-time"] : end, to = v["end-time"] > 0 ? v["end-time"] : end;
          return lane(v.name.replaceAll(" -> ", " → "), `${v.status.toLowerCase()}, ${length(to - from)}`, segment(SHADES[v.status] || "idle", from, to, `${v.status.toLowerCase()}, ${length(to - from)}`));
        }),
        el("div", { class: "lane axis" }, el("span"), el("div", {}, el("span", {}, when(start)), el("span", {}, job["end-time"] === -1 ? "now" : when(end)))));
    },
  };
}

export function configurationTab(place, id) {
  const list = el("div"), search = el("input", { type: "search", id: "config-search", placeholder: "Find a setting", oninput: () => show() });
  place.append(el("div", { class: "picker" }, el("div", {}, el("label", { for: "config-search" }, "Settings"), search)), list);
  let found = {};
  function show() {
    const wanted = search.value.toLowerCase();
    const rows = Object.entries(found).filter(([k, v]) => `${k} ${v}`.toLowerCase().includes(wanted)).sort().map(([k, v]) => [el("span", { class: "mono" }, k), el("span", { class: "mono" }, v)]);
    renew(list, rows.length ? el("div", { class: "panel" }, table(["Key", "Value"], rows, { label: "Configuration" })) : el("p", { class: "empty" }, wanted ? "No setting has that in it." : "The job was started without settings."));
  }
  return {
    async refresh() {
      found = (await ask(`/jobs/${id}/config`))["execution-config"]["user-config"];
      show();
    },
  };
}
