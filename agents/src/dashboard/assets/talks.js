// Parts that the pages of a conversation and a group share: seats, verdicts, rewards as dots.

import { h, svg } from "./dom.js";
import { open, to } from "./frame.js";
import { figure } from "./numbers.js";
import { chip } from "./parts.js";

/** Returns a prompt or label as the text that `dyad conversation` prints. */
export function promptText(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((part) => `${part.role ?? ""}: ${textOf(part.content)}`).join("\n");
  return value === null || value === undefined ? "" : JSON.stringify(value);
}

export const textOf = (content) => (typeof content === "string" ? content : JSON.stringify(content ?? ""));

export const seatName = (turn) => (turn.seat ? `${turn.role}/${turn.seat}` : turn.role);

export const memberOf = (transcript) => Number(transcript.conversation.split("/")[1]);

/** Returns the seats with a reward, in the order in which they speak. */
export function seats(transcript) {
  const names = Object.keys({ ...transcript.earned, ...transcript.rewards });
  const first = (seat) => {
    const at = transcript.turns.findIndex((turn) => seatName(turn) === seat);
    return at < 0 ? transcript.turns.length : at;
  };
  return names.sort((a, b) => first(a) - first(b));
}

/** Returns the agent that plays a seat in this conversation. */
export function agentOf(transcript, seat) {
  const turn = transcript.turns.find((one) => seatName(one) === seat);
  return turn ? turn.agent : open.config.roles[seat.split("/")[0]] ?? "";
}

/** Returns the task, with a link to its life if a ledger on this machine has its group. */
export function taskLink({ task }, custody) {
  const isKnown = Object.values(custody?.agents ?? {}).some((ledger) => ledger?.row);
  return isKnown ? h("a", { href: to("t", task) }, task) : task;
}

/** Returns the number of written members, and of compared ones if they are more. */
export function groupSize(transcript, members) {
  const compared = Object.values(transcript.earned ?? {}).map((one) => one.compared?.conversations ?? 0);
  const size = Math.max(0, ...compared);
  return size > members.length ? `group: ${members.length} of ${size} written` : `group of ${members.length}`;
}

export function promptTurn(transcript) {
  const [label, text] = [promptText(transcript.label), promptText(transcript.prompt)];
  const body = (...of) => h("div.body", of);
  return h("div.turn.wide.nx",
    h("div.top", h("b", "Task"), label ? h("span", "label: ", label) : null),
    text.length > 600 ? h("details", h("summary", text.slice(0, 160), " ..."), body(text))
      : body(text ? text : h("i.soft", "empty")));
}

/** Returns the ledger's verdict on one seat of one member. */
export function verdictOf(custody, agent, member, seat) {
  const ledger = custody?.agents?.[agent];
  if (!ledger) return null;
  if (!ledger.row) return { kind: "", text: "not in the ledger: never trained" };
  const found = ledger.verdicts.find((one) => one.member === member && seatName(one) === seat);
  if (found && found.reason === null) {
    return { kind: "good", text: `trained at step ${found.step}`, more: `lineage ${found.lineage}` };
  }
  if (found) return { kind: "warn", text: `discarded at step ${found.step}: ${found.reason}`, dropped: found };
  const { state, samples, reason } = ledger.row;
  if (state === "reserved") return { kind: "", text: "reserved: the group is still open" };
  if (state === "dead") return { kind: "bad", text: `dead: ${reason ?? "no reason"}` };
  if (samples === 0) return { kind: "warn", text: `no samples: ${reason ?? "no reason"}` };
  return { kind: "", text: "closed: no verdict yet" };
}

export const verdictChip = (verdict) => (verdict ? chip(verdict.text, verdict.kind, verdict.more) : null);

/** Draws a group's rewards as dots, a line at `baseline`, and a ring around member `mine`. */
export function strip(values, baseline, mine, label) {
  const all = values.map((one) => one.reward).concat(baseline ?? []);
  let [low, high] = [Math.min(...all), Math.max(...all)];
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const place = (value) => 14 + 372 * ((value - low) / (high - low));
  const heights = new Map();
  const levels = values.map((one) => {
    const column = place(one.reward).toFixed(0);
    const level = heights.get(column) ?? 0;
    heights.set(column, level + 1);
    return level;
  });
  const most = Math.max(...heights.values());
  const step = Math.min(9, 62 / most);
  const floor = 14 + most * step;
  const dots = values.map((one, at) => {
    const own = one.member === mine;
    return svg("circle", { cx: place(one.reward), cy: floor - 5 - levels[at] * step, r: own ? 5 : 3.6,
      fill: "var(--own)", "fill-opacity": mine === undefined || own ? 1 : 0.4,
      stroke: own ? "var(--text)" : "none", "stroke-width": 1.5 },
    svg("title", `member ${one.member}: reward ${one.reward}`));
  });
  const line = typeof baseline !== "number" ? null : svg("line", { x1: place(baseline), x2: place(baseline),
    y1: 4, y2: floor + 3, stroke: "var(--text)", "stroke-dasharray": "3 2" });
  const end = (value, x, anchor) => svg("text", { x, y: floor + 15, "text-anchor": anchor }, figure(value));
  return svg("svg.strip", { viewBox: `0 0 400 ${floor + 20}`, role: "img", "aria-label": label },
    svg("line", { x1: 6, x2: 394, y1: floor, y2: floor, stroke: "var(--strong)" }), dots, line,
    end(low, 6, "start"), end(high, 394, "end"));
}
