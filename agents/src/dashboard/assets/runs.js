// The table of runs.

import { h, replace } from "./dom.js";
import { empty, every, query, show } from "./frame.js";
import { ago, date, num } from "./numbers.js";
import { chip, right, searchField, spark, stateChip, table } from "./parts.js";
import { get } from "./server.js";

/** True once the runs were read. A single run opens by itself only the first time. */
let begun = false;

const seg = encodeURIComponent;
const link = (run) => `#/r/${seg(run.run)}`;

export async function runsPage() {
  const search = searchField("Filter runs", "Filter runs");
  const body = h("div", h("p.soft", "Reading the run folders ..."));
  const [ticked, compare] = [new Set(), h("span.soft")];
  const tick = (run, isOn) => {
    if (isOn) ticked.add(run);
    else ticked.delete(run);
    const [a, b] = ticked;
    replace(compare, ticked.size === 2
      ? h("a", { href: `#/compare/${seg(a)}/${seg(b)}` }, `Compare ${a} and ${b}`)
      : "tick two runs to compare them");
  };
  tick();
  show(["Runs"], h("div.tools", search, compare), body);
  let runs = [];
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = runs.filter((run) => words.every((word) =>
      `${run.run} ${run.workflow} ${run.mode} ${run.state} ${run.agents.join(" ")}`.includes(word)));
    if (runs.length === 0) {
      replace(body, empty("No run yet. Start one with ", h("code", "dyad run signal"), "."));
    } else {
      replace(body, found.length === 0 ? empty("No run matches.")
        : h("div.panel", runsTable(found, ticked, tick)));
    }
  };
  search.addEventListener("input", draw);
  every(5000, async (signal) => {
    runs = await allRuns(signal);
    if (runs.length === 1 && !begun) location.replace(link(runs[0]));
    begun = true;
    draw();
  });
}

/** Reads every page of the table. */
async function allRuns(signal) {
  const runs = [];
  for (let cursor = ""; cursor !== null;) {
    const found = await get(query("runs", { cursor }), signal);
    runs.push(...found.runs);
    cursor = found.next;
  }
  return runs;
}

function runsTable(runs, ticked, tick) {
  const wide = (name) => ({ name, class: "wide-only" });
  const rows = runs.map((run) => ({ link: link(run), cells: [
    h("input", { type: "checkbox", "aria-label": `Compare ${run.run}`, checked: ticked.has(run.run),
      change: (event) => tick(run.run, event.target.checked) }), h("a", { href: link(run) }, run.run),
    run.problem ? chip("unreadable", "bad", run.problem) : stateChip(run.state, run.reason),
    run.workflow, run.agents.join(", "),
    run.steps === null ? "–" : `${run.step ?? 0} / ${run.steps}`,
    run.success.length === 0 ? h("span.soft", "–")
      : [num(run.success[0][1]), " → ", num(run.success.at(-1)[1])],
    spark(run.reward, "mean reward in training"),
    h("span", { title: date(run.created_ms) }, ago(run.created_ms))] }));
  return table(["", "Run", "State", wide("Game"), wide("Agents"), right("Step"),
    right("Success", "first evaluation → last evaluation"), wide("Reward"), right("Started")], rows, "Runs");
}
