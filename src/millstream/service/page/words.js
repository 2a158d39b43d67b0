// Numbers and times as people read them.
export function count(n) {
  if (n === null || n === undefined) return "";
  if (Math.abs(n) >= 1e9) return `${(n / 1e9).toFixed(2)} G`;
  if (Math.abs(n) >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  if (Math.abs(n) >= 1e4) return `${(n / 1e3).toFixed(1)} k`;
  return Math.round(n).toLocaleString("en");
}

export function rate(n) {
  return `${count(n)}/s`;
}

export function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

export function length(ms) {
  if (ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${(ms / 1000).toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function when(ms) {
  return ms > 0 ? new Date(ms).toLocaleString("sv") : "";
}

export function percent(share) {
  return `${Math.round(share * 100)}%`;
}

// Where event time stands: "4.2 s behind", a date, or what it means that there is none.
export function eventTime(watermark, now) {
  if (watermark === null || watermark <= -9.2e18) return "no event time yet";
  if (watermark >= 9.2e18) return "ended";
  const behind = now - watermark;
  if (behind >= 0 && behind < 86400000) return `${length(behind)} behind`;
  return new Date(watermark).toISOString().replace("T", " ").slice(behind < 0 || behind > 31536e6 ? 0 : 5, 19);
}

// How records go from one vertex to the next, in words.
const WAYS = { HASH: "by key", FORWARD: "one to one", REBALANCE: "in turn", RESCALE: "in turn", BROADCAST: "to all", GLOBAL: "all to one", SHUFFLE: "at random", CUSTOM: "as you say" };

export function way(strategy) {
  return WAYS[strategy] || strategy.toLowerCase();
}

export function ago(ms, now) {
  return ms > 0 ? `${length(Math.max(now - ms, 0))} ago` : "never";
}
