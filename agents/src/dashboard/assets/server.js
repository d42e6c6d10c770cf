// Requests to the dashboard. `EventSource` cannot send the token, so `fetch` reads the streams.

const KEY = "dyad.token";

export const keepToken = (secret) => sessionStorage.setItem(KEY, secret);

function headers() {
  const secret = sessionStorage.getItem(KEY);
  return secret ? { Authorization: `Bearer ${secret}` } : {};
}

class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const get = (path, signal) => ask(path, { headers: headers(), signal, cache: "no-store" });

/** Sends JSON: a change, or tasks to check. */
export const post = (path, body, signal) => ask(path, { method: "POST", signal, body: JSON.stringify(body),
  headers: { ...headers(), "Content-Type": "application/json" } });

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The dashboard does not answer. Is `dyad dashboard` still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, body.error ?? `status ${answer.status}`);
  return body;
}

/** Calls `event(name, data)` for each server-sent event. Reconnects until `signal` aborts. */
export async function listen(path, signal, event) {
  const extra = {};
  while (!signal.aborted) {
    try {
      const answer = await fetch(`api/${path}`, { headers: { ...headers(), ...extra }, signal });
      if (!answer.ok) {
        const body = await answer.json().catch(() => ({}));
        event("offline", { reason: body.error ?? `status ${answer.status}` });
      } else {
        await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), (fields) => {
          if (fields.id) extra["Last-Event-ID"] = fields.id;
          event(fields.event, JSON.parse(fields.data));
        });
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      event("offline", { reason: "the dashboard does not answer" });
    }
    await pause(2000, signal);
  }
}

async function read(reader, take) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }));
      if (fields.data) take(fields);
    }
  }
}

export function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    });
  });
}
