// Parts that the pages of `dyad dashboard --write` share.

import { h, replace } from "./dom.js";
import { message, open, show } from "./frame.js";

export const refusal = (error) => h("pre.message.bad", { role: "alert" }, error.message);

/** Makes a change and shows its result or its error. Returns true if the change was made. */
export async function made(place, work, words) {
  replace(place, h("p.soft", "Sending ..."));
  try {
    replace(place, message("", words(await work())));
    return true;
  } catch (error) {
    replace(place, refusal(error));
    return false;
  }
}

/** Asks before a change. `make` returns the question, and may disable the button. */
function ask(what, make, work) {
  const go = h("button", { click: () => {
    dialog.close();
    work();
  } }, what);
  const dialog = h("dialog", { "aria-label": what }, make(go),
    h("div.tools", go, h("button", { click: () => dialog.close() }, "Cancel")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export const agree = (what, work) => ask(what, () => h("p", `${what}?`), work);

/** Asks for the run's id before a change that cannot be taken back. */
export function sure(what, work) {
  const name = h("input", { "aria-label": "The run's id", autocomplete: "off" });
  ask(what, (go) => {
    go.disabled = true;
    name.addEventListener("input", () => (go.disabled = name.value !== open.run));
    return [h("p", `${what}? This cannot be taken back. Type the run's id, `, h("code", open.run), ":"), name];
  }, () => work(name.value));
}

/** Returns true if the run is over. Then the page shows the reason instead of its form. */
export function isOver(title, what) {
  if (open.over) show([title], message("", `${what}: `, open.over));
  return Boolean(open.over);
}

/** Returns the results of a change as one line. */
export function outcome({ fates, missing }) {
  const gone = missing.length > 0 ? [`no letter has the id ${missing.slice(0, 5).join(", ")} any more`] : [];
  return [...Object.entries(fates).map(([fate, number]) => `${number} ${fate}`), ...gone].join("; ");
}
