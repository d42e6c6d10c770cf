// The pages and buttons of `dyad dashboard --write`. app.js has the elements that they are made of.
"use strict";

/** Sends a change. */
const post = (path, body, signal) => ask(path, { method: "POST", signal, body: JSON.stringify(body),
  headers: { ...headers(), "Content-Type": "application/json" } });

/** The buttons of a letter, and the editor that publishes another task instead of it. */
function letterActions(one, text) {
  const result = h("div", {});
  const change = async (path, body) => {
    const done = await made(result, () => post(api("letters", path), body), ({ letters, missing }) => {
      const fates = letters.map((letter) => letter.fate);
      return fates.length ? fates.join("; ") : `no letter has the id ${missing.join(", ")} any more`;
    });
    if (done) page.reread?.();
  };
  const editor = h("textarea", { rows: "6", "aria-label": `Task of letter ${one.id}`, spellcheck: "false" });
  editor.value = text;
  const as = h("input", { placeholder: "new id", "aria-label": `New id of letter ${one.id}` });
  const edit = h("details", {}, h("summary", {}, "Edit and publish"), editor, h("div", { class: "tools" }, as,
    h("button", { click: () => change("edit", { id: one.id, task: editor.value, as_id: as.value || null }) },
      "Publish this instead")));
  return h("div", {}, h("div", { class: "tools" },
    h("button", { click: () => change("requeue", { ids: [one.id] }) }, "Requeue"),
    h("button", { click: () => sure("Remove this letter for good", (confirm) =>
      change("drop", { ids: [one.id], confirm })) }, "Remove")), one.cut ? null : edit, result);
}

/** Makes a change and shows its result, or why it was not made, in the words of the command. */
async function made(place, work, words) {
  replace(place, h("p", { class: "soft" }, "Sending ..."));
  try {
    replace(place, message("", shown(words(await work()))));
    return true;
  } catch (error) {
    replace(place, h("pre", { class: "message bad", role: "alert" }, shown(error.message)));
    return false;
  }
}

/** Asks for the run's id before a change that cannot be taken back. */
function sure(what, work) {
  const name = h("input", { "aria-label": "The run's id", autocomplete: "off" });
  const go = h("button", { disabled: true, click: () => {
    dialog.remove();
    work(name.value);
  } }, what);
  name.addEventListener("input", () => (go.disabled = name.value !== open.run));
  const dialog = h("dialog", { "aria-label": what }, h("p", {}, `${what}? This cannot be taken back. Type the run's id, `,
    h("code", {}, open.run), ":"), name, h("div", { class: "tools" }, go,
    h("button", { click: () => dialog.remove() }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
}

async function publishPage(_rest, _options, signal) {
  const lines = h("textarea", { rows: "10", spellcheck: "false", "aria-label": "Tasks, one JSON object per line",
    placeholder: '{"prompt": "...", "label": "...", "id": "..."}' });
  const [prompt, label, id] = [["Prompt", 3], ["Label: JSON, or else text", 1], ["Id, optional", 1]].map(([name, rows]) =>
    h("textarea", { rows: String(rows), "aria-label": name, placeholder: name }));
  const [verdict, result] = [h("div", {}), h("div", {})];
  const send = h("button", { disabled: true }, "Publish");
  let timer;
  const judge = async () => {
    send.disabled = true;
    const text = lines.value;
    if (!text.trim()) return replace(verdict);
    try {
      const { valid } = await post(`${api("tasks")}?check=1`, { lines: text }, signal);
      if (text !== lines.value) return;
      replace(verdict, message("good", `${count(valid, "task")} valid: nothing was sent yet`));
      send.disabled = false;
    } catch (error) {
      if (error.name === "AbortError" || text !== lines.value) return;
      replace(verdict, h("pre", { class: "message bad", role: "alert" }, shown(error.message)));
    }
  };
  const typed = () => {
    send.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(judge, 300);
  };
  lines.addEventListener("input", typed);
  const add = h("button", { click: () => {
    const task = { prompt: prompt.value };
    if (label.value) task.label = parsed(label.value);
    if (id.value) task.id = id.value;
    lines.value += `${lines.value && !lines.value.endsWith("\n") ? "\n" : ""}${JSON.stringify(task)}\n`;
    typed();
  } }, "Add as a line");
  const file = h("input", { type: "file", "aria-label": "File of JSON lines", change: async () => {
    lines.value = (await file.files[0]?.text()) ?? lines.value;
    typed();
  } });
  send.addEventListener("click", async () => {
    send.disabled = true;
    replace(result, h("p", { class: "soft" }, "Waiting for the broker's confirms ..."));
    try {
      const { confirmed, tasks } = await post(api("tasks"), { lines: lines.value }, signal);
      replace(result, message("good", `${count(confirmed, "task")} confirmed by the broker`),
        h("ul", {}, tasks.map((task) => h("li", {}, h("a", { href: to(open.run, "g", task.group) },
          "watch ", shown(task.id))))));
      replace(verdict);
      lines.value = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      send.disabled = false;
      replace(result, h("pre", { class: "message bad", role: "alert" }, shown(error.message)));
    }
  });
  replace(main, h("div", { class: "head" }, h("h1", {}, "Publish tasks"),
    h("span", { class: "soft" }, "checked by this run's workflow ", shown(open.config.workflow))),
  h("section", { class: "panel pad form" }, h("h2", {}, "One task"), prompt, label, id,
    h("div", { class: "tools" }, add)),
  h("section", { class: "panel pad form" }, h("h2", {}, "Lines"), h("div", { class: "tools" }, file), lines,
    verdict, h("div", { class: "tools" }, send), result));
}

/** A label is JSON where it can be read as JSON, and a text otherwise. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function ordersPage() {
  const result = h("div", {});
  const order = (name, extra) => made(result, () => post(api("orders"), { order: name, ...extra }),
    (answer) => answer.done);
  const row = (name, button, effect) => [button, effect, h("code", {}, `dyad ${name} ${open.run}`)];
  const plainly = (name, label) => h("button", { click: () => order(name) }, label);
  replace(main, h("div", { class: "head" }, h("h1", {}, "Orders")), h("div", { class: "panel" },
    table(["Order", "Effect", "Command"], [
      row("pause", plainly("pause", "Pause"),
        "No new groups. Open groups are finished, and complete batches are trained."),
      row("resume", plainly("resume", "Resume"), "Ends a pause: new groups begin."),
      row("checkpoint", plainly("checkpoint", "Checkpoint"),
        "One checkpoint of each agent with nothing in flight. Groups still open after 60 s start again."),
      row("drain", h("button", { click: () => sure("Drain the run", (confirm) => order("drain", { confirm })) },
        "Drain"), "Published tasks and open groups are finished. Then the run ends."),
    ], "Orders")), result);
}

