// The command that plays a conversation again: `dyad workflow test` with the agents' answers.

import { UNSEEN } from "./dom.js";
import { open } from "./frame.js";
import { seatName } from "./talks.js";

const hex = (character, digits) => character.codePointAt(0).toString(16).padStart(digits, "0");

/** Returns text as a word for bash that stays one word, whatever it holds, when it is pasted. */
export function word(text) {
  const quoted = text.replace(/[\\'!\t\n]/g, (one) => `\\x${hex(one, 2)}`);
  return `$'${quoted.replace(UNSEEN, (one) => (one.length > 1 ? `\\U${hex(one, 8)}` : `\\u${hex(one, 4)}`))}'`;
}

/**
 * Returns the command; null if several seats have turns of the same role and number, since an
 * answer is given to a role's turn. Programs and tools answer again themselves.
 */
export function replayCommand({ task, prompt, label, turns }) {
  const spoken = turns.filter((turn) => open.agents.includes(turn.agent));
  if (spoken.some((turn) => seatName(turn) !== turn.role)) return null;
  const says = spoken.map((turn) => `--say ${word(`${turn.role}@${turn.turn}=${turn.text}`)}`);
  return [`dyad workflow test "\${DYAD_RUNS:-runs}/${open.run}/config.toml" --task /dev/stdin`, ...says,
    `<<< ${word(JSON.stringify({ id: task, prompt, label }))}`].join(" ");
}
