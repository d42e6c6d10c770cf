// The configuration as resolved.

import { h, replace } from "./dom.js";
import { api, copy, show, soft } from "./frame.js";
import { searchField } from "./parts.js";
import { get } from "./server.js";

export async function configPage(_rest, _options, signal) {
  const { toml, path } = await get(api("config"), signal);
  const search = searchField("Filter keys", "Filter keys");
  const pre = h("pre");
  const draw = () => {
    const found = toShow(toml, search.value.toLowerCase());
    replace(pre, found.length ? found : "No key matches.");
  };
  search.addEventListener("input", draw);
  show(["Configuration", soft("as resolved, with every default; passwords are left out")],
    h("div.tools", search, h("button", { click: () => copy(toml, "The configuration") }, "Copy"),
      h("code.soft", path)), h("div.panel.toml", pre));
  draw();
}

/** Returns the lines with the wanted text in their section or key. */
function toShow(toml, wanted) {
  let section = "";
  return toml.split("\n").flatMap((line) => {
    const isTable = /^\s*\[/.test(line);
    if (isTable) section = line;
    if (!`${section}.${line}`.toLowerCase().includes(wanted)) return [];
    if (isTable) return [h("span.tab", line), "\n"];
    const found = /^(\s*[\w."-]+\s*=)(.*)$/.exec(line);
    return [found ? [h("span.name", found[1]), found[2]] : line, "\n"];
  });
}
