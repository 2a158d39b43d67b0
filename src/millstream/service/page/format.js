// Formats numbers, sizes and times.
export function formatCount(n) {
  if (n === null || n === undefined) return "";
  if (Math.abs(n) >= 1e9) return `${(n / 1e9).toFixed(2)} G`;
  if (Math.abs(n) >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  if (Math.abs(n) >= 1e4) return `${(n / 1e3).toFixed(1)} k`;
  return Math.round(n).toLocaleString("en");
}

export function formatRate(n) {
  return `${formatCount(n)}/s`;
}

export function formatBytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

export function formatDuration(ms) {
  if (ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${(ms / 1000).toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function formatTime(ms) {
  return ms > 0 ? new Date(ms).toLocaleString("sv") : "";
}

export function formatAge(ms, now) {
  return ms > 0 ? `${formatDuration(Math.max(now - ms, 0))} ago` : "never";
}

export function formatPercent(share) {
  return `${Math.round(share * 100)}%`;
}

// Formats a watermark or another event time: the lag behind the clock up to a day ("4.2 s behind"), else a date.
export function formatEventTime(timestamp, now) {
  // The minimum and maximum watermark are near the limits of a 64-bit integer.
  if (timestamp === null || timestamp <= -9.2e18) return "no watermark";
  if (timestamp >= 9.2e18) return "end of input";
  const lag = now - timestamp;
  if (lag >= 0 && lag < 86400000) return `${formatDuration(lag)} behind`;
  return new Date(timestamp).toISOString().replace("T", " ").slice(lag < 0 || lag > 31536e6 ? 0 : 5, 19);
}

// Formats the operator chain of a vertex.
export function formatChain(name) {
  return name.replaceAll(" -> ", " → ");
}
