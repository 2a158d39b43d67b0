// The job graph, live: colour says how busy a vertex is or who holds it up, edges how much goes over them.
import { ask } from "./api.js";
import { vertexDrawer } from "./drawer.js";
import { el, renew, svg } from "./dom.js";
import { layout, LINE, lines, WIDTH } from "./layout.js";
import { count, percent, rate, way } from "./words.js";

const ASKED = "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,numRecordsInPerSecond,numRecordsOutPerSecond";
const LEGEND = [["ok", "works"], ["low", "busy, or held up a little"], ["high", "works without a pause, or is held up"], ["idle", "waits for input"]];

export function graphTab(place, id) {
  const board = el("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Job graph" });
  const drawer = vertexDrawer(id);
  const tools = el("div", { class: "zoom" });
  const split = el("div", { class: "split" }, el("div", {}, board, tools, el("p", { class: "legend" }, LEGEND.map(([level, text]) => el("span", {}, el("i", { class: level }), text)), el("span", { class: "muted" }, "Choose a vertex to look into it."))), drawer.place);
  place.append(split);
  let chosen = null, zoom = null, last = null, drawn = null;

  function choose(vertex, tab) {
    chosen = vertex || null;
    drawer.choose(chosen, tab);
    split.classList.toggle("open", Boolean(chosen));
    if (last) draw(last.job, last.measured);
  }

  async function refresh(job) {
    const measured = new Map();
    await Promise.all(job.vertices.map(async (v) => {
      const found = await ask(`/jobs/${id}/vertices/${v.id}/subtasks/metrics?get=${ASKED}`);
      measured.set(v.id, Object.fromEntries(found.map((m) => [m.id, m])));
    }));
    last = { job, measured };
    draw(job, measured);
    await drawer.refresh(job);
  }

  function draw(job, measured) {
    const shape = job.plan.nodes.map((n) => n.id + (n.inputs || []).map((i) => i.id)).join();
    const plan = layout(job.plan.nodes);
    // As large as it fits, but no smaller than can be read.
    const fitting = Math.min(1, Math.max(0.5, (board.clientWidth - 4) / plan.width)), scale = zoom || fitting;
    const picture = svg("svg", { width: plan.width * scale, height: plan.height * scale, viewBox: `0 0 ${plan.width} ${plan.height}`, role: "presentation" });
    picture.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: "tip", d: "M0 0L8 4L0 8z" }))));
    const labels = [];
    for (const node of job.plan.nodes) {
      const to = plan.places.get(node.id), inputs = node.inputs || [];
      inputs.forEach((input, i) => {
        const from = plan.places.get(input.id);
        const x1 = from.x + WIDTH, y1 = from.y + from.h / 2, x2 = to.x - 2, y2 = to.y + (to.h * (i + 1)) / (inputs.length + 1), bend = (x2 - x1) / 2;
        const source = measured.get(input.id), mine = measured.get(node.id);
        // What a vertex sends may go to several; where it is the only one, what comes is what was sent.
        const m = inputs.length === 1 ? mine.numRecordsInPerSecond : source.numRecordsOutPerSecond;
        const flows = job.state === "RUNNING" && m && m.sum > 0;
        picture.append(svg("path", { class: flows ? "edge flows" : "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" }));
        labels.push(svg("text", { class: "edge-label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, way(input.ship_strategy)),
          m && job["end-time"] === -1 ? svg("text", { class: "edge-label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 13, "text-anchor": "middle" }, rate(m.sum)) : null);
      });
    }
    for (const vertex of job.vertices) picture.append(box(job, vertex, plan.places.get(vertex.id), measured.get(vertex.id)));
    picture.append(...labels.filter(Boolean));
    const focused = board.contains(document.activeElement) && document.activeElement.dataset ? document.activeElement.dataset : null;
    const left = board.scrollLeft, top = board.scrollTop;
    const by = (factor) => () => ((zoom = Math.min(2.5, Math.max(0.3, scale * factor))), draw(job, measured));
    const fit = () => ((zoom = null), draw(job, measured));
    const button = (text, label, act) => el("button", { type: "button", "aria-label": label, onclick: act }, text);
    board.replaceChildren(picture);
    renew(tools, button("−", "Smaller", by(0.8)), button("fit", "Fit", fit), button("+", "Larger", by(1.25)));
    if (drawn !== shape) drawn = shape;
    else board.scrollTo(left, top);
    if (focused && focused.vertex) board.querySelector(`[data-vertex="${focused.vertex}"]`)?.focus({ preventScroll: true });
  }

  function box(job, vertex, at, m) {
    const busy = share(m, "busyTimeMsPerSecond"), blocked = share(m, "backPressuredTimeMsPerSecond"), over = job["end-time"] !== -1;
    const level = colour(vertex, busy, blocked), node = job.plan.nodes.find((n) => n.id === vertex.id);
    const rates = m.numRecordsInPerSecond ? m.numRecordsInPerSecond.sum : 0;
    const done = `${count(vertex.metrics["read-records"])} in, ${count(vertex.metrics["write-records"])} out`;
    const says = `${vertex.name}, ${vertex.parallelism} subtasks, ${vertex.status.toLowerCase()}, busy ${percent(busy)}, back-pressured ${percent(blocked)}`;
    const open = () => (location.hash = chosen === vertex.id ? `#/jobs/${id}/graph` : `#/jobs/${id}/graph/${vertex.id}`);
    const w = WIDTH - 28;
    return svg("g", { class: `node ${level} ${chosen === vertex.id ? "chosen" : ""}`, transform: `translate(${at.x} ${at.y})`, tabindex: 0, role: "button", "aria-label": says, "aria-pressed": String(chosen === vertex.id), "data-vertex": vertex.id,
        onclick: open, onkeydown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), open()) },
      svg("title", {}, says), svg("rect", { class: "box", width: WIDTH, height: at.h, rx: 10 }),
      lines(node).map((text, i) => svg("text", { x: 14, y: 24 + i * LINE, class: i ? "op" : "op first" }, cut(text))),
      over ? null : [svg("rect", { class: "gauge", x: 14, y: at.h - 34, width: w, height: 5, rx: 2.5 }), svg("rect", { class: "gauge busy", x: 14, y: at.h - 34, width: w * Math.min(busy, 1), height: 5, rx: 2.5 }), svg("rect", { class: "gauge blocked", x: 14 + w * Math.min(busy, 1), y: at.h - 34, width: w * Math.min(blocked, Math.max(1 - busy, 0)), height: 5, rx: 2.5 })],
      svg("text", { class: "sub", x: 14, y: at.h - 11 }, over ? done : blocked > 0.1 ? `busy ${percent(busy)} · held up ${percent(blocked)}` : `busy ${percent(busy)} · ${rate(rates)}`),
      svg("text", { class: "sub", x: WIDTH - 14, y: at.h - 11, "text-anchor": "end" }, vertex.status === "RUNNING" || vertex.status === "FINISHED" ? `×${vertex.parallelism}` : vertex.status.toLowerCase()));
  }

  return { choose, refresh };
}

function share(m, name) {
  return m[name] ? m[name].max / 1000 : 0;
}

function colour(vertex, busy, blocked) {
  if (vertex.status === "FAILED") return "high";
  if (vertex.status !== "RUNNING") return vertex.status === "FINISHED" ? "ok" : "idle";
  if (blocked > 0.5 || busy > 0.9) return "high";
  if (blocked > 0.1 || busy > 0.6) return "low";
  return busy > 0.02 ? "ok" : "idle";
}

function cut(text) {
  return text.length > 31 ? `${text.slice(0, 30)}…` : text;
}
