// The job graph: colors show the load and backpressure of vertices, edges show partitioning and throughput.
import { request } from "./api.js";
import { vertexDrawer } from "./drawer.js";
import { el, replaceContent, svg } from "./dom.js";
import { formatCount, formatPercent, formatRate } from "./format.js";
import { layout, LINE, lines, WIDTH } from "./layout.js";

const METRICS =
  "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,numRecordsInPerSecond,numRecordsOutPerSecond";
// The thresholds are those of `levelOf`.
const LEGEND = [
  ["ok", "busy up to 60%"],
  ["low", "busy over 60% or backpressured over 10%"],
  ["high", "busy over 90% or backpressured over 50%"],
  ["idle", "idle"],
];
const MAX_CHARACTERS = 31, MAX_BOLD_CHARACTERS = 26;

export function graphTab(container, id) {
  const board = el("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Job graph" });
  const drawer = vertexDrawer(id);
  const zoomButtons = el("div", { class: "zoom" });
  const legend = el("p", { class: "legend" },
    LEGEND.map(([level, text]) => el("span", {}, el("i", { class: level }), text)),
    el("span", { class: "muted" }, "Select a vertex for details."));
  const split = el("div", { class: "split" }, el("div", {}, board, zoomButtons, legend), drawer.container);
  container.append(split);
  let selected = null, zoom = null, last = null, drawnGraph = null;

  function select(vertex, tab) {
    selected = vertex || null;
    drawer.select(selected, tab);
    split.classList.toggle("open", Boolean(selected));
    if (last) draw(last.job, last.metrics);
  }

  async function refresh(job) {
    // The metrics of each vertex, by id and name.
    const metrics = new Map();
    await Promise.all(job.vertices.map(async (v) => {
      const response = await request(`/jobs/${id}/vertices/${v.id}/subtasks/metrics?get=${METRICS}`);
      metrics.set(v.id, Object.fromEntries(response.map((m) => [m.id, m])));
    }));
    last = { job, metrics };
    draw(job, metrics);
    await drawer.refresh(job);
  }

  function draw(job, metrics) {
    const graph = job.plan.nodes.map((n) => n.id + (n.inputs || []).map((i) => i.id)).join();
    const { positions, width, height } = layout(job.plan.nodes);
    // Fit the width, but keep the text readable.
    const fit = Math.min(1, Math.max(0.5, (board.clientWidth - 4) / width)), scale = zoom || fit;
    const picture = svg("svg",
      { width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "presentation" });
    picture.append(svg("defs", {}, arrowMarker()));
    const labels = [];
    for (const node of job.plan.nodes) {
      (node.inputs || []).forEach((input, i) => {
        const [path, ...edgeLabels] = edge(job, metrics, positions, node, input, i);
        picture.append(path);
        labels.push(...edgeLabels);
      });
    }
    for (const vertex of job.vertices) {
      picture.append(box(job, vertex, positions.get(vertex.id), metrics.get(vertex.id)));
    }
    // Labels are above all edges and vertices.
    picture.append(...labels.filter(Boolean));
    const focused = board.contains(document.activeElement) ? document.activeElement.dataset : null;
    const left = board.scrollLeft, top = board.scrollTop;
    const zoomBy = (factor) => () => {
      zoom = Math.min(2.5, Math.max(0.3, scale * factor));
      draw(job, metrics);
    };
    const resetZoom = () => {
      zoom = null;
      draw(job, metrics);
    };
    const button = (text, label, action) =>
      el("button", { type: "button", "aria-label": label, onclick: action }, text);
    board.replaceChildren(picture);
    replaceContent(zoomButtons,
      button("−", "Zoom out", zoomBy(0.8)), button("fit", "Fit", resetZoom), button("+", "Zoom in", zoomBy(1.25)));
    if (drawnGraph !== graph) drawnGraph = graph;
    else board.scrollTo(left, top);
    if (focused && focused.vertex) {
      board.querySelector(`[data-vertex="${focused.vertex}"]`)?.focus({ preventScroll: true });
    }
  }

  function edge(job, metrics, positions, node, input, index) {
    const from = positions.get(input.id), to = positions.get(node.id);
    const x1 = from.x + WIDTH, y1 = from.y + from.h / 2;
    const x2 = to.x - 2, y2 = to.y + (to.h * (index + 1)) / (node.inputs.length + 1);
    const bend = (x2 - x1) / 2;
    // The output of a vertex may go to several others; the input of a vertex with one input is what that edge carries.
    const throughput = node.inputs.length === 1
      ? metrics.get(node.id).numRecordsInPerSecond
      : metrics.get(input.id).numRecordsOutPerSecond;
    const isActive = job.state === "RUNNING" && throughput && throughput.sum > 0;
    const label = (offset, text) =>
      svg("text", { class: "edge-label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 + offset, "text-anchor": "middle" }, text);
    return [
      svg("path", {
        class: isActive ? "edge active" : "edge",
        d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
        "marker-end": "url(#arrow)",
      }),
      label(-5, input.ship_strategy),
      throughput && job["end-time"] === -1 ? label(13, formatRate(throughput.sum)) : null,
    ];
  }

  function box(job, vertex, position, metrics) {
    const busy = share(metrics, "busyTimeMsPerSecond"), backpressured = share(metrics, "backPressuredTimeMsPerSecond");
    const hasEnded = job["end-time"] !== -1, isSelected = selected === vertex.id;
    const node = job.plan.nodes.find((n) => n.id === vertex.id);
    const rate = metrics.numRecordsInPerSecond ? metrics.numRecordsInPerSecond.sum : 0;
    const load = backpressured > 0.1
      ? `busy ${formatPercent(busy)} · backpressured ${formatPercent(backpressured)}`
      : `busy ${formatPercent(busy)} · ${formatRate(rate)}`;
    const totals =
      `${formatCount(vertex.metrics["read-records"])} in, ${formatCount(vertex.metrics["write-records"])} out`;
    const label =
      `${vertex.name}, ${vertex.parallelism} subtasks, ${vertex.status.toLowerCase()}, ` +
      `busy ${formatPercent(busy)}, backpressured ${formatPercent(backpressured)}`;
    const toggle = () => (location.hash = isSelected ? `#/jobs/${id}/graph` : `#/jobs/${id}/graph/${vertex.id}`);
    const width = WIDTH - 28;
    const gauge = (name, start, length) =>
      svg("rect", { class: name, x: 14 + start, y: position.h - 34, width: length, height: 5, rx: 2.5 });
    const gauges = [
      gauge("gauge", 0, width),
      gauge("gauge busy", 0, width * Math.min(busy, 1)),
      gauge("gauge backpressured",
        width * Math.min(busy, 1), width * Math.min(backpressured, Math.max(1 - busy, 0))),
    ];
    const isNormal = vertex.status === "RUNNING" || vertex.status === "FINISHED";
    return svg("g", {
      class: `node ${levelOf(vertex, busy, backpressured)} ${isSelected ? "selected" : ""}`,
      transform: `translate(${position.x} ${position.y})`, tabindex: 0, role: "button", "aria-label": label,
      "aria-pressed": String(isSelected), "data-vertex": vertex.id, onclick: toggle,
      onkeydown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), toggle()),
    },
      svg("title", {}, label),
      svg("rect", { class: "box", width: WIDTH, height: position.h, rx: 10 }),
      lines(node).map((text, i) =>
        svg("text", { x: 14, y: 24 + i * LINE, class: i ? "operator" : "operator first" },
          shorten(text, i ? MAX_CHARACTERS : MAX_BOLD_CHARACTERS))),
      hasEnded ? null : gauges,
      svg("text", { class: "footer", x: 14, y: position.h - 11 }, hasEnded ? totals : load),
      svg("text", { class: "footer", x: WIDTH - 14, y: position.h - 11, "text-anchor": "end" },
        isNormal ? `×${vertex.parallelism}` : vertex.status.toLowerCase()));
  }

  return { select, refresh };
}

function arrowMarker() {
  return svg("marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { class: "arrowhead", d: "M0 0L8 4L0 8z" }));
}

// The share of time of the subtask with the largest share.
function share(metrics, name) {
  return metrics[name] ? metrics[name].max / 1000 : 0;
}

function levelOf(vertex, busy, backpressured) {
  if (vertex.status === "FAILED") return "high";
  if (vertex.status !== "RUNNING") return vertex.status === "FINISHED" ? "ok" : "idle";
  if (backpressured > 0.5 || busy > 0.9) return "high";
  if (backpressured > 0.1 || busy > 0.6) return "low";
  return busy > 0.02 ? "ok" : "idle";
}

function shorten(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
