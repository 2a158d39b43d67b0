// Line and bar plots. Text is outside the SVG, which is stretched to the available width.
import { el, svg } from "./dom.js";
import { formatDuration } from "./format.js";

const WIDTH = 600, HEIGHT = 100;
const GRID = `M0 ${HEIGHT / 2}H${WIDTH}M0 1H${WIDTH}M0 ${HEIGHT - 1}H${WIDTH}`;
// The cursor's position while it is hidden.
const OUTSIDE = -9;

// values: numbers, oldest first; options: label, the minimum of the scale's top, the times of the values in ms.
export function plot(values, format, options = {}) {
  const { label, times } = options;
  const top = Math.max(options.top || 0, ...values, 1e-9), bottom = Math.min(0, ...values);
  const x = (i) => (values.length < 2 ? 0 : (i / (values.length - 1)) * WIDTH);
  const y = (value) => HEIGHT - 2 - ((value - bottom) / (top - bottom)) * (HEIGHT - 6);
  const line = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const current = values.length ? format(values[values.length - 1]) : "–";
  const max = values.length ? format(Math.max(...values)) : "–";
  const value = el("b", {}, current), age = el("span", {}, "now");
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: OUTSIDE, x2: OUTSIDE });
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${label || ""} now ${current}, max ${max}`.trim(),
  },
    svg("path", { class: "grid", d: GRID }),
    values.length > 1
      ? [
        svg("path", { class: "fill", d: `${line}L${WIDTH} ${y(0)}L0 ${y(0)}z` }),
        svg("path", { class: "line", d: line }),
      ]
      : null,
    cursor);
  const moveCursor = (position) => {
    cursor.setAttribute("x1", position);
    cursor.setAttribute("x2", position);
  };
  picture.addEventListener("pointermove", (e) => {
    const bounds = picture.getBoundingClientRect();
    const i = Math.round(((e.clientX - bounds.left) / bounds.width) * (values.length - 1));
    if (!(i in values)) return;
    moveCursor(x(i));
    value.textContent = format(values[i]);
    age.textContent = times ? `${formatDuration(times[times.length - 1] - times[i])} ago` : "";
  });
  picture.addEventListener("pointerleave", () => {
    moveCursor(OUTSIDE);
    value.textContent = current;
    age.textContent = "now";
  });
  const range = times && times.length > 1 ? `last ${formatDuration(times[times.length - 1] - times[0])}` : "";
  return el("figure", { class: "plot" },
    el("figcaption", {},
      label ? el("span", { class: "label", title: label }, label) : null, value, " ", age,
      el("span", { class: "max" }, `max ${max}`)),
    picture, el("div", { class: "range" }, range));
}

// values: objects with a value, a title, and isFailed, oldest first.
export function bars(values, format, label) {
  const max = Math.max(...values.map((v) => v.value), 1e-9), step = WIDTH / Math.max(values.length, 16);
  const last = values[values.length - 1], height = (v) => (v.value / max) * (HEIGHT - 6);
  return el("figure", { class: "plot" },
    el("figcaption", {},
      el("span", { class: "label" }, label), el("b", {}, last ? format(last.value) : "–"), " last",
      el("span", { class: "max" }, `max ${format(max)}`)),
    svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `${label}: last ${last ? format(last.value) : "none"}, max ${format(max)}`,
    },
      svg("path", { class: "grid", d: GRID }),
      values.map((v, i) => svg("rect", {
        class: v.isFailed ? "bad" : null, x: i * step + 1, width: Math.max(step - 2, 1), y: HEIGHT - 1 - height(v),
        height: Math.max(height(v), 1),
      }, svg("title", {}, v.title)))));
}
