// Shows the page that the URL of `dyad dashboard` names, draws the frame around it, handles keys.
// Pages read the JSON API of the same address; with `--write` they change runs too.

import { auditPage } from "./audit.js";
import { chartsPage } from "./charts.js";
import { comparePage } from "./compare.js";
import { configPage } from "./config.js";
import { conversationPage } from "./conversation.js";
import { conversationsPage } from "./conversations.js";
import { h, replace } from "./dom.js";
import { evaluationsPage } from "./evaluations.js";
import { api, close, empty, enter, failed, main, open, page, to } from "./frame.js";
import { groupPage } from "./group.js";
import { lettersPage } from "./letters.js";
import { livePage } from "./live.js";
import { logsPage } from "./logs.js";
import { ordersPage } from "./orders.js";
import { overviewPage } from "./overview.js";
import { facts, stateChip } from "./parts.js";
import { publishPage } from "./publish.js";
import { runsPage } from "./runs.js";
import { get, keepToken, pause } from "./server.js";
import { taskPage } from "./task.js";

const [nav, bar, frame, help] = ["nav", "bar", "frame", "help"].map((id) => document.getElementById(id));

/** The pages of a run: path, name, key after `g`, function. */
const PAGES = [
  ["", "Overview", "o", () => overviewPage(drawBar)], ["live", "Live", "l", livePage],
  ["conversations", "Conversations", "c", conversationsPage], ["charts", "Charts", "m", chartsPage],
  ["evaluations", "Evaluations", "e", evaluationsPage], ["logs", "Logs", "s", logsPage],
  ["audit", "Audit", "a", auditPage], ["letters", "Dead letters", "d", lettersPage],
  ["config", "Configuration", "f", configPage],
];
const WRITING = [["publish", "Publish", "b", publishPage], ["orders", "Orders", "x", ordersPage]];
const INNER = [["c", "", "", conversationPage], ["g", "", "", groupPage], ["t", "", "", taskPage]];

/** Returns the pages of the open run: a run that has ended takes no tasks and no orders. */
const pages = () => PAGES.concat(open.writes && !open.over ? WRITING : []);
const link = (path) => (path ? to(path) : to());

function drawBar() {
  const { theme } = document.documentElement.dataset;
  const other = theme === "dark" ? "light" : "dark";
  replace(bar, h("a.brand", { href: "#/" }, "dyad"), h("span.crumb", open.run
    ? [h("span.soft", "/ "), h("a", { href: to() }, open.run)] : h("span.soft", "runs")),
  open.run && open.state ? stateChip(open.state) : null, h("span.grow"),
  h("button.bare", { click: () => setTheme(other) }, other[0].toUpperCase() + other.slice(1)),
  h("button.bare", { "aria-label": "Keys", click: () => help.showModal() }, "?"));
  frame.classList.toggle("alone", !open.run);
  replace(nav, open.run ? [pages().map(([path, name]) => h("a", { href: link(path),
    "aria-current": page.current === path ? "page" : null }, name)),
  open.writes && open.over ? h("p.soft", { title: open.over }, "Ended: it takes no tasks and no orders") : null]
    : null);
  const now = nav.querySelector("[aria-current]");
  if (now) nav.scrollLeft = now.offsetLeft - 60;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("dyad.theme", name);
  drawBar();
  for (const redraw of page.themed) redraw();
}

/** Keeps the state in the bar up to date until the run has ended. */
async function watchState(signal) {
  while (!signal.aborted && (!open.over || open.state === "live")) {
    await pause(5000, signal);
    if (signal.aborted || document.hidden) continue;
    const found = await get(api("facts"), signal).catch(() => null);
    if (signal.aborted || !found || (found.state === open.state && found.over === open.over)) continue;
    Object.assign(open, { state: found.state, over: found.over });
    drawBar();
  }
}

async function route() {
  const secret = /^#token=([^&]+)&?(.*)/.exec(location.hash);
  if (secret) {
    keepToken(decodeURIComponent(secret[1]));
    history.replaceState(null, "", `${location.pathname}#${secret[2] || "/"}`);
  }
  page.end?.abort();
  page.end = new AbortController();
  const { signal } = page.end;
  Object.assign(page, { signal, keys: {} });
  page.themed.clear();
  const [path, options] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, run, name = "", ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  try {
    if (first === "r" && run) {
      if (open.run !== run) await enter(run, signal);
      page.current = { c: "conversations", g: "conversations", t: "conversations" }[name] ?? name;
      document.title = `${run} · dyad`;
      drawBar();
      const found = [...PAGES, ...INNER, ...(open.writes ? WRITING : [])].find(([known]) => known === name);
      watchState(signal);
      if (found) await found[3](rest, new URLSearchParams(options ?? ""), signal);
      else replace(main, empty("There is no such page."));
    } else {
      close();
      page.current = "";
      document.title = "runs · dyad";
      drawBar();
      if (first === "compare") await comparePage([run, name], signal);
      else await runsPage();
    }
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    drawBar();
    if (first !== "r" || open.run !== run) replace(main);
    failed(error);
  }
}

replace(help, h("h1", "Keys"), h("p"), facts([["g then r", "runs"],
  ...[...PAGES, ...WRITING].map(([, name, key]) => [`g then ${key}`, name.toLowerCase()]),
  ["j  k", "next and previous conversation"], ["n  p", "next and previous member of the group"],
  ["u", "the group of a conversation"], ["/", "search"], ["space", "pause live conversations"],
  ["?", "this list"]].map(([key, text]) => [h("kbd", key), text])),
h("p.soft", "Charts: uPlot, ", h("a", { href: "uplot.LICENSE" }, "MIT licence"), "."),
h("button", { click: () => help.close() }, "Close"));

let after = 0;
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) {
    if (key === "Escape") target.blur();
    return;
  }
  if (key === " " && target.tagName === "BUTTON") return;
  let action = page.keys[key];
  if (Date.now() - after < 1500) {
    const found = open.run && pages().find(([, , known]) => known === key);
    if (key === "r") action = () => (location.hash = "#/");
    else if (found) action = () => (location.hash = link(found[0]));
    after = 0;
  } else if (key === "g") after = Date.now();
  else if (key === "?") action = () => help.showModal();
  if (!action) return;
  event.preventDefault();
  action();
});

document.documentElement.dataset.theme = localStorage.getItem("dyad.theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
route();
