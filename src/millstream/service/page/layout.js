// Lays the job graph out from left to right: a vertex stands right of all it reads from.
export const WIDTH = 250, GAP_X = 110, GAP_Y = 26, LINE = 17;
// The operators of a vertex that are written out, and what is written around them.
const MAX_LINES = 4, HEAD = 14, FOOT = 46;

// What a vertex does, a line for each operator.
export function lines(node) {
  const names = (node.operators || []).map((o) => o.name);
  const told = names.length ? names : [node.description || ""];
  return told.length > MAX_LINES ? [...told.slice(0, MAX_LINES - 1), `… and ${told.length - MAX_LINES + 1} more`] : told;
}

export function height(node) {
  return HEAD + lines(node).length * LINE + FOOT;
}

export function layout(nodes) {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const depth = new Map();
  const deep = (node) => {
    if (!depth.has(node.id)) {
      depth.set(node.id, 0);
      depth.set(node.id, Math.max(0, ...(node.inputs || []).map((i) => deep(byId.get(i.id)) + 1)));
    }
    return depth.get(node.id);
  };
  nodes.forEach(deep);
  const columns = [];
  for (const node of nodes) (columns[depth.get(node.id)] ||= []).push(node);
  const places = new Map();
  const tall = (column) => column.reduce((sum, n) => sum + height(n) + GAP_Y, -GAP_Y);
  const tallest = Math.max(...columns.map(tall));
  columns.forEach((column, x) => {
    // Near the middle of what they read from, so that edges seldom cross.
    const middle = (node) => {
      const from = (node.inputs || []).map((i) => places.get(i.id)).map((p) => p.y + p.h / 2);
      return from.length ? from.reduce((a, b) => a + b, 0) / from.length : 0;
    };
    if (x) column.sort((a, b) => middle(a) - middle(b));
    let y = 20 + (tallest - tall(column)) / 2;
    for (const node of column) {
      places.set(node.id, { x: 20 + x * (WIDTH + GAP_X), y, h: height(node) });
      y += height(node) + GAP_Y;
    }
  });
  return { places, width: 40 + columns.length * (WIDTH + GAP_X) - GAP_X, height: 40 + tallest };
}
