// The check of tasks while the user types, with the rules of publishing.

import { refusal } from "./changes.js";
import { h, replace } from "./dom.js";
import { api, message } from "./frame.js";
import { count } from "./numbers.js";
import { post } from "./server.js";

/** Milliseconds from the last key until the tasks are checked. */
const DEBOUNCE = 300;

/**
 * Checks the text of `field` while the user types: `send` is enabled only for valid text. `lines`
 * makes JSON lines of the text.
 */
export function checked(field, send, signal, lines = (text) => text) {
  const verdict = h("div");
  const attempt = async (place, work) => {
    const text = field.value;
    send.disabled = true;
    try {
      await work(text);
    } catch (error) {
      if (error.name !== "AbortError" && text === field.value) replace(place, refusal(error));
    }
  };
  const judge = () => attempt(verdict, async (text) => {
    if (!text.trim()) return replace(verdict);
    const { valid } = await post(`${api("tasks")}?check=1`, { lines: lines(text) }, signal);
    if (text !== field.value) return;
    replace(verdict, message("good", `${count(valid, "task")} valid: nothing was sent yet`));
    send.disabled = false;
  });
  let timer;
  const typed = () => {
    send.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(judge, DEBOUNCE);
  };
  field.addEventListener("input", typed);
  return { verdict, attempt, typed };
}

/** Returns a task on one line. Text that is no JSON is an error, which names the place. */
export function oneLine(text) {
  JSON.parse(text);
  return text.replace(/[\r\n]/g, " ");
}
