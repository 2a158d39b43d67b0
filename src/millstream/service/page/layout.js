// Lays the job graph out from left to right: a vertex stands right of all it reads from.
export const WIDTH = 250, HEIGHT = 84, GAP_X = 90, GAP_Y = 26;

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
  const tallest = Math.max(...columns.map((c) => c.length));
  columns.forEach((column, x) => {
    // Near the middle of what they read from, so that edges seldom cross.
    const middle = (node) => {
      const from = (node.inputs || []).map((i) => places.get(i.id).y);
      return from.length ? from.reduce((a, b) => a + b, 0) / from.length : 0;
    };
    if (x) column.sort((a, b) => middle(a) - middle(b));
    const top = ((tallest - column.length) * (HEIGHT + GAP_Y)) / 2;
    column.forEach((node, y) => places.set(node.id, { x: 20 + x * (WIDTH + GAP_X), y: 20 + top + y * (HEIGHT + GAP_Y) }));
  });
  return { places, width: 40 + columns.length * (WIDTH + GAP_X) - GAP_X, height: 40 + tallest * (HEIGHT + GAP_Y) - GAP_Y };
}
