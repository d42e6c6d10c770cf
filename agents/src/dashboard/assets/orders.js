// Orders to a run, with their effects.

import { isOver, made, sure } from "./changes.js";
import { h } from "./dom.js";
import { api, open, show } from "./frame.js";
import { table } from "./parts.js";
import { post } from "./server.js";

const EFFECTS = {
  pause: "No new groups. Open groups are finished, and complete batches are trained.",
  resume: "Ends a pause: new groups begin.",
  checkpoint: "One checkpoint of each agent with nothing in flight. Groups still open after 60 s start again.",
  drain: "Published tasks and open groups are finished. Then the run ends.",
};

const capital = (word) => word[0].toUpperCase() + word.slice(1);

export async function ordersPage() {
  if (isOver("Orders", "The run takes no orders")) return;
  const result = h("div");
  const order = (name, extra) => made(result, () => post(api("orders"), { order: name, ...extra }),
    (answer) => answer.done);
  const drain = () => sure("Drain the run", (confirm) => order("drain", { confirm }));
  const rows = Object.entries(EFFECTS).map(([name, effect]) => [
    h("button", { click: () => (name === "drain" ? drain() : order(name)) }, capital(name)), effect,
    h("code", `dyad ${name} ${open.run}`)]);
  show(["Orders"], h("div.panel", table(["Order", "Effect", "Command"], rows, "Orders")), result);
}
