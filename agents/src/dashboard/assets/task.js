// The life of a task: waiting, in play, played or dead, and the verdicts of each agent's ledger.

import { h, replace } from "./dom.js";
import { api, every, show, to } from "./frame.js";
import { count } from "./numbers.js";
import { chip, right, section, table, who } from "./parts.js";
import { get } from "./server.js";

const KINDS = { played: "good", empty: "warn", dead: "bad", rejected: "bad" };

export async function taskPage([id]) {
  const body = h("div", h("p.soft", "Reading the ledgers ..."));
  show([["Task ", h("code", id)]], body);
  every(2000, async (signal) => draw(body, await get(api("tasks", id), signal)));
}

function draw(body, life) {
  const isPlayed = life.outcome === "played" || life.outcome === "empty";
  const isLetter = life.outcome === "dead" || life.outcome === "rejected";
  const group = h("code", life.group.slice(0, 12));
  const ledgers = Object.entries(life.custody.agents);
  replace(body, h("div.facts", chip(life.outcome, KINDS[life.outcome] ?? ""),
    h("span", "group ", isPlayed ? h("a", { href: to("g", life.group) }, group) : group),
    isLetter ? h("a", { href: to("letters") }, "dead letters") : null),
  life.text === life.outcome ? null : h("p", life.text),
  section("Ledgers", table(["Agent", "group", right("samples"), "verdicts"],
    ledgers.map(([name, ledger]) => [who(name), ...books(ledger)]), "Ledgers")));
}

/** Returns the cells of one ledger: the group's state, its samples, and the verdicts by kind. */
function books(ledger) {
  if (!ledger) return ["no ledger on this machine", "–", ""];
  if (!ledger.row) return ["not accepted yet", "–", ""];
  const kinds = new Map();
  for (const { step, reason } of ledger.verdicts) {
    const text = reason === null ? `trained at step ${step}` : `discarded at step ${step}: ${reason}`;
    kinds.set(text, (kinds.get(text) ?? 0) + 1);
  }
  const verdicts = [...kinds].map(([text, found]) => h("div", `${count(found, "sample")} ${text}`));
  const { state, samples, reason } = ledger.row;
  return [reason ? `${state}: ${reason}` : state, String(samples), verdicts];
}
