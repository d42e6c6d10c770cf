// Dead letters; with `--write` also the buttons that publish them again, edit or remove them.

import { made, sure } from "./changes.js";
import { h, replace } from "./dom.js";
import { api, empty, message, open, page, reading, show, soft } from "./frame.js";
import { bytes, date, figure } from "./numbers.js";
import { chip, right, table } from "./parts.js";
import { get, post } from "./server.js";

export async function lettersPage(_rest, _options, signal) {
  reading("Reading the dead letters");
  const { letters, offline, at_ms } = await get(api("letters"), signal);
  const title = ["Dead letters", soft(`read at ${date(at_ms)}; looking at them changes nothing`)];
  if (offline) return show(title, message("", "The queue cannot be read: ", offline));
  if (letters.length === 0) return show(title, empty("No dead letters."));
  const classes = [...new Set(letters.map((one) => one.class))];
  const size = (name) => letters.filter((one) => one.class === name).length;
  show(title, h("div.tools", classes.map((name) =>
    chip([name || "no class", ` ${size(name)}`], "warn"))),
  h("div.panel", table(["Letter", "Reason", "Where", right("Failures"), "First"], letters.map(letterRow),
    "Dead letters")),
  open.over ? h("p.soft", open.over, ". Dead letters are requeued and removed only while a run is alive.")
    : open.writes ? null : h("p.soft", "To publish one again or remove it: ",
      h("code", "dyad tasks dead --requeue ID"), ", ", h("code", "--drop ID"), "."));
}

function letterRow(one) {
  const text = indented(one.body);
  return [[h("code", one.own ?? one.id), h("div.soft", one.kind)],
    [h("div", one.reason), h("details", h("summary", `the message, ${bytes(one.bytes)}`),
      h("pre", text, one.cut ? " ..." : "")), open.writes && !open.over ? actions(one, text) : null],
    [one.stage, one.class ? h("div.soft", one.class) : null], figure(one.attempts),
    h("span.nowrap", one.first.slice(0, 19).replace("T", " "))];
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Makes the buttons of a letter, and the editor that publishes another task instead of it. */
function actions(one, text) {
  const { signal } = page;
  const result = h("div");
  const change = async (path, body) => {
    const done = await made(result, () => post(api("letters", path), body), ({ letters, missing }) =>
      letters.map((letter) => letter.fate).join("; ") || `no letter has the id ${missing.join(", ")} any more`);
    if (done) setTimeout(() => signal.aborted || lettersPage([], null, signal), 1500);
  };
  const button = (name, click) => h("button", { click }, name);
  const editor = h("textarea", { rows: "6", "aria-label": `Task of letter ${one.id}`, spellcheck: "false" });
  editor.value = text;
  const as = h("input", { placeholder: "new id", "aria-label": `New id of letter ${one.id}` });
  const edit = h("details", h("summary", "Edit and publish"), editor, h("div.tools", as, button(
    "Publish this instead", () => change("edit", { id: one.id, task: editor.value, as_id: as.value || null }))));
  return h("div", h("div.tools", button("Requeue", () => change("requeue", { ids: [one.id] })),
    button("Remove", () => sure("Remove this letter for good", (confirm) =>
      change("drop", { ids: [one.id], confirm })))), one.cut ? null : edit, result);
}
