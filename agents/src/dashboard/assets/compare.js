// Two runs side by side: their curves, last evaluations and configurations.

import { h } from "./dom.js";
import { every, message, query, reading, show, soft } from "./frame.js";
import { figure, num, signed } from "./numbers.js";
import { chip, right, section, table } from "./parts.js";
import { chartBoard } from "./plot.js";
import { get } from "./server.js";

const CURVES = [["Reward in training", "train:reward/mean"], ["Evaluated success", "eval:success"],
  ["Entropy", "train:loss/entropy"]];
const HOW = { paired_tasks: "tasks, paired", other_tasks: "different tasks", runs: "runs" };

export async function comparePage([a, b], signal) {
  reading("Comparing");
  const { config, comparison, problem } = await get(query("compare", { a, b }), signal);
  const name = (run, side) => [`${side} `, h("a", { href: `#/r/${encodeURIComponent(run)}` }, run), " "];
  const curves = h("div.charts");
  show(["Compare", soft(name(a, "A"), name(b, "B"))], curves,
    comparison ? lastEvaluations(comparison) : message("", "No table: ", problem),
    section(`Configuration: ${config.length} keys differ`, table(["Key", "A", "B"], config.map((one) =>
      [h("code", one.key), one.a ?? "–", one.b ?? "–"]), "Configuration")));
  let found = [];
  const redraw = chartBoard(curves, () => CURVES.map(([title, wanted]) =>
    ({ title, series: found.filter((one) => `${one.from}:${one.name}` === wanted) })));
  every(10000, async (current) => {
    const names = CURVES.map(([, wanted]) => wanted).join(",");
    const read = async (run, side) => (await get(query(`runs/${encodeURIComponent(run)}/series`,
      { points: 300, name: names }), current)).series.map((one) =>
      ({ ...one, from: one.kind, kind: "run", of: `${side} ${one.of}`.trim() }));
    found = (await Promise.all([read(a, "A"), read(b, "B")])).flat();
    redraw();
  });
}

function lastEvaluations(found) {
  const rows = found.rows.map(({ metric, a, b, difference, how }) => [metric, num(a), num(b),
    difference ? [signed(difference.mean), ` (${signed(difference.low)} to ${signed(difference.high)}) `,
      difference.low > 0 || difference.high < 0 ? chip("excludes 0", "good") : null] : "–", HOW[how]]);
  const [a, b] = found.trained_tokens;
  return section("Last evaluations", table(["Figure", right("A"), right("B"), "B − A, 95% interval", "over"],
    [...rows, ["trained tokens", figure(a), figure(b), "", ""]], "Last evaluations"),
  found.apart.length ? h("p.soft", "on one side only: ", found.apart.join(", ")) : null);
}
