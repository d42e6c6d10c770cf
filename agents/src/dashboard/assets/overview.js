// The overview of a run: agents, coordinators, queues, the last evaluation, two curves.

import { h, replace } from "./dom.js";
import { api, every, message, open, show, to } from "./frame.js";
import { bytes, count, date, figure, num } from "./numbers.js";
import { chip, colour, facts, right, section, table, who } from "./parts.js";
import { chartBoard } from "./plot.js";
import { get } from "./server.js";

export async function overviewPage(drawBar) {
  const body = h("div", h("p.soft", "Listening to the run's processes ..."));
  show([open.run], runFacts(open.info, open.config), body);
  const [notes, cards, curves, rest] = [h("div"), h("div.cards"), h("div.charts"), h("div.two")];
  let drawn = false;
  every(1200, async (signal) => {
    const status = await get(api("status"), signal);
    if (!drawn) replace(body, notes, cards, h("p"), curves, rest);
    if (!drawn) overviewCurves(curves);
    drawn = true;
    drawOverview(status, notes, cards, rest);
    const state = status.live ? "live" : open.state;
    if (state !== open.state || status.over !== open.over) {
      Object.assign(open, { state, over: status.over });
      drawBar();
    }
  });
}

/** Draws the two most important curves: reward in training, and evaluated success. */
function overviewCurves(curves) {
  let [found, total] = [[], -1];
  const redraw = chartBoard(curves, () => [["Reward in training", "train"], ["Evaluated success", "eval"]].map(
    ([title, kind]) => ({ title, series: found.filter((one) => one.kind === kind) })));
  every(5000, async (signal) => {
    found = (await get(`${api("series")}?points=300&name=train:reward/mean,eval:success`, signal)).series;
    const size = found.reduce((sum, one) => sum + one.count, 0);
    if (size !== total) redraw();
    total = size;
  });
}

function runFacts(info, config) {
  const fact = (name, value) => h("span", `${name} `, h("b", value));
  return h("div.facts", fact("game", config.workflow), fact("mode", config.mode),
    fact("group size", config.group_size), fact("seed", info.seed), fact("dyad", info.version),
    info.commit ? fact("built from", h("code", info.commit.slice(0, 10))) : null,
    info.git ? fact("working tree at", h("code", info.git.slice(0, 10))) : null,
    fact("started", date(info.created_ms)));
}

function drawOverview(status, notes, cards, rest) {
  const { live, metrics, waits } = status;
  const does = new Map(waits);
  replace(cards, open.agents.map((name) =>
    agentCard(name, live?.agents?.[name], metrics.train[name], does.get(`agent ${name}`), Boolean(live))));
  const stalled = Object.values(live?.coordinators ?? {}).map((beat) => beat.stalled).find(Boolean)
    ?? (live ? null : metrics.stalled?.reason);
  replace(notes, status.over ? message("", status.over)
    : status.offline ? message("warn", "No live state: ", status.offline,
      ". The figures come from the run folder.") : null,
  does.has("RabbitMQ") ? message("bad", "RabbitMQ ", does.get("RabbitMQ"), ".") : null,
  stalled ? message("bad", "Paused, because nothing can be learned: ", stalled) : null, alarms(metrics));
  replace(rest, coordinatorPanel(live, waits), queuePanel(live), evalPanel(metrics.eval));
}

function alarms(metrics) {
  return Object.entries(metrics.train).flatMap(([name, line]) => [
    line["collapse/alarms"] > 0 ? message("warn",
      `Agent ${name}: ${count(line["collapse/alarms"], "figure")} outside train.alarms. See `,
      h("a", { href: to("charts", "collapse") }, "Collapse"), ".") : null,
    line["optim/skipped"] > 0 ? message("bad", `Agent ${name}: `, count(line["optim/skipped"], "optimizer step"),
      " skipped: the gradient was not finite.") : null]);
}

function agentCard(name, beat, line, does, isLive) {
  const config = open.config.agents[name];
  const now = beat?.holding?.length ? "holding" : beat?.phase === "running" ? beat.run.phase : beat?.phase;
  const step = beat?.step ?? line?.step;
  const version = beat && h("code", { title: "lineage.step" }, `${beat.version.lineage}.${beat.version.step}`);
  const roles = config.roles.filter((role) => line?.[`reward/${role}`] !== undefined);
  const named = (key) => num(line[key]);
  const rows = [["step", step === undefined ? "–" : `${step} / ${open.config.steps}`],
    ...(beat ? [["weights served", version]] : []),
    ["reward, last batch", num(beat?.reward ?? line?.["reward/mean"])],
    ...(roles.length > 1 ? roles.map((role) => [`reward of ${role}`, named(`reward/${role}`)]) : []),
    ...(line ? [["staleness, steps", named("staleness/mean")],
      ["groups without a difference", named("advantage/zero_share")],
      ["entropy, nats per token", named("loss/entropy")], ["seconds per batch", named("time/train_s")]] : [])];
  return h("section.panel.pad.agent", { class: colour(name) },
    h("div.head", h("h3", who(name)), h("span.soft", config.roles.join(", ")), h("span.grow"),
      isLive ? chip(now ?? "silent", !now ? "bad" : now === "running" ? "good" : "") : null,
      config.trains ? null : chip("does not train")),
    isLive ? h("p.does.soft", does ? does : "") : null,
    config.trains && beat ? bufferBar(beat) : null, facts(rows));
}

/** Draws ready groups, reserved groups and free places as one bar. */
function bufferBar(beat) {
  const room = Math.max(0, beat.capacity);
  const whole = beat.ready + beat.reserved + room;
  const part = (value, name) => {
    const element = h(name);
    element.style.setProperty("width", `${whole > 0 ? (100 * value) / whole : 0}%`);
    return element;
  };
  return [h("div.meter", { role: "img", "aria-label":
    `${beat.ready} groups ready, ${beat.reserved} reserved, room for ${room}` },
  part(beat.ready, "span"), part(beat.reserved, "span.half")),
  h("p.soft.nowrap.num", h("span.key"), `${beat.ready} ready   `, h("span.key.half"),
    `${beat.reserved} reserved   `, h("span.key.none"), `${room} free`)];
}

function coordinatorPanel(live, waits) {
  if (!live) return null;
  const does = waits.filter(([name]) => name === "coordinator").map(([, text]) => text);
  const rates = typeof live.conversations_per_s !== "number" ? null : h("span.soft",
    ` ${figure(Math.round(live.conversations_per_s))} conversations/s, `
      + `${figure(Math.round(live.turns_per_s))} turns/s`);
  const beats = Object.entries(live.coordinators);
  const one = ([name, beat], at) => h("div.pad",
    h("div.head", h("code", name.slice(0, 8)), h("span.grow"),
      chip(beat.phase, beat.phase === "running" ? "good" : "")),
    h("p.soft", does[at] ?? ""),
    facts([["groups open", beat.open_groups], ["groups done", beat.finished_groups],
      ["conversations", beat.finished_conversations], ["turns", beat.turns], ["tasks dead", beat.dead_tasks],
    ].map(([key, value]) => [key, figure(value)])));
  return section([beats.length > 1 ? "Coordinators" : "Coordinator", rates],
    beats.length === 0 ? h("p.empty", does[0] ?? "no heartbeat") : beats.map(one));
}

function queuePanel(live) {
  const queues = Object.entries(live?.queues ?? {});
  if (queues.length === 0) return null;
  const name = (queue) => queue.replace(`dyad.${open.run}.`, "").replace(/\.v1$/, "");
  return section("Queues", table(["Queue", right("Messages ready"),
    right("Limit", "bytes of ready messages; a full queue rejects more")], queues.map(([queue, depth]) => [
    h("td.id", { title: queue }, name(queue)),
    name(queue) === "dead" && depth > 0 ? h("a", { href: to("letters") }, figure(depth)) : figure(depth),
    h("td.r.nowrap", { title: live.queue_limits[queue] }, bytes(live.queue_limits[queue]))]),
  "Queues"));
}

function evalPanel(line) {
  if (!line) return null;
  const figures = Object.entries(line).filter(([name, value]) => typeof value === "number"
    && name !== "step" && !/^(time|weights)\//.test(name));
  return h("section", section(`Last evaluation, step ${line.step}`, table(["Figure", right("Mean over tasks")],
    figures.map(([name, value]) => [name, num(value)]), "Last evaluation")),
  h("p", h("a", { href: to("evaluations") }, "All evaluations")));
}
