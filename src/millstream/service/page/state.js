// The state of a vertex in the last complete checkpoint, and queries of its rows by key.
import { request } from "./api.js";
import { el, replaceContent, table } from "./dom.js";
import { formatAge, formatBytes, formatCount } from "./format.js";

export function stateView(id, vertex, body) {
  const about = el("p", { class: "small muted" }), list = el("div"), rows = el("div", { "aria-live": "polite" });
  const select = el("select", { id: "state-select" });
  const key = el("input", { id: "state-key", placeholder: "all keys", autocomplete: "off" });
  const form = el("form", { class: "controls", hidden: true },
    el("div", {}, el("label", { for: "state-select" }, "State"), select),
    el("div", {}, el("label", { for: "state-key" }, "Key"), key),
    el("button", { class: "primary" }, "Query"));
  body.append(about, list, form, rows);
  let renderedOptions = "";

  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    const [operator, name] = JSON.parse(select.value);
    const query = key.value === "" ? "" : `?key=${encodeURIComponent(key.value)}`;
    try {
      const response = await request(`/jobs/${id}/state/${operator}/${encodeURIComponent(name)}${query}`);
      const cells = response.rows.map((r) => [
        valueText(r.key), r.namespace === null || r.namespace === undefined ? "" : valueText(r.namespace),
        valueText(r.value),
      ]);
      replaceContent(rows,
        cells.length
          ? table(["Key", "Namespace", "Value"], cells, { label: "Rows" })
          : el("p", { class: "muted" }, key.value ? `No state for key ${key.value}.` : "The state is empty."),
        response.complete ? null : el("p", { class: "muted small" }, "There are more rows: enter a key."));
    } catch (error) {
      replaceContent(rows, el("p", { class: "bad" }, error.message));
    }
  });

  return {
    async refresh(job, _, node) {
      let response, size = null;
      try {
        response = await request(`/jobs/${id}/state`);
        const path = `/jobs/${id}/vertices/${vertex}/subtasks/metrics?get=stateSize`;
        const metrics = await request(path).catch(() => []);
        size = metrics.length ? metrics[0].sum : null;
      } catch (error) {
        about.textContent = error.message;
        return;
      }
      const ids = new Set((node.operators || []).map((o) => o.id));
      const operators = response.operators.filter((o) => ids.has(o.operator));
      const states = operators.flatMap((operator) => operator.states.map((state) => ({ operator, state })));
      about.textContent =
        `Checkpoint ${response.checkpoint}, completed ${formatAge(response.completed, job.now)}` +
        `${size === null ? "" : `: ${formatBytes(size)} in memory and on disk`}.`;
      const cells = states.map(({ operator, state }) =>
        [operator.name, state.name, state.kind, formatCount(state.rows)]);
      const header = ["Operator", "State", "Type", "Rows"];
      replaceContent(list, operators.length
        ? table(header, cells, { right: [3], label: "States" })
        : el("p", { class: "muted" }, "This vertex has no state."));
      const options = states.map(({ operator, state }) =>
        [JSON.stringify([operator.operator, state.name]), `${operator.name}: ${state.name}`]);
      // Replacing the options would reset the selection.
      if (JSON.stringify(options) !== renderedOptions) {
        renderedOptions = JSON.stringify(options);
        select.replaceChildren(...options.map(([value, label]) => el("option", { value }, label)));
      }
      form.hidden = !options.length;
    },
  };
}

function valueText(value) {
  return el("span", { class: "mono" }, typeof value === "string" ? value : JSON.stringify(value));
}
