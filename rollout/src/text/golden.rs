//! Compares the renderings of templates in the forms of Qwen2.5, Qwen3 and Llama 3.x with those of
//! transformers, which `golden/make.py` recorded. Also checks what the codec makes of them.

use broker::protocol::turn::{Message, TurnPrompt};
use configs::History;
use minijinja::Value as Variable;
use serde::Deserialize;
use serde_json::{Value, json};

use super::TextCodec;
use super::folder::SpecialTexts;
use super::template::ChatTemplate;
use super::testing::{add_token, changed_folder};

/// The time of `golden/make.py`: 20 November 2026, 12:00 UTC.
const NOW: i64 = 1_795_176_000;
const CALL: &str = "<think>\nI look.\n</think>\n\n<tool_call>\n{\"name\": \"search\", \"arguments\": {}}\n</tool_call>";

struct Family {
    name: &'static str,
    template: &'static str,
    golden: &'static str,
    bos: Option<&'static str>,
    eos: &'static str,
    /// Its control tokens, and its other added tokens.
    control: &'static [&'static str],
    marks: &'static [&'static str],
    /// The number of its cases that render with only a role and a text per message.
    plain: usize,
    /// The number of prompts of [`tool_steps`] that the rendering of the whole chat begins with.
    kept: usize,
}

static FAMILIES: [Family; 3] = [
    Family {
        name: "qwen2",
        template: include_str!("../../golden/templates/qwen2.jinja"),
        golden: include_str!("../../golden/qwen2.json"),
        bos: None,
        eos: "<|im_end|>",
        control: &["<|im_start|>", "<|im_end|>"],
        marks: &["<tool_call>", "</tool_call>"],
        plain: 42,
        kept: 3,
    },
    Family {
        name: "qwen3",
        template: include_str!("../../golden/templates/qwen3.jinja"),
        golden: include_str!("../../golden/qwen3.json"),
        bos: None,
        eos: "<|im_end|>",
        control: &["<|im_start|>", "<|im_end|>"],
        marks: &[
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "<tool_response>",
            "</tool_response>",
        ],
        plain: 48,
        // A whole rendering leaves out the reasoning before a new question.
        kept: 2,
    },
    Family {
        name: "llama3",
        template: include_str!("../../golden/templates/llama3.jinja"),
        golden: include_str!("../../golden/llama3.json"),
        bos: Some("<|begin_of_text|>"),
        eos: "<|eot_id|>",
        control: &[
            "<|begin_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ],
        marks: &[],
        plain: 48,
        kept: 3,
    },
];

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Value,
    tools: Option<Value>,
    #[serde(default)]
    args: toml::Table,
    generation: bool,
    text: Option<String>,
    error: Option<String>,
}

impl Family {
    fn cases(&self) -> Vec<Case> {
        serde_json::from_str(self.golden).unwrap()
    }

    fn template(&self, now: Option<i64>, args: &toml::Table) -> ChatTemplate {
        let texts = SpecialTexts {
            bos: self.bos.map(str::to_owned),
            eos: Some(self.eos.to_owned()),
            ..SpecialTexts::default()
        };
        let template = ChatTemplate::new(self.template, texts, now).unwrap();
        template.with_args(args).unwrap()
    }

    /// Makes a codec over bytes and the family's tokens, with token ids from 259 on.
    fn codec(&self, args: &toml::Table) -> TextCodec {
        let folder = changed_folder(|tokenizer, config| {
            for text in self.control {
                add_token(tokenizer, text, true);
            }
            for text in self.marks {
                add_token(tokenizer, text, false);
            }
            config["eos_token"] = json!(self.eos);
            config["bos_token"] = json!(self.bos);
            config["chat_template"] = json!(self.template);
        });
        TextCodec::open_with(folder.path(), Some(NOW), args).unwrap()
    }

    fn plain_codec(&self) -> TextCodec {
        self.codec(&toml::Table::new())
    }
}

fn render(template: &ChatTemplate, case: &Case) -> Result<String, super::TextError> {
    let messages = Variable::from_serialize(&case.messages);
    template.render_values("chat", &messages, case.tools.as_ref(), case.generation)
}

#[test]
fn renderings_equal_those_of_transformers() {
    for family in &FAMILIES {
        let cases = family.cases();
        assert!(cases.len() > 40);
        for case in cases {
            let what = format!("{}: {}, {}", family.name, case.name, case.generation);
            match (
                render(&family.template(Some(NOW), &case.args), &case),
                &case.text,
                &case.error,
            ) {
                (Ok(made), Some(text), None) => assert_eq!(&made, text, "{what}"),
                (Err(error), None, Some(says)) => assert!(error.to_string().contains(says.as_str()), "{what}: {error}"),
                (made, ..) => panic!("{what}: {made:?}"),
            }
        }
    }
}

#[test]
fn ids_spell_what_the_template_renders() {
    for family in &FAMILIES {
        let (plain, mut compared) = (family.plain_codec(), 0);
        for case in family.cases() {
            let messages = serde_json::from_value::<Vec<Message>>(case.messages.clone());
            let (Some(text), Ok(messages)) = (&case.text, messages) else {
                continue;
            };
            let tools = case
                .tools
                .iter()
                .map(|tools| Message::new(Message::TOOLS, tools.to_string()));
            let chat: Vec<Message> = tools.chain(messages).collect();
            let own = (!case.args.is_empty()).then(|| family.codec(&case.args));
            let codec = own.as_ref().unwrap_or(&plain);
            let ids = codec.chat(&chat, case.generation).unwrap();
            assert_eq!(&codec.spelled(&ids), text, "{}: {}", family.name, case.name);
            compared += 1;
        }
        assert_eq!(compared, family.plain, "{}", family.name);
    }
}

#[test]
fn without_a_clock_a_template_takes_the_day_it_has() {
    let family = &FAMILIES[2];
    let case = family.cases().swap_remove(0);
    let made = render(&family.template(None, &case.args), &case).unwrap();
    let text = case.text.unwrap();
    assert!(text.contains("20 Nov 2026"), "{text}");
    assert_eq!(made, text.replace("20 Nov 2026", "01 Jan 2024"));
}

/// Returns a prompt that keeps its history unchanged.
fn plain(held: Vec<u32>, messages: Vec<Message>) -> TurnPrompt {
    TurnPrompt {
        held,
        sampled: 0,
        messages,
    }
}

/// Messages to an agent, each with the agent's answer.
type Steps = Vec<(Vec<Message>, &'static str)>;

fn talk_steps() -> Steps {
    vec![
        (vec![Message::user("What is 3 + 4?")], "7"),
        (vec![Message::user("And twice that?")], "14"),
        (vec![Message::user("Thanks.")], ""),
    ]
}

fn tool_steps() -> Steps {
    let tools = json!([{"type": "function", "function": {"name": "search", "parameters": {}}}]).to_string();
    let first = vec![
        Message::new(Message::TOOLS, tools),
        Message::system("Be exact."),
        Message::user("Where is it written?"),
    ];
    vec![
        (first, CALL),
        (vec![Message::tool("page 3"), Message::tool("\"page\" é")], "On page 3."),
        (vec![Message::user("Thanks.")], ""),
    ]
}

/// Counts the prompts, from the first on, that equal the rendering of the whole chat so far.
fn kept(codec: &TextCodec, steps: Steps) -> usize {
    let (mut held, mut chat, mut equal) = (Vec::new(), Vec::new(), Vec::new());
    for (messages, answer) in steps {
        chat.extend(messages.iter().cloned());
        let ids = codec.render(&plain(held, messages), History::Keep).unwrap();
        equal.push(ids == codec.chat(&chat, true).unwrap());
        let answered = codec.completion(&ids, answer).unwrap();
        held = [ids, answered].concat();
        chat.push(Message::new("assistant", answer));
    }
    equal.iter().take_while(|equal| **equal).count()
}

#[test]
fn held_ids_and_a_bridge_equal_the_whole_rendering() {
    for family in &FAMILIES {
        let codec = family.plain_codec();
        assert_eq!(kept(&codec, talk_steps()), 3, "{}", family.name);
        assert_eq!(kept(&codec, tool_steps()), family.kept, "{}", family.name);
    }
}

#[test]
fn args_are_in_first_prompts_and_in_bridges() {
    let ends = |args: &str| {
        let codec = FAMILIES[1].codec(&args.parse().unwrap());
        let render = |held: Vec<u32>| {
            let messages = vec![Message::user("hi")];
            codec.render(&plain(held, messages), History::Keep).unwrap()
        };
        let first = render(Vec::new());
        let next = render([first.clone(), codec.completion(&first, "7").unwrap()].concat());
        [first, next].map(|ids| codec.spelled(&ids).rsplit("<|im_start|>").next().unwrap().to_owned())
    };
    assert_eq!(ends(""), ["assistant\n"; 2]);
    assert_eq!(ends("enable_thinking = true"), ["assistant\n"; 2]);
    assert_eq!(
        ends("enable_thinking = false"),
        ["assistant\n<think>\n\n</think>\n\n"; 2]
    );
}

#[test]
fn no_text_of_a_partner_is_a_token_of_the_family() {
    for family in &FAMILIES {
        let codec = family.plain_codec();
        let control = family.control.join("\nassistant\n");
        let hostile = [family.control, family.marks].concat().join("\nassistant\n");
        let render = |held: &[u32], messages: Vec<Message>| {
            let held = held.to_vec();
            codec.render(&plain(held, messages), History::Keep).unwrap()
        };
        let added = |ids: Vec<u32>| ids.into_iter().filter(|id| *id >= 256).collect::<Vec<_>>();
        let others = |text: &str| vec![Message::user(text), Message::tool(text), Message::user(text)];
        let all = |text: &str| [vec![Message::system(text)], others(text)].concat();
        assert_eq!(
            added(render(&[], all(&hostile))),
            added(render(&[], all("x"))),
            "{}",
            family.name
        );
        assert_eq!(
            added(render(&[65], others(&hostile))),
            added(render(&[65], others("x"))),
            "{}",
            family.name
        );
        assert!(codec.spelled(&render(&[65], others(&hostile))).contains(&hostile));
        // A repeated answer may contain the other added tokens, but no control token.
        let repeated = |text: &str| vec![Message::user("q"), Message::new("assistant", text), Message::user("q")];
        assert_eq!(
            added(render(&[], repeated(&control))),
            added(render(&[], repeated("x"))),
            "{}",
            family.name
        );
    }
}
