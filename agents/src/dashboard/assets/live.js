// Conversations turn by turn, while they are played.

import { h, replace } from "./dom.js";
import { api, conversationLink, empty, open, page, say, show, to } from "./frame.js";
import { count, figure, fixed } from "./numbers.js";
import { chip, colour, kindPicker, picker, rolePicker, who } from "./parts.js";
import { listen } from "./server.js";
import { seatName } from "./talks.js";

/** The largest number of conversations on the page. */
const MOST = 60;

export async function livePage(_rest, _options, signal) {
  const [feed, state] = [h("div.feed"), h("div")];
  const rate = h("span.soft.num");
  const [role, kind] = [rolePicker(), kindPicker()];
  const agent = picker("Agent", ["", ...open.agents], (name) => name || "all agents");
  const pauseButton = h("button", { "aria-pressed": "false", click: () => {
    const paused = !isPaused();
    pauseButton.setAttribute("aria-pressed", String(paused));
    replace(pauseButton, paused ? "Paused" : "Pause");
  } }, "Pause");
  const isPaused = () => pauseButton.getAttribute("aria-pressed") === "true";
  show(["Live conversations", rate], h("div.tools", pauseButton, role, agent, kind), state, feed);
  page.keys[" "] = () => pauseButton.click();
  const talks = new Map();
  const begin = () => {
    talks.clear();
    replace(feed);
    replace(state, empty("Waiting for turns ..."));
  };
  begin();
  for (const control of [role, agent, kind]) control.addEventListener("change", begin);
  const wants = (turn) => !isPaused() && (!role.value || turn.role === role.value)
    && (!agent.value || turn.agent === agent.value)
    && (!kind.value || (kind.value === "eval") === turn.task.startsWith("eval/"));
  const take = (turn) => {
    if (!wants(turn)) return;
    const id = `${turn.group}/${turn.member}`;
    if (!talks.has(id)) {
      talks.set(id, talkCard(id, turn));
      feed.prepend(talks.get(id));
    }
    talks.get(id).lastChild.append(turnLine(turn));
    for (const oldest of [...talks.keys()].slice(0, Math.max(0, talks.size - MOST))) {
      talks.get(oldest).remove();
      talks.delete(oldest);
    }
    replace(state);
  };
  const end = ({ group, member, status, rewards }) => {
    const talk = talks.get(`${group}/${member}`);
    if (!talk || isPaused()) return;
    // A group that is played again ends again.
    talk.querySelector(".ended")?.remove();
    talk.lastChild.append(endLine(status, rewards));
  };
  const showRate = ({ one_of, turns_per_s }) => replace(rate,
    one_of > 1 ? `1 of ${one_of} conversations shown` : "all shown", `, ${figure(turns_per_s)} turns/s`);
  const offline = ({ reason }) => talks.size === 0 && replace(state, empty(
    h("p", "No live turns: ", reason),
    h("a", { href: to("conversations") }, "Conversations that have ended")));
  const events = { turn: take, rewards: end, rate: showRate, offline,
    dropped: ({ n }) => say(`${n} turns were left out: the page is too slow`) };
  listen(api("stream") + "?topics=turns", signal, (name, data) => events[name]?.(data));
}

function talkCard(id, turn) {
  return h("article.panel.talk.new", h("div.top",
    h("a", { href: conversationLink(id) }, `${turn.group.slice(0, 8)}/${turn.member}`),
    h("span.grow", turn.task.slice(0, 60)),
    turn.task.startsWith("eval/") ? chip("evaluation") : null), h("div"));
}

function turnLine(turn) {
  return h("div.line", { class: colour(turn.agent) }, h("div", who(turn.agent, seatName(turn))),
    h("div.said", turn.text ? turn.text : h("i.soft", "empty")),
    h("div.after.num", `${turn.agent} · ${count(turn.tokens, "token")} · weights `,
      h("code", `${turn.version.lineage}.${turn.version.step}`),
      ` · mean log-prob ${fixed(turn.mean_logprob)}`, turn.finish === "stop" ? "" : ` · ${turn.finish}`));
}

function endLine(status, rewards) {
  const earned = Object.entries(rewards).map(([seat, reward]) => chip(`${seat} ${figure(reward)}`));
  return h("div.ended.num", status, earned.length ? " · rewards " : "", earned);
}
