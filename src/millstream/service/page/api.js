// Requests to the service that serves this page. A token is stored until the browser tab is closed.
const TOKEN_KEY = "millstream-token";

export class RequestError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Prompts for the token; resolves to whether the user entered one.
let promptForToken = async () => false;

export function onTokenRequired(prompt) {
  promptForToken = prompt;
}

// Returns a JSON response.
export async function request(path, method = "GET", body) {
  const response = await fetch(`/v1${path}`, {
    method,
    headers: { ...authorization(), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  const content = await response.json().catch(() => ({}));
  // Reading may need no token, changes do. A GET does not prompt here: the periodic refresh handles its 401.
  if (response.status === 401 && method !== "GET" && (await promptForToken())) return request(path, method, body);
  if (!response.ok) throw requestError(response.status, content);
  return content;
}

// Returns a text response: a log.
export async function requestText(path) {
  const response = await fetch(`/v1${path}`, { headers: authorization() });
  if (!response.ok) throw requestError(response.status, await response.json().catch(() => ({})));
  return response.text();
}

function authorization() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function requestError(status, content) {
  return new RequestError(status, (content.errors || [`HTTP status ${status}`]).join("; "));
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

// Polls an asynchronous operation until it completes; returns its result, throws its failure.
export async function waitForOperation(path, triggerId) {
  for (;;) {
    const response = await request(`${path}/${triggerId}`);
    if (response.status.id === "COMPLETED") {
      const cause = response.operation && response.operation["failure-cause"];
      if (cause) throw new RequestError(500, cause["stack-trace"]);
      return response.operation || {};
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
