"""Asks a training agent through the clients that people have, as they come: litellm, langchain-openai
and lm-evaluation-harness. Usage: field_clients.py URL MODEL FOLDER TOKENIZER
"""
import json
import os
import pathlib
import sys

URL, MODEL, FOLDER, TOKENIZER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
os.environ.update(OPENAI_API_KEY="none", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True")
ASKED = [{"role": "system", "content": "short"}, {"role": "user", "content": "2+2=", "name": "me"}]


def litellm():
    import litellm as client

    said = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "max_tokens": 4}
    first = client.completion(messages=ASKED, temperature=0, seed=1, **said).choices[0].message
    # The whole message goes back, with every field of the client.
    more = [*ASKED, first.model_dump(), {"role": "user", "content": "and 3+3?"}]
    assert client.completion(messages=more, tools=[], tool_choice="auto", **said).usage.total_tokens > 0
    assert list(client.completion(messages=ASKED, stream=True, **said))
    said["model"] = f"text-completion-openai/{MODEL}"
    assert client.text_completion(prompt="2+2=", **said).choices[0].text is not None


def langchain():
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_openai import ChatOpenAI, OpenAI

    said = {"base_url": URL, "model": MODEL, "api_key": "none", "max_tokens": 4}
    chat = ChatOpenAI(temperature=0, seed=1, **said)
    first = chat.invoke([HumanMessage("2+2=", name="me")])
    assert chat.invoke([HumanMessage("2+2="), first, AIMessage(""), HumanMessage("and 3+3?")]).usage_metadata
    assert list(chat.stream("2+2="))
    assert chat.bind(logprobs=True).invoke("x").response_metadata["logprobs"]["content"]
    assert isinstance(OpenAI(**said).invoke("2+2="), str)


TASK = """task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
metadata: {{version: 1}}
"""
GENERATE = """output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 4, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]
"""
CHOOSE = """output_type: multiple_choice
doc_to_choice: ["4", "17"]
doc_to_target: 0
metric_list: [{metric: acc}]
"""


def harness():
    data = FOLDER / "rows.jsonl"
    data.write_text("".join(json.dumps({"question": f"2+{n}=", "answer": str(2 + n)}) + "\n" for n in range(3)))
    (FOLDER / "sums.yaml").write_text(TASK.format(data=data) + GENERATE)
    evaluate("local-chat-completions", "chat/completions", apply_chat_template=True)
    evaluate("local-completions", "completions", ",tokenizer_backend=None,tokenized_requests=False")
    # Log-likelihoods of answers: prompts are token ids of the run's own tokenizer.
    (FOLDER / "sums.yaml").write_text(TASK.format(data=data) + CHOOSE)
    evaluate("local-completions", "completions", f",tokenizer={TOKENIZER}", metric="acc,none")


def evaluate(client, path, settings="", metric="exact_match,none", **more):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    # The harness's own thousands of tasks take a minute to index.
    tasks = TaskManager(include_path=str(FOLDER), include_defaults=False)
    args = f"model={MODEL},base_url={URL}/{path},num_concurrent=2,max_retries=1{settings}"
    found = simple_evaluate(client, model_args=args, tasks=["sums"], task_manager=tasks, **more)
    assert 0 <= found["results"]["sums"][metric] <= 1, found["results"]


for client in [litellm, langchain, harness]:
    client()
    print(client.__name__, "ok", flush=True)
