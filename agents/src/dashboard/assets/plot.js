// Curves, drawn by uPlot.

import { h, replace } from "./dom.js";
import { open, page } from "./frame.js";
import { figure } from "./numbers.js";

/** The largest number of lines of a chart. */
const MOST = 12;

/**
 * Returns a function that draws a chart for each `{title, about, series}` of `sections()` that has
 * series. Each call replaces the charts. They are removed when the page ends.
 */
export function chartBoard(place, sections, options = () => ({ smooth: 0, across: "step" }), nothing = null) {
  const plots = [];
  const clear = () => plots.splice(0).forEach((plot) => plot.destroy());
  const draw = () => {
    clear();
    const found = sections().filter(({ series }) => series.length > 0);
    replace(place, found.length === 0 ? nothing?.() : null);
    for (const { title, about, series } of found) {
      const chart = h("div");
      const more = series.length > MOST
        ? h("p.about", `${MOST} of ${series.length} lines`) : null;
      place.append(h("section.panel.chart", h("h3", title), about ? h("p.about", about) : null, more, chart));
      plots.push(plotted(chart, series.slice(0, MOST), options()));
    }
  };
  page.signal.addEventListener("abort", clear);
  page.themed.add(draw);
  return draw;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns an exponential moving average: each new value counts `1 - weight`. */
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

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [1, 2], [10, 4]];

/** Draws series into a place: a line each, with a band from minimum to maximum if thinned. */
function plotted(place, series, { smooth, across }) {
  const x = (one) => (across === "time" ? one.t : one.x);
  const all = [...new Set(series.flatMap(x))].filter((at) => at !== null).sort((a, b) => a - b);
  const index = new Map(all.map((value, at) => [value, at]));
  const spreadOut = (one, values) => {
    const column = new Array(all.length).fill(undefined);
    x(one).forEach((value, at) => value !== null && (column[index.get(value)] = values[at]));
    return column;
  };
  const several = new Set(series.map((one) => one.name)).size > 1;
  const columns = [all];
  const lines = [{ label: across === "time" ? "seconds" : "step", value: (_plot, value) => value ?? "–" }];
  const bands = [];
  const used = new Map();
  series.forEach((one, order) => {
    const agent = open.agents.indexOf(one.of || /^reward\/([^/]+)$/.exec(one.name)?.[1]);
    const hue = (agent >= 0 ? agent : order) % 6;
    const nth = used.get(hue) ?? 0;
    used.set(hue, nth + 1);
    const stroke = css(`--c${hue}`);
    const dash = DASHES[(agent >= 0 ? nth + (agent % 2) : Math.floor(order / 6)) % 6];
    const name = label(one, several);
    columns.push(spreadOut(one, smoothed(one.mean, smooth)));
    lines.push({ label: name, stroke, width: 1.6, dash, spanGaps: true,
      points: { show: one.x.length < 40, size: 4 }, value: (_plot, value) => figure(value) });
    if (one.max) {
      columns.push(spreadOut(one, one.max), spreadOut(one, one.min));
      const bare = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      lines.push({ ...bare, label: `${name} most` }, { ...bare, label: `${name} least` });
      bands.push({ series: [columns.length - 2, columns.length - 1], fill: stroke + "26" });
    }
  });
  const plot = new uPlot({ ...look(place), series: lines, bands }, columns, place);
  place.querySelectorAll(".u-series").forEach((row, at) => lines[at].width === 0 && row.remove());
  return plot;
}

function look(place) {
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false },
    font: "11px system-ui, sans-serif", size: 26 };
  return { width: Math.max(260, place.clientWidth), height: 190, legend: { live: true },
    scales: { x: { time: false }, y: { range: room } },
    cursor: { sync: { key: "charts" }, y: false, points: { size: 6 } },
    axes: [axis, { ...axis, size: 46, values: (_plot, ticks) => ticks.map((tick) => short(tick, ticks)) }] };
}

function room(_plot, low, high) {
  if (low === null || high === null || (low === 0 && high === 0)) return [0, 1];
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
