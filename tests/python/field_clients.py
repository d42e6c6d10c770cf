"""Asks a training agent through the clients that people have, as they come: litellm, langchain-openai
and lm-evaluation-harness. Usage: field_clients.py URL MODEL FOLDER
"""
import json
import os
import pathlib
import subprocess
import sys

URL, MODEL, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
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


TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
output_type: {kind}
metadata: {{version: 1}}
"""
GENERATE = """doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 4, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]
"""
CHOOSE = """doc_to_target: 0
doc_to_choice: ["4", "5"]
metric_list: [{metric: acc}]
"""


def harness():
    data = FOLDER / "rows.jsonl"
    data.write_text("".join(json.dumps({"question": f"2+{n}=", "answer": str(2 + n)}) + "\n" for n in range(3)))
    for name, kind, rest in [("sums", "generate_until", GENERATE), ("choices", "multiple_choice", CHOOSE)]:
        (FOLDER / f"{name}.yaml").write_text(TASK.format(name=name, kind=kind, data=data) + rest)
    evaluate("local-chat-completions", "chat/completions", "sums", "--apply_chat_template")
    evaluate("local-completions", "completions", "sums", settings=",tokenizer_backend=None,tokenized_requests=False")


def evaluate(client, path, task, *more, settings=""):
    model = f"model={MODEL},base_url={URL}/{path},num_concurrent=2,max_retries=1{settings}"
    command = ["lm_eval", "--model", client, "--model_args", model, "--tasks", task, "--include_path", str(FOLDER)]
    lm_eval = pathlib.Path(sys.executable).parent / command[0]
    done = subprocess.run([lm_eval, *command[1:], *more], capture_output=True, text=True)
    assert done.returncode == 0 and task in done.stdout, f"{command}\n{done.stdout}\n{done.stderr}"


for client in [litellm, langchain, harness]:
    client()
    print(client.__name__, "ok", flush=True)
