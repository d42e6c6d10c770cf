// The tokens of a recorded turn: tinted by log-prob, and marked where training did not use them.

import { h } from "./dom.js";
import { soft } from "./frame.js";

/** Log-probs that separate the tints: a token has a tint for the number of cuts above it. */
const CUTS = [-0.1, -1, -3];
/** What an optimizer step made of a token, in words. */
const OUTCOMES = { trained: "trained", clipped: "clipped: its ratio is out of bounds",
  stale: "not trained: too old", unknown: "trained, or clipped by its micro-batch" };
/** Why the ledger dropped a whole sample, in words. */
const DROPPED = { zero_advantage: "its advantage is 0", truncated: "its answer was cut off",
  role_weight: "the weight of its role is 0", no_target: "it has no known answer",
  target_unfit: "its known answer does not fit", stale: "too old" };

/** Returns the tokens of a turn as elements, with its seat's verdict; null if they are not recorded. */
export function tokensOf(records, turn, verdict) {
  const record = records.find((one) => one.role === turn.role && one.seat === (turn.seat ?? 0)
    && one.turn === (turn.turn ?? 0) && one.ids.length === turn.tokens);
  if (!record) return null;
  const version = (at) => record.spans.find(({ start, end }) => start <= at && at < end)?.version ?? "unknown";
  const dropped = record.training.length === 0 ? verdict?.dropped : undefined;
  const whole = dropped ? [`step ${dropped.step}: not trained: ${DROPPED[dropped.reason] ?? dropped.reason}`] : [];
  const token = (piece, at) => {
    const value = record.logprobs[at];
    const level = CUTS.filter((cut) => value < cut).length;
    const outcome = dropped ? "dropped" : record.training.at(-1)?.outcomes[at];
    return h("span.tok", { class: [`p${level}`, outcome], "data-logprob": value, "data-outcome": outcome,
      title: [`id ${record.ids[at]} ${JSON.stringify(piece)}`, `log-prob ${value}`, `weights ${version(at)}`,
        ...record.training.map((one) => trained(one, at)), ...whole].join("\n") },
    piece);
  };
  const legend = ["0", ...CUTS].map((cut, at) => h("span.tok", { class: `p${at}` }, at ? `< ${cut}` : "more"));
  return h("details.tokens", { open: record.ids.length <= 400 },
    h("summary", "tokens by log-prob: ", legend, soft(" (", record.logprobs_of, ")"), summary(record.training),
      whole.length > 0 ? soft(" · ", whole) : null),
    h("div.body", record.pieces.map(token)));
}

/** Returns what an optimizer step made of one token. */
function trained({ step, update, outcomes, ratios, logprobs, advantages }, at) {
  const outcome = OUTCOMES[outcomes[at]];
  const name = `step ${step}, update ${update}: ${outcome}`;
  return outcomes[at] === "stale" ? name
    : `${name}\n  log-prob ${logprobs[at]}, ratio ${ratios[at]}, advantage ${advantages[at]}`;
}

/** Returns how many tokens the last optimizer step did not use. */
function summary(training) {
  const last = training.at(-1);
  if (!last) return null;
  const number = (outcome) => last.outcomes.filter((one) => one === outcome).length;
  return soft(` · step ${last.step}: `, h("span.tok.clipped", `${number("clipped")} clipped`), " ",
    h("span.tok.stale", `${number("stale")} too old`));
}
