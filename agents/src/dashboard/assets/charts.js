// Charts of a run's figures, by question or by search.

import { h, plain } from "./dom.js";
import { api, every, open, page, query, show, to } from "./frame.js";
import { picker, searchField } from "./parts.js";
import { chartBoard } from "./plot.js";
import { get } from "./server.js";
import { TABS } from "./tabs.js";

export async function chartsPage([tab = "learning"], options, signal) {
  const wish = options.get("q") ?? "";
  const search = searchField("Any figure, such as entropy", "Search figures", wish);
  search.addEventListener("change", () => (location.hash = query(to("charts", "learning"), { q: search.value })));
  const kept = (name, otherwise) => localStorage.getItem(`dyad.${name}`) ?? otherwise;
  const smooth = h("input", { type: "range", min: 0, max: 95, value: kept("smooth", 0),
    "aria-label": "Smoothing" });
  const across = picker("Across", ["step", "time"], (name) => `by ${name}`, kept("across", "step"));
  const body = h("div.charts");
  const tabs = Object.entries(TABS).map(([name, [title]]) => h("a", { href: to("charts", name),
    "aria-current": !wish && name === tab ? "page" : null }, title));
  show(["Charts", h("nav.tabs", { "aria-label": "Kinds of charts" }, tabs)],
    h("div.tools", search, across, h("label", "Smoothing", smooth)), body);
  const wanted = wish ? await searched(wish, signal) : TABS[tab]?.[1] ?? [];
  let [found, total] = [[], -1];
  const sections = () => wanted.map(({ title, about = " ", names }) => ({ title, about,
    series: found.filter((one) => names.some((name) => fits(name, `${one.kind}:${one.name}`))) }));
  const draw = chartBoard(body, sections, () => ({ smooth: Number(smooth.value) / 100, across: across.value }),
    () => h("div.panel.empty", wish ? "No figure matches." : "No figure of this kind yet."));
  const keep = (name, control, event) => control.addEventListener(event, () => {
    localStorage.setItem(`dyad.${name}`, control.value);
    draw();
  });
  keep("smooth", smooth, "input");
  keep("across", across, "change");
  redrawOnResize(body, draw);
  every(5000, async (current) => {
    const names = [...new Set(wanted.flatMap((chart) => chart.names))].join(",");
    found = names ? (await get(query(api("series"), { points: 500, name: names }), current)).series : [];
    const size = found.reduce((sum, one) => sum + one.count, 0);
    if (size !== total) draw();
    total = size;
  });
}

function redrawOnResize(body, draw) {
  let width = body.clientWidth;
  const sized = new ResizeObserver(() => {
    if (Math.abs(body.clientWidth - width) <= 8) return;
    width = body.clientWidth;
    draw();
  });
  sized.observe(body);
  page.signal.addEventListener("abort", () => sized.disconnect());
}

function fits(pattern, name) {
  if (!pattern.includes("*")) return pattern === name;
  const [before, after] = pattern.split("*");
  return name.startsWith(before) && name.endsWith(after) && name.length >= before.length + after.length;
}

async function searched(wish, signal) {
  const { names } = await get(api("series", "names"), signal);
  const words = wish.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (one) => words.every((word) => `${one.kind}:${one.name}`.toLowerCase().includes(word));
  const found = names.filter(isFound);
  return found.slice(0, 24).map((one) => ({ title: plain(one.name), names: [`${one.kind}:${one.name}`],
    about: one.kind === "train" ? undefined : one.kind }));
}
