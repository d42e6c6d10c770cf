"""Writes the golden renderings of chat templates: what transformers' apply_chat_template makes of templates/*.jinja.

    python -m venv venv && venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    venv/bin/python rollout/golden/make.py [FOLDER]        # FOLDER instead of the one that this file is in

The templates are ours, in the forms of three families. Each has one file of cases {name, messages, generation, text}, with
`tools` and `args` (further variables) where there are any, and `error` in the place of `text` where the template refuses.
The day that strftime_now tells is fixed.

tojson.json has what the filter `tojson` of those templates makes of JSON, by its arguments.

transformers.json has the ids of the two tokenizers that src/text/make.rs makes, which are made here once more.
"""

import datetime
import json
import pathlib
import sys
import tempfile

import jinja2
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
# 20 November 2026, 12:00 UTC; golden.rs has the same.
NOW = datetime.datetime(2026, 11, 20, 12, 0, 0)


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def said(role, content):
    return {"role": role, "content": content}


def calling(*calls, content=""):
    listed = [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"role": "assistant", "content": content, "tool_calls": listed}


SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds \"texts\" <about> it & more; é, ☃, 𝄞.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "most": {"type": "integer", "default": 5, "minimum": 0, "maximum": 9007199254740993},
                "share": {"type": "number", "enum": [0.5, 1.0, -0.0, 1e-05, 0.0001, 1e16, 1e15, 123456789.125, 2.5e-07, 1e22]},
                "exact": {"type": "boolean", "default": None},
            },
            "required": [],
        },
    },
}
LOOK = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}

TALK = [said("user", "What is 3 + 4?"), said("assistant", "7"), said("user", "And twice that?")]
THOUGHT = "<think>\nIt is 3 + 4.\n\nSo 7.\n</think>\n\n7"
ASKED = [said("system", "Be exact."), said("user", "Where is it written?")]
WRITTEN = '<tool_call>\n{"name": "search", "arguments": {"query": "it"}}\n</tool_call>'
ODD = " \t é☃𝄞 \u00a0\u3000<b>&amp;'\"\\ \u0007\u007f{{ x }}{% if %} \n\n"

# What every family renders: name, messages, and what else there is.
COMMON = [
    ("one user", [said("user", "hi")], {}),
    ("system and user", [said("system", "You are a clerk."), said("user", "hi")], {}),
    ("turns", TALK, {}),
    ("turns under a system", [said("system", "Be brief.")] + TALK + [said("assistant", "14"), said("user", "Thanks.")], {}),
    ("reasoning", [TALK[0], said("assistant", THOUGHT), TALK[2]], {}),
    ("reasoning twice", [TALK[0], said("assistant", THOUGHT), TALK[2], said("assistant", "<think>\n7 * 2\n</think>\n\n14")], {}),
    ("an answer last", TALK[:2], {}),
    ("reasoning that did not end", [TALK[0], said("assistant", "<think>\nIt is"), TALK[2]], {}),
    ("reasoning without a beginning", [TALK[0], said("assistant", "It is 7.\n</think>\n\n\n7\n"), TALK[2]], {}),
    ("tools", ASKED, {"tools": [SEARCH, CLOCK]}),
    ("tools without a system", ASKED[1:], {"tools": [CLOCK]}),
    ("no tools", ASKED, {"tools": []}),
    ("a written call", ASKED + [said("assistant", WRITTEN), said("tool", "page 3")], {"tools": [LOOK]}),
    ("a thought and a call", ASKED + [said("assistant", "<think>\nI look.\n</think>\n\n" + WRITTEN), said("tool", "page 3")], {"tools": [LOOK]}),
    ("two results", ASKED + [said("assistant", WRITTEN + "\n" + WRITTEN), said("tool", "page 3"), said("tool", "page\n\"4\" é\t")], {"tools": [LOOK]}),
    ("results, an answer and a question",
     ASKED + [said("assistant", "<think>\nI look.\n</think>\n\n" + WRITTEN), said("tool", "page 3"), said("assistant", "<think>\nGood.\n</think>\n\nOn page 3."), said("user", "Thanks.")],
     {"tools": [LOOK]}),
    ("a result that a user tells", ASKED + [said("assistant", WRITTEN), said("user", "<tool_response>\npage 3\n</tool_response>")], {}),
    ("a call in parts", ASKED + [calling(("search", {"query": "é \"it\"", "most": 2, "share": 1e-05}))], {"tools": [LOOK]}),
    ("a call in parts and its result", ASKED + [calling(("clock", {})), said("tool", "12:00")], {"tools": [CLOCK]}),
    ("two calls in parts", ASKED + [calling(("clock", {}), ("search", {"query": "x"}), content="I look.")], {"tools": [CLOCK, LOOK]}),
    ("nothing said", [said("system", ""), said("user", ""), said("assistant", ""), said("user", "")], {}),
    ("odd characters", [said("system", ODD), said("user", ODD), said("assistant", ODD), said("user", ODD)], {}),
    ("line breaks", [said("user", "\r\na\r\n\n"), said("assistant", "\n\nb\n\n"), said("user", "\n")], {}),
    ("a second system", TALK[:2] + [said("system", "Now in French.\n")], {}),
]
FAMILIES = {
    "qwen2": {
        "tokens": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        "cases": [("a role of no one", [said("critic", "no")], {})],
    },
    "qwen3": {
        "tokens": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        "cases": [
            ("without thinking", TALK, {"args": {"enable_thinking": False}}),
            ("with thinking", TALK, {"args": {"enable_thinking": True}}),
            ("without thinking, a result", ASKED + [said("assistant", WRITTEN), said("tool", "page 3")],
             {"tools": [LOOK], "args": {"enable_thinking": False}}),
            ("reasoning apart", [TALK[0], {"role": "assistant", "content": "7", "reasoning_content": "\nIt is 7.\n"}], {}),
        ],
    },
    "llama3": {
        "tokens": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        "cases": [
            ("a day", TALK, {"args": {"date_string": "26 Jul 2024"}}),
            ("tools in the system", ASKED, {"tools": [LOOK], "args": {"tools_with_question": False}}),
            ("tools of one's own", ASKED, {"args": {"own_tools": [CLOCK]}}),
            ("tools and no question", ASKED[:1], {"tools": [CLOCK]}),
        ],
    },
}


def render(tokenizer, messages, generation, tools=None, args=None):
    try:
        text = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=generation, tokenize=False, **(args or {}))
        return {"text": text}
    except jinja2.exceptions.TemplateError as error:
        return {"error": error.message}


# As in src/text/make.rs.
TINY = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}<|assistant|>{{ message.content }}<|end|>"
    "{%- else -%}{{ message.content }}"
    "{%- if not loop.last and loop.nextitem.role != 'assistant' -%}{{ '\\n' }}{%- endif -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
CHATS = [
    [said("user", "o1")],
    [said("user", "")],
    [said("system", "s0 x"), said("user", "o1  o0")],
    [said("user", "o0"), said("assistant", "s1 s0"), said("user", "o1\ts0 ")],
    [said("user", "37+48="), said("user", "é☃𝄞\n\n \u0000~")],
    [said("tool", " x "), said("assistant", "s0"), said("assistant", "s1")],
]


def byte_characters():
    """GPT-2's table: the printable character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def tiny(kind):
    """The tokenizer `kind`, written into a folder and opened as any other."""
    control = ["<|pad|>", "<|end|>", "<|assistant|>"]
    if kind == "words":
        words = ["o0", "o1", "s0", "s1"]
        control = ["<|unk|>", *control]
        vocabulary = {word: i for i, word in enumerate([*words, "<|unk|>"])}
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<|unk|>"}
        split, decoder, first = {"type": "WhitespaceSplit"}, None, len(words)
    else:
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                 "vocab": {character: byte for byte, character in enumerate(byte_characters())}, "merges": []}
        split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        decoder, first = split, 256
    added = [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, content in enumerate(control)]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                 "pre_tokenizer": split, "post_processor": None, "decoder": decoder, "model": model}
    settings = {"eos_token": "<|end|>", "pad_token": "<|pad|>", "tokenizer_class": "PreTrainedTokenizerFast",
                "clean_up_tokenization_spaces": False, "chat_template": TINY}
    if kind == "words":
        settings["unk_token"] = "<|unk|>"
    with tempfile.TemporaryDirectory() as folder:
        for file, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)):
            (pathlib.Path(folder) / file).write_text(json.dumps(content))
        return AutoTokenizer.from_pretrained(folder)


def tiny_cases():
    for kind in ("words", "bytes"):
        tokenizer = tiny(kind)
        for messages in CHATS:
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            text = tokenizer.decode(ids, skip_special_tokens=True)
            yield {"tokenizer": kind, "messages": messages, "ids": ids, "text": text}


DUMPED = [
    '{"b": [1, -0.0, {"z": "\u00e9\u2603", "a": {}}], "a": "\\ud834\\udd1e<&\\u007f\\u0001\\n\\"/", "\u00e9": [], "B": null}',
    '["\u00e9", 2.5e-07, true]',
]
CALLS = [
    "", "()", "(ensure_ascii=true)", "(ensure_ascii=1)", "(ensure_ascii=false)", "(true)", "(false, 2)", "(false, 2, none, true)",
    "(indent=none)", "(indent=0)", "(indent=-1)", "(indent=3)", "(indent='\\t')", "(indent=true)", "(indent=1.5)", "(indent=[])",
    "(separators=(',', ':'))", "(separators=[', ', '='])", "(separators=none)", "(separators=(',',))", "(indent=2, separators=(', ', ':'))",
    "(sort_keys=true)", "(sort_keys=true, indent=1, ensure_ascii=true, separators=(',', ' : '))", "(true, ensure_ascii=true)",
    "(other=true)", "(false, none, none, false, false)",
]


def dumps():
    for dumped in DUMPED:
        for call in CALLS:
            template = chat_template_utils._compile_jinja_template("{{ x | tojson" + call + " }}")
            try:
                yield {"json": dumped, "call": call, "text": template.render(x=json.loads(dumped))}
            except (TypeError, ValueError):
                yield {"json": dumped, "call": call, "text": None}


def write(name, cases):
    lines = [json.dumps(case, ensure_ascii=False) for case in cases]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    write("transformers", tiny_cases())
    write("tojson", dumps())
    chat_template_utils.datetime = Fixed
    for family, of in FAMILIES.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **of["tokens"])
        tokenizer.chat_template = (HERE / "templates" / f"{family}.jinja").read_text()
        cases = []
        for name, messages, more in COMMON + of["cases"]:
            for generation in (True, False):
                case = {"name": name, "messages": messages, **more, "generation": generation}
                case.update(render(tokenizer, messages, generation, **more))
                cases.append(case)
        write(family, cases)


main()
