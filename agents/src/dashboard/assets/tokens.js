// The tokens of a recorded turn, tinted by log-prob.

import { h } from "./dom.js";
import { soft } from "./frame.js";

/** Log-probs that separate the tints: a token has a tint for the number of cuts above it. */
const CUTS = [-0.1, -1, -3];

/** Returns the tokens of a turn as elements; null if they are not recorded. */
export function tokensOf(records, turn) {
  const record = records.find((one) => one.role === turn.role && one.seat === (turn.seat ?? 0)
    && one.turn === (turn.turn ?? 0) && one.ids.length === turn.tokens);
  if (!record) return null;
  const version = (at) => record.spans.find(({ start, end }) => start <= at && at < end)?.version ?? "unknown";
  const token = (piece, at) => {
    const value = record.logprobs[at];
    const level = CUTS.filter((cut) => value < cut).length;
    return h("span.tok", { class: `p${level}`, "data-logprob": value,
      title: `id ${record.ids[at]} ${JSON.stringify(piece)}\nlog-prob ${value}\nweights ${version(at)}` },
    piece);
  };
  const legend = ["0", ...CUTS].map((cut, at) => h("span.tok", { class: `p${at}` }, at ? `< ${cut}` : "more"));
  return h("details.tokens", { open: record.ids.length <= 400 },
    h("summary", "tokens by log-prob: ", legend, soft(" (", record.logprobs_of, ")")),
    h("div.body", record.pieces.map(token)));
}
