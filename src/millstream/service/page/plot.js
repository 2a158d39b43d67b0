// A line over the last looks, or bars. What is written stands beside the picture, so that nothing is stretched.
import { el, svg } from "./dom.js";
import { length } from "./words.js";

const W = 600, H = 100;

// values: numbers, oldest first; at: their times in ms, where they are known.
export function plot(values, text, options = {}) {
  const most = Math.max(options.top || 0, ...values, 1e-9), least = Math.min(0, ...values);
  const x = (i) => (values.length < 2 ? 0 : (i / (values.length - 1)) * W), y = (v) => H - 2 - ((v - least) / (most - least)) * (H - 6);
  const line = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const now = values.length ? text(values[values.length - 1]) : "–", top = values.length ? text(Math.max(...values)) : "–";
  const said = el("b", {}, now), when = el("span", {}, "now");
  const mark = svg("line", { class: "mark", y1: 0, y2: H, x1: -9, x2: -9 });
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `${options.label || ""} now ${now}, at most ${top}`.trim() },
    svg("path", { class: "grid", d: `M0 ${H / 2}H${W}M0 1H${W}M0 ${H - 1}H${W}` }),
    values.length > 1 ? [svg("path", { class: "fill", d: `${line}L${W} ${y(0)}L0 ${y(0)}z` }), svg("path", { class: "line", d: line })] : null, mark);
  picture.addEventListener("pointermove", (e) => {
    const box = picture.getBoundingClientRect(), i = Math.round(((e.clientX - box.left) / box.width) * (values.length - 1));
    if (!(i in values)) return;
    mark.setAttribute("x1", x(i));
    mark.setAttribute("x2", x(i));
    said.textContent = text(values[i]);
    when.textContent = options.at ? `${length(options.at[options.at.length - 1] - options.at[i])} ago` : "";
  });
  picture.addEventListener("pointerleave", () => {
    mark.setAttribute("x1", -9);
    mark.setAttribute("x2", -9);
    said.textContent = now;
    when.textContent = "now";
  });
  const since = options.at && options.at.length > 1 ? `last ${length(options.at[options.at.length - 1] - options.at[0])}` : "";
  return el("figure", { class: "plot" },
    el("figcaption", {}, options.label ? el("span", { class: "of", title: options.label }, options.label) : null, said, " ", when, el("span", { class: "most" }, `at most ${top}`)),
    picture, el("div", { class: "since" }, since));
}

// A small line without words, for tables.
export function spark(values, label) {
  const most = Math.max(...values, 1e-9);
  const line = values.map((v, i) => `${i ? "L" : "M"}${((i / Math.max(values.length - 1, 1)) * 80).toFixed(1)} ${(18 - (v / most) * 16).toFixed(1)}`).join("");
  return svg("svg", { class: "spark", viewBox: "0 0 80 20", role: "img", "aria-label": label }, svg("path", { d: line }));
}

export function bars(values, text, label) {
  const most = Math.max(...values.map((v) => v.value), 1e-9), step = W / Math.max(values.length, 16);
  const last = values[values.length - 1];
  return el("figure", { class: "plot" },
    el("figcaption", {}, el("span", { class: "of" }, label), el("b", {}, last ? text(last.value) : "–"), " last", el("span", { class: "most" }, `at most ${text(most)}`)),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: last ${last ? text(last.value) : "none"}, at most ${text(most)}` },
      svg("path", { class: "grid", d: `M0 ${H / 2}H${W}M0 1H${W}M0 ${H - 1}H${W}` }),
      values.map((v, i) => svg("rect", { class: v.bad ? "bad" : null, x: i * step + 1, width: Math.max(step - 2, 1), y: H - 1 - (v.value / most) * (H - 6), height: Math.max((v.value / most) * (H - 6), 1) }, svg("title", {}, v.title)))));
}
