"""Talks to agents with OpenAI's own client. `tests/it/http.rs` runs it; each scenario is a function.

    openai_client.py SCENARIO [URL ...]

A URL is that of an agent, for example http://127.0.0.1:8001/v1. DYAD_HTTP_TOKEN is the token, if the
agents require one.
"""

import json
import os
import sys
import time

import openai

TOKEN = os.environ.get("DYAD_HTTP_TOKEN", "none")


def client(url, token=TOKEN):
    return openai.OpenAI(base_url=url, api_key=token, max_retries=0, timeout=60)


def name_of(api):
    """Returns the agent's name, once it answers."""
    until = time.monotonic() + 120
    while True:
        try:
            (model,) = api.models.list().data
            return model.id
        except openai.APIConnectionError:
            assert time.monotonic() < until, "no agent listens"
            time.sleep(0.05)


def fails(status, call, **fields):
    """Asserts that the call is refused with this status, in OpenAI's format. Returns the error."""
    try:
        call(**fields)
    except openai.APIStatusError as error:
        assert error.status_code == status, (error.status_code, error.body)
        for key in ("message", "type", "param", "code"):
            assert key in error.body, error.body
        return error.body
    raise AssertionError(f"{fields} is not refused")


def weights(choice):
    return [span["weights"] for span in choice.dyad["spans"]]


def ask(api, model, text, **more):
    messages = [{"role": "user", "content": text}]
    return api.chat.completions.create(model=model, messages=messages, **more)


def training(trained, frozen):
    """Lists, chats and streams while the first agent trains; the second agent is frozen."""
    one, other = client(trained), client(frozen)
    a, b = name_of(one), name_of(other)
    moves(one, a)
    streams(one, a)
    ids_in_and_out(other, b)
    choices(other, b)
    stops(other, b)
    stop_tokens(other, b)
    echoes(other, b)
    scores(other, b)
    refusals(other, b)


def moves(api, model):
    """Weights change between two answers, and each answer names its weights."""
    first = ask(api, model, "o3", max_tokens=4)
    (choice,) = first.choices
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens
    assert choice.dyad["spans"][-1]["end"] == first.usage.completion_tokens
    until = time.monotonic() + 60
    while weights(ask(api, model, "o3", max_tokens=1).choices[0]) == weights(choice)[-1:]:
        assert time.monotonic() < until, "the weights never change"
        time.sleep(0.02)
    known = api.models.retrieve(model).dyad
    assert known["step"] > 0 and known["weights"] == f"{known['lineage']}.{known['step']}", known


def streams(api, model):
    """A stream has OpenAI's format and ends with the usage."""
    made = ask(api, model, "o5", max_tokens=20, stream=True, stream_options={"include_usage": True}, logprobs=True)
    chunks = list(made)
    assert chunks[0].choices[0].delta.role == "assistant"
    *pieces, usage = chunks
    assert usage.choices == [] and all(piece.usage is None for piece in pieces)
    assert pieces[-1].choices[0].finish_reason in ("stop", "length")
    assert all(piece.choices[0].finish_reason is None for piece in pieces[:-1])
    tokens = [token for piece in pieces for token in piece.choices[0].logprobs.content]
    assert len(tokens) == usage.usage.completion_tokens and all(token.logprob <= 0 for token in tokens)
    assert weights(pieces[-1].choices[0])


def ids_in_and_out(api, model):
    """A greedy chat and a greedy completion of the same ids give the same answer."""
    more = {"return_token_ids": True}
    for text in ("o1", "o2 o7", "s3"):
        chat = ask(api, model, text, max_tokens=12, temperature=0, extra_body=more)
        plain = api.completions.create(
            model=model, prompt=chat.prompt_token_ids, max_tokens=12, temperature=0, logprobs=0, extra_body=more
        )
        likely(api, model, chat.prompt_token_ids)
        (one,), (other,) = chat.choices, plain.choices
        assert one.token_ids == other.token_ids and one.message.content == other.text
        assert other.prompt_token_ids == chat.prompt_token_ids
        assert len(one.token_ids) == chat.usage.completion_tokens == len(other.logprobs.token_logprobs)
        streamed = ask(api, model, text, max_tokens=12, temperature=0, stream=True, extra_body=more)
        ids, said = [], ""
        for chunk in streamed:
            ids += chunk.choices[0].token_ids
            said += chunk.choices[0].delta.content or ""
        assert (ids, said) == (one.token_ids, one.message.content)
        # A completion can continue the ids of an answer.
        more_ids = api.completions.create(
            model=model, prompt=chat.prompt_token_ids + one.token_ids[:5], max_tokens=7, temperature=0, extra_body=more
        )
        assert one.token_ids[5:] == more_ids.choices[0].token_ids[: len(one.token_ids) - 5]


def likely(api, model, ids):
    """The most likely token of a greedy answer is the chosen one, in chats and in completions."""
    chat = ask(api, model, "o1", max_tokens=3, temperature=0, logprobs=True, top_logprobs=4).choices[0].logprobs.content
    assert chat and all(len(token.top_logprobs) == 4 and token.top_logprobs[0].logprob == token.logprob for token in chat)
    plain = api.completions.create(model=model, prompt=ids, max_tokens=3, temperature=0, logprobs=4).choices[0].logprobs
    assert plain.tokens
    for token in chat:
        assert bytes(token.bytes).decode() == token.token, token
    for token, logprob, top in zip(plain.tokens, plain.token_logprobs, plain.top_logprobs, strict=True):
        assert top[token] == logprob == max(top.values()) and len(top) <= 5, top


def choices(api, model):
    """Every choice of every prompt has its place, and a seed repeats the choices."""
    def made():
        return api.completions.create(
            model=model, prompt=["o1", "o2", "o3"], n=2, seed=7, max_tokens=8, extra_body={"return_token_ids": True}
        )
    first, again = made(), made()
    assert [choice.index for choice in first.choices] == list(range(6))
    ids = [choice.token_ids for choice in first.choices]
    assert ids == [choice.token_ids for choice in again.choices]
    assert ids[0] != ids[1], "two choices of one prompt differ"
    prompts = [choice.prompt_token_ids for choice in first.choices]
    assert prompts[0] == prompts[1] != prompts[2]


def stops(api, model):
    """The text ends before the stop text, streamed or not."""
    def made(seed, **more):
        return api.completions.create(model=model, prompt="o1", max_tokens=60, seed=seed, **more)

    def spoken(seed):
        text = made(seed).choices[0].text
        return len(set(text.split())), seed, text

    words, seed, text = max(spoken(seed) for seed in range(40))
    assert words > 5, text
    # The word with the latest first place.
    stop = max(set(text.split()), key=lambda word: (" " + text).index(" " + word))
    wanted = text[: text.index(stop)]
    stopped = made(seed, stop=[stop, "never"])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == (wanted, "stop"), (text, stop, stopped)
    pieces = list(made(seed, stop=stop, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == wanted
    assert len(pieces) > 1


def stop_tokens(api, model):
    """A stop token ends the text and is the last id, as in vLLM; its text is included on request."""
    def made(seed, **more):
        more = {"return_token_ids": True, **more}
        return api.completions.create(model=model, prompt="o1", max_tokens=60, seed=seed, extra_body=more).choices[0]

    whole, seed = max(((made(seed), seed) for seed in range(20)), key=lambda one: len(set(one[0].token_ids)))
    ids = whole.token_ids
    # The token with the latest first place.
    stop = max(set(ids), key=ids.index)
    at = ids.index(stop)
    assert at > 5, ids
    cut = made(seed, stop_token_ids=[999_999, stop])
    assert (cut.token_ids, cut.finish_reason) == (ids[: at + 1], "stop"), (cut, ids)
    kept = made(seed, stop_token_ids=[stop], include_stop_str_in_output=True)
    assert kept.token_ids == cut.token_ids
    assert whole.text.startswith(kept.text) and kept.text.startswith(cut.text), (whole.text, kept.text, cut.text)


def echoes(api, model):
    """The prompt comes back before each of its answers."""
    def made(echo, **more):
        return api.completions.create(model=model, prompt=["o1 o2", "o3"], n=2, seed=3, max_tokens=4, echo=echo, **more)

    plain, echoed = (list(made(echo).choices) for echo in (False, True))
    prompts = ["o1 o2", "o1 o2", "o3", "o3"]
    assert [one.text for one in echoed] == [prompt + one.text for prompt, one in zip(prompts, plain, strict=True)]


def near(some, others):
    return all(abs(a - b) < 1e-3 for a, b in zip(some, others, strict=True))


def scores(api, model):
    """Log-probs of a given text, for evaluations, equal those of its tokens at generation."""
    def asked(prompt, **more):
        more = {"temperature": 0, "logprobs": 1, **more}
        return api.completions.create(model=model, prompt=prompt, **more)

    made = asked("o1 o2", max_tokens=6, extra_body={"return_token_ids": True}).choices[0]
    ids = made.prompt_token_ids + made.token_ids
    answer = asked([ids, made.prompt_token_ids, "o3"], max_tokens=0, echo=True)
    assert answer.usage.completion_tokens == 0
    for choice in answer.choices:
        lists = choice.logprobs
        count = len(lists.tokens)
        assert count == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset)
        assert choice.finish_reason == "length" and lists.token_logprobs[0] is None and lists.top_logprobs[0] is None
        assert lists.text_offset[0] == 0 and lists.text_offset == sorted(lists.text_offset)
        assert choice.dyad["spans"] == [] and [span["end"] for span in choice.dyad["prompt_spans"]] in ([], [count])
        for token, logprob, top in list(zip(lists.tokens, lists.token_logprobs, lists.top_logprobs))[1:]:
            assert top[token] == logprob <= max(top.values()) <= 0 and len(top) <= 2, (token, logprob, top)
    whole, prompt, _ = (choice.logprobs for choice in answer.choices)
    made_at = len(made.prompt_token_ids)
    assert len(whole.tokens) == len(ids) and near(whole.token_logprobs[1:made_at], prompt.token_logprobs[1:])
    # The answer was greedy.
    assert near(whole.token_logprobs[made_at:], made.logprobs.token_logprobs)
    assert near(whole.token_logprobs[made_at:], [max(top.values()) for top in whole.top_logprobs[made_at:]])
    # lm-evaluation-harness asks like this: with one more token, which it leaves out.
    one = asked(ids, max_tokens=1, echo=True, seed=1234).choices[0]
    assert len(one.logprobs.tokens) == len(ids) + 1 and near(one.logprobs.token_logprobs[1:-1], whole.token_logprobs[1:])
    assert one.text.startswith(answer.choices[0].text)
    pieces = [chunk.choices[0] for chunk in asked(ids, max_tokens=1, echo=True, stream=True)]
    streamed = [logprob for piece in pieces for logprob in piece.logprobs.token_logprobs]
    assert streamed[0] is None and near(streamed[1:], one.logprobs.token_logprobs[1:])
    assert "".join(piece.text for piece in pieces) == one.text


def refusals(api, model):
    """An unsupported field is refused by name; a client without the right token learns nothing."""
    chat = [{"role": "user", "content": "o1"}]
    create = api.chat.completions.create
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert fails(400, create, model=model, messages=chat, tools=tools)["param"] == "tools"
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]
    assert fails(400, create, model=model, messages=image)["param"] == "messages[0].content[0].type"
    assert fails(400, create, model=model, messages=chat, top_logprobs=3)["param"] == "top_logprobs"
    assert fails(404, create, model="gpt-4o", messages=chat)["code"] == "model_not_found"
    long = fails(400, api.completions.create, model=model, prompt=[1] * 30_000)
    assert long["code"] == "context_length_exceeded", long
    assert fails(400, api.completions.create, model=model, prompt=[999_999])["param"] == "prompt"
    assert fails(413, api.completions.create, model=model, prompt="o1 " * 400_000)["code"] == "request_too_large"
    fails(404, lambda: api.embeddings.create(model=model, input="x"))
    if TOKEN != "none":
        for wrong in ("", "x" + TOKEN, TOKEN[:-1]):
            # Newer clients do not send an empty key.
            other = client(str(api.base_url), wrong or "-")
            assert fails(401, other.models.list)["code"] == "invalid_api_key"
            assert fails(401, other.chat.completions.create, model=model, messages=chat)["code"] == "invalid_api_key"


def leaving(url):
    """The agent serves one generation at once: the next when the first client has left."""
    api = client(url)
    model = name_of(api)
    word = lasting(api, model)
    for stream in (True, False):
        gone = client(url)
        if stream:
            made = gone.completions.create(model=model, prompt=word, max_tokens=1_000_000, temperature=0, stream=True)
            next(iter(made))
            busy = fails(429, api.completions.create, model=model, prompt=word)
            assert busy["code"] == "rate_limit_exceeded"
            made.close()
        else:
            impatient = openai.OpenAI(base_url=url, api_key=TOKEN, max_retries=0, timeout=0.5)
            try:
                impatient.completions.create(model=model, prompt=word, max_tokens=1_000_000, temperature=0)
                raise AssertionError("the answer is not that quick")
            except openai.APITimeoutError:
                pass
        until = time.monotonic() + 20
        while True:
            try:
                api.completions.create(model=model, prompt=word, max_tokens=1)
                break
            except openai.RateLimitError:
                assert time.monotonic() < until, "the abandoned request still runs"
                time.sleep(0.02)
    assert fails(400, api.completions.create, model=model, prompt=word, n=2)["param"] == "n"


def lasting(api, model):
    """Returns a word after which greedy sampling is long."""
    for word in [f"{kind}{n}" for kind in "os" for n in range(16)]:
        (choice,) = api.completions.create(model=model, prompt=word, max_tokens=200, temperature=0).choices
        if choice.finish_reason == "length":
            return word
    raise AssertionError("every word ends soon")


def chatter(*urls):
    """Chats until the agents end; prints the number of answers and the most versions in one answer."""
    apis = [client(url) for url in urls]
    models = [name_of(api) for api in apis]
    answers, most = 0, 0
    try:
        while True:
            for api, model in zip(apis, models):
                made = api.completions.create(model=model, prompt=["o1", "o2"], n=2, max_tokens=24, seed=answers, stream=True)
                spans = [weights(choice) for chunk in made for choice in chunk.choices if choice.finish_reason]
                answers += len(spans)
                most = max([most, *map(len, spans)])
    except (openai.APIConnectionError, openai.InternalServerError, openai.APIError) as error:
        print(json.dumps({"answers": answers, "versions": most, "end": type(error).__name__}))


def last_words(url):
    """Begins a long stream; prints when it has begun and how it ends."""
    api = client(url)
    model = name_of(api)
    word = lasting(api, model)
    made = api.completions.create(model=model, prompt=word, max_tokens=1_000_000, temperature=0, stream=True)
    chunks = iter(made)
    next(chunks)
    print("begun", flush=True)
    try:
        for _ in chunks:
            pass
    except openai.APIError as error:
        print(json.dumps(error.body if isinstance(error.body, dict) else str(error)), flush=True)


def scripted(url):
    """An engine without a model answers too."""
    api = client(url)
    model = name_of(api)
    (choice,) = ask(api, model, "o3", extra_body={"return_token_ids": True}).choices
    assert len(choice.token_ids) == 1 and choice.finish_reason == "length" and choice.message.content
    chunks = list(ask(api, model, "o3", stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"


if __name__ == "__main__":
    scenario, *urls = sys.argv[1:]
    globals()[scenario](*urls)
    if scenario not in ("chatter", "last_words"):
        print("ok")
