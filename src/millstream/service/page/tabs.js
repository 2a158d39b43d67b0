// The tabs of a job for checkpoints, exceptions, timeline and configuration.
import { request } from "./api.js";
import { el, replaceContent, statusTag, table } from "./dom.js";
import { bars } from "./plot.js";
import { formatBytes, formatChain, formatDuration, formatTime } from "./format.js";

// Flink's interval for disabled periodic checkpoints is Long.MAX_VALUE.
const MAX_INTERVAL = 9e15;

export function checkpointsTab(container, id) {
  const cards = el("div", { class: "cards" }), plots = el("div", { class: "plots columns" }), list = el("div");
  const about = el("p", { class: "muted small" });
  container.append(cards, about, plots, list);
  return {
    async refresh() {
      const [checkpoints, config] = await Promise.all([
        request(`/jobs/${id}/checkpoints`), request(`/jobs/${id}/checkpoints/config`),
      ]);
      const { counts, history } = checkpoints, latest = checkpoints.latest.completed;
      const values = [
        ["completed", counts.completed], ["in progress", counts.in_progress], ["failed", counts.failed],
        ["latest size", latest ? formatBytes(latest.state_size) : "–"],
        ["latest duration", latest ? formatDuration(latest.end_to_end_duration) : "–"],
      ];
      replaceContent(cards, values.map(([name, n]) =>
        el("div", { class: "card" }, el("b", {}, n), el("span", {}, name))));
      about.textContent = config.interval > MAX_INTERVAL
        ? "Periodic checkpoints are disabled: set execution.checkpointing.interval."
        : `Interval ${formatDuration(config.interval)}, timeout ${formatDuration(config.timeout)}; ` +
          `state backend ${config.state_backend}, checkpoint storage ${config.checkpoint_storage}.`;
      const ended = history.filter((c) => c.status !== "IN_PROGRESS").reverse();
      const panel = (field, format, label) => el("div", { class: "panel" }, bars(ended.map((c) => ({
        value: Math.max(c[field], 0), isFailed: c.status === "FAILED", title: `checkpoint ${c.id}: ${format(c[field])}`,
      })), format, label));
      replaceContent(plots, ended.length
        ? [panel("end_to_end_duration", formatDuration, "Duration"), panel("state_size", formatBytes, "Size")]
        : []);
      const rows = history.map((c) => [
        c.id, statusTag(c.status), formatTime(c.trigger_timestamp), formatDuration(c.end_to_end_duration),
        formatBytes(c.state_size), el("span", { class: "mono" }, c.failure_message || c.external_path || ""),
      ]);
      const header = ["ID", "Status", "Trigger time", "Duration", "Size", "Path or failure"];
      replaceContent(list, rows.length
        ? el("div", { class: "panel" }, table(header, rows, { right: [0, 3, 4], label: "Checkpoints" }))
        : el("p", { class: "empty" }, "No checkpoints."));
    },
  };
}

export function exceptionsTab(container, id) {
  const list = el("div");
  container.append(list);
  let rendered = "";
  return {
    async refresh() {
      const response = await request(`/jobs/${id}/exceptions?maxExceptions=20`);
      const { entries } = response.exceptionHistory, current = JSON.stringify(entries);
      if (current === rendered && list.childElementCount) return;
      rendered = current;
      replaceContent(list, entries.length
        ? groupRepeated(entries).map((group, i) => failureDetails(group, i === 0))
        : el("p", { class: "empty" }, "Nothing has failed."));
    },
  };
}

// Groups consecutive failures with the same exception in the same task.
function groupRepeated(entries) {
  const groups = [];
  for (const e of entries) {
    const last = groups[groups.length - 1];
    if (last && last[0].exceptionName === e.exceptionName && last[0].taskName === e.taskName) last.push(e);
    else groups.push([e]);
  }
  return groups;
}

function failureDetails(group, isOpen) {
  const [e] = group, { userTraceback, location, fullTraceback } = splitStackTrace(e.stacktrace);
  const time = group.length > 1 ? `${group.length} times, last ${formatTime(e.timestamp)}` : formatTime(e.timestamp);
  const task = e.taskName ? `, in ${formatChain(e.taskName)}` : "";
  const trace = (label, text) => el("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
  return el("details", { class: "panel failure", open: isOpen },
    el("summary", {},
      el("strong", {}, e.exceptionName || "failure"), el("span", { class: "muted small" }, ` – ${time}${task}`)),
    location ? el("p", { class: "small" }, location) : null,
    trace("Traceback", userTraceback),
    e.replay && e.replay.command
      ? el("p", { class: "small" }, "Replay the operator with this record: ", el("code", {}, e.replay.command))
      : null,
    fullTraceback
      ? el("details", {}, el("summary", { class: "small muted" }, "Full traceback"),
        trace("Full traceback", fullTraceback))
      : null);
}

// Splits a stack trace: the user's traceback; operator, subtask and record; the traceback with frames of the runtime.
function splitStackTrace(text) {
  const lines = text.split("\n"), start = lines.findIndex((l) => /^(in operator|record: )/.test(l));
  const isTraceback = (line) => line.startsWith("Traceback");
  if (start < 0) {
    const traceback = lines.findIndex(isTraceback);
    if (traceback <= 0) return { userTraceback: text, location: "", fullTraceback: "" };
    const location = lines.slice(0, traceback).join(" ");
    return { userTraceback: lines.slice(traceback).join("\n"), location, fullTraceback: "" };
  }
  const length = lines.slice(start).findIndex(isTraceback), end = length < 0 ? lines.length : start + length;
  return {
    userTraceback: lines.slice(0, start).join("\n"),
    location: lines.slice(start, end).filter(Boolean).join(" · "),
    fullTraceback: lines.slice(end).join("\n"),
  };
}

const STATUS_CLASSES = {
  RUNNING: "ok", FINISHED: "ok", RESTARTING: "low", FAILING: "high", FAILED: "high", CANCELLING: "low",
};

export function timelineTab(container, id) {
  const lanes = el("div", { class: "panel timeline" }), statuses = el("div");
  container.append(lanes, el("h2", {}, "Job status"), statuses);
  return {
    async refresh(job) {
      const [checkpoints, failures] = await Promise.all([
        request(`/jobs/${id}/checkpoints`).catch(() => ({ history: [] })),
        request(`/jobs/${id}/exceptions`).catch(() => ({ exceptionHistory: { entries: [] } })),
      ]);
      const start = job["start-time"], end = job["end-time"] === -1 ? job.now : job["end-time"];
      const changes = Object.entries(job.timestamps).filter(([, time]) => time > 0).sort((a, b) => a[1] - b[1]);
      const rows = changes.map(([status, time]) => [statusTag(status), formatTime(time), formatDuration(time - start)]);
      replaceContent(statuses, el("div", { class: "panel" },
        table(["Status", "Since", "After start"], rows, { label: "Job status" })));
      const history = (checkpoints.history || []).filter((c) => c.trigger_timestamp > 0);
      const { entries } = failures.exceptionHistory, { segment, tick } = marks(start, end);
      const jobSegments = changes.map(([status, time], i) => {
        const until = i + 1 < changes.length ? changes[i + 1][1] : end;
        // A timestamp is when the job last entered a status: the time after CREATED may include earlier attempts.
        return entries.length && status === "CREATED"
          ? segment("ok", time, until, "ran, with the failures below")
          : segment(STATUS_CLASSES[status] || "idle", time, until, `${status.toLowerCase()} from ${formatTime(time)}`);
      });
      const checkpointTicks = history.map((c) => tick(
        c.status === "FAILED" ? "high" : "ok", c.trigger_timestamp,
        `checkpoint ${c.id}, ${formatDuration(c.end_to_end_duration)}`));
      const failureTicks =
        entries.map((e) => tick("high", e.timestamp, `${formatTime(e.timestamp)}: ${e.exceptionName}`));
      replaceContent(lanes,
        lane("Job", changes.map(([status]) => status.toLowerCase()).join(", "), jobSegments),
        lane("Checkpoints", `the last ${history.length}`, checkpointTicks),
        lane("Failures", `${entries.length}`, failureTicks),
        job.vertices.map((v) => {
          const from = v["start-time"] > 0 ? v["start-time"] : end, to = v["end-time"] > 0 ? v["end-time"] : end;
          const text = `${v.status.toLowerCase()}, ${formatDuration(to - from)}`;
          return lane(formatChain(v.name), text, segment(STATUS_CLASSES[v.status] || "idle", from, to, text));
        }),
        el("div", { class: "lane axis" }, el("span"), el("div", {},
          el("span", {}, formatTime(start)), el("span", {}, job["end-time"] === -1 ? "now" : formatTime(end)))));
    },
  };
}

function lane(name, text, ...children) {
  return el("div", { class: "lane" }, el("span", { title: name }, name),
    el("div", { class: "track", role: "img", "aria-label": `${name}: ${text}` }, children));
}

// Returns functions that create marks of a lane, positioned by time.
function marks(start, end) {
  const span = Math.max(end - start, 1);
  const left = (time) => `${Math.max(0, Math.min(100, ((time - start) / span) * 100))}%`;
  const width = (from, to) => `${Math.max(0, ((to - from) / span) * 100)}%`;
  return {
    segment: (level, from, to, title) =>
      el("i", { class: level, style: `left:${left(from)};width:${width(from, to)}`, title }),
    tick: (level, time, title) => el("i", { class: `tick ${level}`, style: `left:${left(time)}`, title }),
  };
}

export function configurationTab(container, id) {
  const list = el("div");
  const search =
    el("input", { type: "search", id: "config-search", placeholder: "Filter by key or value", oninput: () => show() });
  container.append(
    el("div", { class: "controls" }, el("div", {}, el("label", { for: "config-search" }, "Configuration"), search)),
    list);
  let configuration = {};
  function show() {
    const pattern = search.value.toLowerCase(), mono = (text) => el("span", { class: "mono" }, text);
    const matches = Object.entries(configuration).filter(([k, v]) => `${k} ${v}`.toLowerCase().includes(pattern));
    const rows = matches.sort().map(([k, v]) => [mono(k), mono(v)]);
    const empty = pattern ? "No matching settings." : "The job was started without settings.";
    replaceContent(list, rows.length
      ? el("div", { class: "panel" }, table(["Key", "Value"], rows, { label: "Configuration" }))
      : el("p", { class: "empty" }, empty));
  }
  return {
    async refresh() {
      configuration = (await request(`/jobs/${id}/config`))["execution-config"]["user-config"];
      show();
    },
  };
}
