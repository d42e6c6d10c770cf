// Numbers and times as text.

import { h } from "./dom.js";

/** Rounds as the commands do: a value in the middle of two goes to the even digit. */
export function fixed(value, digits = 3) {
  // `toFixed` rounds such a value away from zero.
  if ((Math.abs(value) * 2 ** (digits + 1)) % 2 !== 1) return value.toFixed(digits);
  const scale = 10 ** digits;
  return (Math.sign(value) * 2 * Math.round(Math.abs(value) * scale / 2) / scale).toFixed(digits);
}

/** Formats a figure: three decimals, or an exponent if it is tiny. */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return (value + 0).toLocaleString("en", { useGrouping: value > 99999 });
  const size = Math.abs(value);
  if (size < 0.0005) return value.toExponential(1);
  return size >= 10000 ? fixed(value, 0) : fixed(value);
}

/** Formats a mean or a reward: whole numbers have decimals too. */
export function real(value) {
  return Number.isInteger(value) && Math.abs(value) < 10000 ? (value + 0).toFixed(3) : figure(value);
}

/** Shows a mean or a reward, with its exact value in the title. */
export function num(value) {
  return h("span.num", { title: typeof value === "number" ? value : null }, real(value));
}

export function signed(value) {
  if (typeof value !== "number") return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "") + real(Math.abs(value));
}

export function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; value >= 1024 && at < names.length - 1; at += 1) value /= 1024;
  return `${at === 0 ? value : value.toFixed(1)} ${names[at]}`;
}

export function ago(ms) {
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export const date = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC";

export const count = (number, what) => `${figure(number)} ${what}${number === 1 ? "" : "s"}`;
