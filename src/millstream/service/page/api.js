// Asks the service this page comes from. The token, where one is needed, is kept for as long as the tab is open.
const KEY = "millstream-token";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Asks the user for the token, and tells whether one was given.
let tokenNeeded = async () => false;

export function onTokenNeeded(how) {
  tokenNeeded = how;
}

export async function ask(path, method = "GET", body) {
  const token = sessionStorage.getItem(KEY);
  const answer = await fetch(`/v1${path}`, {
    method,
    headers: { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  const said = await answer.json().catch(() => ({}));
  // All may look; who changes something shows the token. Pages that refresh themselves ask for it on their own.
  if (answer.status === 401 && method !== "GET" && (await tokenNeeded())) return ask(path, method, body);
  if (!answer.ok) throw new Refused(answer.status, (said.errors || [`status ${answer.status}`]).join("; "));
  return said;
}

// What is told as text: logs.
export async function askText(path) {
  const token = sessionStorage.getItem(KEY);
  const answer = await fetch(`/v1${path}`, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, (said.errors || [`status ${answer.status}`]).join("; "));
  }
  return answer.text();
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

// Waits for something that was begun, and returns what came of it.
export async function finished(path, trigger) {
  for (;;) {
    const polled = await ask(`${path}/${trigger}`);
    if (polled.status.id === "COMPLETED") {
      const cause = polled.operation && polled.operation["failure-cause"];
      if (cause) throw new Refused(500, cause["stack-trace"]);
      return polled.operation || {};
    }
    await new Promise((go) => setTimeout(go, 300));
  }
}
