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

/** Asks for the run's id before a change that cannot be taken back. */
export function sure(what, work) {
  const name = h("input", { "aria-label": "The run's id", autocomplete: "off",
    input: () => (go.disabled = name.value !== open.run) });
  const go = h("button", { disabled: true, click: () => {
    dialog.remove();
    work(name.value);
  } }, what);
  const dialog = h("dialog", { "aria-label": what },
    h("p", `${what}? This cannot be taken back. Type the run's id, `, h("code", open.run), ":"), name,
    h("div.tools", go, h("button", { click: () => dialog.remove() }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
}

/** Returns true if the run is over. Then the page shows the reason instead of its form. */
export function isOver(title, what) {
  if (open.over) show([title], message("", `${what}: `, open.over));
  return Boolean(open.over);
}
