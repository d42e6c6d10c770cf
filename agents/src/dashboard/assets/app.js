// The pages of `dyad dashboard`. They read the JSON API of the same address and show it; with
// `--write` they change runs too.
// All text of models, tasks and logs enters the page as text nodes.
"use strict";

// ---------------------------------------------------------------- elements

/** Makes an element. Attributes are plain values; `class` may be a list. */
function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Makes an SVG element. */
function svg(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "click" || key === "input" || key === "change" || key === "toggle") {
      element.addEventListener(key, value);
    } else if (key === "class" && Array.isArray(value)) {
      element.setAttribute("class", value.filter(Boolean).join(" "));
    } else if (key === "title" || key === "aria-label") {
      element.setAttribute(key, plain(String(value)));
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function replace(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

// Control characters, and characters that hide or reorder text.
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|[\\u{e0000}-\\u{e007f}]", "gu");

/** Returns foreign text as nodes, with characters that cannot be seen as escapes. */
function shown(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    const code = found[0].codePointAt(0).toString(16).padStart(4, "0");
    nodes.push(h("span", { class: "esc", title: "a character that cannot be seen" }, "\\u" + code));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/** Returns foreign text in one line for titles and attributes. */
function plain(text) {
  return text.replace(UNSEEN, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

// ---------------------------------------------------------------- numbers and times

/** Formats a figure as the commands do: three decimals, or its power if it is tiny. */
function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en", { useGrouping: value > 99999 });
  const size = Math.abs(value);
  if (size < 0.0005) return value.toExponential(1);
  if (size >= 10000) return value.toFixed(0);
  return value.toFixed(3);
}

/** A mean or a reward, with its exact value in the title. */
function num(value) {
  const exact = typeof value === "number" ? { title: String(value) } : {};
  return h("span", { class: "num", ...exact }, real(value));
}

function real(value) {
  return Number.isInteger(value) && Math.abs(value) < 10000 ? (value + 0).toFixed(3) : figure(value);
}

function signed(value) {
  if (typeof value !== "number") return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "") + real(Math.abs(value));
}

function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < names.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(1)} ${names[at]}`;
}

function ago(ms) {
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

function date(ms) {
  return new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

function count(number, what) {
  return `${figure(number)} ${what}${number === 1 ? "" : "s"}`;
}

// ---------------------------------------------------------------- the server

const token = {
  get: () => sessionStorage.getItem("dyad.token"),
  set: (value) => sessionStorage.setItem("dyad.token", value), };

function headers() {
  const secret = token.get();
  return secret ? { Authorization: `Bearer ${secret}` } : {};
}

class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const get = (path, signal) => ask(path, { headers: headers(), signal, cache: "no-store" });

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The dashboard does not answer. Is `dyad dashboard` still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, body.error ?? `status ${answer.status}`);
  return body;
}

/** Reads server-sent events; calls `event(name, data)` for each, until `signal` aborts it. */
async function listen(path, signal, event) {
  const extra = {};
  while (!signal.aborted) {
    try {
      const answer = await fetch(`api/${path}`, { headers: { ...headers(), ...extra }, signal });
      if (!answer.ok) {
        const body = await answer.json().catch(() => ({}));
        event("offline", { reason: body.error ?? `status ${answer.status}` });
      } else {
        await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), (fields) => {
          if (fields.id) extra["Last-Event-ID"] = fields.id;
          event(fields.event, JSON.parse(fields.data));
        });
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      event("offline", { reason: "the dashboard does not answer" });
    }
    await pause(2000, signal);
  }
}

async function read(reader, take) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = {};
      for (const line of part.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
      }
      if (fields.data) take(fields);
    }
  }
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}

// ---------------------------------------------------------------- parts of pages

const seg = encodeURIComponent;

/** The link of a page of a run. */
function to(run, ...parts) {
  return "#/" + ["r", run, ...parts].map((part) => seg(part)).join("/");
}

/** The agents of the open run, in order: their places give colours and shapes. */
let agents = [];

function colour(agent) {
  const at = agents.indexOf(agent);
  return at < 0 ? "nx" : `n${at % 6}`;
}

function who(agent, label) {
  return h("span", { class: ["who", colour(agent)] }, shown(label ?? agent));
}

function chip(text, kind, title) {
  return h("span", { class: ["chip", kind], title }, text);
}

function message(kind, ...text) {
  return h("p", { class: ["message", kind], role: kind === "bad" ? "alert" : undefined }, text);
}

function empty(...text) {
  return h("div", { class: "panel empty" }, text);
}

/** A table: columns are `{name, right}` or text; rows are lists of cells or `{link, cells}`. */
function table(columns, rows, caption) {
  const heads = columns.map((column) =>
    typeof column === "string" ? { name: column } : column);
  const line = (row) => {
    const cells = Array.isArray(row) ? row : row.cells;
    const element = h("tr", { class: row.class },
      cells.map((cell, at) => cell instanceof HTMLTableCellElement ? cell
        : h("td", { class: [heads[at].right && "r", heads[at].class] }, cell)));
    if (row.link) opens(element, row.link);
    return element;
  };
  return h("div", { class: "scroll" }, h("table", { "aria-label": caption },
    h("thead", {}, h("tr", {}, heads.map((head) =>
      h("th", { scope: "col", class: [head.right && "r", head.class], title: head.title }, head.name)))),
    h("tbody", {}, rows.map(line))));
}

/** Makes a row open a page. Its first link serves the keyboard. */
function opens(row, link) {
  row.classList.add("open");
  row.dataset.link = link;
  row.addEventListener("click", (event) => {
    if (event.target.closest("a, button, input")) return;
    if (String(getSelection()).length > 0) return;
    location.hash = link;
  });
}

function stateChip(state, reason) {
  const kinds = { live: "good", ended: "", stopped: "warn", silent: "warn" };
  const signs = { live: "●", ended: "✓", stopped: "■", silent: "○" };
  return chip([h("span", { "aria-hidden": "true" }, signs[state] ?? ""), state], kinds[state], reason);
}

function statusChip(status) {
  if (status === "completed") return null;
  return chip(shown(status), status === "failed" ? "bad" : "warn");
}

/** A line of points without axes. */
function spark(points, label) {
  if (!points || points.length < 2) return h("span", { class: "soft" }, "–");
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) => {
    const across = 2 + 116 * (right > left ? (x - left) / (right - left) : 0);
    const up = 21 - 18 * (high > low ? (y - low) / (high - low) : 0.5);
    return `${across.toFixed(1)},${up.toFixed(1)}`;
  };
  return svg("svg", { class: "spark", viewBox: "0 0 120 24", role: "img", "aria-label": label },
    svg("polyline", { points: points.map(place).join(" "), fill: "none", stroke: "currentColor",
      "stroke-width": 1.5 }));
}

/** Dots of a group's rewards, with the mean of the group and a ring around `mine`. */
function strip(values, baseline, mine, label) {
  const all = values.map((one) => one.reward).concat(baseline ?? []);
  let [low, high] = [Math.min(...all), Math.max(...all)];
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const place = (value) => 14 + 372 * ((value - low) / (high - low));
  const heights = new Map();
  const most = Math.max(...values.map((one) => {
    const key = place(one.reward).toFixed(0);
    heights.set(key, (heights.get(key) ?? 0) + 1);
    return heights.get(key);
  }));
  const step = Math.min(9, 62 / Math.max(most, 1));
  const floor = 14 + Math.max(1, most) * step;
  heights.clear();
  const dots = values.map((one) => {
    const key = place(one.reward).toFixed(0);
    const level = heights.get(key) ?? 0;
    heights.set(key, level + 1);
    const [x, y] = [place(one.reward), floor - 5 - level * step];
    const own = one.member === mine;
    return svg("circle", { cx: x, cy: y, r: own ? 5 : 3.6, fill: "var(--own)",
      "fill-opacity": mine === undefined || own ? 1 : 0.4, stroke: own ? "var(--text)" : "none",
      "stroke-width": 1.5 }, svg("title", {}, `member ${one.member}: reward ${one.reward}`));
  });
  const line = typeof baseline === "number"
    ? [svg("line", { x1: place(baseline), x2: place(baseline), y1: 4, y2: floor + 3,
      stroke: "var(--text)", "stroke-dasharray": "3 2" })] : [];
  const end = (value, x, anchor) => svg("text", { x, y: floor + 15, "text-anchor": anchor }, figure(value));
  return svg("svg", { class: "strip", viewBox: `0 0 400 ${floor + 20}`, role: "img", "aria-label": label },
  svg("line", { x1: 6, x2: 394, y1: floor, y2: floor, stroke: "var(--strong)" }), dots, line,
  end(low, 6, "start"), end(high, 394, "end"));
}

/** The plain text of a prompt or label, as `dyad conversation` prints it. */
function promptText(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) {
    return value.map((part) => `${part.role ?? ""}: ${textOf(part.content)}`).join("\n");
  }
  return value === null || value === undefined ? "" : JSON.stringify(value);
}

function textOf(content) {
  return typeof content === "string" ? content : JSON.stringify(content ?? "");
}

function seatName(turn) {
  return turn.seat ? `${turn.role}/${turn.seat}` : turn.role;
}

/** The verdict of the ledgers on one seat of one member. */
function verdictOf(custody, agent, member, seat) {
  const ledger = custody?.agents?.[agent];
  if (!ledger) return null;
  if (!ledger.row) return { kind: "", text: "not in the ledger: never trained" };
  const found = ledger.verdicts.find((one) => one.member === member && seatName(one) === seat);
  if (found && found.reason === null) {
    return { kind: "good", text: `trained at step ${found.step}`, more: `lineage ${found.lineage}` };
  }
  if (found) return { kind: "warn", text: `discarded at step ${found.step}: ${found.reason}` };
  const { state, samples, reason } = ledger.row;
  if (state === "reserved") return { kind: "", text: "reserved: the group is still open" };
  if (state === "dead") return { kind: "bad", text: `dead: ${reason ?? "no reason"}` };
  if (samples === 0) return { kind: "warn", text: `no samples: ${reason ?? "no reason"}` };
  return { kind: "", text: "closed: no verdict yet" };
}

function verdictChip(verdict) {
  return verdict ? chip(shown(verdict.text), verdict.kind, verdict.more) : null;
}

/** The agent that plays a seat in this conversation. */
function agentOf(transcript, seat) {
  const turn = transcript.turns.find((one) => seatName(one) === seat);
  return turn ? turn.agent : open.config?.roles?.[seat.split("/")[0]] ?? "";
}

// ---------------------------------------------------------------- the frame

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const bar = document.getElementById("bar");
const frame = document.getElementById("frame");
const notice = document.getElementById("notice");

/** The open run: its id and the facts that most pages need. */
const open = { run: null, config: null, info: null, state: null, writes: false };

const PAGES = [
  ["", "Overview", "o"], ["live", "Live", "l"], ["conversations", "Conversations", "c"],
  ["charts", "Charts", "m"], ["evaluations", "Evaluations", "e"], ["logs", "Logs", "s"],
  ["audit", "Audit", "a"], ["letters", "Dead letters", "d"], ["config", "Configuration", "f"],
];
const WRITING = [["publish", "Publish", "b"], ["orders", "Orders", "x"]];
const pages = () => PAGES.concat(open.writes ? WRITING : []);

function drawBar(current) {
  const dark = document.documentElement.dataset.theme === "dark";
  replace(bar, h("a", { class: "brand", href: "#/" }, "dyad"), h("span", { class: "crumb" }, open.run
      ? [h("span", { class: "soft" }, "/ "), h("a", { href: to(open.run) }, open.run)]
      : h("span", { class: "soft" }, "runs")), open.run && open.state ? stateChip(open.state) : null,
    h("span", { class: "grow" }), h("button", { class: "bare", click: () => theme(dark ? "light" : "dark") },
      dark ? "Light" : "Dark"),
    h("button", { class: "bare", "aria-label": "Keys", click: () => help.showModal() }, "?"));
  frame.classList.toggle("alone", !open.run);
  replace(nav, open.run ? pages().map(([path, name]) => h("a", {
    href: path ? to(open.run, path) : to(open.run), "aria-current": current === path ? "page" : undefined,
  }, name)) : []);
  const now = nav.querySelector("[aria-current]");
  if (now) nav.scrollLeft = now.offsetLeft - 60;
}

const themed = new Set();

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("dyad.theme", name);
  drawBar(page.current);
  for (const redraw of themed) redraw();
}

let silence;
function say(text) {
  replace(notice, text);
  clearTimeout(silence);
  silence = setTimeout(() => replace(notice), 2500);
}

function copy(text, what) {
  navigator.clipboard?.writeText(text).then(() => say(`${what} copied`),
    () => say("The browser did not allow the copy"));
}

/** The shown page: ends the work of the page before. */
const page = { current: "", signal: null, end: null, keys: {} };

/** Calls `work` now and every `ms` while the page is shown and visible. */
async function every(ms, work) {
  const { signal } = page;
  for (;;) {
    if (!document.hidden) {
      try {
        await work(signal);
      } catch (error) {
        if (error.name === "AbortError" || signal.aborted) return;
        failed(error);
        if (error.status >= 400 && error.status < 500) return;
      }
    }
    await pause(ms, signal);
    if (signal.aborted) return;
  }
}

function failed(error) {
  let text = error.message;
  if (error.status === 401) {
    text = "The token is missing or wrong. Open the URL that `dyad dashboard` printed: it ends in #token=...";
  }
  const known = main.querySelector(":scope > .message.bad");
  if (known) replace(known, shown(text));
  else main.prepend(message("bad", shown(text)));
}

const recovered = () => main.querySelector(":scope > .message.bad")?.remove();

async function route() {
  const hash = location.hash;
  const secret = /^#token=([^&]+)&?(.*)/.exec(hash);
  if (secret) {
    token.set(decodeURIComponent(secret[1]));
    history.replaceState(null, "", `${location.pathname}#${secret[2] || "/"}`);
    return route();
  }
  page.end?.abort();
  page.end = new AbortController();
  page.signal = page.end.signal;
  page.keys = {};
  themed.clear();
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => decodeURIComponent(part));
  const options = new URLSearchParams(query ?? "");
  const [first, run, name = "", ...rest] = parts;
  const signal = page.signal;
  try {
    if (first === "r" && run) {
      if (open.run !== run) await enter(run, signal);
      const view = VIEWS[name] ?? (() => replace(main, empty("There is no such page.")));
      page.current = { c: "conversations", g: "conversations" }[name] ?? name;
      document.title = `${run} · dyad`;
      drawBar(page.current);
      await view(rest, options, signal);
    } else {
      Object.assign(open, { run: null, config: null, info: null, state: null });
      page.current = "";
      document.title = "runs · dyad";
      drawBar("");
      await runsPage();
    }
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    drawBar(page.current);
    if (first !== "r" || open.run !== run) replace(main);
    failed(error);
  }
}

/** Reads the facts of a run that all its pages need. */
async function enter(run, signal) {
  Object.assign(open, { run, ...await get(`runs/${seg(run)}/facts`, signal) });
  agents = Object.keys(open.config.agents);
}

function api(...parts) {
  return `runs/${seg(open.run)}/${parts.map((part) => seg(part)).join("/")}`;
}

// ---------------------------------------------------------------- runs

/** True once the table was shown: the first page of a dashboard of one run is that run. */
let begun = false;

async function runsPage() {
  const search = h("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs" });
  const body = h("div", {}, h("p", { class: "soft" }, "Reading the run folders ..."));
  replace(main, h("div", { class: "head" }, h("h1", {}, "Runs")), h("div", { class: "tools" }, search), body);
  let runs = [];
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => words.every((word) =>
      `${run.run} ${run.workflow} ${run.mode} ${run.state} ${run.agents.join(" ")}`.includes(word));
    const found = runs.filter(fits);
    if (runs.length === 0) {
      replace(body, empty("No run yet. Start one with ", h("code", {}, "dyad run signal"), "."));
    } else if (found.length === 0) {
      replace(body, empty("No run matches."));
    } else {
      replace(body, h("div", { class: "panel" }, runsTable(found)));
    }
  };
  search.addEventListener("input", draw);
  every(5000, async (signal) => {
    ({ runs } = await get("runs", signal));
    recovered();
    const [only] = runs;
    if (runs.length === 1 && !begun) location.replace(to(only.run));
    begun = true;
    draw();
  });
}

function runsTable(runs) {
  const success = (run) => {
    const points = run.success;
    if (points.length === 0) return h("span", { class: "soft" }, "–");
    const [first, last] = [points[0][1], points[points.length - 1][1]];
    return [num(first), " → ", num(last)];
  };
  return table(["Run", "State", { name: "Game", class: "wide-only" },
    { name: "Agents", class: "wide-only" }, { name: "Step", right: true },
    { name: "Success", right: true, title: "first evaluation → last evaluation" },
    { name: "", class: "wide-only" }, { name: "Started", right: true }], runs.map((run) => ({
    link: to(run.run), cells: [h("a", { href: to(run.run) }, run.run),
      run.problem ? chip("unreadable", "bad", run.problem) : stateChip(run.state, run.reason),
      shown(run.workflow), run.agents.join(", "),
      run.steps === null ? "–" : `${run.step ?? 0} / ${run.steps}`, success(run),
      spark(run.success, "success over evaluations"),
      h("span", { title: date(run.created_ms) }, ago(run.created_ms)), ], })), "Runs");
}

// ---------------------------------------------------------------- overview

async function overviewPage() {
  const body = h("div", {}, h("p", { class: "soft" }, "Listening to the run's processes ..."));
  const { info, config } = open;
  replace(main, h("div", { class: "head" }, h("h1", {}, open.run)), runFacts(info, config), body);
  const cards = h("div", { class: "cards" });
  const [notes, rest, curves] = [h("div", {}), h("div", { class: "two" }), h("div", { class: "charts" })];
  let drawn = false;
  every(2000, async (signal) => {
    const status = await get(api("status"), signal);
    recovered();
    if (!drawn) replace(body, notes, cards, h("p", {}), curves, rest);
    if (!drawn) overviewCurves(curves);
    drawn = true;
    drawOverview(status, notes, cards, rest);
    const state = status.over ? (status.live ? "live" : open.state) : status.live ? "live" : open.state;
    if (state !== open.state) {
      open.state = state;
      drawBar("");
    }
  });
}

/** The two curves that say most: rewards in training, and evaluated success. */
async function overviewCurves(curves) {
  const plots = [];
  let found = [];
  let total = -1;
  page.signal.addEventListener("abort", () => plots.forEach((plot) => plot.destroy()));
  const draw = () => {
    plots.splice(0).forEach((plot) => plot.destroy());
    replace(curves);
    for (const [title, kind] of [["Reward in training", "train"], ["Evaluated success", "eval"]]) {
      const series = found.filter((one) => one.kind === kind);
      if (series.length === 0) continue;
      const place = h("div", {});
      curves.append(h("section", { class: "panel chart" }, h("h3", {}, title), place));
      plots.push(plotted(place, series, { smooth: 0, across: "step" }));
    }
  };
  themed.add(draw);
  every(5000, async (signal) => {
    found = (await get(`${api("series")}?points=300&name=train:reward/mean,eval:success`, signal)).series;
    const size = found.reduce((sum, one) => sum + one.count, 0);
    if (size !== total && curves.isConnected) {
      total = size;
      draw();
    }
  });
}

function runFacts(info, config) {
  const fact = (name, value) => h("span", {}, `${name} `, h("b", {}, value));
  return h("div", { class: "facts" }, fact("game", shown(config.workflow)), fact("mode", config.mode),
    fact("group size", config.group_size), fact("seed", info.seed),
    fact("dyad", info.version), info.git ? fact("commit", h("code", {}, info.git.slice(0, 10))) : null,
    fact("started", date(info.created_ms)));
}

function drawOverview(status, notes, cards, rest) {
  const { live, metrics } = status;
  const does = new Map(status.waits.map(([name, text]) => [name, text]));
  replace(cards, agents.map((name) => agentCard(name, live?.agents?.[name], metrics.train[name],
    does.get(`agent ${name}`), Boolean(live))));
  const parts = [];
  if (status.over) parts.push(message("", shown(status.over)));
  else if (status.offline) {
    parts.push(message("warn", "No live state: ", shown(status.offline),
      ". The figures come from the run folder."));
  }
  const stalled = Object.values(live?.coordinators ?? {}).map((beat) => beat.stalled).find(Boolean)
    ?? (live ? null : metrics.stalled?.reason);
  if (stalled) parts.push(message("bad", "Paused, because nothing can be learned: ", shown(stalled)));
  parts.push(...alarms(metrics));
  const tables = [coordinatorPanel(live, status.waits), queuePanel(live), evalPanel(metrics.eval)];
  replace(notes, parts);
  replace(rest, tables);
}

function alarms(metrics) {
  const raised = Object.entries(metrics.train).filter(([, line]) => line["collapse/alarms"] > 0);
  const said = raised.map(([name, line]) => message("warn",
    `Agent ${name}: ${count(line["collapse/alarms"], "figure")} outside train.alarms. See `,
    h("a", { href: to(open.run, "charts", "collapse") }, "Collapse"), "."));
  const skipped = Object.entries(metrics.train).filter(([, line]) => line["optim/skipped"] > 0);
  return said.concat(skipped.map(([name, line]) => message("bad",
    `Agent ${name}: ${count(line["optim/skipped"], "optimizer step")} skipped: the gradient was not finite.`)));
}

function agentCard(name, beat, line, does, isLive) {
  const config = open.config.agents[name];
  const now = beat?.holding?.length ? "holding" : beat?.phase === "running" ? beat.run.phase : beat?.phase;
  const phase = !isLive ? null : chip(now ?? "silent", !now ? "bad" : now === "running" ? "good" : "");
  const step = beat?.step ?? line?.step;
  const rows = [["step", step === undefined ? "–" : `${step} / ${open.config.steps}`]];
  if (beat) {
    rows.push(["weights served", h("code", { title: "lineage.step" },
      `${beat.version.lineage}.${beat.version.step}`)]);
  }
  rows.push(["reward, last batch", num(beat?.reward ?? line?.["reward/mean"])]);
  const roles = config.roles.filter((role) => line?.[`reward/${role}`] !== undefined);
  if (roles.length > 1) {
    rows.push(...roles.map((role) => [`reward of ${role}`, num(line[`reward/${role}`])]));
  }
  if (line) {
    rows.push(["staleness, steps", num(line["staleness/mean"])],
      ["groups without a difference", num(line["advantage/zero_share"])],
      ["entropy, nats per token", num(line["loss/entropy"])],
      ["seconds per batch", num(line["time/train_s"])]);
  }
  return h("section", { class: ["panel pad agent", colour(name)] },
    h("div", { class: "head" }, h("h3", {}, who(name)),
      h("span", { class: "soft" }, config.roles.join(", ")), h("span", { class: "grow" }), phase,
      config.trains ? null : chip("does not train")),
    isLive ? h("p", { class: "does soft" }, does ? shown(does) : "") : null,
    config.trains && beat ? bufferBar(beat) : null,
    h("dl", { class: "grid" }, rows.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])));
}

/** Ready and reserved groups, and room for more. */
function bufferBar(beat) {
  const room = Math.max(0, beat.capacity);
  const whole = beat.ready + beat.reserved + room;
  const part = (value, kind) => {
    const element = h("span", { class: kind });
    element.style.setProperty("width", `${whole > 0 ? (100 * value) / whole : 0}%`);
    return element;
  };
  return [h("div", { class: "meter", role: "img", "aria-label":
    `${beat.ready} groups ready, ${beat.reserved} reserved, room for ${room}` },
  part(beat.ready, ""), part(beat.reserved, "half")),
  h("p", { class: "soft nowrap num" }, h("span", { class: "key" }), `${beat.ready} ready  `,
    " ", h("span", { class: "key half" }), `${beat.reserved} reserved  `, " ",
    h("span", { class: "key none" }), `${room} free`)];
}

function coordinatorPanel(live, waits) {
  if (!live) return null;
  const does = waits.filter(([name]) => name === "coordinator").map(([, text]) => text);
  const rates = typeof live.conversations_per_s === "number"
    ? `${figure(Math.round(live.conversations_per_s))} conversations/s, ${figure(Math.round(live.turns_per_s))} turns/s`
    : null;
  const beats = Object.entries(live.coordinators);
  const one = ([name, beat], at) => h("div", { class: "pad" },
    h("div", { class: "head" }, h("code", {}, shown(name.slice(0, 8))), h("span", { class: "grow" }),
      chip(beat.phase, beat.phase === "running" ? "good" : "")),
    h("p", { class: "soft" }, shown(does[at] ?? "")),
    h("dl", { class: "grid" }, [["groups open", beat.open_groups], ["groups done", beat.finished_groups],
      ["conversations", beat.finished_conversations], ["turns", beat.turns], ["tasks dead", beat.dead_tasks],
    ].map(([key, value]) => [h("dt", {}, key), h("dd", {}, figure(value))])));
  return h("section", {}, h("h2", {}, beats.length > 1 ? "Coordinators" : "Coordinator",
    rates ? h("span", { class: "soft" }, ` ${rates}`) : null),
  h("div", { class: "panel" }, beats.length === 0
    ? h("p", { class: "empty" }, shown(does[0] ?? "no heartbeat")) : beats.map(one)));
}

function queuePanel(live) {
  if (!live) return null;
  const queues = Object.entries(live.queues);
  if (queues.length === 0) return null;
  return h("section", {}, h("h2", {}, "Queues"), h("div", { class: "panel" },
    table(["Queue", { name: "Messages ready", right: true }], queues.map(([name, depth]) => [
        h("td", { class: "id", title: name }, shown(name.replace(`dyad.${open.run}.`, "").replace(/\.v1$/, ""))),
        /\.dead(\.v1)?$/.test(name) && depth > 0
          ? h("a", { href: to(open.run, "letters") }, figure(depth)) : figure(depth)]), "Queues")));
}

function evalPanel(line) {
  if (!line) return null;
  const figures = Object.entries(line).filter(([name, value]) => typeof value === "number"
    && name !== "step" && !/^(time|weights)\//.test(name));
  return h("section", {}, h("h2", {}, `Last evaluation, step ${line.step}`),
    h("div", { class: "panel" }, table(["Figure", { name: "Mean over tasks", right: true }],
      figures.map(([name, value]) => [shown(name), num(value)]), "Last evaluation")),
    h("p", {}, h("a", { href: to(open.run, "evaluations") }, "All evaluations")));
}

// ---------------------------------------------------------------- live conversations

async function livePage(_rest, _options, signal) {
  const feed = h("div", { class: "feed" });
  const rate = h("span", { class: "soft num" }, "");
  const role = picker("Role", ["", ...Object.keys(open.config.roles)], (name) => name || "all roles");
  const agent = picker("Agent", ["", ...agents], (name) => name || "all agents");
  const kind = picker("Kind", ["", "train", "eval"],
    (name) => ({ "": "training and evaluation", train: "training", eval: "evaluation" })[name]);
  let paused = false;
  const pauseButton = h("button", { "aria-pressed": "false", click: () => {
    paused = !paused;
    pauseButton.setAttribute("aria-pressed", String(paused));
    replace(pauseButton, paused ? "Paused" : "Pause");
  } }, "Pause");
  const state = h("div", {}, empty("Waiting for turns ..."));
  replace(main, h("div", { class: "head" }, h("h1", {}, "Live conversations"), rate),
    h("div", { class: "tools" }, pauseButton, role, agent, kind), state, feed);
  page.keys[" "] = () => pauseButton.click();
  const talks = new Map();
  const take = (turn) => {
    const isEval = turn.task.startsWith("eval/");
    if (paused || (role.value && turn.role !== role.value) || (agent.value && turn.agent !== agent.value)
      || (kind.value && (kind.value === "eval") !== isEval)) return;
    const id = `${turn.group}/${turn.member}`;
    let talk = talks.get(id);
    if (!talk) {
      const lines = h("div", {});
      talk = { card: h("article", { class: "panel talk new" }, h("div", { class: "top" },
        h("a", { href: to(open.run, "c", turn.group, String(turn.member)) },
          `${turn.group.slice(0, 8)}/${turn.member}`),
        h("span", { class: "grow" }, shown(turn.task.slice(0, 60))),
        isEval ? chip("evaluation") : null), lines), lines };
      talks.set(id, talk);
      feed.prepend(talk.card);
      while (talks.size > 60) {
        const [oldest, { card }] = talks.entries().next().value;
        card.remove();
        talks.delete(oldest);
      }
    }
    talk.lines.append(turnLine(turn));
    replace(state);
  };
  for (const control of [role, agent, kind]) {
    control.addEventListener("change", () => {
      talks.clear();
      replace(feed);
      replace(state, empty("Waiting for turns ..."));
    });
  }
  listen(api("stream") + "?topics=turns", signal, (name, data) => {
    if (name === "turn") take(data);
    else if (name === "rate") {
      replace(rate, data.one_of > 1
        ? `1 of ${data.one_of} conversations shown, ${figure(data.turns_per_s)} turns/s`
        : `all shown, ${figure(data.turns_per_s)} turns/s`);
    } else if (name === "dropped") say(`${data.n} turns were left out: the page is too slow`);
    else if (name === "offline" && talks.size === 0) {
      replace(state, empty(h("p", {}, "No live turns: ", shown(data.reason)),
        h("a", { href: to(open.run, "conversations") }, "Conversations that have ended")));
    }
  });
}

function turnLine(turn) {
  return h("div", { class: ["line", colour(turn.agent)] }, h("div", {}, who(turn.agent, seatName(turn))),
    h("div", { class: "said" }, turn.text ? shown(turn.text) : h("i", { class: "soft" }, "empty")),
    h("div", { class: "after num" }, `${turn.agent} · ${count(turn.tokens, "token")} · weights `,
      h("code", {}, `${turn.version.lineage}.${turn.version.step}`),
      ` · mean log-prob ${turn.mean_logprob.toFixed(3)}`, turn.finish === "stop" ? "" : ` · ${turn.finish}`));
}

function picker(label, values, name, chosen) {
  return h("select", { "aria-label": label }, values.map((value) =>
    h("option", { value, selected: value === chosen }, name ? name(value) : value)));
}

// ---------------------------------------------------------------- conversations

const LIST = { ids: [], at: null };

async function conversationsPage(_rest, options) {
  const field = (name, label, values, text) => {
    const select = picker(label, values, text, options.get(name) ?? "");
    select.dataset.name = name;
    return select;
  };
  const search = h("input", { type: "search", placeholder: "Text or task", "aria-label": "Search",
    value: options.get("q") ?? "" });
  search.dataset.name = "q";
  const reward = h("input", { type: "search", placeholder: "Reward, such as >0.5",
    "aria-label": "Reward", value: options.get("reward") ?? "" });
  reward.dataset.name = "reward";
  const controls = [search,
    field("role", "Role", ["", ...Object.keys(open.config.roles)], (name) => name || "all roles"), reward,
    field("kind", "Kind", ["", "train", "eval"],
      (name) => ({ "": "training and evaluation", train: "training", eval: "evaluation" })[name]),
    field("status", "Status", ["", "completed", "truncated", "failed"], (name) => name || "any status")];
  const body = h("tbody", {});
  const more = h("div", { class: "tools" });
  replace(main, h("div", { class: "head" }, h("h1", {}, "Conversations"),
    h("span", { class: "soft" }, "newest first")), h("div", { class: "tools" }, controls),
  h("div", { class: "panel scroll" }, h("table", { "aria-label": "Conversations" },
    h("thead", {}, h("tr", {}, ["Conversation", "Task", "Step", "Rewards", "Said last", ""].map(
      (name) => h("th", { scope: "col", class: [name === "Step" && "r",
        name === "Said last" && "wide-only"] }, name)))), body)), h("p", {}), more);
  for (const control of controls) {
    control.addEventListener("change", () => {
      const query = new URLSearchParams();
      for (const one of controls) if (one.value) query.set(one.dataset.name, one.value);
      location.hash = to(open.run, "conversations") + (query.size ? `?${query}` : "");
    });
  }
  LIST.ids = [];
  LIST.at = null;
  let shownRows = 0;
  const load = async (cursor) => {
    const query = new URLSearchParams(options);
    query.set("limit", "50");
    if (cursor) query.set("cursor", cursor);
    replace(more, h("span", { class: "soft" }, "Reading ..."));
    const found = await get(api("conversations") + `?${query}`, page.signal);
    shownRows += found.conversations.length;
    body.append(...found.conversations.map(conversationRow));
    LIST.ids.push(...found.conversations.map((one) => one.conversation));
    replace(more, found.next
      ? h("button", { click: () => load(found.next).catch(failed) }, "Older conversations") : null,
    shownRows === 0 && !found.next
      ? h("span", { class: "soft" }, "No conversation matches. run.transcripts says which are written.")
      : h("span", { class: "soft" }, `${count(shownRows, "conversation")} shown`,
        found.next ? "" : ", all that match"));
  };
  const move = (by) => {
    const rows = [...body.children];
    if (rows.length === 0) return;
    const now = rows.findIndex((row) => row.classList.contains("at"));
    const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
    rows[now]?.classList.remove("at");
    next.classList.add("at");
    next.querySelector("a").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  page.keys.j = () => move(1);
  page.keys.k = () => move(-1);
  page.keys["/"] = () => search.focus();
  await load(null);
}

function conversationLink(id) {
  const [group, member] = id.split("/");
  return to(open.run, "c", group, member ?? "0");
}

function conversationRow(one) {
  const rewards = Object.entries(one.rewards).map(([seat, reward]) => h("span", { class: "item" },
    who(one.agents[seat] ?? "", seat), num(reward)));
  const row = h("tr", {}, h("td", { class: "id" }, h("a", { href: conversationLink(one.conversation) },
      one.conversation.slice(0, 8) + "/" + one.conversation.split("/")[1])),
    h("td", { class: "cut" }, shown(one.task)), h("td", { class: "r" }, figure(one.step)),
    h("td", {}, rewards), h("td", { class: "cut wide-only" }, shown(one.last)),
    h("td", { class: "nowrap" }, one.eval ? chip("evaluation") : null, " ", statusChip(one.status)));
  opens(row, conversationLink(one.conversation));
  return row;
}

// ---------------------------------------------------------------- one conversation

async function conversationPage([group, member], _options, signal) {
  const id = `${group}/${member}`;
  replace(main, h("p", { class: "soft" }, "Reading the transcript ..."));
  const { transcript, custody, members } = await get(api("conversations", group, member), signal);
  const number = Number(member);
  const at = members.findIndex((one) => one.member === number);
  const near = (by) => members[at + by] && to(open.run, "c", group, String(members[at + by].member));
  const step = (by, text, key) => near(by)
    ? h("a", { href: near(by), title: `key ${key}` }, text) : h("span", { class: "soft" }, text);
  replace(main, h("div", { class: "head" },
    h("h1", {}, "Conversation ", h("code", {}, `${group.slice(0, 12)}/${member}`)),
    transcript.eval ? chip("evaluation, never trained") : null,
    transcript.status === "completed" ? chip("completed", "good") : statusChip(transcript.status),
    h("span", { class: "grow" }), h("span", { class: "facts" }, step(-1, "← previous", "p"),
      h("a", { href: to(open.run, "g", group), title: "key u" }, groupSize(transcript, members)),
      step(1, "next →", "n"))), h("div", { class: "facts" },
    h("span", {}, "task ", h("b", {}, shown(transcript.task))),
    h("span", {}, "step ", h("b", {}, figure(transcript.step))),
    Object.entries(transcript.metrics ?? {}).map(([name, value]) =>
      h("span", {}, shown(name), " ", h("b", {}, num(value))))), h("div", { class: "dialogue" },
    h("div", { class: "turns" }, promptTurn(transcript), turns(transcript)),
    h("div", { class: "side" }, seats(transcript).map((seat) =>
      seatPanel(transcript, seat, custody, members, number)), elsewhere(custody, transcript),
    actions(id, transcript))));
  const go = (link) => link && (location.hash = link);
  page.keys.n = () => go(near(1));
  page.keys.p = () => go(near(-1));
  page.keys.u = () => go(to(open.run, "g", group));
  const inList = LIST.ids.indexOf(id);
  page.keys.j = () => inList >= 0 && LIST.ids[inList + 1] && go(conversationLink(LIST.ids[inList + 1]));
  page.keys.k = () => inList > 0 && go(conversationLink(LIST.ids[inList - 1]));
}

/** How many members are written, of how many that were compared. */
function groupSize(transcript, members) {
  const compared = Object.values(transcript.earned ?? {}).map((one) => one.compared?.conversations ?? 0);
  const size = Math.max(0, ...compared);
  return size > members.length ? `group: ${members.length} of ${size} written` : `group of ${members.length}`;
}

/** The seats with a reward, in the order in which they speak. */
function seats(transcript) {
  const names = Object.keys({ ...transcript.earned, ...transcript.rewards });
  const first = (seat) => {
    const at = transcript.turns.findIndex((turn) => seatName(turn) === seat);
    return at < 0 ? transcript.turns.length : at;
  };
  return names.sort((a, b) => first(a) - first(b));
}

function promptTurn(transcript) {
  const label = promptText(transcript.label);
  const text = promptText(transcript.prompt);
  return h("div", { class: "turn wide nx" }, h("div", { class: "top" }, h("b", {}, "Task"),
    label ? h("span", {}, "label: ", shown(label)) : null), text.length > 600
    ? h("details", {}, h("summary", {}, shown(text.slice(0, 160)), " ..."),
      h("div", { class: "body" }, shown(text)))
    : h("div", { class: "body" }, text ? shown(text) : h("i", { class: "soft" }, "empty")));
}

function turns(transcript) {
  const players = [...new Set(transcript.turns.map((turn) => turn.agent))].filter(
    (name) => agents.includes(name));
  return transcript.turns.map((turn) => {
    const reads = (turn.reads ?? []).map((read) => h("details", { class: "turn wide nx" },
      h("summary", {}, `${seatName(turn)} reads, ${read.role}`),
      h("div", { class: "body" }, shown(textOf(read.content)))));
    if (!agents.includes(turn.agent)) {
      return [reads, h("details", { class: "turn wide nx", open: transcript.turns.length < 8 },
        h("summary", {}, shown(`${seatName(turn)}, ${turn.agent}`)),
        h("div", { class: "body" }, shown(turn.text)))];
    }
    const right = players.length > 1 ? players.indexOf(turn.agent) % 2 === 1 : false;
    const of = turn.logprobs_of && turn.logprobs_of !== "sampled" ? ` (${turn.logprobs_of})` : "";
    return [reads, h("article", { class: ["turn", right && "right", colour(turn.agent)] },
      h("div", { class: "top" }, who(turn.agent, seatName(turn)), h("span", {}, `agent ${turn.agent}`),
        h("span", { class: "num" }, count(turn.tokens, "token")),
        chip(["weights ", h("code", {}, turn.version)], "", "lineage.step of the newest weights"),
        h("span", { class: "num", title: String(turn.mean_logprob) }, "mean log-prob ",
          typeof turn.mean_logprob === "number" ? turn.mean_logprob.toFixed(3) : "–", of),
        turn.finish === "stop" ? null : chip(shown(turn.finish), "warn")),
      h("div", { class: ["body", !turn.text && "none"] }, turn.text ? shown(turn.text) : "empty"))];
  });
}

/** One side: its reward as a sum, the credit, the comparison in the group, the ledger's verdict. */
function seatPanel(transcript, seat, custody, members, member) {
  const agent = agentOf(transcript, seat);
  const earned = transcript.earned?.[seat];
  const rewards = transcript.rewards?.[seat] ?? {};
  const rows = [];
  const row = (name, how, value, kind) => rows.push(h("tr", { class: kind }, h("td", {}, name),
    h("td", { class: "r soft" }, how), h("td", { class: "r" }, num(value))));
  if (earned) {
    for (const part of earned.parts) {
      row(shown(part.name), [num(part.value), " × ", figure(part.weight + 0)],
        part.value === null ? null : part.value * part.weight + 0);
    }
    if (earned.credit) {
      row(`credit (${operator(earned.credit.operator)})`, ["instead of own ", num(earned.credit.own)],
        earned.credit.credit);
    }
    row("reward", "", earned.total, "sum");
  } else {
    for (const [name, value] of Object.entries(rewards)) {
      row(name === "total" ? "reward" : shown(name), "", value, name === "total" ? "sum" : "");
    }
  }
  const compared = earned?.compared;
  if (compared) {
    row("baseline", "", compared.baseline);
    if (compared.scale !== 1) row("scale", "", compared.scale);
    row("advantage", advantageHow(compared), compared.advantage, "sum");
  }
  const verdict = transcript.eval ? { kind: "", text: "evaluation: never trained" }
    : verdictOf(custody, agent, member, seat);
  const values = members.filter((one) => typeof one.rewards[seat] === "number").map(
    (one) => ({ member: one.member, reward: one.rewards[seat] }));
  return h("section", { class: ["panel seat", colour(agent)] },
    h("div", { class: "head" }, h("h3", {}, who(agent, seat)), h("span", { class: "soft" },
      agent ? `agent ${agent}` : ""), h("span", { class: "grow" }), verdictChip(verdict)),
    h("table", {}, h("tbody", {}, rows)),
    earned?.not_compared ? h("p", { class: "soft" }, "No advantage: ", shown(earned.not_compared)) : null,
    compared ? h("p", { class: "soft" },
      `${compared.kind}, ${compared.conversations} compared: mean ${real(compared.mean)}, ` +
      `std ${real(compared.std)}`, compared.then?.length ? `; then ${compared.then.join("; ")}` : "") : null,
    values.length > 1 ? strip(values, compared?.baseline, member,
      `rewards of ${seat} in the group of ${values.length}`) : null);
}

function operator(value) {
  if (typeof value === "string") return value;
  return Object.entries(value ?? {}).map(([name, other]) => `${name} from ${other}`).join(", ");
}

function advantageHow(compared) {
  if (compared.advantage === 0 && compared.conversations < 2) return "nothing to compare with";
  return compared.scale === 1 ? "reward − baseline" : "(reward − baseline) / scale";
}

/** Ledgers that are not on this machine. */
function elsewhere(custody, transcript) {
  if (transcript.eval) return null;
  const absent = Object.entries(custody.agents).filter(([, ledger]) => !ledger).map(([name]) => name);
  return absent.length === 0 ? null : h("p", { class: "soft" },
    `No ledger of ${absent.join(", ")} on this machine: its verdicts are not shown.`);
}

function actions(id, transcript) {
  return h("div", { class: "tools" },
    h("button", { click: () => copy(`dyad conversation ${id} --run ${open.run}`, "The command") },
      "Copy command"),
    h("button", { click: () => copy(JSON.stringify(transcript), "The JSON") }, "Copy JSON"));
}

// ---------------------------------------------------------------- a group

async function groupPage([group], _options, signal) {
  replace(main, h("p", { class: "soft" }, "Reading the group ..."));
  const { task, members, custody } = await get(api("groups", group), signal);
  const first = members[0];
  const names = [...new Set(members.flatMap(seats))];
  const size = first ? groupSize(first, members) : "no member written";
  const chosen = new Set();
  const compared = h("div", {});
  const choose = (member, on) => {
    if (on) chosen.add(member);
    else chosen.delete(member);
    if (chosen.size > 2) {
      const [oldest] = chosen;
      chosen.delete(oldest);
      main.querySelector(`input[data-member="${oldest}"]`).checked = false;
    }
    replace(compared, chosen.size === 2 ? difference(members, [...chosen]) : null);
  };
  const box = h("div", { class: "panel" });
  const sorting = { by: "member", down: false };
  const draw = () => replace(box, membersTable(group, members, names, custody, sorting, choose, chosen, draw));
  draw();
  const rows = Object.entries(custody.agents).map(([name, ledger]) => h("span", {}, who(name), " ",
    !ledger ? "no ledger on this machine" : !ledger.row ? "not in the ledger"
      : [`${ledger.row.state}, ${count(ledger.row.samples, "sample")}`,
        ledger.row.reason ? [": ", shown(ledger.row.reason)] : ""]));
  replace(main, h("div", { class: "head" }, h("h1", {}, "Group ", h("code", {}, group.slice(0, 12))),
    first?.eval ? chip("evaluation, never trained") : null, h("span", { class: "soft" }, size,
      size.includes("written") ? "; run.transcripts = \"all\" writes every member" : "")),
  h("div", { class: "facts" }, h("span", {}, "task ", h("b", {}, shown(task))), first?.eval ? null : rows),
  first ? promptTurn(first) : null,
  h("h2", {}, "Rewards"), h("div", { class: "cards" }, names.map((seat) => spread(members, seat))),
  h("h2", {}, "Members"), box,
  h("p", { class: "soft" }, "Tick two members to compare their texts."), compared);
  page.keys.n = () => first && (location.hash = conversationLink(first.conversation));
}

const memberOf = (transcript) => Number(transcript.conversation.split("/")[1]);

function spread(members, seat) {
  const values = members.map((one) => ({ member: memberOf(one), reward: one.rewards?.[seat]?.total,
    compared: one.earned?.[seat]?.compared })).filter((one) => typeof one.reward === "number");
  if (values.length === 0) return null;
  const agent = agentOf(members[0], seat);
  const equal = values.every((one) => one.reward === values[0].reward);
  const sample = values.find((one) => one.compared)?.compared;
  const mean = values.reduce((sum, one) => sum + one.reward, 0) / values.length;
  const trained = values.filter((one) => one.compared);
  const sum = trained.reduce((total, one) => total + one.compared.advantage, 0);
  const facts = sample
    ? [["mean", num(sample.mean)], ["std", num(sample.std)], ["compared", figure(sample.conversations)],
      ["advantages", sample.kind], ["sum of advantages", num(Math.abs(sum) < 1e-9 ? 0 : sum)]]
    : [["mean", num(mean)], ["members", figure(values.length)]];
  return h("section", { class: ["panel seat", colour(agent)] },
    h("div", { class: "head" }, h("h3", {}, who(agent, seat)),
      h("span", { class: "soft" }, agent ? `agent ${agent}` : "")),
    equal && values.length > 1 ? message("warn",
      `No difference in reward: ${values.length} of ${values.length} are ${real(values[0].reward)}.`) : null,
    strip(values, sample?.mean ?? mean, undefined, `rewards of ${seat}: ${values.length} members`),
    h("dl", { class: "grid" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function membersTable(group, members, names, custody, sorting, choose, chosen, draw) {
  const key = (one) => {
    const [what, seat] = sorting.by.split(" ");
    if (what === "reward") return one.rewards?.[seat]?.total ?? -Infinity;
    if (what === "advantage") return one.earned?.[seat]?.compared?.advantage ?? -Infinity;
    if (what === "tokens") return tokensOf(one);
    return memberOf(one);
  };
  const sorted = [...members].sort((a, b) => (key(a) - key(b)) * (sorting.down ? -1 : 1)
    || memberOf(a) - memberOf(b));
  const head = (by, text, right, agent) => h("th", { scope: "col", class: right && "r",
    "aria-sort": sorting.by === by ? (sorting.down ? "descending" : "ascending") : undefined },
  h("button", { click: () => {
    sorting.down = sorting.by === by ? !sorting.down : by !== "member";
    sorting.by = by;
    draw();
  } }, agent ? who(agent, text) : shown(text), sorting.by === by ? (sorting.down ? " ↓" : " ↑") : ""));
  const hasAdvantage = (seat) => members.some((one) => one.earned?.[seat]?.compared);
  const agentsOf = Object.fromEntries(names.map((seat) => [seat, agentOf(members[0], seat)]));
  const isEval = members[0]?.eval;
  const line = (one) => {
    const member = memberOf(one);
    const tick = h("input", { type: "checkbox", "aria-label": `Compare member ${member}`,
      "data-member": member, checked: chosen.has(member),
      change: (event) => choose(member, event.target.checked) });
    const row = h("tr", {}, h("td", {}, tick),
      h("td", { class: "id" }, h("a", { href: conversationLink(one.conversation) }, String(member))),
      names.map((seat) => [h("td", { class: "r" }, num(one.rewards?.[seat]?.total)),
        hasAdvantage(seat) ? h("td", { class: "r", title: one.earned?.[seat]?.compared?.advantage },
          signed(one.earned?.[seat]?.compared?.advantage)) : null]),
      h("td", { class: "r" }, figure(tokensOf(one))),
      h("td", { class: "cut" }, shown(one.turns.at(-1)?.text.slice(0, 200) ?? "")),
      isEval ? null : h("td", {}, memberVerdicts(custody, names, agentsOf, member)),
      h("td", {}, statusChip(one.status)));
    opens(row, conversationLink(one.conversation));
    return row;
  };
  return h("div", { class: "scroll" }, h("table", { "aria-label": "Members" }, h("thead", {}, h("tr", {},
    h("th", {}, ""), head("member", "Member"), names.map((seat) => [
      head(`reward ${seat}`, `reward ${seat}`, true, agentsOf[seat]),
      hasAdvantage(seat) ? head(`advantage ${seat}`, "advantage", true) : null]),
    head("tokens", "tokens", true), h("th", { scope: "col" }, "said last"),
    isEval ? null : h("th", { scope: "col" }, "ledger"), h("th", {}, ""))),
  h("tbody", {}, sorted.map(line))));
}

/** One chip if all seats have the same verdict, else one for each. */
function memberVerdicts(custody, names, agentsOf, member) {
  const found = names.map((seat) => [seat, verdictOf(custody, agentsOf[seat], member, seat)]).filter(
    ([, verdict]) => verdict);
  if (new Set(found.map(([, verdict]) => verdict.text)).size === 1) return verdictChip(found[0][1]);
  return found.map(([seat, verdict]) => h("div", { class: "item" }, who(agentsOf[seat], seat),
    verdictChip(verdict)));
}

const tokensOf = (transcript) => transcript.turns.reduce((sum, turn) => sum + (turn.tokens ?? 0), 0);

/** Two members, turn by turn, with words that only one of them has. */
function difference(members, chosen) {
  const [left, right] = chosen.sort((a, b) => a - b).map((number) =>
    members.find((one) => memberOf(one) === number));
  const rows = [];
  for (let at = 0; at < Math.max(left.turns.length, right.turns.length); at += 1) {
    const [a, b] = [left.turns[at], right.turns[at]];
    const [one, other] = words(a?.text ?? "", b?.text ?? "");
    const cell = (turn, parts) => h("div", { class: ["turn wide", turn ? colour(turn.agent) : "nx"] },
      turn ? [h("div", { class: "top" }, who(turn.agent, seatName(turn))),
        h("div", { class: "body" }, parts)] : null);
    rows.push(cell(a, one), cell(b, other));
  }
  return [h("h2", {}, `Members ${memberOf(left)} and ${memberOf(right)}`), h("div", { class: "two" }, rows)];
}

function words(left, right) {
  const [a, b] = [left, right].map((text) => text.split(/(\s+)/).slice(0, 800));
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i] === b[j] ? lengths[i + 1][j + 1] + 1
        : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const [one, other] = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      one.push(shown(a[i]));
      other.push(shown(b[j]));
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) {
      one.push(h("del", {}, shown(a[i])));
      i += 1;
    } else {
      other.push(h("ins", {}, shown(b[j])));
      j += 1;
    }
  }
  return [one, other];
}

// ---------------------------------------------------------------- charts

const t = (title, names, about) => ({ title, names: names.split(" "), about });
const TABS = {
  learning: ["Learning", [
    t("Reward in training", "train:reward/mean", "mean over the samples of a batch"),
    t("Evaluated success", "eval:success eval:*/success", "mean over tasks"),
    t("Evaluated reward", "eval:reward/*", "mean over tasks"),
    t("Groups without a difference in reward", "train:advantage/zero_share", "share of groups"),
    t("Size of advantages", "train:advantage/abs"), t("Loss", "train:loss"),
    t("Entropy", "train:loss/entropy", "nats per token"),
    t("KL to the reference", "train:loss/reference_kl", "nats"),
    t("Spread of rewards", "train:reward/std")]],
  game: ["Game", [
    t("Success in training", "conversations:success"),
    t("Reward by role", "conversations:reward/avg/*", "mean over seats"),
    t("Parts of rewards", "train:part/*", "before their weights"),
    t("Turns", "conversations:multi_agent/avg_turns", "mean per conversation"),
    t("Tokens of a conversation", "conversations:multi_agent/conversation_token_count"),
    t("Ended early", "conversations:multi_agent/early_termination_rate", "share of conversations"),
    t("Cut off by a token limit", "conversations:multi_agent/truncation_rate", "share of conversations"),
    t("Trained tokens by role", "conversations:loss_mask/role_split/*", "share"),
    t("Failed conversations", "coordinator:conversations/failed", "total")]],
  stability: ["Stability", [
    t("Gradient norm", "train:optim/grad_norm", "before clipping"),
    t("Clipped tokens", "train:loss/clipped", "share"),
    t("Largest ratio", "train:loss/ratio_max"),
    t("KL to the weights that sampled", "train:mismatch/behaviour_kl", "nats"),
    t("Engine against trainer, equal weights", "train:mismatch/on_policy_gap", "below 1e-4"),
    t("Engine against trainer, other weights", "train:mismatch/off_policy_gap"),
    t("Learning rate", "train:optim/lr"),
    t("Skipped optimizer steps", "train:optim/skipped", "the gradient was not finite")]],
  staleness: ["Staleness", [
    t("Mean staleness", "train:staleness/mean", "age of a sample's oldest token, steps"),
    t("Largest staleness", "train:staleness/max", "steps"),
    t("Stale tokens", "train:tokens/stale", "per batch"),
    t("Discarded samples", "train:discarded/*", "per batch, by reason"),
    t("Results that came too late", "coordinator:results/stale", "total")]],
  throughput: ["Throughput", [
    t("Conversations per second", "coordinator:time/conversations_per_s", "since the start"),
    t("Turns per second", "coordinator:time/turns_per_s", "since the start"),
    t("Seconds to train a batch", "train:time/train_s"),
    t("Groups that waited for the batch", "train:time/groups_waiting"),
    t("Tokens of a batch", "train:tokens"), t("Trained tokens of a batch", "train:tokens/trained"),
    t("Samples of a batch", "train:samples"),
    t("Agents held for evaluations", "eval:time/held_s", "seconds")]],
  collapse: ["Collapse", [
    t("Repetition within answers", "train:collapse/repetition", "share"),
    t("Equal answers within a group", "train:collapse/sameness", "share"),
    t("Figures outside train.alarms", "train:collapse/alarms"),
    t("Figures below eval.floors", "eval:collapse/alarms"),
    t("Tokens of a sample", "train:tokens/per_sample", "mean"),
    t("Truncated samples", "train:samples/truncated", "per batch"),
    t("Entropy", "train:loss/entropy", "nats per token")]],
};

async function chartsPage([tab = "learning"], options, signal) {
  const query = options.get("q") ?? "";
  const search = h("input", { type: "search", placeholder: "Any figure, such as entropy",
    "aria-label": "Search figures", value: query });
  search.addEventListener("change", () => {
    location.hash = to(open.run, "charts", "learning") + (search.value ? `?q=${seg(search.value)}` : "");
  });
  const smooth = h("input", { type: "range", min: 0, max: 95, value: localStorage.getItem("dyad.smooth") ?? 0,
    "aria-label": "Smoothing" });
  const across = picker("Across", ["step", "time"], (name) => `by ${name}`,
    localStorage.getItem("dyad.across") ?? "step");
  const body = h("div", { class: "charts" });
  replace(main, h("div", { class: "head" }, h("h1", {}, "Charts"),
    h("nav", { class: "tabs", "aria-label": "Kinds of charts" }, Object.entries(TABS).map(([name, [title]]) =>
      h("a", { href: to(open.run, "charts", name), "aria-current": !query && name === tab ? "page"
        : undefined }, title)))),
  h("div", { class: "tools" }, search, across, h("label", {}, "Smoothing", smooth)), body);
  page.keys["/"] = () => search.focus();
  const plots = [];
  page.signal.addEventListener("abort", () => plots.forEach((plot) => plot.destroy()));
  const wanted = query ? await searched(query, signal) : TABS[tab]?.[1] ?? [];
  let data = new Map();
  const draw = () => {
    plots.splice(0).forEach((plot) => plot.destroy());
    const sections = wanted.map((chart) => [chart, data.get(chart.title) ?? []]).filter(
      ([, series]) => series.length > 0);
    replace(body, sections.length === 0
      ? h("div", { class: "panel empty" }, query ? "No figure matches." : "No figure of this kind yet.")
      : null);
    for (const [chart, series] of sections) {
      const place = h("div", {});
      body.append(h("section", { class: "panel chart" }, h("h3", {}, chart.title),
        h("p", { class: "about" }, chart.about ?? " "), place));
      plots.push(plotted(place, series, { smooth: Number(smooth.value) / 100, across: across.value }));
    }
  };
  smooth.addEventListener("input", () => {
    localStorage.setItem("dyad.smooth", smooth.value);
    draw();
  });
  across.addEventListener("change", () => {
    localStorage.setItem("dyad.across", across.value);
    draw();
  });
  themed.add(draw);
  let width = body.clientWidth;
  const sized = new ResizeObserver(() => {
    if (Math.abs(body.clientWidth - width) > 8) {
      width = body.clientWidth;
      draw();
    }
  });
  sized.observe(body);
  page.signal.addEventListener("abort", () => sized.disconnect());
  let total = -1;
  every(5000, async (current) => {
    const names = [...new Set(wanted.flatMap((chart) => chart.names))];
    const found = names.length === 0 ? [] : (await get(
      `${api("series")}?points=500&name=${seg(names.join(","))}`, current)).series;
    recovered();
    const size = found.reduce((sum, one) => sum + one.count, 0);
    if (size === total) return;
    total = size;
    data = new Map(wanted.map((chart) => [chart.title,
      found.filter((one) => chart.names.some((name) => fits(name, `${one.kind}:${one.name}`)))]));
    draw();
  });
}

function fits(pattern, name) {
  if (!pattern.includes("*")) return pattern === name;
  const [before, after] = pattern.split("*");
  return name.startsWith(before) && name.endsWith(after) && name.length >= before.length + after.length;
}

async function searched(query, signal) {
  const { names } = await get(api("series", "names"), signal);
  const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = names.filter((one) => wanted.every((word) => `${one.kind}:${one.name}`.includes(word)));
  return found.slice(0, 24).map((one) => t(plain(one.name), `${one.kind}:${one.name}`,
    one.kind === "train" ? undefined : one.kind));
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A running mean in which each value counts `1 - weight`. */
function smoothed(values, weight) {
  let [mean, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

function label(one, several) {
  if (one.kind === "train") return several ? `${one.of} ${one.name}` : one.of;
  return one.of && one.of !== one.kind ? `${one.of.slice(0, 20)} ${several ? one.name : ""}`.trim() : one.name;
}

/** Draws series into a place: lines per agent, with a band from minimum to maximum if thinned. */
function plotted(place, series, { smooth, across }) {
  const byTime = across === "time";
  const x = (one) => (byTime ? one.t : one.x);
  const all = [...new Set(series.flatMap((one) => x(one)))].filter((at) => at !== null).sort((a, b) => a - b);
  const index = new Map(all.map((value, at) => [value, at]));
  const spreadOut = (one, values) => {
    const column = new Array(all.length).fill(undefined);
    x(one).forEach((value, at) => value !== null && (column[index.get(value)] = values[at]));
    return column;
  };
  const several = new Set(series.map((one) => one.name)).size > 1;
  const columns = [all];
  const lines = [{ label: byTime ? "seconds" : "step", value: (_plot, value) => value ?? "–" }];
  const bands = [];
  const used = new Map();
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3], [1, 2], [10, 4]];
  series.slice(0, 12).forEach((one, order) => {
    const place = agents.indexOf(one.of || /^reward\/([^/]+)$/.exec(one.name)?.[1]);
    const hue = place >= 0 ? place % 6 : order % 6;
    const nth = used.get(hue) ?? 0;
    used.set(hue, nth + 1);
    const stroke = css(`--c${hue}`);
    const dash = place >= 0 ? dashes[(nth + (place % 2)) % 6] : dashes[Math.floor(order / 6) % 6];
    columns.push(spreadOut(one, smoothed(one.mean, smooth)));
    lines.push({ label: label(one, several), stroke, width: 1.6, dash, spanGaps: true,
      points: { show: one.x.length < 40, size: 4 }, value: (_plot, value) => figure(value) });
    if (one.max) {
      columns.push(spreadOut(one, one.max), spreadOut(one, one.min));
      const bare = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true,
        label: `${label(one, several)} most` };
      lines.push({ ...bare }, { ...bare, label: `${label(one, several)} least` });
      bands.push({ series: [columns.length - 2, columns.length - 1], fill: stroke + "26" });
    }
  });
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 },
    ticks: { show: false }, font: "11px system-ui, sans-serif", size: 26 };
  const plot = new uPlot({
    width: Math.max(260, place.clientWidth), height: 190, series: lines, bands,
    scales: { x: { time: false }, y: { range: room } },
    cursor: { sync: { key: "charts" }, y: false, points: { size: 6 } },
    axes: [axis, { ...axis, size: 46, values: (_plot, ticks) => ticks.map((tick) => short(tick, ticks)) }],
    legend: { live: true }, }, columns, place);
  place.querySelectorAll(".u-series").forEach((row, at) => {
    if (lines[at].width === 0) row.remove();
  });
  return plot;
}

function room(_plot, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === 0 && high === 0) return [0, 1];
  if (low === high) return [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)];
  const space = (high - low) * 0.06;
  return [low >= 0 && low - space < 0 ? 0 : low - space, high + space];
}

function short(value, ticks) {
  const size = Math.max(...ticks.map((tick) => Math.abs(tick)));
  if (size >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  if (size > 0 && size < 1e-2) return value === 0 ? "0" : value.toExponential(0);
  const digits = ticks.length > 1 ? Math.ceil(-Math.log10(ticks[1] - ticks[0])) : 3;
  return String(+value.toFixed(Math.min(8, Math.max(3, digits))));
}

// ---------------------------------------------------------------- evaluations

async function evaluationsPage(_rest, options, signal) {
  replace(main, h("p", { class: "soft" }, "Reading the evaluations ..."));
  const metric = options.get("metric");
  const found = await get(api("evaluations") + (metric ? `?metric=${seg(metric)}` : ""), signal);
  const { evaluations, changes, tasks } = found;
  const head = h("div", { class: "head" }, h("h1", {}, "Evaluations"),
    h("span", { class: "soft" }, "means over tasks, with 95% intervals"));
  if (evaluations.length === 0) {
    replace(main, head, empty("No evaluation yet."));
    return;
  }
  const names = [...new Set(evaluations.flatMap((one) => Object.keys(one.figures)))];
  const place = h("div", {});
  const draw = () => {
    replace(place);
    intervals(place, evaluations, tasks.metric);
  };
  const change = changes.map((one) => [shown(one.metric), num(one.before), num(one.after),
    h("span", { title: String(one.gain) }, signed(one.gain)),
    h("span", {}, signed(one.low), " to ", signed(one.high)), figure(one.tasks)]);
  const right = (name) => ({ name, right: true });
  const chosen = picker("Figure", names, (name) => plain(name), tasks.metric);
  chosen.addEventListener("change", () => {
    location.hash = `${to(open.run, "evaluations")}?metric=${seg(chosen.value)}`;
  });
  replace(main, head, h("div", { class: "tools" }, chosen),
    h("section", { class: "panel chart" }, h("h3", {}, shown(tasks.metric)),
      h("p", { class: "about" }, "mean and 95% interval by step"), place),
    change.length ? [h("h2", {}, "First and last evaluation, on the same tasks"),
      h("div", { class: "panel" }, table(["Figure", right("Before"), right("After"), right("Gain"),
        right("95% interval"), right("Tasks")], change, "Changes"))] : null,
    h("h2", {}, "All evaluations"), h("div", { class: "panel" }, table(
      [right("Step"), right(plain(tasks.metric)), right("95% interval"), right("Tasks"), "Weights"],
      [...evaluations].reverse().map((one) => evaluationRow(one, tasks.metric)), "Evaluations")),
    tasksTable(tasks));
  draw();
  themed.add(draw);
}

function evaluationRow(one, metric) {
  const value = one.figures[metric];
  const versions = Object.entries(one.versions).map(([agent, list]) =>
    h("span", { class: "item" }, who(agent), h("code", {}, list.join(", "))));
  return [[figure(one.step), one.last ? " (last)" : ""], value ? num(value.mean) : "–",
    value && typeof value.low === "number" ? `${real(value.low)} to ${real(value.high)}` : "–",
    value ? figure(value.tasks) : "–",
    [versions, one.pinned === false ? chip("mixed versions", "warn") : null]];
}

function intervals(place, evaluations, metric) {
  const points = evaluations.filter((one) => one.figures[metric]);
  const value = (name) => points.map((one) => one.figures[metric][name] ?? one.figures[metric].mean);
  plotted(place, [{ kind: "eval", of: "", name: metric, x: points.map((one) => one.step),
    t: points.map((one) => one.step), mean: value("mean"), min: value("low"), max: value("high") }],
  { smooth: 0, across: "step" });
}

function tasksTable(tasks) {
  const ids = Object.keys(tasks.last).sort();
  if (ids.length === 0) return null;
  const changed = ids.filter((id) => tasks.first[id] !== undefined && tasks.first[id] !== tasks.last[id]);
  const rows = ids.slice(0, 200).map((id) => {
    const [before, after] = [tasks.first[id], tasks.last[id]];
    const sign = before === undefined || before === after ? "" : after > before ? "▲ better" : "▼ worse";
    return [shown(id), num(before), num(after), sign ? chip(sign, after > before ? "good" : "warn") : ""];
  });
  return [h("h2", {}, `Tasks: ${plain(tasks.metric)}, step ${tasks.first_step} and step ${tasks.last_step}`),
    h("p", { class: "soft" }, `${changed.length} of ${ids.length} changed`,
      ids.length > 200 ? ", 200 shown" : ""),
    h("div", { class: "panel" }, table(["Task", { name: "First", right: true },
      { name: "Last", right: true }, ""], rows, "Tasks"))];
}

// ---------------------------------------------------------------- logs

async function logsPage([process = ""], options, signal) {
  const { logs } = await get(api("logs"), signal);
  const level = picker("Level", ["error", "warn", "info", "debug"], (name) => `${name} and above`,
    options.get("level") ?? "info");
  const search = h("input", { type: "search", placeholder: "Text or conversation", "aria-label": "Search",
    value: options.get("q") ?? "" });
  const follow = h("input", { type: "checkbox", checked: true });
  const box = h("div", { class: "panel log", tabindex: 0, "aria-label": "Log lines" });
  const renew = () => {
    const query = new URLSearchParams();
    if (level.value !== "info") query.set("level", level.value);
    if (search.value) query.set("q", search.value);
    location.hash = to(open.run, "logs", ...(process ? [process] : [])) + (query.size ? `?${query}` : "");
  };
  level.addEventListener("change", renew);
  search.addEventListener("change", renew);
  replace(main, h("div", { class: "head" }, h("h1", {}, "Logs"), h("nav", { class: "tabs",
    "aria-label": "Processes" }, [{ process: "" }, ...logs].map((one) => h("a", {
    href: to(open.run, "logs", ...(one.process ? [one.process] : [])),
    "aria-current": one.process === process ? "page" : undefined,
    title: one.bytes === undefined ? undefined : bytes(one.bytes) }, one.process || "all")))),
  h("div", { class: "tools" }, level, search, h("label", {}, follow, "Follow")), box);
  page.keys["/"] = () => search.focus();
  const names = process ? [process] : logs.map((one) => one.process);
  if (names.length === 0) {
    replace(box, h("p", { class: "empty" }, "No log yet."));
    return;
  }
  const ends = new Map();
  const starts = new Map();
  const query = `level=${seg(level.value)}&q=${seg(search.value)}`;
  const part = (name, more) => get(`${api("logs", name)}?limit=200&${query}${more}`, page.signal);
  const rows = (name, lines) => lines.map((one) => ({ time: one.line.time ?? "", name,
    element: logRow(one, name, names.length > 1) }));
  const merged = (lists) => lists.flat().sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
  const older = h("button", { class: "bare", click: async () => {
    const found = await Promise.all(names.filter((name) => starts.get(name) > 0).map(async (name) => {
      const answer = await part(name, `&before=${starts.get(name)}`);
      starts.set(name, answer.start);
      return rows(name, answer.lines);
    })).catch((error) => (failed(error), []));
    const height = box.scrollHeight;
    older.after(...merged(found).map((one) => one.element));
    box.scrollTop += box.scrollHeight - height;
    if (names.every((name) => starts.get(name) === 0)) older.remove();
  } }, "Older lines");
  let begun = false;
  every(1000, async () => {
    if (begun && !follow.checked) return;
    const found = await Promise.all(names.map(async (name) => {
      const answer = await part(name, begun ? `&after=${ends.get(name)}` : "");
      if (!begun) starts.set(name, answer.start);
      ends.set(name, answer.end);
      return rows(name, answer.lines);
    }));
    recovered();
    if (!begun) replace(box, names.some((name) => starts.get(name) > 0) ? older : null);
    const lines = merged(found);
    const atEnd = !begun || box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    box.append(...lines.map((one) => one.element));
    if (!begun && lines.length === 0) box.append(h("p", { class: "empty" }, "No such line."));
    while (box.childElementCount > 3000) box.children[1].remove();
    if (atEnd && lines.length > 0) box.scrollTop = box.scrollHeight;
    begun = true;
  });
}

const PLACED = ["time", "level", "message", "target", "run"];

function logRow({ line, cut }, name, several) {
  const levelName = String(line.level ?? "");
  const about = typeof line.conversation_id === "string" && line.conversation_id;
  const group = about ? about.split("/")[0] : typeof line.group === "string" ? line.group : null;
  const fields = Object.entries(line).filter(([key]) => !PLACED.includes(key)
    && (about || !["agent", "role"].includes(key)));
  const value = (key, one) => {
    const text = typeof one === "string" ? one : JSON.stringify(one);
    if (key === "conversation_id" && about.includes("/")) {
      return h("a", { href: conversationLink(about) }, shown(text));
    }
    if (key === "group" && group) return h("a", { href: to(open.run, "g", group) }, shown(text));
    return shown(text);
  };
  const known = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].includes(levelName) ? levelName : "";
  return h("div", { class: ["row", known] }, h("span", { class: "at", title: plain(String(line.time ?? "")) },
      shown(String(line.time ?? "").slice(11, 23))), h("span", { class: "level" }, shown(levelName)),
    h("span", { class: "from" }, several ? shown(name) : ""),
    h("span", { class: "what" }, shown(String(line.message ?? "")),
      fields.map(([key, one]) => [h("span", { class: "field" }, "  ", shown(key), "="), value(key, one)]),
      cut ? h("span", { class: "field" }, "  (cut)") : null));
}

// ---------------------------------------------------------------- audit

async function auditPage(_rest, _options, signal) {
  replace(main, h("p", { class: "soft" }, "Counting every ledger ..."));
  const { audit, violations, broker, at_ms } = await get(api("audit"), signal);
  const names = Object.keys(audit.agents);
  const right = (name) => ({ name, right: true });
  const sum = (map) => Object.values(map).reduce((total, one) => total + one, 0);
  const books = audit.books;
  const taskRows = [["accepted", books.accepted], ["finished", books.finished],
    ["abandoned without samples", sum(books.abandoned)], ["dead or rejected", books.dead],
    ["in flight", books.in_flight], ["published", books.published],
    ["waiting in the queue", books.queued], ["published, seen nowhere", books.unseen.length],
    ["ledgers disagree", Object.keys(books.unequal).length], ["conversations", books.conversations],
    ["conversations left out", books.invalid_conversations],
    ["conversations of abandoned groups", books.abandoned_conversations]];
  const line = (name, value) => [name, ...names.map((agent) => figure(value(audit.agents[agent])))];
  const zero = (name, value) => [name, ...names.map((agent) => {
    const number = value(audit.agents[agent]);
    return chip(figure(number), number === 0 ? "good" : "bad");
  })];
  const reasons = (of) => [...new Set(names.flatMap((name) => Object.keys(audit.agents[name].counts[of])))];
  const ledgerRows = [line("groups reserved", (one) => one.counts.reserved),
    line("groups closed", (one) => one.counts.closed),
    ...reasons("empty").map((reason) => line(h("span", { class: "soft" }, "empty: ", shown(reason)),
      (one) => one.counts.empty[reason] ?? 0)),
    line("groups ready", (one) => one.counts.ready), line("groups dead", (one) => one.counts.dead),
    line("samples received", (one) => one.samples), line("samples trained", (one) => one.counts.trained),
    ...reasons("discarded").map((reason) => line(["samples discarded: ", shown(reason)],
      (one) => one.counts.discarded[reason] ?? 0)),
    zero("samples counted twice", (one) => one.twice), zero("groups lost", (one) => one.missing),
    line("duplicate bundles", (one) => one.counts.duplicates),
    line("bundles of a lost attempt", (one) => one.counts.other_attempt),
    line("batches", (one) => one.counts.batches),
    line("trainer starts", (one) => Object.keys(one.lineages).length)];
  replace(main, h("div", { class: "head" }, h("h1", {}, "Audit"),
    h("span", { class: "soft" }, `counted from the ledgers at ${date(at_ms)}`,
      broker ? "" : "; no broker was asked")),
  violations.length === 0 ? message("good", "Nothing lost, nothing counted twice.")
    : message("bad", "A promise is broken: ", violations.map((one) => h("div", {}, shown(one)))),
  h("div", { class: "two" },
    h("section", {}, h("h2", {}, books.ended ? "Tasks" : "Tasks so far"), h("div", { class: "panel" },
      table(["", right("Tasks")], taskRows.map(([name, value]) => [name, figure(value)]), "Tasks"))),
    h("section", {}, h("h2", {}, "Ledgers"), h("div", { class: "panel" }, names.length === 0
      ? h("p", { class: "empty" }, "No ledger on this machine.")
      : table(["", ...names.map((name) => ({ name: who(name), right: true }))], ledgerRows, "Ledgers")),
    h("p", { class: "soft" }, `Groups split between attempts: ${audit.split}. Uneven: ${audit.uneven}.`))),
  h("p", {}, h("button", { click: () => auditPage(_rest, _options, page.signal).catch(failed) },
    "Count again")));
}

// ---------------------------------------------------------------- dead letters

async function lettersPage(rest, options, signal) {
  page.reread = () => setTimeout(() => signal.aborted || lettersPage(rest, options, signal), 1500);
  replace(main, h("p", { class: "soft" }, "Reading the dead letters ..."));
  const { letters, offline, at_ms } = await get(api("letters"), signal);
  const head = h("div", { class: "head" }, h("h1", {}, "Dead letters"),
    h("span", { class: "soft" }, `read at ${date(at_ms)}; looking at them changes nothing`));
  if (offline) {
    replace(main, head, message("", "The queue cannot be read: ", shown(offline)));
    return;
  }
  if (letters.length === 0) {
    replace(main, head, empty("No dead letters."));
    return;
  }
  const classes = new Map();
  letters.forEach((one) => classes.set(one.class, (classes.get(one.class) ?? 0) + 1));
  const body = (one) => {
    try {
      return JSON.stringify(JSON.parse(one.body), null, 2);
    } catch {
      return one.body;
    }
  };
  replace(main, head, h("div", { class: "tools" }, [...classes].map(([name, number]) =>
    chip([shown(name || "no class"), ` ${number}`], "warn"))),
  h("div", { class: "panel" }, table(["Letter", "Reason", "Where", { name: "Failures", right: true },
    "First"], letters.map((one) => [
    [h("code", {}, shown(one.own ?? one.id)), h("div", { class: "soft" }, shown(one.kind))],
    [h("div", {}, shown(one.reason)), h("details", {}, h("summary", {}, `the message, ${bytes(one.bytes)}`),
      h("pre", {}, shown(body(one)), one.cut ? " ..." : "")), open.writes ? letterActions(one, body(one)) : null],
    [shown(one.stage), one.class ? h("div", { class: "soft" }, shown(one.class)) : null],
    figure(one.attempts), h("span", { class: "nowrap" }, shown(one.first.slice(0, 19).replace("T", " ")))]),
  "Dead letters")), open.writes ? null : h("p", { class: "soft" }, "To publish one again or remove it: ",
    h("code", {}, "dyad tasks dead --requeue ID"), ", ", h("code", {}, "--drop ID"), "."));
}

// ---------------------------------------------------------------- configuration

async function configPage(_rest, _options, signal) {
  const { toml, path } = await get(api("config"), signal);
  const search = h("input", { type: "search", placeholder: "Filter keys", "aria-label": "Filter keys" });
  const pre = h("pre", {});
  const draw = () => {
    let section = "";
    const wanted = search.value.toLowerCase();
    const lines = [];
    for (const line of toml.split("\n")) {
      const isTable = /^\s*\[/.test(line);
      if (isTable) section = line;
      if (wanted && !`${section}.${line}`.toLowerCase().includes(wanted)) continue;
      if (isTable) lines.push(h("span", { class: "tab" }, shown(line)), "\n");
      else {
        const found = /^(\s*[\w."-]+\s*=)(.*)$/.exec(line);
        lines.push(found ? [h("span", { class: "name" }, shown(found[1])), shown(found[2])] : shown(line), "\n");
      }
    }
    replace(pre, lines.length ? lines : "No key matches.");
  };
  search.addEventListener("input", draw);
  page.keys["/"] = () => search.focus();
  replace(main, h("div", { class: "head" }, h("h1", {}, "Configuration"),
    h("span", { class: "soft" }, "as resolved, with every default; passwords are left out")),
  h("div", { class: "tools" }, search, h("button", { click: () => copy(toml, "The configuration") }, "Copy"),
    h("code", { class: "soft" }, shown(path))), h("div", { class: "panel toml" }, pre));
  draw();
}

// ---------------------------------------------------------------- keys and start

const VIEWS = {
  "": overviewPage, live: livePage, conversations: conversationsPage, c: conversationPage, g: groupPage,
  charts: chartsPage, evaluations: evaluationsPage, logs: logsPage, audit: auditPage,
  letters: lettersPage, config: configPage, publish: publishPage, orders: ordersPage,
};

const help = document.getElementById("help");
replace(help, h("h1", {}, "Keys"), h("p", {}), h("dl", { class: "grid" }, [
  ["g then r", "runs"], ...[...PAGES, ...WRITING].map(([, name, key]) => [`g then ${key}`, name.toLowerCase()]),
  ["j  k", "next and previous conversation"], ["n  p", "next and previous member of the group"],
  ["u", "the group of a conversation"], ["/", "search"], ["space", "pause live conversations"],
  ["?", "this list"],
].map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])), h("p", {}),
h("button", { click: () => help.close() }, "Close"));

let after = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.tagName === "BUTTON") return;
  let action = page.keys[event.key];
  if (Date.now() - after < 1500) {
    const found = pages().find(([, , key]) => key === event.key);
    if (event.key === "r") action = () => (location.hash = "#/");
    else if (found && open.run) {
      action = () => (location.hash = found[0] ? to(open.run, found[0]) : to(open.run));
    }
    after = 0;
  } else if (event.key === "g") {
    after = Date.now();
    return;
  } else if (event.key === "?") action = () => help.showModal();
  if (action) {
    event.preventDefault();
    action();
  }
});

document.documentElement.dataset.theme = localStorage.getItem("dyad.theme")
  ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
route();
