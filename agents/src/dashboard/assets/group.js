// A group: the rewards of each seat, all members, and the texts of two members side by side.

import { h, replace } from "./dom.js";
import { api, conversationLink, main, message, page, reading, show, soft } from "./frame.js";
import { count, figure, num, real, signed } from "./numbers.js";
import { chip, colour, facts, opens, statusChip, table, who } from "./parts.js";
import { get } from "./server.js";
import {
  agentOf, groupSize, memberOf, promptTurn, seatName, seats, strip, taskLink, verdictChip, verdictOf,
} from "./talks.js";

export async function groupPage([group], _options, signal) {
  reading("Reading the group");
  const { members, custody } = await get(api("groups", group), signal);
  const [first] = members;
  const size = groupSize(first, members);
  const view = { members, custody, names: [...new Set(members.flatMap(seats))], by: "member", isDown: false,
    chosen: new Set(), box: h("div.panel"), compared: h("div") };
  view.agents = Object.fromEntries(view.names.map((seat) => [seat, agentOf(first, seat)]));
  drawMembers(view);
  const ledgers = Object.entries(custody.agents).map(([name, ledger]) => h("span", who(name), " ", books(ledger)));
  show([["Group ", h("code", group.slice(0, 12))], first.eval ? chip("evaluation, never trained") : null,
    soft(size, size.includes("written") ? '; run.transcripts = "all" writes every member' : "")],
  h("div.facts", h("span", "task ", h("b", taskLink(first, custody))), first.eval ? null : ledgers),
  promptTurn(first),
  h("h2", "Rewards"), h("div.cards", view.names.map((seat) => spread(members, seat))),
  h("h2", "Members"), view.box, h("p.soft", "Tick two members to compare their texts."), view.compared);
  page.keys.n = () => (location.hash = conversationLink(first.conversation));
}

function books(ledger) {
  if (!ledger) return "no ledger on this machine";
  if (!ledger.row) return "not in the ledger";
  const { state, samples, reason } = ledger.row;
  return [`${state}, ${count(samples, "sample")}`, reason ? [": ", reason] : ""];
}

function spread(members, seat) {
  const values = members.map((one) => ({ member: memberOf(one), reward: one.rewards?.[seat]?.total,
    compared: one.earned?.[seat]?.compared })).filter((one) => typeof one.reward === "number");
  if (values.length === 0) return null;
  const agent = agentOf(members[0], seat);
  const equal = values.every((one) => one.reward === values[0].reward);
  const total = (of) => values.reduce((sum, one) => sum + (of(one) ?? 0), 0);
  const sample = values.find((one) => one.compared)?.compared;
  const mean = sample?.mean ?? total((one) => one.reward) / values.length;
  const advantages = total((one) => one.compared?.advantage);
  const rows = [["mean", num(mean)], ...(sample
    ? [["std", num(sample.std)], ["compared", figure(sample.conversations)], ["advantages", sample.kind],
      ["sum of advantages", num(Math.abs(advantages) < 1e-9 ? 0 : advantages)]]
    : [["members", figure(values.length)]])];
  return h("section.panel.seat", { class: colour(agent) },
    h("div.head", h("h3", who(agent, seat)), soft(agent ? `agent ${agent}` : "")),
    equal && values.length > 1 ? message("warn",
      `No difference in reward: ${values.length} of ${values.length} are ${real(values[0].reward)}.`) : null,
    strip(values, mean, undefined, `rewards of ${seat}: ${values.length} members`), facts(rows));
}

const advantageOf = (one, seat) => one.earned?.[seat]?.compared?.advantage;
const tokensOf = (one) => one.turns.reduce((sum, turn) => sum + (turn.tokens ?? 0), 0);

function sortKey(view, one) {
  const [what, seat] = view.by.split(" ");
  if (what === "reward") return one.rewards?.[seat]?.total ?? -Infinity;
  if (what === "advantage") return advantageOf(one, seat) ?? -Infinity;
  return what === "tokens" ? tokensOf(one) : memberOf(one);
}

function drawMembers(view) {
  const { members, names, agents, isDown } = view;
  const sorted = [...members].sort((a, b) => (sortKey(view, a) - sortKey(view, b)) * (isDown ? -1 : 1)
    || memberOf(a) - memberOf(b));
  const head = (by, text, isRight) => {
    const isOwn = view.by === by;
    const sort = () => {
      Object.assign(view, { by, isDown: isOwn ? !isDown : by !== "member" });
      drawMembers(view);
    };
    return h("th", { scope: "col", class: isRight && "r",
      "aria-sort": isOwn ? (isDown ? "descending" : "ascending") : null },
    h("button", { click: sort }, text), isOwn ? (isDown ? " ↓" : " ↑") : "");
  };
  const compared = names.filter((seat) => members.some((one) => one.earned?.[seat]?.compared));
  const isEval = members[0].eval;
  const heads = ["", head("member", "Member"), ...names.flatMap((seat) => [
    head(`reward ${seat}`, who(agents[seat], `reward ${seat}`), true),
    ...(compared.includes(seat) ? [head(`advantage ${seat}`, "advantage", true)] : [])]),
  head("tokens", "tokens", true), "said last", ...(isEval ? [] : ["ledger"]), ""];
  const line = (one) => {
    const member = memberOf(one);
    const link = conversationLink(one.conversation);
    const tick = h("input", { type: "checkbox", "aria-label": `Compare member ${member}`, "data-member": member,
      checked: view.chosen.has(member), change: (event) => choose(view, member, event.target.checked) });
    const own = names.map((seat) => [h("td.r", num(one.rewards?.[seat]?.total)), compared.includes(seat)
      ? h("td.r", { title: advantageOf(one, seat) }, signed(advantageOf(one, seat))) : null]);
    return opens(h("tr", h("td", tick), h("td.id", h("a", { href: link }, String(member))), own,
      h("td.r", figure(tokensOf(one))), h("td.cut", one.turns.at(-1)?.text.slice(0, 200) ?? ""),
      isEval ? null : h("td", memberVerdicts(view, member)), h("td", statusChip(one.status))), link);
  };
  const list = table(heads, [], "Members");
  list.querySelector("tbody").append(...sorted.map(line));
  replace(view.box, list);
}

function choose(view, member, isOn) {
  const { chosen, members } = view;
  chosen[isOn ? "add" : "delete"](member);
  if (chosen.size > 2) {
    const [oldest] = chosen;
    chosen.delete(oldest);
    main.querySelector(`input[data-member="${oldest}"]`).checked = false;
  }
  replace(view.compared, chosen.size === 2 ? difference(members, [...chosen]) : null);
}

/** Makes one chip if all seats have the same verdict, else one for each seat. */
function memberVerdicts({ custody, names, agents }, member) {
  const found = names.map((seat) => [seat, verdictOf(custody, agents[seat], member, seat)]).filter(
    ([, verdict]) => verdict);
  if (new Set(found.map(([, verdict]) => verdict.text)).size === 1) return verdictChip(found[0][1]);
  return found.map(([seat, verdict]) => h("div.item", who(agents[seat], seat), verdictChip(verdict)));
}

/** Shows two members turn by turn, and marks the words that only one of them has. */
function difference(members, chosen) {
  const [left, right] = chosen.sort((a, b) => a - b).map((number) =>
    members.find((one) => memberOf(one) === number));
  const cell = (turn, parts) => h("div.turn.wide", { class: turn ? colour(turn.agent) : "nx" },
    turn ? [h("div.top", who(turn.agent, seatName(turn))), h("div.body", parts)] : null);
  const length = Math.max(left.turns.length, right.turns.length);
  const rows = Array.from({ length }, (_, at) => {
    const [a, b] = [left.turns[at], right.turns[at]];
    const [one, other] = words(a?.text ?? "", b?.text ?? "");
    return [cell(a, one), cell(b, other)];
  });
  return [h("h2", `Members ${memberOf(left)} and ${memberOf(right)}`), h("div.two", rows)];
}

/** Marks the words of two texts that are not in their longest common subsequence. */
function words(left, right) {
  const [a, b] = [left, right].map((text) => text.split(/(\s+)/).slice(0, 800));
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const [one, other] = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      one.push(a[i++]);
      other.push(b[j++]);
    } else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      one.push(h("del", a[i++]));
    } else other.push(h("ins", b[j++]));
  }
  return [one, other];
}
