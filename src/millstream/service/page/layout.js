// Layout of the job graph, from left to right: each vertex is in a column right of all its inputs.
export const WIDTH = 250, GAP_X = 110, GAP_Y = 26, LINE = 17;
// The maximum number of operators listed in a vertex, and the space above and below them.
const MAX_LINES = 4, HEAD = 14, FOOT = 46;

// Returns the lines of text in a vertex, one per operator.
export function lines(node) {
  const names = (node.operators || []).map((o) => o.name);
  const texts = names.length ? names : [node.description || ""];
  if (texts.length <= MAX_LINES) return texts;
  return [...texts.slice(0, MAX_LINES - 1), `… and ${texts.length - MAX_LINES + 1} more`];
}

export function height(node) {
  return HEAD + lines(node).length * LINE + FOOT;
}

// Returns the position and height of each vertex by id, and the size of the graph.
export function layout(nodes) {
  const byId = new Map(nodes.map((n) => [n.id, n]));
  const depths = new Map();
  const depth = (node) => {
    if (!depths.has(node.id)) {
      depths.set(node.id, 0);
      depths.set(node.id, Math.max(0, ...(node.inputs || []).map((i) => depth(byId.get(i.id)) + 1)));
    }
    return depths.get(node.id);
  };
  nodes.forEach(depth);
  const columns = [];
  for (const node of nodes) (columns[depths.get(node.id)] ||= []).push(node);
  const positions = new Map();
  const columnHeight = (column) => column.reduce((sum, n) => sum + height(n) + GAP_Y, -GAP_Y);
  const maxHeight = Math.max(...columns.map(columnHeight));
  columns.forEach((column, x) => {
    // Order vertices by the mean position of their inputs, which avoids most crossings of edges.
    const mean = (node) => {
      const centers = (node.inputs || []).map((i) => positions.get(i.id)).map((p) => p.y + p.h / 2);
      return centers.length ? centers.reduce((a, b) => a + b, 0) / centers.length : 0;
    };
    if (x) column.sort((a, b) => mean(a) - mean(b));
    let y = 20 + (maxHeight - columnHeight(column)) / 2;
    for (const node of column) {
      positions.set(node.id, { x: 20 + x * (WIDTH + GAP_X), y, h: height(node) });
      y += height(node) + GAP_Y;
    }
  });
  return { positions, width: 40 + columns.length * (WIDTH + GAP_X) - GAP_X, height: 40 + maxHeight };
}
