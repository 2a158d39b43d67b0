// The state of a vertex as of the last complete checkpoint: what there is, and what a key has.
import { ask } from "./api.js";
import { el, renew, table } from "./dom.js";
import { ago, bytes, count } from "./words.js";

export function stateView(id, vertex, body) {
  const about = el("p", { class: "small muted" }), list = el("div"), form = el("form", { class: "picker", hidden: true }), rows = el("div", { "aria-live": "polite" });
  const which = el("select", { id: "state-which" }), key = el("input", { id: "state-key", placeholder: "all, or one", autocomplete: "off" });
  form.append(el("div", {}, el("label", { for: "state-which" }, "State"), which), el("div", {}, el("label", { for: "state-key" }, "Key"), key), el("button", { class: "main" }, "Look"));
  body.append(about, list, form, rows);
  let known = "";

  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const [operator, name] = JSON.parse(which.value), asked = key.value === "" ? "" : `?key=${encodeURIComponent(key.value)}`;
    try {
      const told = await ask(`/jobs/${id}/state/${operator}/${encodeURIComponent(name)}${asked}`);
      const shown = told.rows.map((r) => [text(r.key), r.namespace === null || r.namespace === undefined ? "" : text(r.namespace), text(r.value)]);
      renew(rows, shown.length ? table(["Key", "Namespace", "Value"], shown, { label: "Rows" }) : el("p", { class: "muted" }, key.value ? `There is nothing for ${key.value}.` : "There is nothing in it."), told.complete ? null : el("p", { class: "muted small" }, "There is more: ask for a key."));
    } catch (error) {
      renew(rows, el("p", { class: "bad" }, error.message));
    }
  });

  return {
    async refresh(job, _, node) {
      let told, size = null;
      try {
        told = await ask(`/jobs/${id}/state`);
        const sizes = await ask(`/jobs/${id}/vertices/${vertex}/subtasks/metrics?get=stateSize`).catch(() => []);
        size = sizes.length ? sizes[0].sum : null;
      } catch (error) {
        about.textContent = error.message;
        return;
      }
      const ids = new Set((node.operators || []).map((o) => o.id));
      const mine = told.operators.filter((o) => ids.has(o.operator));
      about.textContent = `As of checkpoint ${told.checkpoint}, ${ago(told.completed, job.now)}${size === null ? "" : `: ${bytes(size)} in memory and on disk`}.`;
      renew(list, mine.length ? table(["Operator", "State", "Kind", "Rows"], mine.flatMap((o) => o.states.map((s) => [o.name, s.name, s.kind, count(s.rows)])), { right: [3], label: "States" }) : el("p", { class: "muted" }, "This vertex keeps no state."));
      const options = mine.flatMap((o) => o.states.map((s) => [JSON.stringify([o.operator, s.name]), `${o.name}: ${s.name}`]));
      if (JSON.stringify(options) !== known) {
        known = JSON.stringify(options);
        which.replaceChildren(...options.map(([value, label]) => el("option", { value }, label)));
      }
      form.hidden = !options.length;
    },
  };
}

function text(value) {
  return el("span", { class: "mono" }, typeof value === "string" ? value : JSON.stringify(value));
}
