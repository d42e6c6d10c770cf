// The list of conversations.

import { h, replace } from "./dom.js";
import { LIST, api, conversationLink, failed, open, page, query, show, soft, to } from "./frame.js";
import { count, figure, num } from "./numbers.js";
import {
  chip, kindPicker, opens, picker, right, rolePicker, searchField, statusChip, table, who,
} from "./parts.js";
import { get } from "./server.js";

export async function conversationsPage(_rest, options) {
  const given = (name) => options.get(name) ?? "";
  const controls = { q: searchField("Text or task", "Search", given("q")), role: rolePicker(given("role")),
    reward: searchField("Reward, such as >0.5", "Reward", given("reward")), kind: kindPicker(given("kind")),
    status: picker("Status", ["", "completed", "truncated", "failed"], (name) => name || "any status",
      given("status")),
    agent: picker("Agent", ["", ...open.agents], (name) => name || "all agents", given("agent")),
    verdict: picker("Verdict", ["", "trained", "discarded"], (name) => name || "any verdict", given("verdict")),
    step: searchField("Step, such as >=20", "Step", given("step")),
    success: searchField("Success, such as 1", "Success", given("success")),
    sort: picker("Order", ["", "oldest"], (name) => `${name || "newest"} first`, given("sort")) };
  const fields = Object.entries(controls);
  for (const [, control] of fields) {
    control.addEventListener("change", () => (location.hash = query(to("conversations"),
      Object.fromEntries(fields.map(([name, { value }]) => [name, value])))));
  }
  const list = table(["Conversation", "Task", right("Step"), "Rewards",
    { name: "Last turn", class: "wide-only" }, ""], [], "Conversations");
  const body = list.querySelector("tbody");
  const more = h("div.tools");
  show(["Conversations"], h("div.tools", Object.values(controls)),
    h("div.panel", list), h("p"), more);
  LIST.ids = [];
  const load = async (cursor) => {
    replace(more, soft("Reading ..."));
    const wanted = { ...Object.fromEntries(fields.map(([name]) => [name, given(name)])), limit: 50, cursor };
    const found = await get(query(api("conversations"), wanted), page.signal);
    body.append(...found.conversations.map(conversationRow));
    LIST.ids.push(...found.conversations.map((one) => one.conversation));
    const isEmpty = LIST.ids.length === 0 && !found.next;
    replace(more,
      found.next ? h("button", { click: () => load(found.next).catch(failed) }, "More conversations") : null,
      soft(isEmpty ? "No conversation matches. run.transcripts says which are written."
        : `${count(LIST.ids.length, "conversation")} shown${found.next ? "" : ", all that match"}`));
  };
  page.keys.j = () => move(body, 1);
  page.keys.k = () => move(body, -1);
  await load(null);
}

function move(body, by) {
  const rows = [...body.children];
  const now = rows.findIndex((row) => row.classList.contains("at"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
  rows[now]?.classList.remove("at");
  next?.classList.add("at");
  next?.querySelector("a").focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

function conversationRow(one) {
  const link = conversationLink(one.conversation);
  const [group, member] = one.conversation.split("/");
  const rewards = Object.entries(one.rewards).map(([seat, reward]) =>
    h("span.item", who(one.agents[seat] ?? "", seat), num(reward)));
  return opens(h("tr", h("td.id", h("a", { href: link }, `${group.slice(0, 8)}/${member}`)),
    h("td.cut", one.task), h("td.r", figure(one.step)), h("td", rewards),
    h("td.cut.wide-only", one.last),
    h("td.nowrap", one.eval ? chip("evaluation") : null, " ", statusChip(one.status))), link);
}
