// Log lines of one process or of all, the newest at the end.

import { h, replace } from "./dom.js";
import { api, conversationLink, every, failed, page, query, show, to } from "./frame.js";
import { bytes } from "./numbers.js";
import { picker, searchField } from "./parts.js";
import { get } from "./server.js";

/** The largest number of lines on the page. */
const MOST = 3000;

export async function logsPage([process = ""], options, signal) {
  const { logs } = await get(api("logs"), signal);
  const level = picker("Level", ["error", "warn", "info", "debug"], (name) => `${name} and above`,
    options.get("level") ?? "info");
  const search = searchField("Text or conversation", "Search", options.get("q") ?? "");
  const follow = h("input", { type: "checkbox", checked: true });
  const box = h("div.panel.log", { tabindex: 0, "aria-label": "Log lines" });
  const link = (name) => to("logs", ...(name ? [name] : []));
  for (const control of [level, search]) {
    control.addEventListener("change", () => (location.hash = query(link(process),
      { level: level.value === "info" ? "" : level.value, q: search.value })));
  }
  const tabs = [{ process: "" }, ...logs].map((one) => h("a", { href: link(one.process),
    "aria-current": one.process === process ? "page" : null,
    title: one.bytes === undefined ? null : bytes(one.bytes) }, one.process || "all"));
  show(["Logs", h("nav.tabs", { "aria-label": "Processes" }, tabs)],
    h("div.tools", level, search, h("label", follow, "Follow")), box);
  const names = process ? [process] : logs.map((one) => one.process);
  if (names.length === 0) replace(box, h("p.empty", "No log yet."));
  else followLines(box, names, { level: level.value, q: search.value }, () => follow.checked);
}

function followLines(box, names, filter, follows) {
  const [starts, ends] = [new Map(), new Map()];
  const read = async (name, place) => {
    const found = await get(query(api("logs", name), { limit: 200, ...filter, ...place }), page.signal);
    const rows = found.lines.map(({ line, cut }) => ({ time: line.time ?? "",
      element: logRow(line, cut, names.length > 1 ? name : "") }));
    return { ...found, rows };
  };
  const merged = (found) => found.flatMap(({ rows }) => rows)
    .sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0)).map((row) => row.element);
  const unread = () => names.filter((name) => starts.get(name) > 0);
  const readOlder = async () => {
    const found = await Promise.all(unread().map(async (name) => {
      const part = await read(name, { before: starts.get(name) });
      starts.set(name, part.start);
      return part;
    }));
    const height = box.scrollHeight;
    older.after(...merged(found));
    box.scrollTop += box.scrollHeight - height;
    if (unread().length === 0) older.remove();
  };
  const older = h("button.bare", { click: () => readOlder().catch(failed) }, "Older lines");
  let begun = false;
  every(1000, async () => {
    if (begun && !follows()) return;
    const found = await Promise.all(names.map(async (name) => {
      // A text, because `query` leaves out the number 0, which is an offset too.
      const part = await read(name, begun ? { after: String(ends.get(name)) } : {});
      if (!begun) starts.set(name, part.start);
      ends.set(name, part.end);
      return part;
    }));
    if (!begun) replace(box, unread().length > 0 ? older : null);
    const lines = merged(found);
    const isAtEnd = !begun || box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    box.append(...lines);
    if (!begun && lines.length === 0) box.append(h("p.empty", "No such line."));
    while (box.childElementCount > MOST) box.children[1].remove();
    if (isAtEnd && lines.length > 0) box.scrollTop = box.scrollHeight;
    begun = true;
  });
}

const PLACED = ["time", "level", "message", "target", "run"];
const LEVELS = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

function logRow(line, cut, from) {
  const [level, time] = [String(line.level ?? ""), String(line.time ?? "")];
  const about = typeof line.conversation_id === "string" && line.conversation_id;
  const fields = Object.entries(line).filter(([key]) => !PLACED.includes(key)
    && (about || !["agent", "role"].includes(key)));
  const value = (key, one) => {
    const text = typeof one === "string" ? one : JSON.stringify(one);
    if (key === "conversation_id" && about?.includes("/")) return h("a", { href: conversationLink(about) }, text);
    if (key !== "group" || typeof one !== "string") return text;
    return h("a", { href: to("g", about ? about.split("/")[0] : one) }, text);
  };
  const field = (...text) => h("span.field", "  ", text);
  return h("div.row", { class: LEVELS.includes(level) ? level : "" },
    h("span.at", { title: time }, time.slice(11, 23)), h("span.level", level),
    h("span.from", from), h("span.what", String(line.message ?? ""),
      fields.map(([key, one]) => [field(key, "="), value(key, one)]), cut ? field("(cut)") : null));
}
