// Parts that several pages have: names, chips, tables, fields.

import { h, plain, svg } from "./dom.js";
import { open, page } from "./frame.js";

/** Returns the CSS class of an agent: its place in the run gives a colour and a shape. */
export function colour(agent) {
  const at = open.agents.indexOf(agent);
  return at < 0 ? "nx" : `n${at % 6}`;
}

export const who = (agent, label) => h("span.who", { class: colour(agent) }, label ?? agent);

export const chip = (text, kind, title) => h("span.chip", { class: kind, title }, text);

const STATES = { live: ["●", "good"], ended: ["✓", ""], stopped: ["■", "warn"], silent: ["○", "warn"] };

export function stateChip(state, reason) {
  const [sign, kind] = STATES[state] ?? ["", ""];
  return chip([h("span", { "aria-hidden": "true" }, sign), state], kind, reason);
}

export function statusChip(status) {
  return status === "completed" ? null : chip(status, status === "failed" ? "bad" : "warn");
}

/** Names and values in two columns. */
export function facts(pairs) {
  return h("dl.grid", pairs.map(([name, value]) => [h("dt", name), h("dd", value)]));
}

/** A part of a page with a heading. */
export const section = (title, ...children) => h("section", h("h2", title), h("div.panel", children));

/** A column of numbers. */
export const right = (name, title) => ({ name, title, right: true });

/**
 * Makes a table. Columns are texts, cells or `{name, right, class, title}`. Rows are lists of cells
 * or `{link, cells}`.
 */
export function table(columns, rows, caption) {
  const heads = columns.map((column) => (typeof column === "string" ? { name: column } : column));
  const classes = (head) => [head.right && "r", head.class];
  const line = (row) => {
    const cells = row.cells ?? row;
    const element = h("tr", cells.map((cell, at) => (cell instanceof HTMLTableCellElement ? cell
      : h("td", { class: classes(heads[at]) }, cell))));
    return row.link ? opens(element, row.link) : element;
  };
  return h("div.scroll", h("table", { "aria-label": caption },
    h("thead", h("tr", heads.map((head) => (head instanceof Node ? head
      : h("th", { scope: "col", class: classes(head), title: head.title }, head.name))))),
    h("tbody", rows.map(line))));
}

/** Makes a click on a row open a page. On the keyboard the row's first link does the same. */
export function opens(row, link) {
  row.classList.add("open");
  row.addEventListener("click", (event) => {
    if (event.target.closest("a, button, input") || String(getSelection()).length > 0) return;
    location.hash = link;
  });
  return row;
}

export function picker(label, values, name, chosen) {
  return h("select", { "aria-label": label }, values.map((value) =>
    h("option", { value: plain(value), selected: value === chosen }, name ? name(value) : value)));
}

const KINDS = { "": "training and evaluation", train: "training", eval: "evaluation" };

export const kindPicker = (chosen) => picker("Kind", Object.keys(KINDS), (name) => KINDS[name], chosen);

export const rolePicker = (chosen) => picker("Role", ["", ...Object.keys(open.config.roles)],
  (name) => name || "all roles", chosen);

/** Makes a field for a search. The key `/` moves to the first one of a page. */
export function searchField(placeholder, label, value) {
  const field = h("input", { type: "search", placeholder, "aria-label": label, value });
  page.keys["/"] ??= () => field.focus();
  return field;
}

/** Draws points as a small line without axes. */
export function spark(points, label) {
  if (!points || points.length < 2) return h("span.soft", "–");
  const [xs, ys] = [0, 1].map((at) => points.map((point) => point[at]));
  const share = (value, all) => {
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return high > low ? (value - low) / (high - low) : 0.5;
  };
  const place = ([x, y]) => `${(2 + 116 * share(x, xs)).toFixed(1)},${(21 - 18 * share(y, ys)).toFixed(1)}`;
  return svg("svg.spark", { viewBox: "0 0 120 24", role: "img", "aria-label": label },
    svg("polyline", { points: points.map(place).join(" "), fill: "none", stroke: "currentColor",
      "stroke-width": 1.5 }));
}
