// The audit of a run: counts of its tasks, and of each agent's ledger.

import { h } from "./dom.js";
import { api, failed, message, page, reading, show, soft } from "./frame.js";
import { date, figure } from "./numbers.js";
import { chip, right, section, table, who } from "./parts.js";
import { get } from "./server.js";

export async function auditPage(_rest, _options, signal) {
  reading("Counting every ledger");
  const { audit, violations, broker, at_ms } = await get(api("audit"), signal);
  const names = Object.keys(audit.agents);
  show(["Audit", soft(`counted from the ledgers at ${date(at_ms)}`, broker ? "" : "; no broker was asked")],
    violations.length === 0 ? message("good", "Nothing lost, nothing counted twice.")
      : message("bad", "A promise is broken: ", violations.map((one) => h("div", one))),
    h("div.two", section(audit.books.ended ? "Tasks" : "Tasks so far",
      table(["", right("Tasks")], taskRows(audit.books), "Tasks")),
    h("div", section("Ledgers", names.length === 0 ? h("p.empty", "No ledger on this machine.")
      : table(["", ...names.map((name) => right(who(name)))], ledgerRows(audit.agents), "Ledgers")),
    h("p.soft", `Groups split between attempts: ${audit.split}. Uneven: ${audit.uneven}.`))),
    h("p", h("button", { click: () => auditPage([], null, page.signal).catch(failed) }, "Count again")));
}

const sum = (map) => Object.values(map).reduce((total, one) => total + one, 0);

function taskRows(books) {
  return [["accepted", books.accepted], ["finished", books.finished],
    ["abandoned without samples", sum(books.abandoned)], ["dead or rejected", books.dead],
    ["in flight", books.in_flight], ["published", books.published],
    ["waiting in the queue", books.queued], ["published, seen nowhere", books.unseen.length],
    ["ledgers disagree", Object.keys(books.unequal).length], ["conversations", books.conversations],
    ["conversations left out", books.invalid_conversations],
    ["conversations of abandoned groups", books.abandoned_conversations],
  ].map(([name, value]) => [name, figure(value)]);
}

function ledgerRows(agents) {
  const all = Object.values(agents);
  const line = (name, value) => [name, ...all.map((one) => figure(value(one, one.counts)))];
  const zero = (name, value) => [name, ...all.map((one) =>
    chip(figure(value(one)), value(one) === 0 ? "good" : "bad"))];
  const byReason = (of, name) => [...new Set(all.flatMap((one) => Object.keys(one.counts[of])))].map((reason) =>
    line(h("span.soft", name, reason), (_, counts) => counts[of][reason] ?? 0));
  return [line("groups reserved", (_, counts) => counts.reserved),
    line("groups closed", (_, counts) => counts.closed), ...byReason("empty", "empty: "),
    line("groups ready", (_, counts) => counts.ready),
    line("groups dead", (_, counts) => counts.dead), line("samples received", (one) => one.samples),
    line("samples trained", (_, counts) => counts.trained), ...byReason("discarded", "samples discarded: "),
    zero("samples counted twice", (one) => one.twice), zero("groups lost", (one) => one.missing),
    line("duplicate bundles", (_, counts) => counts.duplicates),
    line("bundles of a lost attempt", (_, counts) => counts.other_attempt),
    line("batches", (_, counts) => counts.batches),
    line("trainer starts", (one) => Object.keys(one.lineages).length)];
}
