// A line over the last looks, or bars.
import { svg } from "./dom.js";

export function plot(values, text, top) {
  const most = Math.max(top || 0, ...values, 1e-9), w = 400, h = 110;
  const x = (i) => (values.length < 2 ? 0 : (i / (values.length - 1)) * w), y = (v) => h - 4 - (v / most) * (h - 22);
  const line = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const now = values.length ? text(values[values.length - 1]) : "";
  return svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", role: "img", "aria-label": `now ${now}, at most ${text(most)}` },
    values.length > 1 ? [svg("path", { class: "fill", d: `${line}L${w} ${h}L0 ${h}z` }), svg("path", { d: line, "vector-effect": "non-scaling-stroke" })] : null,
    svg("text", { x: 2, y: 11 }, `now ${now}, at most ${text(most)}`));
}

export function bars(values, text) {
  const most = Math.max(...values.map((v) => v.value), 1e-9), w = 400, h = 110, step = w / Math.max(values.length, 12);
  return svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: "none", role: "img", "aria-label": `at most ${text(most)}` },
    values.map((v, i) => svg("rect", { class: v.bad ? "bad" : null, x: i * step + 1, width: Math.max(step - 2, 1), y: h - (v.value / most) * (h - 18), height: (v.value / most) * (h - 18) }, svg("title", {}, v.title))),
    svg("text", { x: 2, y: 11 }, `at most ${text(most)}`));
}
