// One dead letter of the list: its facts, its message, its editor.

import { made, outcome, refusal, sure } from "./changes.js";
import { checked, oneLine } from "./checked.js";
import { h, replace } from "./dom.js";
import { api, open, page, query, soft } from "./frame.js";
import { bytes, figure } from "./numbers.js";
import { get, post } from "./server.js";

/** Makes the row of a letter. `box` selects it; `again` reads the list after a change. */
export function letterRow(one, box, again) {
  const text = h("pre", indented(one.body) ?? one.body, one.cut ? " ..." : "");
  const draw = ({ body, cut }) => {
    const json = indented(body);
    replace(text, json === null ? body : marked(json), cut ? " ..." : "");
  };
  const read = () => whole(one).then(draw, (error) => replace(text, error.message));
  const cells = [[h("code", one.own ?? one.id), h("div.soft", one.kind),
    one.user ? h("div.soft", "from ", h("code", one.user)) : null],
    [h("div", one.reason), h("details", { toggle: read }, h("summary", `the message, ${bytes(one.bytes)}`), text),
      box ? actions(one, again) : null],
    [one.stage, one.class ? h("div.soft", one.class) : null]];
  return h("tr", box ? h("td", box) : null, cells.map((cell) => h("td", cell)),
    h("td.r", figure(one.attempts)), h("td", h("span.nowrap", one.first.slice(0, 19).replace("T", " "))));
}

/** Returns JSON with a line for each field; null if the text is not JSON. */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** Matches a quoted text of JSON, with its colon if it names a field, or any other value. */
const PARTS = /("(?:[^"\\]|\\.)*")(:)?|true|false|null|-?\d[\d.eE+-]*/g;

/** Marks names, texts and other values of JSON. */
function marked(json) {
  const nodes = [];
  let from = 0;
  for (const { 0: part, 1: quoted, 2: colon, index } of json.matchAll(PARTS)) {
    const kind = colon ? "json-name" : quoted ? "json-text" : "json-value";
    nodes.push(json.slice(from, index), h(`span.${kind}`, quoted ?? part), colon);
    from = index + part.length;
  }
  return [nodes, json.slice(from)];
}

/** Returns the letter with its whole body. Other letters may have its id. */
async function whole(one) {
  if (!one.cut) return one;
  const { letters } = await get(query(api("letters"), { id: one.id }), page.signal);
  const found = letters.find((other) => other.bytes === one.bytes && other.body.startsWith(one.body));
  if (!found) throw new Error("The letter has left the queue.");
  return found;
}

/** Makes the buttons of a letter, and the editor that publishes another task instead of it. */
function actions(one, again) {
  const result = h("div");
  const change = async (path, body) => {
    if (await made(result, () => post(api("letters", path), body), outcome)) setTimeout(again, 1500);
  };
  const button = (name, click) => h("button", { click }, name);
  const place = h("div");
  const opened = () => edit.open && place.childElementCount === 0 && fill(place, one, change);
  const edit = h("details", { toggle: opened }, h("summary", "Edit and publish"), place);
  return h("div", h("div.tools", button("Requeue", () => change("requeue", { ids: [one.id] })),
    button("Remove", () => sure("Remove 1 letter for good", (confirm) =>
      change("drop", { ids: [one.id], confirm })))), edit, result);
}

async function fill(place, one, change) {
  replace(place, soft("Reading ..."));
  let found;
  try {
    found = await whole(one);
  } catch (error) {
    return replace(place, refusal(error));
  }
  if (found.cut) {
    return replace(place, h("p.soft", "The message is too long for this page: ",
      h("code", `dyad tasks dead ID --run ${open.run}`), " prints it."));
  }
  const editor = h("textarea", { rows: "6", "aria-label": `Task of letter ${one.id}`, spellcheck: "false" });
  editor.value = indented(found.body) ?? found.body;
  const send = h("button", { click: () => change("edit",
    { id: one.id, task: editor.value, as_id: as.value || null }) }, "Publish this instead");
  const { verdict } = checked(editor, send, page.signal, oneLine);
  const as = h("input", { placeholder: "new id", "aria-label": `New id of letter ${one.id}` });
  replace(place, editor, verdict, h("div.tools", as, send));
}
