// Where the time of a vertex goes: stacks, the user's functions told apart from ours.
import { ask } from "./api.js";
import { el, renew } from "./dom.js";
import { percent } from "./words.js";

const KINDS = [["on_cpu", "working"], ["off_cpu", "waiting"], ["full", "both"]];
// What is narrower than this share of all is not drawn.
const LEAST = 0.004;

export function flameView(id) {
  const place = el("section", { class: "flames", "aria-label": "Flame graph" });
  let kind = null, shown = "";

  function choose(next) {
    kind = kind === next ? null : next;
    shown = "";
  }

  async function refresh(vertex) {
    const buttons = KINDS.map(([key, text]) => el("button", { type: "button", "aria-pressed": String(kind === key), onclick: () => (choose(key), refresh(vertex)) }, text));
    const told = kind ? await ask(`/jobs/${id}/vertices/${vertex}/flamegraph?type=${kind}`) : null;
    const now = JSON.stringify([vertex, kind, told && told.data]);
    if (now === shown) return;
    shown = now;
    const head = el("div", { class: "titled" }, el("h3", {}, "Stacks"), el("div", { class: "actions" }, buttons));
    renew(place, head, picture(told));
  }

  function picture(told) {
    if (!told) return el("p", { class: "muted small" }, "Press one of them, and its slots are sampled for as long as you look: what they work on, what they wait for. Your functions are orange, ours grey.");
    if (!told.data) return el("p", { class: "muted small" }, told.endTimestamp === -1 ? "The job is over." : "Looking …");
    return el("div", { class: "flame-box", tabindex: "0", role: "group", "aria-label": "Stacks, outermost first" }, flame(told.data, told.data.value || 1));
  }

  return { place, refresh };
}

function flame(node, total) {
  const share = node.value / total;
  const mine = !/^(millstream|root)/.test(node.name);
  const says = `${node.name}: ${percent(share)}`;
  const children = node.children.filter((c) => c.value / total >= LEAST);
  return el("div", { class: "flame", style: `flex:${node.value} 1 0` },
    el("span", { class: mine ? "mine" : "ours", title: says }, node.name === "root" ? `all, ${node.value} samples` : node.name),
    children.length ? el("div", { class: "flame-row" }, children.map((c) => flame(c, total)), rest(node, children)) : null);
}

function rest(node, children) {
  const left = node.value - children.reduce((sum, c) => sum + c.value, 0);
  return left > 0 ? el("div", { style: `flex:${left} 1 0` }) : null;
}
