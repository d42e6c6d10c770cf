"""The gap between a server's log-probs and dyad's, for the same 10,000 tokens of SmolLM2-135M."""

import json
from concurrent.futures import ThreadPoolExecutor

from runs import dyad, engine, expect
from servers import SMOLLM, free_port, request

TOKENS, LENGTH = 10_000, 100
PROMPTS = ["Tell me about the moon.", "Write a short story.", "How do I bake bread?", "Explain prime numbers."]


def log_prob_gap(bench):
    """The log-probs of 10,000 sampled tokens are those of dyad's own engine."""
    for theirs, ours in (("float32", "f32"), ("bfloat16", "f32"), ("bfloat16", "bf16")):
        gaps = sorted(gaps_between(bench, theirs, ours))
        mean, p99 = sum(gaps) / len(gaps), gaps[int(len(gaps) * 0.99)]
        print(
            f"    server {theirs}, dyad {ours}: {len(gaps)} tokens, mean {mean:.1e}, 99% {p99:.1e}, max {gaps[-1]:.1e}",
            flush=True,
        )
        bound = 1e-3 if theirs == "float32" else 1.0
        expect(gaps[-1] < bound, f"expected every gap below {bound}, but the largest is {gaps[-1]}")


def gaps_between(bench, theirs, ours):
    """Samples over an agent's server and scores the same tokens in another agent's own engine."""
    server = bench.servers.get(SMOLLM, "short", theirs)
    ports = {agent: free_port() for agent in "ab"}
    http = {agent: f'http.listen = "127.0.0.1:{port}"' for agent, port in ports.items()}
    a = f'{engine(server)}\ntrain.enabled = false\n{http["a"]}'
    b = f'dtype = "{ours}"\nlora = {{ rank = 1 }}\n{http["b"]}'
    name = f"gap-{theirs}-{ours}"
    with bench.run(name, model=SMOLLM, lead="b", steps=1000, tokens=1, a=a, b=b) as run:
        # Visitors are answered in a paused run, and its weights stay.
        run.until(lambda: any("the run is running" in line for line in run.log("coordinator*")), "a running run")
        paused = dyad(run.home, "pause")
        expect(paused.returncode == 0, f"expected the run to pause: {paused.stderr}")
        with ThreadPoolExecutor(16) as pool:
            sampled = list(pool.map(lambda i: sample(ports["a"], i), range(TOKENS // LENGTH)))
        return [gap for answer in sampled for gap in gaps_of(ports["b"], *answer)]


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
