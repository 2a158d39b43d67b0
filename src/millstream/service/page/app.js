// Routes of the page, and the periodic refresh of the current view.
import { onTokenRequired, request, RequestError, setToken } from "./api.js";
import { formDialog, showMessage } from "./dom.js";
import { jobsPage } from "./jobs.js";
import { jobPage } from "./job.js";
import { servicePage, workerPage, workersPage } from "./cluster.js";

const main = document.getElementById("main"), refreshStatus = document.getElementById("refresh-status");
let refreshInterval = 3000, timer = null, current = null, lastRefresh = 0;

const ROUTES = [
  [/^#?\/?$/, () => jobsPage(main)],
  [
    /^#\/jobs\/([0-9a-f]{32})(?:\/(\w+))?(?:\/([0-9a-f]{32}))?(?:\/(\w+))?$/,
    (m) => jobPage(main, m[1], m[2] || "graph", m[3], m[4]),
  ],
  [/^#\/workers$/, () => workersPage(main)],
  [/^#\/workers\/([^/]+)(?:\/(\w+))?$/, (m) => workerPage(main, decodeURIComponent(m[1]), m[2] || "metrics")],
  [/^#\/service$/, () => servicePage(main)],
];

function navigate() {
  for (const [pattern, createPage] of ROUTES) {
    const match = location.hash.match(pattern);
    if (match) {
      // The tabs and drawers of a job share one page, which is not rebuilt.
      const key = match[1] ? `${pattern.source} ${match[1]}` : pattern.source;
      if (current && current.key === key && current.page.route) current.page.route(match[2], match[3], match[4]);
      else {
        main.replaceChildren();
        current = { key, page: createPage(match) };
        main.focus({ preventScroll: true });
      }
      break;
    }
  }
  for (const link of document.querySelectorAll("nav[aria-label=Main] a")) {
    const href = link.getAttribute("href");
    const isCurrent = href === "#/" ? !/workers|service/.test(location.hash) : location.hash.startsWith(href);
    isCurrent ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  refresh();
}

async function promptForToken() {
  const help =
    `Enter the value of millstream.rest.token, or the content of rest-${location.port}.token in the runtime ` +
    "directory of the service's user ($XDG_RUNTIME_DIR/millstream).";
  const values = await formDialog(
    "Token required", help, [{ name: "token", label: "Token", type: "password" }], "Continue");
  if (values) setToken(values.token);
  return Boolean(values);
}
onTokenRequired(promptForToken);

async function refresh() {
  clearTimeout(timer);
  const number = ++lastRefresh;
  try {
    await current.page.refresh();
    // A later refresh has started.
    if (number !== lastRefresh) return;
    refreshStatus.textContent = `Updated ${new Date().toLocaleTimeString("sv")}`;
    refreshStatus.className = "";
  } catch (error) {
    if (number !== lastRefresh) return;
    if (error instanceof RequestError && error.status === 401) {
      await promptForToken();
    } else {
      refreshStatus.textContent = error instanceof RequestError ? error.message : "The service does not respond.";
      refreshStatus.className = "bad";
      if (!(error instanceof RequestError) && !(error instanceof TypeError)) console.error(error);
    }
  }
  timer = setTimeout(refresh, refreshInterval);
}

const themeButton = document.getElementById("theme");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("millstream-theme", name);
}
const systemTheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
setTheme(localStorage.getItem("millstream-theme") || systemTheme);
themeButton.addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
window.addEventListener("hashchange", navigate);
window.addEventListener("unhandledrejection", (e) =>
  showMessage(e.reason && e.reason.message ? e.reason.message : String(e.reason)));
request("/config")
  .then((config) => (refreshInterval = Math.max(config["refresh-interval"], 500)))
  .catch(() => null)
  .finally(navigate);
