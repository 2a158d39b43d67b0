// The page: routes, and what is looked at again and again while a page is open.
import { ask, onTokenNeeded, Refused, setToken } from "./api.js";
import { message, question } from "./dom.js";
import { jobsPage } from "./jobs.js";
import { jobPage } from "./job.js";
import { servicePage, workerPage, workersPage } from "./cluster.js";

const main = document.getElementById("main"), pulse = document.getElementById("pulse");
let every = 3000, timer = null, current = null, turn = 0;

const ROUTES = [
  [/^#?\/?$/, () => jobsPage(main)],
  [/^#\/jobs\/([0-9a-f]{32})(?:\/(\w+))?(?:\/([0-9a-f]{32}))?(?:\/(\w+))?$/, (m) => jobPage(main, m[1], m[2] || "graph", m[3], m[4])],
  [/^#\/workers$/, () => workersPage(main)],
  [/^#\/workers\/([^/]+)(?:\/(\w+))?$/, (m) => workerPage(main, decodeURIComponent(m[1]), m[2] || "metrics")],
  [/^#\/service$/, () => servicePage(main)],
];

function go() {
  for (const [pattern, make] of ROUTES) {
    const found = location.hash.match(pattern);
    if (found) {
      // One job's tabs and drawers are one page, which is not built anew.
      const key = found[1] ? `${pattern.source} ${found[1]}` : pattern.source;
      if (current && current.key === key && current.page.route) current.page.route(found[2], found[3], found[4]);
      else {
        main.replaceChildren();
        current = { key, page: make(found) };
        main.focus({ preventScroll: true });
      }
      break;
    }
  }
  for (const link of document.querySelectorAll("nav[aria-label=Main] a")) {
    const here = link.getAttribute("href") === "#/" ? !/workers|service/.test(location.hash) : location.hash.startsWith(link.getAttribute("href"));
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  look();
}

async function askToken() {
  const where = `It is in rest-${location.port}.token, beside the run files of the service's user ($XDG_RUNTIME_DIR/millstream), or the value of millstream.rest.token.`;
  const said = await question("This service asks for its token", where, [{ name: "token", label: "Token", type: "password" }], "Go on");
  if (said) setToken(said.token);
  return Boolean(said);
}
onTokenNeeded(askToken);

async function look() {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    await current.page.refresh();
    if (mine !== turn) return;
    pulse.textContent = `as of ${new Date().toLocaleTimeString("sv")}`;
    pulse.className = "";
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refused && error.status === 401) {
      await askToken();
    } else {
      pulse.textContent = error instanceof Refused ? error.message : "The service does not answer.";
      pulse.className = "bad";
      if (!(error instanceof Refused) && !(error instanceof TypeError)) console.error(error);
    }
  }
  timer = setTimeout(look, every);
}

export function lookNow() {
  look();
}

const theme = document.getElementById("theme");
function dress(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("millstream-theme", name);
}
dress(localStorage.getItem("millstream-theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
theme.addEventListener("click", () => dress(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
window.addEventListener("hashchange", go);
window.addEventListener("unhandledrejection", (e) => message(e.reason && e.reason.message ? e.reason.message : String(e.reason)));
ask("/config").then((c) => (every = Math.max(c["refresh-interval"], 500))).catch(() => null).finally(go);
