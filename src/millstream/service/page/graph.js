// The job graph, live: colour says how busy a vertex is or who holds it up, edges how much goes over them.
import { ask } from "./api.js";
import { el, state, svg, table } from "./dom.js";
import { flameView } from "./flame.js";
import { HEIGHT, layout, WIDTH } from "./layout.js";
import { plot } from "./plot.js";
import { bytes, count, eventTime, length, percent, rate } from "./words.js";

const ASKED = "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,numRecordsInPerSecond,numRecordsOutPerSecond";
// With more subtasks than this the graph asks for sums only.
const KEPT = 60;

export function graphTab(place, id) {
  const board = el("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Job graph" });
  const drawer = el("aside", { class: "drawer", "aria-label": "Vertex", hidden: true });
  const split = el("div", { class: "split" }, board, drawer);
  place.append(split, el("p", { class: "muted small" }, "Green works, yellow is held up a little or busy, red is held up or works without a pause, grey waits for input. Choose a vertex to see its subtasks."));
  const flames = flameView(id);
  let chosen = null, zoom = 1, history = new Map(), last = null, drawn = null;

  function choose(vertex) {
    chosen = vertex || null;
    if (last) show(last);
  }

  async function refresh(job) {
    const measured = new Map();
    await Promise.all(job.vertices.map(async (v) => {
      const found = await ask(`/jobs/${id}/vertices/${v.id}/subtasks/metrics?get=${ASKED}`);
      measured.set(v.id, Object.fromEntries(found.map((m) => [m.id, m])));
    }));
    for (const v of job.vertices) {
      const kept = history.get(v.id) || [];
      const m = measured.get(v.id);
      kept.push({ at: job.now, in: m.numRecordsInPerSecond ? m.numRecordsInPerSecond.sum : 0, busy: share(m, "busyTimeMsPerSecond"), blocked: share(m, "backPressuredTimeMsPerSecond") });
      history.set(v.id, kept.slice(-KEPT));
    }
    last = { job, measured };
    await show(last);
  }

  async function show({ job, measured }) {
    draw(job, measured);
    const vertex = job.vertices.find((v) => v.id === chosen);
    drawer.hidden = !vertex;
    split.classList.toggle("open", Boolean(vertex));
    if (vertex) await fill(job, vertex);
  }

  function draw(job, measured) {
    const shape = job.plan.nodes.map((n) => n.id + (n.inputs || []).map((i) => i.id)).join();
    const plan = layout(job.plan.nodes);
    const picture = svg("svg", { width: plan.width * zoom, height: plan.height * zoom, viewBox: `0 0 ${plan.width} ${plan.height}`, role: "presentation" });
    picture.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", fill: "currentColor" }))));
    for (const node of job.plan.nodes) {
      const to = plan.places.get(node.id);
      for (const input of node.inputs || []) {
        const from = plan.places.get(input.id);
        const x1 = from.x + WIDTH, y1 = from.y + HEIGHT / 2, x2 = to.x - 2, y2 = to.y + HEIGHT / 2, bend = (x2 - x1) / 2;
        const m = measured.get(node.id).numRecordsInPerSecond;
        picture.append(svg("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#arrow)" }),
          svg("text", { class: "edge-label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 8, "text-anchor": "middle" }, input.ship_strategy),
          m ? svg("text", { class: "edge-label", x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 16, "text-anchor": "middle" }, rate(m.sum)) : null);
      }
    }
    for (const vertex of job.vertices) {
      const at = plan.places.get(vertex.id), m = measured.get(vertex.id);
      const busy = share(m, "busyTimeMsPerSecond"), blocked = share(m, "backPressuredTimeMsPerSecond");
      const level = colour(vertex, busy, blocked);
      const says = `${vertex.name}, ${vertex.parallelism} subtasks, ${vertex.status.toLowerCase()}, busy ${percent(busy)}, back-pressured ${percent(blocked)}`;
      const open = () => (location.hash = chosen === vertex.id ? `#/jobs/${id}/graph` : `#/jobs/${id}/graph/${vertex.id}`);
      picture.append(svg("g", { class: `node ${level} ${chosen === vertex.id ? "chosen" : ""}`, transform: `translate(${at.x} ${at.y})`, tabindex: 0, role: "button", "aria-label": says, "data-vertex": vertex.id,
          onclick: open, onkeydown: (e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), open()) },
        svg("title", {}, says), svg("rect", { width: WIDTH, height: HEIGHT, rx: 10 }),
        lines(vertex.name).map((text, i) => svg("text", { x: 14, y: 24 + i * 16 }, text)),
        svg("text", { class: "sub", x: 14, y: HEIGHT - 26 }, `busy ${percent(busy)} · held up ${percent(blocked)}`),
        svg("text", { class: "sub", x: 14, y: HEIGHT - 10 }, `${vertex.status === "RUNNING" ? rate(m.numRecordsInPerSecond ? m.numRecordsInPerSecond.sum : 0) : vertex.status.toLowerCase()} · parallelism ${vertex.parallelism}`)));
    }
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.vertex : null;
    const left = board.scrollLeft, top = board.scrollTop;
    const by = (factor) => () => ((zoom = Math.min(2.5, Math.max(0.3, zoom * factor))), draw(job, measured));
    board.replaceChildren(picture, el("div", { class: "zoom" }, el("button", { type: "button", "aria-label": "Smaller", onclick: by(0.8) }, "−"), el("button", { type: "button", "aria-label": "Larger", onclick: by(1.25) }, "+")));
    if (drawn !== shape) drawn = shape;
    else board.scrollTo(left, top);
    if (focused) board.querySelector(`[data-vertex="${focused}"]`)?.focus();
  }

  async function fill(job, vertex) {
    const path = `/jobs/${id}/vertices/${vertex.id}`;
    const [details, marks, pressure] = await Promise.all([ask(path), ask(`${path}/watermarks`), ask(`${path}/backpressure`)]);
    const kept = history.get(vertex.id) || [];
    const node = job.plan.nodes.find((n) => n.id === vertex.id);
    const rows = details.subtasks.map((s, i) => {
      const p = pressure.subtasks[i] || { busyRatio: 0, ratio: 0 };
      return [s.subtask, state(s.status), count(s.metrics["read-records"]), count(s.metrics["write-records"]), bytes(s.metrics["write-bytes"]), bar(p.busyRatio, p.ratio), eventTime(marks[i] ? Number(marks[i].value) : null, job.now)];
    });
    const scrolled = drawer.scrollTop;
    drawer.replaceChildren(
      el("div", { class: "titled" }, el("h2", { style: "margin:0" }, vertex.name), el("button", { type: "button", onclick: () => (location.hash = `#/jobs/${id}/graph`) }, "Close")),
      el("ul", { class: "small muted" }, (node.operators || []).map((o) => el("li", {}, o.name, o["made-at"] ? ` – made at ${o["made-at"]}` : ""))),
      el("h3", {}, "Records a second"), plot(kept.map((k) => k.in), rate), el("h3", {}, "Share of time held up"), plot(kept.map((k) => k.blocked), percent, 1),
      el("h3", {}, "Subtasks"), table(["#", "State", "In", "Out", "Sent", "Time", "Event time"], rows, { right: [2, 3, 4], label: "Subtasks" }), flames.place,
    );
    await flames.refresh(vertex.id);
    drawer.scrollTop = scrolled;
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

function bar(busy, blocked) {
  return el("div", { class: "bar", role: "img", "aria-label": `busy ${percent(busy)}, held up ${percent(blocked)}`, title: `busy ${percent(busy)}, held up ${percent(blocked)}` }, el("i", { class: "busy", style: `width:${busy * 100}%` }), el("i", { class: "blocked", style: `width:${blocked * 100}%` }));
}

function lines(name) {
  if (name.length <= 34) return [name];
  const cut = name.lastIndexOf(" ", 34) > 10 ? name.lastIndexOf(" ", 34) : 34;
  const rest = name.slice(cut).trim();
  return [name.slice(0, cut), rest.length > 34 ? `${rest.slice(0, 33)}…` : rest];
}
