// Dead letters, a page at a time; with `--write` they can be published again or removed.

import { agree, made, outcome, sure } from "./changes.js";
import { h, replace } from "./dom.js";
import { api, empty, failed, message, open, page, query, reading, show, soft, to } from "./frame.js";
import { letterRow } from "./letter.js";
import { count, date } from "./numbers.js";
import { chip, picker, right, table } from "./parts.js";
import { get, post } from "./server.js";

export async function lettersPage(_rest, options, signal) {
  reading("Reading the dead letters");
  const order = options?.get("order") === "newest" ? "newest" : "";
  const read = (cursor) => get(query(api("letters"), { order, cursor }), signal);
  const first = await read(null);
  const title = ["Dead letters", soft(`read at ${date(first.at_ms)}; looking at them changes nothing`)];
  if (first.offline) return show(title, message("", "The queue cannot be read: ", first.offline));
  if (first.total === 0) return show(title, empty("No dead letters."));
  const changes = open.writes && !open.over;
  const again = () => signal.aborted || lettersPage(null, options, signal).catch(failed);
  const list = selection(changes, again);
  const panel = table([changes ? "" : null, "Letter", "Reason", "Where", right("Failures"), "First"]
    .filter((name) => name !== null), [], "Dead letters");
  const [body, more] = [panel.querySelector("tbody"), h("div.tools")];
  const add = ({ letters, next, total, offline }) => {
    if (offline) throw new Error(`The queue cannot be read: ${offline}`);
    body.append(...letters.map((one) => letterRow(one, changes ? list.box(one) : null, again)));
    const [shown, rest] = [body.childElementCount, total - body.childElementCount];
    replace(more, soft(`${shown} of ${count(total, "letter")} shown`),
      next ? h("button", { click: () => load(next) }, `Show more (${Math.max(rest, 1)} left)`) : null);
    list.draw();
  };
  const load = (cursor) => {
    replace(more, soft("Reading ..."));
    read(cursor).then(add).catch((error) => {
      replace(more, h("button", { click: again }, "Read again"));
      failed(error);
    });
  };
  const sorted = picker("Order", ["", "newest"], (name) => `${name || "oldest"} first`, order);
  sorted.addEventListener("change", () => (location.hash = query(to("letters"), { order: sorted.value })));
  show(title, h("div.tools", Object.entries(first.classes).map(([name, number]) =>
    chip([name || "no class", ` ${number}`], "warn")), sorted), list.bar, h("div.panel", panel), h("p"), more,
  open.over ? h("p.soft", open.over, ". Dead letters are requeued and removed only while a run is alive.")
    : open.writes ? null : h("p.soft", "To publish one again or remove it: ",
      h("code", "dyad tasks dead --requeue ID"), ", ", h("code", "--drop ID"), "."));
  add(first);
}

/** Makes the check boxes of letters, and the bar with the buttons for all selected ones. */
function selection(changes, again) {
  const boxes = [];
  const [bar, result] = [h("div.tools"), h("div")];
  const all = h("input", { type: "checkbox", change: () => {
    for (const { box } of boxes) box.checked = all.checked;
    draw();
  } });
  const chosen = () => boxes.filter(({ box }) => box.checked);
  const change = async (path, more) => {
    const ids = [...new Set(chosen().map(({ one }) => one.id))];
    if (await made(result, () => post(api("letters", path), { ids, ...more }), outcome)) setTimeout(again, 1500);
  };
  const requeue = h("button", { click: () => agree(words("Requeue"), () => change("requeue", {})) });
  const remove = h("button", { click: () => sure(`${words("Remove")} for good`,
    (confirm) => change("drop", { confirm })) });
  const words = (verb) => `${verb} ${count(chosen().length, "selected letter")}`;
  // A change names ids, so letters with the same id are chosen together.
  const follow = (one, isOn) => {
    for (const { one: other, box } of boxes) {
      if ([other.id, other.own].includes(one.id)) box.checked = isOn;
    }
    draw();
  };
  const draw = () => {
    const number = chosen().length;
    all.checked = number > 0 && number === boxes.length;
    replace(requeue, words("Requeue"));
    replace(remove, words("Remove"));
    requeue.disabled = remove.disabled = number === 0;
  };
  const box = (one) => {
    const element = h("input", { type: "checkbox", "aria-label": `Select letter ${one.id}`,
      change: (event) => follow(one, event.target.checked) });
    boxes.push({ one, box: element });
    return element;
  };
  replace(bar, h("label", all, "Select all shown"), requeue, remove);
  return { box, draw, bar: changes ? [bar, result] : null };
}
