// Evaluations over steps, their changes, and the tasks of the first and the last one.

import { h, plain } from "./dom.js";
import { api, copy, empty, query, reading, show, soft, to } from "./frame.js";
import { figure, num, real, signed } from "./numbers.js";
import { chip, picker, right, section, table, who } from "./parts.js";
import { chartBoard } from "./plot.js";
import { word } from "./replay.js";
import { get } from "./server.js";

export async function evaluationsPage(_rest, options, signal) {
  reading("Reading the evaluations");
  const found = await get(query(api("evaluations"), { metric: options.get("metric") }), signal);
  const { evaluations, changes, tasks } = found;
  const title = ["Evaluations", soft("means over tasks, with 95% intervals")];
  const matrix = found.cross_play ? crossPlay(found.cross_play) : null;
  if (evaluations.length === 0) return show(title, empty("No evaluation yet."), matrix);
  const names = [...new Set(evaluations.flatMap((one) => Object.keys(one.figures)))];
  const place = h("div.charts");
  const chosen = picker("Figure", names, plain, tasks.metric);
  chosen.addEventListener("change", () => (location.hash = query(to("evaluations"), { metric: chosen.value })));
  show(title, h("div.tools", chosen), place, changes.length ? changesTable(changes) : null,
    section("All evaluations", table(
      [right("Step"), right(plain(tasks.metric)), right("95% interval"), right("Tasks"), "Weights"],
      [...evaluations].reverse().map((one) => evaluationRow(one, tasks.metric)), "Evaluations")),
    matrix, tasksTable(tasks));
  chartBoard(place, () => [{ title: tasks.metric, about: "mean and 95% interval by step",
    series: [interval(evaluations, tasks.metric)] }])();
}

function changesTable(changes) {
  return section("First and last evaluation, on the same tasks", table(["Figure", right("Before"), right("After"),
    right("Gain"), right("95% interval"), right("Tasks")], changes.map((one) => [one.metric,
    num(one.before), num(one.after), h("span", { title: one.gain }, signed(one.gain)),
    `${signed(one.low)} to ${signed(one.high)}`, figure(one.tasks)]), "Changes"));
}

function evaluationRow(one, metric) {
  const value = one.figures[metric];
  const versions = Object.entries(one.versions).map(([agent, list]) =>
    h("span.item", who(agent), h("code", list.join(", "))));
  return [[figure(one.step), one.last ? " (last)" : ""], value ? num(value.mean) : "–",
    value && typeof value.low === "number" ? `${real(value.low)} to ${real(value.high)}` : "–",
    value ? figure(value.tasks) : "–",
    [versions, one.pinned === false ? chip("mixed versions", "warn") : null]];
}

function interval(evaluations, metric) {
  const points = evaluations.filter((one) => one.figures[metric]);
  const values = (name) => points.map((one) => one.figures[metric][name] ?? one.figures[metric].mean);
  const steps = points.map((one) => one.step);
  return { kind: "eval", of: "", name: metric, x: steps, t: steps, mean: values("mean"), min: values("low"),
    max: values("high") };
}

/** Draws the table of `dyad cross-play`: rows are the agents that play as trained, or a difference. */
function crossPlay({ figures, cells, differences, runs, over }) {
  const row = (mean, bound) => ([name, found]) => [name, ...figures.map((figure) => {
    const one = found[figure];
    return one ? h("span", { title: one.mean }, mean(one.mean),
      soft(` (${bound(one.low)} to ${bound(one.high)})`)) : "–";
  })];
  return [section("Cross-play", table(["Weights", ...figures.map((name) => right(plain(name)))],
    [...cells.map(row(real, real)), ...differences.map(row(signed, signed))], "Cross-play")),
  h("p.soft", "95% intervals over ", over, "; runs: ", runs.join(", "), " ",
    h("button", { click: () => copy(["dyad cross-play", ...runs.map(plainWord)].join(" "), "The command") },
      "Copy command"))];
}

/** Returns a run's id as it is, and any other text as a quoted word. */
const plainWord = (text) => (/^[\w-]+$/.test(text) ? text : word(text));

function tasksTable(tasks) {
  const ids = Object.keys(tasks.last).sort();
  if (ids.length === 0) return null;
  const changed = ids.filter((id) => tasks.first[id] !== undefined && tasks.first[id] !== tasks.last[id]);
  const rows = ids.slice(0, 200).map((id) => {
    const [before, after] = [tasks.first[id], tasks.last[id]];
    const sign = before === undefined || before === after ? "" : after > before ? "▲ better" : "▼ worse";
    return [id, num(before), num(after), sign ? chip(sign, after > before ? "good" : "warn") : ""];
  });
  return [section(`Tasks: ${plain(tasks.metric)}, step ${tasks.first_step} and step ${tasks.last_step}`,
    table(["Task", right("First"), right("Last"), ""], rows, "Tasks")),
  h("p.soft", `${changed.length} of ${ids.length} changed`, ids.length > 200 ? ", 200 shown" : "")];
}
