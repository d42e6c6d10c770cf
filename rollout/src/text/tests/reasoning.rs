//! Reasoning in every spelling: what partners receive of it, and what a seat keeps.

use std::sync::LazyLock;

use broker::protocol::turn::{Message, TurnPrompt};
use configs::{History, TokenizerConfig};
use proptest::prelude::*;
use serde_json::json;

use crate::sample::{self, tests as samples};
use crate::text::TextCodec;
use crate::text::make::write_tokenizer;
use crate::text::testing::{QUIET, THINKS, bytes, changed, chatml_of, first, message};

/// A tokenizer with its template.
struct Family {
    name: String,
    codec: TextCodec,
    /// True if `<think>` and `</think>` are tokens: 261 and 262.
    tokens: bool,
    /// The reasoning that the template writes at the beginning of an answer.
    opening: &'static [&'static str],
    /// Ends a turn.
    end: u32,
}

/// Byte tokenizers with three kinds of marks: none, added tokens and control tokens. Each has
/// templates that begin no reasoning, leave it open, or close it. The tiny models' tokenizers
/// follow.
static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut families = vec![Family {
        name: "tiny".into(),
        codec: bytes(),
        tokens: false,
        opening: &[],
        end: 257,
    }];
    let openings: [(&str, &[&str]); 3] = [
        ("", &[]),
        (THINKS, &["<think>", "\n"]),
        (QUIET, &["<think>", "\n\n", "</think>", "\n\n"]),
    ];
    for marks in [None, Some(false), Some(true)] {
        for (written, opening) in openings {
            families.push(Family {
                name: format!("{marks:?} {written}"),
                codec: chatml_of(marks, written),
                tokens: marks.is_some(),
                opening,
                end: 260,
            });
        }
    }
    families
});

/// Stands for a sampled end of turn.
const END: &str = "END";
/// Stands for a control token that ends nothing.
const PAD: &str = "PAD";

impl Family {
    /// Returns the ids of one piece of an output.
    fn piece(&self, piece: &str) -> Vec<u32> {
        match piece {
            END => vec![self.end],
            PAD => vec![256],
            "<think>" if self.tokens => vec![261],
            "</think>" if self.tokens => vec![262],
            text => text.bytes().map(u32::from).collect(),
        }
    }

    fn ids(&self, pieces: &[&str]) -> Vec<u32> {
        pieces.iter().flat_map(|piece| self.piece(piece)).collect()
    }

    /// Returns true if the template leaves reasoning open.
    fn thinks(&self) -> bool {
        self.opening.contains(&"<think>") && !self.opening.contains(&"</think>")
    }

    fn asked(&self, text: &str) -> Vec<u32> {
        self.codec
            .render(&first(&[Message::user(text)]), History::Keep)
            .unwrap()
    }

    /// Returns the prompt after an output, and the ids that the messages alone add to it.
    fn next(&self, prompt: &[u32], output: &[u32], messages: &[Message], history: History) -> (Vec<u32>, Vec<u32>) {
        let next = TurnPrompt {
            held: [prompt, output].concat(),
            sampled: output.len() as u32,
            messages: messages.to_vec(),
        };
        (
            self.codec.render(&next, history).unwrap(),
            self.codec.render_new(false, messages).unwrap(),
        )
    }
}

#[test]
fn output_after_an_open_reasoning_continues_it() {
    for family in FAMILIES.iter() {
        let prompt = family.asked("q");
        assert_eq!(family.codec.leaves_open(&prompt), family.thinks(), "{}", family.name);
        for (pieces, inside, outside) in [
            (&["a"][..], "", "a"),
            (&["a", END], "", "a"),
            (&["a", "</think>"], "", ""),
            (&["a", "</think>", "b", END], "b", "b"),
            (&["a", "</think>", "b", "<think>", "c"], "b", "b"),
            (&["a", "<think>", "b"], "", "a"),
            (&["a", "<think>", "b", "</think>", "c"], "c", "c"),
            (&["<think>", "</think>", "c"], "c", "c"),
            (&["</think>", "c"], "c", "c"),
            (&[END], "", ""),
        ] {
            let received = family.codec.decode(&prompt, &family.ids(pieces));
            let expected = if family.thinks() { inside } else { outside };
            assert_eq!(received, expected, "{}: {pieces:?}", family.name);
        }
    }
}

/// Otherwise an agent that learned the answer would send its partner an empty text.
#[test]
fn a_known_answer_is_outside_the_templates_reasoning() {
    for family in FAMILIES.iter() {
        let prompt = family.asked("q");
        for (answer, said) in [("b", "b"), ("a</think>b", "b"), ("", "")] {
            let ids = family.codec.completion(&prompt, answer).unwrap();
            let received = family.codec.decode(&prompt, &ids);
            assert_eq!(received.trim(), said, "{}: {answer:?}", family.name);
            assert_eq!(ids.last(), Some(&family.end), "{}", family.name);
        }
        let marked = family.codec.completion(&prompt, "<think>a</think>b").unwrap();
        assert_eq!(family.codec.decode(&prompt, &marked), "b", "{}", family.name);
        let whole = family.codec.spelled(&[&prompt[..], &marked[..]].concat());
        // After a closed reasoning, reasoning in the answer is a second one.
        let begun = 1 + usize::from(family.opening.contains(&"</think>"));
        assert_eq!(whole.matches("<think>").count(), begun, "{}: {whole}", family.name);
        let plain = family.codec.completion(&prompt, "b").unwrap();
        let closes = family.codec.spelled(&plain).starts_with("</think>");
        assert_eq!(closes, family.thinks(), "{}", family.name);
    }
}

/// A previous turn that was cut off in its reasoning does not begin it, and messages do not.
#[test]
fn only_the_template_begins_the_reasoning_of_a_turn() {
    for family in FAMILIES.iter() {
        for said in [
            "<think>",
            "a<think>\n",
            "</think>",
            "<|im_start|>assistant\n<think>\n",
            "<|assistant|><think>",
        ] {
            let prompt = family.asked(said);
            assert_eq!(
                family.codec.leaves_open(&prompt),
                family.thinks(),
                "{}: {said}",
                family.name
            );
            let cut = family.ids(&["<think>", "a"]);
            let (next, _) = family.next(&prompt, &cut, &[Message::user(said)], History::Keep);
            assert_eq!(
                family.codec.leaves_open(&next),
                family.thinks(),
                "{}: {said}",
                family.name
            );
        }
        // An assistant's own message, given by the task.
        let given = [Message::user("q"), message("assistant", "<think>"), Message::user("q")];
        let prompt = family.codec.render(&first(&given), History::Keep).unwrap();
        assert_eq!(family.codec.leaves_open(&prompt), family.thinks(), "{}", family.name);
    }
}

#[test]
fn a_tasks_own_marks_stay_and_the_turn_after_them_too() {
    for family in FAMILIES.iter() {
        let given = [
            Message::user("Say <think>."),
            message("assistant", "<think>no</think>yes"),
            Message::user("What does <think> do, without </think>? <think>"),
        ];
        let prompt = family.codec.render(&first(&given), History::Keep).unwrap();
        let output = family.ids(&["It begins a thought.", END]);
        let (next, bridge) = family.next(
            &prompt,
            &output,
            &[Message::user("<think> and?")],
            History::StripReasoning,
        );
        // Only the template's reasoning is removed from the prompt.
        let opening = family.ids(family.opening);
        assert!(prompt.ends_with(&opening), "{}", family.name);
        let text = family.codec.spelled(&prompt);
        assert!(
            text.contains("What does <think> do, without </think>? <think>"),
            "{text}"
        );
        let before = &prompt[..prompt.len() - opening.len()];
        let own = if family.thinks() {
            vec![family.end]
        } else if opening.is_empty() {
            output
        } else {
            [family.ids(&["\n\n"]), output].concat()
        };
        assert_eq!(next, [before, &own, &bridge[1..]].concat(), "{}", family.name);
    }
}

/// Some tokenizers have one token for `>` and a line break, so the text has no id of the mark
/// alone.
#[test]
fn marks_are_found_in_any_spelling_by_tokens() {
    let codec = changed(|tokenizer, config| {
        tokenizer["model"]["vocab"][">\u{10A}"] = json!(300);
        tokenizer["model"]["merges"] = json!([[">", "\u{10A}"]]);
        let template = config["chat_template"].as_str().unwrap();
        let thinking = template.replace("<|assistant|>{%- endif", "<|assistant|><think>{{ '\\n' }}{%- endif");
        config["chat_template"] = thinking.into();
    });
    let spell = |text: &str| codec.plain(text).unwrap();
    let prompt = codec
        .render(&first(&[Message::user("<think>\n")]), History::Keep)
        .unwrap();
    assert_eq!(prompt, [&spell("<think>\n")[..], &[259], &spell("<think>\n")].concat());
    assert!(prompt.contains(&300) && codec.leaves_open(&prompt));
    let output = [spell("a</think>\n\nb>\n"), vec![258]].concat();
    assert_eq!(codec.decode(&prompt, &output), "b>\n");
    assert_eq!(codec.decode(&prompt, &spell("a")), "");
    let next = TurnPrompt {
        held: [&prompt[..], &output].concat(),
        sampled: output.len() as u32,
        messages: vec![Message::user("c")],
    };
    let next = codec.render(&next, History::StripReasoning).unwrap();
    assert_eq!(
        codec.spelled(&next),
        "<think>\n<|assistant|>\nb>\n<|end|>c<|assistant|><think>\n"
    );
    // The opening mark has its own tokens, and the closing mark does not.
    assert_eq!(codec.decode(&[65], &spell("<think>a</think>\n\nb")), "b");
}

#[test]
fn words_can_be_marks() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["<think>", "</think>", "a", "<th", "ink>"].map(str::to_owned).into();
    write_tokenizer(folder.path(), &TokenizerConfig::Words(words)).unwrap();
    let codec = TextCodec::open(folder.path()).unwrap();
    let prompt = codec
        .render(&first(&[Message::user("a <think> a")]), History::Keep)
        .unwrap();
    assert_eq!(prompt, [2, 0, 2, 8]);
    let output = [3, 4, 0, 2, 1, 2, 7];
    assert_eq!(codec.decode(&prompt, &output), "a");
    let next = TurnPrompt {
        held: [&prompt[..], &output].concat(),
        sampled: 7,
        messages: vec![Message::user("a")],
    };
    // Separate words are not a mark.
    assert_eq!(
        codec.render(&next, History::StripReasoning).unwrap(),
        [2, 0, 2, 8, 3, 4, 2, 7, 2, 8]
    );
}

/// Returns the pieces outside reasoning, and all control tokens. It works by pieces, while the
/// codec works by bytes.
fn without_reasoning<'a>(pieces: &[&'a str]) -> Vec<&'a str> {
    let mut stays = vec![true; pieces.len()];
    let (mut begun, mut open): (Option<usize>, bool) = (None, false);
    for (at, piece) in pieces.iter().enumerate() {
        match *piece {
            "<think>" if !open => (begun, open) = (Some(at), true),
            "</think>" => {
                // Pieces after an earlier closing mark were reasoning too.
                if let Some(from) = begun {
                    stays[from..=at].fill(false);
                }
                open = false;
            }
            _ => {}
        }
    }
    if let Some(from) = begun.filter(|_| open) {
        stays[from..].fill(false);
    }
    let kept = pieces.iter().zip(stays);
    let kept = kept.filter(|(piece, stays)| *stays || matches!(**piece, END | PAD));
    kept.map(|(piece, _)| *piece).collect()
}

fn talk() -> impl Strategy<Value = Vec<(String, Vec<&'static str>)>> {
    let said = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<th",
        "ink>",
        "<|im_end|>",
        "<|im_start|>assistant\n",
        "<|assistant|>",
        "why",
        " ",
        "\n",
        "\u{e9}",
    ]);
    let sampled = prop::sample::select(vec!["<think>", "</think>", "so", " ", "\n\n", "\u{e9}", END, PAD]);
    let said = prop::collection::vec(said, 0..6).prop_map(|pieces| pieces.concat());
    prop::collection::vec((said, prop::collection::vec(sampled, 1..9)), 1..5)
}

proptest! {
    /// Any message may contain marks. A history loses only the agent's reasoning and the template's
    /// part of it. Each sampled token is trained once, in the context in which it was sampled.
    #[test]
    fn a_history_loses_only_reasoning_and_trains_tokens_once(which in 0usize..10, talk in talk()) {
        let family = &FAMILIES[which];
        let (codec, opening) = (&family.codec, family.ids(family.opening));
        let mut prompt = family.asked(&talk[0].0);
        let mut turns = Vec::new();
        for (turn, (_, pieces)) in talk.iter().enumerate() {
            prop_assert_eq!(codec.leaves_open(&prompt), family.thinks());
            let output = family.ids(pieces);
            turns.push(samples::generation(&prompt, &output));
            let Some((said, _)) = talk.get(turn + 1) else { break };
            let messages = [Message::user(said)];

            let (next, bridge) = family.next(&prompt, &output, &messages, History::StripReasoning);
            let own = without_reasoning(&[family.opening, pieces].concat());
            let own = family.ids(&own);
            prop_assert!(prompt.ends_with(&opening));
            let before = &prompt[..prompt.len() - opening.len()];
            let ended = usize::from(own.last() == Some(&family.end));
            let expected = [before, &own, &bridge[ended..]].concat();
            prop_assert_eq!(&next, &expected);
            // The agent holds what its partner received.
            let received = codec.decode(&prompt, &output);
            let holds = codec.text(&own);
            prop_assert!(holds.contains(received.trim()) && !holds.contains("<think>"), "{:?} of {:?}", received, holds);

            let (whole, _) = family.next(&prompt, &output, &messages, History::Keep);
            prop_assert!(whole.starts_with(&[&prompt[..], &output].concat()));
            prompt = next;
        }
        prop_assert_eq!(samples::trained(&sample::rows(&turns)), samples::sampled(&turns));
    }

    /// For any sampled output, the prompt loses and gains nothing.
    #[test]
    fn stripping_keeps_a_part_of_any_output(which in 0usize..10, output in prop::collection::vec(0u32..259, 1..40)) {
        let family = &FAMILIES[which];
        let prompt = family.asked("<think> \u{e9}");
        let (next, bridge) = family.next(&prompt, &output, &[Message::user("<think>")], History::StripReasoning);
        let before = &prompt[..prompt.len() - family.ids(family.opening).len()];
        prop_assert!(next.starts_with(before) && next.ends_with(&bridge[1..]));
        let mut all = prompt[before.len()..].iter().chain(&output).chain(&bridge[..1]);
        let mut own = next[before.len()..next.len() - (bridge.len() - 1)].iter();
        prop_assert!(own.all(|id| all.any(|other| other == id)), "{:?}", next);
    }
}
