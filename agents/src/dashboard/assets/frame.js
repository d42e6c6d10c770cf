// State and functions of all pages: the open run, and the shown page with its requests.

import { h, replace } from "./dom.js";
import { get, pause } from "./server.js";

export const main = document.getElementById("main");
const notice = document.getElementById("notice");
const seg = encodeURIComponent;

/** The open run: its id, the facts that most pages need, and its agents in order. */
export const open = { run: null, agents: [] };

/** The shown page. Aborting `end` stops the page's requests and timers. */
export const page = { current: "", signal: null, end: null, keys: {}, themed: new Set() };

/** The ids of the last list, through which the keys j and k of a conversation step. */
export const LIST = { ids: [] };

export function close() {
  Object.assign(open, { run: null, agents: [], config: null, info: null, state: null, over: null });
}

/** Reads the facts of a run that all its pages need. */
export async function enter(run, signal) {
  const facts = await get(`runs/${seg(run)}/facts`, signal);
  Object.assign(open, facts, { run, agents: Object.keys(facts.config.agents) });
}

/** Returns a path of the API for the open run. */
export const api = (...parts) => `runs/${seg(open.run)}/${parts.map(seg).join("/")}`;

/** Returns the link of a page of the open run. */
export const to = (...parts) => "#/" + ["r", open.run, ...parts].map(seg).join("/");

export function conversationLink(id) {
  const [group, member] = id.split("/");
  return to("c", group, member ?? "0");
}

/** Adds the values to a path as its query. Empty values and the number 0 are left out. */
export function query(path, values) {
  const given = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  return path + (given.size ? `?${given}` : "");
}

/** Shows a page: a first line that begins with its title, then its parts. */
export function show(title, ...parts) {
  replace(main, h("div.head", h("h1", title[0]), title.slice(1)), parts);
}

export const reading = (what) => replace(main, h("p.soft.reading", what, " ..."));

export const soft = (...text) => h("span.soft", text);

export function message(kind, ...text) {
  return h("p.message", { class: kind, role: kind === "bad" ? "alert" : null }, text);
}

export const empty = (...text) => h("div.panel.empty", text);

/** Calls `work` now and every `ms` while the page is shown and visible. */
export async function every(ms, work) {
  const { signal } = page;
  while (!signal.aborted) {
    if (!document.hidden) {
      try {
        await work(signal);
        main.querySelector(":scope > .message.bad")?.remove();
      } catch (error) {
        if (error.name === "AbortError" || signal.aborted) return;
        failed(error);
        if (error.status >= 400 && error.status < 500) return;
      }
    }
    await pause(ms, signal);
  }
}

export function failed(error) {
  const text = error.status === 401
    ? "The token is missing or wrong. Open the URL that `dyad dashboard` printed: it ends in #token=..."
    : error.message;
  main.querySelector(":scope > .reading")?.remove();
  const known = main.querySelector(":scope > .message.bad");
  if (known) replace(known, text);
  else main.prepend(message("bad", text));
}

let silence;
export function say(text) {
  replace(notice, text);
  clearTimeout(silence);
  silence = setTimeout(() => replace(notice), 2500);
}

export function copy(text, what) {
  navigator.clipboard?.writeText(text).then(() => say(`${what} copied`),
    () => say("The browser did not allow the copy"));
}
