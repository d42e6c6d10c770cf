// One conversation: its turns, and each seat's rewards, advantages and verdict.

import { h, svg } from "./dom.js";
import { LIST, api, conversationLink, copy, open, page, reading, show, soft, to } from "./frame.js";
import { count, figure, fixed, num, real } from "./numbers.js";
import { chip, colour, statusChip, who } from "./parts.js";
import { replayCommand } from "./replay.js";
import { get } from "./server.js";
import {
  agentOf, groupSize, promptTurn, seatName, seats, strip, taskLink, textOf, verdictChip, verdictOf,
} from "./talks.js";
import { tokensOf } from "./tokens.js";

export async function conversationPage([group, member], _options, signal) {
  const id = `${group}/${member}`;
  reading("Reading the transcript");
  const [{ transcript, custody, members }, { tokens }] = await Promise.all([
    get(api("conversations", group, member), signal), recorded(group, member, signal)]);
  const number = Number(member);
  const at = members.findIndex((one) => one.member === number);
  const near = (by) => members[at + by] && to("c", group, String(members[at + by].member));
  const step = (by, text, key) => (near(by) ? h("a", { href: near(by), title: `key ${key}` }, text) : soft(text));
  const fact = (name, value) => h("span", `${name} `, h("b", value));
  show([["Conversation ", h("code", `${group.slice(0, 12)}/${member}`)],
    transcript.eval ? chip("evaluation, never trained") : null,
    transcript.status === "completed" ? chip("completed", "good") : statusChip(transcript.status),
    h("span.grow"), h("span.facts", step(-1, "← previous", "p"),
      h("a", { href: to("g", group), title: "key u" }, groupSize(transcript, members)),
      step(1, "next →", "n"))],
  h("div.facts", fact("task", taskLink(transcript, custody)), fact("step", figure(transcript.step)),
    Object.entries(transcript.metrics ?? {}).map(([name, value]) =>
      h("span", name, " ", h("b", num(value))))),
  h("div.dialogue", h("div.turns", promptTurn(transcript), turns(transcript, tokens, custody, number)),
    h("div.side", seats(transcript).map((seat) => seatPanel(transcript, seat, custody, members, number)),
      elsewhere(custody, transcript), actions(id, transcript))));
  const go = (link) => () => link && (location.hash = link);
  const inList = LIST.ids.indexOf(id);
  const listed = (by) => inList >= 0 && LIST.ids[inList + by] && conversationLink(LIST.ids[inList + by]);
  Object.assign(page.keys, { n: go(near(1)), p: go(near(-1)), u: go(to("g", group)),
    j: go(listed(1)), k: go(listed(-1)) });
}

/** The tokens, or none if they are too many to show. */
async function recorded(group, member, signal) {
  try {
    return await get(api("conversations", group, member, "tokens"), signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { tokens: [] };
  }
}

function turns(transcript, tokens, custody, member) {
  const agents = [...new Set(transcript.turns.map((turn) => turn.agent))];
  const players = agents.filter((name) => open.agents.includes(name));
  const end = Math.max(...transcript.turns.map((turn) => turn.time?.committed ?? 0));
  return transcript.turns.map((turn) => {
    const reads = (turn.reads ?? []).map((read) => h("details.turn.wide.nx",
      h("summary", `${seatName(turn)} reads, ${read.role}`), h("div.body", textOf(read.content))));
    if (players.includes(turn.agent)) {
      const verdict = verdictOf(custody, turn.agent, member, seatName(turn));
      return [reads, bubble(turn, players.indexOf(turn.agent) % 2 === 1, tokensOf(tokens, turn, verdict), end)];
    }
    return [reads, h("details.turn.wide.nx", { open: transcript.turns.length < 8 },
      h("summary", `${seatName(turn)}, ${turn.agent}`), h("div.body", turn.text))];
  });
}

function bubble(turn, isRight, tokens, end) {
  const of = turn.logprobs_of && turn.logprobs_of !== "sampled" ? [" (", turn.logprobs_of, ")"] : "";
  return h("article.turn", { class: [isRight && "right", colour(turn.agent)] },
    h("div.top", who(turn.agent, seatName(turn)), h("span", `agent ${turn.agent}`),
      h("span.num", count(turn.tokens, "token")),
      (turn.versions ?? [turn.version]).map((version) =>
        chip(["weights ", h("code", version)], "", "lineage.step of weights that sampled the turn")),
      h("span.num", { title: String(turn.mean_logprob) }, "mean log-prob ",
        typeof turn.mean_logprob === "number" ? fixed(turn.mean_logprob) : "–", of),
      turn.finish === "stop" ? null : chip(turn.finish, "warn")),
    h("div.body", { class: turn.text ? "" : "none" }, turn.text ? turn.text : "empty"), tokens,
    turn.time ? timeBar(turn.time, end) : null);
}

/** Draws a turn's times on the axis of its conversation. The way to the engine and back is `messages`. */
function timeBar({ asked, queue = 0, prompt = 0, decode = 0, committed, answered = committed }, end) {
  const messages = answered - asked - queue - prompt - decode;
  const parts = { queue, prompt, decode, messages, commit: committed - answered };
  const label = `asked after ${real(asked)} s: ` +
    Object.entries(parts).map(([name, seconds]) => `${name} ${real(seconds)} s`).join(", ");
  let from = asked;
  return svg("svg", { class: "time", viewBox: `0 0 ${end} 1`, preserveAspectRatio: "none", role: "img",
    "aria-label": label }, svg("title", {}, label), Object.values(parts).map((seconds, at) =>
    svg("rect", { x: (from += seconds) - seconds, y: 0, width: Math.max(0, seconds), height: 1,
      fill: "var(--own)", opacity: [0.45, 0.7, 1, 0.2, 0.35][at] })));
}

/** Draws a seat: its reward as a sum, its credit, its place in the group, the ledger's verdict. */
function seatPanel(transcript, seat, custody, members, member) {
  const agent = agentOf(transcript, seat);
  const earned = transcript.earned?.[seat];
  const compared = earned?.compared;
  const rows = [...rewardRows(earned, transcript.rewards?.[seat] ?? {}), ...advantageRows(compared)];
  const verdict = transcript.eval ? { kind: "", text: "evaluation: never trained" }
    : verdictOf(custody, agent, member, seat);
  const values = members.filter((one) => typeof one.rewards[seat] === "number").map(
    (one) => ({ member: one.member, reward: one.rewards[seat] }));
  return h("section.panel.seat", { class: colour(agent) },
    h("div.head", h("h3", who(agent, seat)), soft(agent ? `agent ${agent}` : ""), h("span.grow"),
      verdictChip(verdict)),
    h("table", h("tbody", rows.map(([name, how, value, kind]) => h("tr", { class: kind }, h("td", name),
      h("td.r.soft", how), h("td.r", num(value)))))),
    earned?.not_compared ? h("p.soft", "No advantage: ", earned.not_compared) : null,
    compared ? h("p.soft", `${compared.kind}, ${compared.conversations} compared: mean ${real(compared.mean)}, `,
      `std ${real(compared.std)}`, compared.then?.length ? `; then ${compared.then.join("; ")}` : "") : null,
    values.length > 1 ? strip(values, compared?.baseline, member,
      `rewards of ${seat} in the group of ${values.length}`) : null);
}

/** Returns the rows of a reward: name, how it is made, value, kind. */
function rewardRows(earned, rewards) {
  if (!earned) {
    return Object.entries(rewards).map(([name, value]) =>
      (name === "total" ? ["reward", "", value, "sum"] : [name, "", value]));
  }
  const parts = earned.parts.map(({ name, value, weight }) => [name,
    [num(value), " × ", figure(weight + 0)], value === null ? null : value * weight + 0]);
  const { credit } = earned;
  const shared = credit ? [[`credit (${operator(credit.operator)})`, ["instead of own ", num(credit.own)],
    credit.credit]] : [];
  return [...parts, ...shared, ["reward", "", earned.total, "sum"]];
}

function advantageRows(compared) {
  if (!compared) return [];
  const isAlone = compared.advantage === 0 && compared.conversations < 2;
  const how = isAlone ? "nothing to compare with"
    : compared.scale === 1 ? "reward − baseline" : "(reward − baseline) / scale";
  return [["baseline", "", compared.baseline], ...(compared.scale === 1 ? [] : [["scale", "", compared.scale]]),
    ["advantage", how, compared.advantage, "sum"]];
}

function operator(value) {
  if (typeof value === "string") return value;
  return Object.entries(value ?? {}).map(([name, other]) => `${name} from ${other}`).join(", ");
}

/** Names the agents without a ledger on this machine. */
function elsewhere(custody, transcript) {
  const absent = Object.entries(custody.agents).filter(([, ledger]) => !ledger).map(([name]) => name);
  return transcript.eval || absent.length === 0 ? null
    : h("p.soft", `No ledger of ${absent.join(", ")} on this machine: its verdicts are not shown.`);
}

function actions(id, transcript) {
  const button = (name, text, what, title) => h("button", { click: () => copy(text(), what), title }, name);
  const replay = replayCommand(transcript);
  return h("div.tools",
    button("Copy command", () => `dyad conversation ${id} --run ${open.run}`, "The command"),
    button("Copy JSON", () => JSON.stringify(transcript), "The JSON"),
    replay && button("Copy test", () => replay, "The test",
      "dyad workflow test, with these answers and the task's id, prompt and label; for bash"));
}
