// The configuration as resolved.

import { h, replace } from "./dom.js";
import { api, copy, show, soft } from "./frame.js";
import { searchField } from "./parts.js";
import { get } from "./server.js";

export async function configPage(_rest, _options, signal) {
  const { toml, path, keys } = await get(api("config"), signal);
  const search = searchField("Filter keys", "Filter keys");
  const pre = h("pre");
  const draw = () => {
    const found = toShow(toml, search.value.toLowerCase(), keys);
    replace(pre, found.length ? found : "No key matches.");
  };
  search.addEventListener("input", draw);
  show(["Configuration", soft("as resolved; changed values are marked; passwords are left out")],
    h("div.tools", search, h("button", { click: () => copy(toml, "The configuration") }, "Copy"),
      h("code.soft", path)), h("div.panel.toml", pre));
  draw();
}

/** Returns the lines with the wanted text in their section or key. The title of a key explains it. */
function toShow(toml, wanted, keys) {
  let [section, place] = ["", ""];
  const lists = new Map();
  return toml.split("\n").flatMap((line) => {
    const isTable = /^\s*\[/.test(line);
    if (isTable) [section, place] = [line, placeOf(line, lists)];
    if (!`${section}.${line}`.toLowerCase().includes(wanted)) return [];
    if (isTable) return [h("span.tab", { title: keys[place]?.text }, line), "\n"];
    const found = /^\s*([\w."-]+)\s*=/.exec(line);
    if (!found) return [line, "\n"];
    const note = keys[place ? `${place}.${found[1]}` : found[1]];
    return [h("span.name", { title: note?.text }, found[0]), ...value(line.slice(found[0].length), note), "\n"];
  });
}

/** Returns a value; if it is not the default, in bold and with the default behind it. */
function value(text, note) {
  if (!note?.changed) return [text];
  const normal = note.default === undefined ? "not set" : JSON.stringify(note.default);
  return [h("b.changed", text), soft(`  # default: ${normal}`)];
}

/** Returns the path of a table's head. `lists` counts the entries of lists of tables. */
function placeOf(head, lists) {
  let name = head.replace(/[[\]\s]/g, "");
  if (head.trim().startsWith("[[")) lists.set(name, (lists.get(name) ?? -1) + 1);
  for (const [list, at] of lists) {
    if (name === list || name.startsWith(`${list}.`)) name = `${list}.${at}${name.slice(list.length)}`;
  }
  return name;
}
