// The form for tasks. They are checked while the user types, and sent by a button.

import { isOver, refusal } from "./changes.js";
import { checked } from "./checked.js";
import { h, replace } from "./dom.js";
import { api, message, open, show, soft, to } from "./frame.js";
import { count } from "./numbers.js";
import { post } from "./server.js";

export async function publishPage(_rest, _options, signal) {
  if (isOver("Publish tasks", "Nothing can be published")) return;
  const lines = h("textarea", { rows: "10", spellcheck: "false", "aria-label": "Tasks, one JSON object per line",
    placeholder: '{"prompt": "...", "label": "...", "id": "..."}' });
  const result = h("div");
  const send = h("button", { disabled: true }, "Publish");
  const { verdict, attempt, typed } = checked(lines, send, signal);
  send.addEventListener("click", () => attempt(result, async (text) => {
    replace(result, h("p.soft", "Waiting for the broker's confirms ..."));
    const { confirmed, tasks } = await post(api("tasks"), { lines: text }, signal);
    replace(result, message("good", `${count(confirmed, "task")} confirmed by the broker`),
      h("ul", tasks.map((task) => h("li", h("a", { href: to("t", task.id) }, "watch ", task.id)))));
    replace(verdict);
    lines.value = "";
  }).then(() => (send.disabled = !lines.value)));
  const file = h("input", { type: "file", "aria-label": "File of JSON lines", change: async () => {
    lines.value = (await file.files[0]?.text()) ?? lines.value;
    typed();
  } });
  const add = (task) => {
    const isEnded = !lines.value || lines.value.endsWith("\n");
    lines.value += `${isEnded ? "" : "\n"}${JSON.stringify(task)}\n`;
    typed();
  };
  show(["Publish tasks", soft("checked by this run's workflow ", open.config.workflow)], oneTask(add),
    h("section.panel.pad.form", h("h2", "Lines"), h("div.tools", file), lines, verdict, h("div.tools", send),
      result));
}

function oneTask(add) {
  const field = (name, rows) => h("textarea", { rows, "aria-label": name, placeholder: name });
  const [prompt, label, id, more] = [["Prompt", 3], ["Label: JSON, or else text", 1], ["Id, optional", 1],
    ['Further fields, optional: {"metadata": ..., "tools": ...}', 1]].map(([name, rows]) => field(name, rows));
  const refused = h("div");
  const task = () => ({ prompt: prompt.value, ...(label.value ? { label: parsed(label.value) } : {}),
    ...(id.value ? { id: id.value } : {}), ...further(more.value) });
  const click = () => {
    replace(refused);
    try {
      add(task());
    } catch (error) {
      replace(refused, refusal(error));
    }
  };
  return h("section.panel.pad.form", h("h2", "One task"), prompt, label, id, more, refused,
    h("div.tools", h("button", { click }, "Add as a line")));
}

/** Returns the fields of a JSON object. Other text is an error. */
function further(text) {
  const fields = JSON.parse(text || "{}");
  if (fields?.constructor !== Object) throw new Error("The further fields are not a JSON object.");
  return fields;
}

/** Returns the value of a label: JSON if it can be parsed, else the text itself. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
