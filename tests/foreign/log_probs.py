"""The gap between a server's log-probs and dyad's, for the same 10,000 tokens of SmolLM2-135M."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from runs import dyad, engine, expect
from servers import SMOLLM, free_port, request

TOKENS, LENGTH, TOGETHER = 10_000, 100, 32
PROMPTS = ["Tell me about the moon.", "Write a short story.", "How do I bake bread?", "Explain prime numbers."]


def log_prob_gap_f32(bench):
    """A server's log-probs of 10,000 tokens are those of dyad's own engine, both in f32."""
    compare(bench, "float32", ["f32"], 1e-3)


def log_prob_gap_bf16(bench):
    """A bf16 server's log-probs of 10,000 tokens, compared with dyad's in f32 and in bf16."""
    compare(bench, "bfloat16", ["f32", "bf16"], 1.0)


def compare(bench, theirs, own, bound):
    """Prints the gaps to each of dyad's types, and expects all of them below `bound`."""
    server, sampled = bench.servers.get(SMOLLM, "short", theirs), []
    for ours in own:
        with paused(bench, f"gap-{theirs}-{ours}", server, ours) as ports:
            while sum(len(tokens) for _, tokens, _ in sampled) < TOKENS:
                with ThreadPoolExecutor(TOGETHER) as pool:
                    seeds = range(len(sampled), len(sampled) + TOGETHER)
                    sampled += pool.map(lambda seed: sample(ports["a"], seed), seeds)
            gaps = sorted([gap for answer in sampled for gap in gaps_of(ports["b"], *answer)][:TOKENS])
        mean, p99, most = sum(gaps) / len(gaps), gaps[int(len(gaps) * 0.99)], gaps[-1]
        print(
            f"    {server.kind} {theirs}, dyad {ours}: {len(gaps)} tokens, "
            f"mean {mean:.1e}, 99% {p99:.1e}, largest {most:.1e}",
            flush=True,
        )
        expect(most < bound, f"expected every gap below {bound}, but the largest is {most}")


@contextmanager
def paused(bench, name, server, ours):
    """A paused run, which answers visitors: agent a over the server, b in its own engine."""
    ports = {agent: free_port() for agent in "ab"}
    http = {agent: f'http.listen = "127.0.0.1:{port}"' for agent, port in ports.items()}
    a = f"{engine(server)}\ntrain.enabled = false\n{http['a']}"
    # An adapter that hardly trains changes nothing, and needs less memory than whole weights.
    b = f'dtype = "{ours}"\nlora = {{ rank = 1 }}\n{http["b"]}'
    with bench.run(name, model=SMOLLM, lead="b", steps=1000, tokens=1, lr=1e-12, a=a, b=b) as run:
        run.until(lambda: "the run is running" in run.log("coordinator*"), "a running run")
        ended = dyad(run.home, "pause")
        expect(ended.returncode == 0, f"expected the run to pause: {ended.stderr}")
        yield ports


def answered(port, body):
    status, text = request(f"http://127.0.0.1:{port}/v1/completions", body)
    expect(status == 200, f"expected an answer, but it was {status}: {text}")
    return json.loads(text)["choices"][0]


def sample(port, i):
    prompt = f"{PROMPTS[i % len(PROMPTS)]} {i}"
    choice = answered(port, {"model": "a", "prompt": prompt, "max_tokens": LENGTH, "temperature": 1.0, "seed": i,
                             "logprobs": 0, "return_token_ids": True})  # fmt: skip
    return choice["prompt_token_ids"], choice["token_ids"], choice["logprobs"]["token_logprobs"]


def gaps_of(port, prompt, tokens, logprobs):
    choice = answered(port, {"model": "b", "prompt": prompt + tokens, "max_tokens": 0, "echo": True, "logprobs": 0})
    scored = choice["logprobs"]["token_logprobs"][len(prompt) :]
    expect(len(scored) == len(tokens), f"expected {len(tokens)} scores, but there are {len(scored)}")
    return [abs(theirs - ours) for theirs, ours in zip(logprobs, scored)]
