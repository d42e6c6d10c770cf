"""Cases of training over real servers. Each is a function of the bench."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

from runs import engine, expect
from servers import KINDS, SMOLLM, free_port, request


def whole_weights(bench):
    """An agent trains whole weights over a server."""
    server = bench.servers.get(bench.model, "whole")
    with bench.run("whole", steps=4, a=engine(server)) as run:
        run.expect_success(4)
    label = server.label()
    expect("-a-1.4-" in label, f"expected the weights of step 4 in the server, but they are {label}")
    turns = [turn for line in run.lines("transcripts/*.jsonl") for turn in line.get("turns", [])]
    kinds = {turn["logprobs_of"] for turn in turns}
    expect(kinds == {"sampled"}, f"expected log-probs of the sampled distribution, but they are {kinds}")


def two_adapters(bench):
    """Two agents train adapters over one server."""
    server = bench.servers.get(bench.model, "adapters")
    lora = 'lora = { rank = 8, alpha = 16.0, targets = ["attn", "mlp"] }'
    with bench.run("adapters", steps=6, common=lora, a=engine(server), b=engine(server)) as run:
        run.expect_success(6)
        count = len(run.trained("b"))
        expect(count >= 4, f"expected b to train as well, but it has {count} batches")
    names = server.models()
    for agent in "ab":
        expect(any(f"-{agent}-1." in name for name in names), f"expected an adapter of {agent} among {names}")
    expect(server.label() == "default", "expected the base to stay as it was")


def swap_modes(bench):
    """New weights abort the calls under way (in_place, retract), or wait for them (drain)."""
    server = bench.servers.get(bench.model, "whole")
    for swap in ("in_place", "retract", "drain"):
        before = server.orders(), server.aborted()
        with bench.run(f"swap-{swap}", steps=8, tokens=100, staleness=2, a=engine(server, swap=swap)) as run:
            books = run.expect_success(8)
        orders, ended = server.orders() - before[0], server.aborted() - before[1]
        print(f"    {swap}: {orders} orders, {ended} calls aborted in {books['conversations']} conversations", flush=True)
        if swap == "drain":
            expect(not orders, f"expected no order to abort calls, but there were {orders}")
        else:
            expect(ended, "expected weights to arrive while calls were under way")


def server_killed(bench):
    """A server is killed in mid-run and started again: nothing is lost, its weights are sent again."""
    server = bench.servers.get(bench.model, "whole")
    with bench.run("killed", steps=12, tokens=40, a=engine(server)) as run:
        run.until(lambda: len(run.trained("a")) >= 3, "three batches")
        server.kill()
        at = len(run.trained("a"))
        server.start()
        expect(server.label() == "default", "expected a new server to have the weights of its folder")
        books = run.expect_success(12)
        expect(at < 12, "expected the server to be killed in mid-run")
    expect("-a-1.12-" in server.label(), f"expected the weights of step 12, but they are {server.label()}")
    print(f"    killed after batch {at}; {books['conversations']} conversations", flush=True)


def prefix_cache(bench):
    """After every change of weights, cached prompts give the numbers of new ones."""
    server = bench.servers.get(bench.model, "whole")
    prompt, port = [8 + i % 400 for i in range(100)], free_port()
    hits, compared = server.cached(), {}

    def compare():
        """Compares the cached prompt with the new one, if the weights stay the same meanwhile."""
        label = server.label()
        cached, new = server.likely(prompt, reuse=True), server.likely(prompt, reuse=False)
        if label == server.label() and cached and new and label.startswith("dyad-"):
            gap = max(abs(cached[name] - new.get(name, cached[name])) for name in cached)
            expect(gap < 1e-4, f"expected equal numbers with {label}, but they differ by {gap}")
            compared[label] = cached

    http = f'{engine(server)}\nhttp.listen = "127.0.0.1:{port}"'
    with bench.run("prefix", steps=8, tokens=40, a=http) as run:
        while run.is_alive():
            # SGLang's weights and its label change at different times, so the agent asks.
            if server.kind == "sglang":
                ask(port, prompt)
                time.sleep(0.1)
            else:
                compare()
        run.expect_success(8)
    compare()
    hits = server.cached() - hits
    least = 1 if server.kind == "sglang" else 3
    expect(len(compared) >= least, f"expected a comparison with {least} versions, but there were {list(compared)}")
    expect(hits >= 96 * len(compared), f"expected the prompt to be found in the cache, but {hits} tokens were")
    print(f"    {len(compared)} versions compared, {hits:.0f} prompt tokens from the cache", flush=True)


def ask(port, prompt):
    """Asks an agent's HTTP front, which opens and closes with the run."""
    try:
        request(f"http://127.0.0.1:{port}/v1/completions", {"model": "a", "prompt": prompt, "max_tokens": 1})
    except OSError:
        pass


def temperature(bench):
    """Temperature 0.7 is refused with raw log-probs; `dyad up` waits until the server is repaired."""
    refused = dict(steps=4, temperature=0.7)
    raw = bench.servers.get(bench.model, "raw")
    with bench.run("raw", command="run", a=engine(raw), **refused) as run:
        code = run.wait()
        expect(code == 1, f"expected dyad run to end with exit code 1, but it is {code}")
        expect(raw.FIX in run.output(), f"expected {raw.FIX!r} in the output: {run.output()[-2000:]}")
    with bench.run("repaired", a=engine(raw), **refused) as run:
        run.until(lambda: raw.FIX in run.output(), "a refusal")
        expect(not run.trained("a"), "expected no batch")
        raw.kill()
        processed = KINDS[raw.kind](bench.home, bench.model, "processed", "float32")
        processed.port, processed.url = raw.port, raw.url
        processed.start()
        run.expect_success(4)
    processed.kill()


def stop_texts_and_visitors(bench):
    """While an agent trains, its HTTP front answers over the server; stop texts end its answers."""
    server = bench.servers.get(bench.model, "whole")
    port = free_port()
    front = f"http://127.0.0.1:{port}/v1"
    http = f'{engine(server)}\nhttp.listen = "127.0.0.1:{port}"'

    def complete(**more):
        body = {"model": "a", "prompt": "o1", "max_tokens": 100, "logprobs": 20, "return_token_ids": True, **more}
        return request(front + "/completions", body)

    def check(answer, stop):
        status, text = answer
        expect(status == 200, f"expected an answer, but it was {status}: {text}")
        choice = json.loads(text)["choices"][0]
        logprobs = choice["logprobs"]["token_logprobs"]
        expect(len(logprobs) == len(choice["token_ids"]), "expected a log-prob for each token")
        spans = choice["dyad"]["spans"]
        ends = [0, *(span["end"] for span in spans)]
        ok = [span["start"] for span in spans] == ends[:-1] and ends[-1] == len(logprobs)
        expect(ok, f"expected versions for all {len(logprobs)} tokens, but they are {spans}")
        if stop:
            expect(stop not in choice["text"], f"expected no {stop!r} in {choice['text']!r}")
            if choice["finish_reason"] == "stop" and choice.get("stop_reason"):
                expect(choice["stop_reason"] == stop, f"expected {stop!r} as the reason: {choice['stop_reason']}")
                return "stopped", {span["weights"] for span in spans}
        return choice["finish_reason"], {span["weights"] for span in spans}

    answers = []
    with bench.run("visitors", steps=12, tokens=40, a=http) as run:
        run.until(lambda: server.label().startswith("dyad-") and run.trained("a"), "a batch")
        chat = {"model": "a", "messages": [{"role": "user", "content": "o2"}], "max_tokens": 8, "stream": True}
        status, text = request(front + "/chat/completions", chat)
        expect(status == 200 and text.rstrip().endswith("[DONE]"), f"expected a stream, but it was {status}: {text}")
        status, text = request(front + "/completions", {"model": "a", "prompt": "o1", "echo": True, "logprobs": 0})
        expect(status == 400 and "echo" in text, f"expected echo to be rejected by name: {status} {text}")
        with ThreadPoolExecutor(8) as pool:
            while run.is_alive() and len(run.trained("a")) < 10:
                asked = [(pool.submit(complete, **({"stop": [stop]} if stop else {})), stop) for stop in ["w1", None] * 4]
                done = [(answer.result(), stop) for answer, stop in asked]
                # The run may end meanwhile.
                answers += [check(answer, stop) for answer, stop in done if "run_ended" not in answer[1]]
        run.expect_success(12)
    ends = [end for end, _ in answers]
    versions = set().union(*(versions for _, versions in answers))
    expect("stopped" in ends, f"expected answers that a stop text ended, but they ended by {ends}")
    expect(len(versions) >= 3, f"expected answers of three versions, but there were {versions}")
    print(f"    {len(answers)} answers, {ends.count('stopped')} ended by a stop text, versions {sorted(versions)}")


def thousand_conversations(bench):
    """1,000 conversations and more: none is lost or counted twice."""
    server = bench.servers.get(bench.model, "whole")
    with bench.run("thousand", steps=32, group_size=8, tokens=8, a=engine(server)) as run:
        books = run.expect_success(32)
    expect(books["conversations"] >= 1000, f"expected 1,000 conversations: {books}")
    print(f"    {books['conversations']} conversations", flush=True)


def wrong_model(bench):
    """A server with another model is refused before it gets weights, with the reason."""
    server = bench.servers.get(SMOLLM, "short")
    for name, frozen in (("trained", False), ("frozen", True)):
        agents = dict(lead="b", a=engine(server) + "\ntrain.enabled = false") if frozen else dict(a=engine(server))
        with bench.run(f"wrong-{name}", command="run", steps=4, **agents) as run:
            code = run.wait()
            expect(code == 1, f"{name}: expected exit code 1, but it is {code}")
            for part in (server.url, "another model"):
                expect(part in run.output(), f"{name}: expected {part!r} in: {run.output()[-2000:]}")
    expect(server.is_well() and server.label() == "default", "expected the server to stay as it was")


CASES = [
    whole_weights,
    swap_modes,
    server_killed,
    prefix_cache,
    temperature,
    stop_texts_and_visitors,
    thousand_conversations,
    two_adapters,
    wrong_model,
]
