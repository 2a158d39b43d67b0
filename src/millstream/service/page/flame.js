// The flame graph of a vertex, which separates user functions from the runtime.
import { request } from "./api.js";
import { el, replaceContent } from "./dom.js";
import { formatPercent } from "./format.js";

const TYPES = [["on_cpu", "On-CPU"], ["off_cpu", "Off-CPU"], ["full", "Mixed"]];
// The minimum share of all samples for a frame to be drawn.
const MIN_SHARE = 0.004;

export function flameGraphView(id) {
  const container = el("section", { class: "flame-graph", "aria-label": "Flame graph" });
  let type = null, rendered = "";

  // Selects a type, or none if it was selected already.
  function toggle(next) {
    type = type === next ? null : next;
    rendered = "";
  }

  async function refresh(vertex) {
    const buttons = TYPES.map(([key, text]) =>
      el("button", {
        type: "button", "aria-pressed": String(type === key), onclick: () => (toggle(key), refresh(vertex)),
      }, text));
    // Each request extends sampling.
    const response = type ? await request(`/jobs/${id}/vertices/${vertex}/flamegraph?type=${type}`) : null;
    const current = JSON.stringify([vertex, type, response && response.data]);
    if (current === rendered) return;
    rendered = current;
    replaceContent(container,
      el("div", { class: "heading" }, el("h3", {}, "Flame graph"), el("div", { class: "actions" }, buttons)),
      content(response));
  }

  function content(response) {
    const note = (text) => el("p", { class: "muted small" }, text);
    if (!response) {
      return note("Select a type: stacks on the CPU, stacks that wait, or both. Slots are sampled while the flame " +
        "graph is open. User functions are orange, functions of the runtime gray.");
    }
    if (!response.data) return note(response.endTimestamp === -1 ? "The job has ended." : "Collecting samples …");
    const label = "Stacks, outermost frame first";
    return el("div", { class: "flame-box", tabindex: "0", role: "group", "aria-label": label },
      frame(response.data, response.data.value || 1));
  }

  return { container, refresh };
}

// A frame above its callees; widths are proportional to numbers of samples.
function frame(node, total) {
  const isRuntime = /^(millstream|root)/.test(node.name);
  const text = node.name === "root" ? `root, ${node.value} samples` : node.name;
  const callees = node.children.filter((c) => c.value / total >= MIN_SHARE);
  return el("div", { class: "flame", style: `flex:${node.value} 1 0` },
    el("span",
      { class: isRuntime ? "runtime" : "user", title: `${node.name}: ${formatPercent(node.value / total)}` }, text),
    callees.length
      ? el("div", { class: "flame-row" }, callees.map((c) => frame(c, total)), filler(node, callees))
      : null);
}

// The space of samples without a callee that is drawn.
function filler(node, callees) {
  const value = node.value - callees.reduce((sum, c) => sum + c.value, 0);
  return value > 0 ? el("div", { style: `flex:${value} 1 0` }) : null;
}
