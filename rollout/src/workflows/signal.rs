//! `signal`: a referential game (Lewis 1969; Lazaridou et al., arXiv:1612.07182).
//!
//! The speaker sees an object and speaks a message; the listener sees only the message and names
//! the object. Both earn `success`; the speaker may pay for the `length` of its message. Neither
//! side can win without the other.

pub(crate) mod objects;

use std::sync::Arc;

use broker::RoleName;
use broker::codec::excerpt;
use broker::protocol::task::Task;
use broker::protocol::turn::Message;
use configs::{Problem, WorkflowConfig};
use minijinja::context;

use crate::workflow::params::{Params, check_roles};
use crate::workflow::prompts::{Prompts, with_preamble};
use crate::workflow::transcript::{Transcript, ask, reward, role};
use crate::workflow::{Event, Need, NeedKind, Outcome, RoleSpec, Step, Workflow};

const TEMPLATES: [(&str, &str); 2] = [
    ("speaker", include_str!("../../templates/signal/speaker.jinja")),
    ("listener", include_str!("../../templates/signal/listener.jinja")),
];

/// Returns the word of object `index`, as the generator and the tiny tokenizers spell it.
#[must_use]
pub fn object_word(index: usize) -> String {
    format!("o{index}")
}

/// Returns the word of symbol `index`.
#[must_use]
pub fn symbol_word(index: usize) -> String {
    format!("s{index}")
}

/// Returns the vocabulary of a game: object words, then symbol words.
#[must_use]
pub fn vocabulary(objects: usize, symbols: usize) -> Vec<String> {
    (0..objects)
        .map(object_word)
        .chain((0..symbols).map(symbol_word))
        .collect()
}

pub(super) struct Signal {
    speaker: RoleName,
    listener: RoleName,
    lambda: f64,
    /// The words that a message may have; any word, if empty.
    symbols: Arc<[String]>,
    message_tokens: u32,
    answer_tokens: u32,
    prompts: Prompts,
}

impl Signal {
    pub(super) fn new(config: &WorkflowConfig) -> Result<Self, Vec<Problem>> {
        let mut params = Params::new(&config.params, "workflow.params");
        let sample = context! { prompt => object_word(0), message => symbol_word(0) };
        let signal = Self {
            speaker: role("speaker")?,
            listener: role("listener")?,
            lambda: params.number("lambda", 0.0, 0.0..=1e6),
            symbols: (0..params.integer("symbols", 16, 0..=100_000) as usize)
                .map(symbol_word)
                .collect(),
            message_tokens: params.integer("max_new_tokens", 1, 1..=4096) as u32,
            answer_tokens: params.integer("answer_tokens", 1, 1..=4096) as u32,
            prompts: Prompts::new(&TEMPLATES, &mut params, &sample),
        };
        let mut problems = params.finish();
        problems.extend(check_roles(config, &signal.roles()));
        if problems.is_empty() { Ok(signal) } else { Err(problems) }
    }

    /// Returns the listener's view of the message: without words that are no symbols, so that the
    /// speaker cannot spell out the object.
    fn received(&self, message: &str) -> String {
        let legal = |word: &&str| self.symbols.is_empty() || self.symbols.iter().any(|symbol| symbol == word);
        message.split_whitespace().filter(legal).collect::<Vec<_>>().join(" ")
    }

    /// Returns the speaker's prompt.
    fn shown(&self, task: &Task) -> Vec<Message> {
        let prompt = task.prompt.text();
        with_preamble(task, self.prompts.text("speaker", task, context! { prompt }))
    }

    fn outcome(&self, task: &Task, spoken: &Event, named: &Event) -> Outcome {
        // A message needs a symbol: guessing right without one earns nothing, because silence would
        // be an extra symbol.
        let legal = !self.received(&spoken.text).is_empty();
        let success = legal && task.label.as_str().is_some_and(|word| named.text.trim() == word.trim());
        let success = f32::from(u8::from(success));
        let length = spoken.tokens as f32;
        Outcome {
            rewards: vec![
                reward(&self.speaker, 0, &[("success", success), ("length", length)]),
                reward(&self.listener, 0, &[("success", success)]),
            ],
            metrics: vec![
                ("success", f64::from(success)),
                ("message_tokens", f64::from(spoken.tokens)),
                ("message_legal", f64::from(u8::from(legal))),
            ],
        }
    }
}

impl Workflow for Signal {
    fn kind(&self) -> &'static str {
        "signal"
    }

    fn roles(&self) -> Vec<RoleSpec> {
        let spec = |name: &RoleName, parts| RoleSpec {
            name: name.clone(),
            parts,
        };
        vec![
            spec(&self.speaker, vec![("success", 1.0), ("length", -self.lambda)]),
            spec(&self.listener, vec![("success", 1.0)]),
        ]
    }

    fn check_task(&self, task: &Task) -> Result<(), String> {
        self.prompts.check(task)?;
        let shown = self.shown(task);
        if shown
            .iter()
            .all(|message| message.content.trim().is_empty() && message.images.is_empty())
        {
            return Err("the prompt is empty; it is the object that the speaker sees, a text such as \"o3\"".into());
        }
        match task.label.as_str() {
            Some(word) if !word.trim().is_empty() => Ok(()),
            Some(_) => Err("the label is empty; it is the word that the listener shall say".into()),
            None => Err(format!(
                "the label is {}; it is the object's word, a text such as \"o3\"",
                excerpt(&task.label)
            )),
        }
    }

    fn needs(&self, task: &Task) -> Vec<Need> {
        let need = |role: &RoleName, field, kind, limit| Need {
            role: role.clone(),
            field,
            kind,
            limit,
        };
        let label = task.label.as_str().unwrap_or_default().trim().to_owned();
        let message = (self.message_tokens, "workflow.params.max_new_tokens");
        let answer = (self.answer_tokens, "workflow.params.answer_tokens");
        let symbols = NeedKind::SayOneOf(self.symbols.clone(), "workflow.params.symbols");
        let mut needs = vec![
            need(
                &self.speaker,
                "prompt",
                NeedKind::Read(task.prompt.text().to_owned()),
                None,
            ),
            need(&self.listener, "label", NeedKind::Say(label), Some(answer)),
        ];
        if !self.symbols.is_empty() {
            needs.push(need(&self.speaker, "message", symbols, Some(message)));
        }
        needs
    }

    fn whole_turn(&self, role: &RoleName) -> Option<u32> {
        Some(if *role == self.speaker {
            self.message_tokens
        } else {
            self.answer_tokens
        })
    }

    fn shares_pictures(&self) -> bool {
        true
    }

    fn step(&self, task: &Task, _seed: u64, events: &[Event]) -> Step {
        let events = Transcript(events);
        let Some(spoken) = events.first(&self.speaker, 0) else {
            let mut ask = ask(&self.speaker, 0, self.shown(task));
            ask.max_new_tokens = Some(self.message_tokens);
            return Step::Ask(vec![ask]);
        };
        let Some(named) = events.first(&self.listener, 0) else {
            let text = self
                .prompts
                .text("listener", task, context! { message => self.received(&spoken.text) });
            let mut ask = ask(&self.listener, 0, vec![Message::user(text)]);
            ask.max_new_tokens = Some(self.answer_tokens);
            return Step::Ask(vec![ask]);
        };
        Step::Done(self.outcome(task, spoken, named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{config, event, problems, task};
    use proptest::prelude::*;

    fn signal(params: &str) -> Signal {
        Signal::new(&config("signal", &["speaker", "listener"], params)).unwrap()
    }

    fn only_ask(step: Step) -> crate::workflow::Ask {
        match step {
            Step::Ask(mut asks) if asks.len() == 1 => asks.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Through the workflow's outer layers, as a run builds it.
    #[test]
    fn shaped_game_bounds_its_turns() {
        let mut config = config("signal", &["speaker", "listener"], "max_new_tokens = 2");
        let shaping = configs::ShapingConfig {
            length_penalty: Some(0.5),
            ..Default::default()
        };
        let speaker = role("speaker").unwrap();
        config.shaping.insert(speaker.clone(), shaping);
        let game = crate::workflows::build(&config, &Default::default(), &Default::default()).unwrap();
        assert_eq!(game.whole_turn(&speaker), Some(2));
        assert_eq!(game.whole_turn(&role("listener").unwrap()), Some(1));
    }

    #[test]
    fn the_listener_sees_the_message_and_never_the_object() {
        let (game, task) = (signal(""), task("o3", "o3".into()));
        let speaker = only_ask(game.step(&task, 0, &[]));
        assert_eq!(
            (speaker.role.as_str(), speaker.messages[0].content.as_str()),
            ("speaker", "o3")
        );
        assert_eq!(speaker.max_new_tokens, Some(1));
        for (said, received) in [("s5", "s5"), ("o3", ""), ("s99", ""), ("o3 s1", "s1"), ("", "")] {
            let listener = only_ask(game.step(&task, 0, &[event("speaker", 0, said)]));
            assert_eq!(
                (listener.role.as_str(), listener.messages[0].content.as_str()),
                ("listener", received)
            );
        }
        let free = signal("symbols = 0");
        assert_eq!(
            only_ask(free.step(&task, 0, &[event("speaker", 0, "o3")])).messages[0].content,
            "o3"
        );
    }

    #[test]
    fn silence_is_not_a_symbol_more() {
        let (game, task) = (signal(""), task("o3", "o3".into()));
        for (said, success) in [("s5", 1.0), ("o3", 0.0), ("s99", 0.0), ("", 0.0)] {
            let events = [event("speaker", 0, said), event("listener", 0, "o3")];
            let Step::Done(outcome) = game.step(&task, 0, &events) else {
                panic!("{said:?} does not end the game")
            };
            assert!(outcome.metrics.contains(&("success", success)), "{said:?}: {outcome:?}");
        }
    }

    #[test]
    fn both_earn_success_and_the_speaker_pays_for_length() {
        let (game, task) = (signal("lambda = 0.25"), task("o3", "o3".into()));
        for (named, success) in [("o3", 1.0), (" o3", 1.0), ("o4", 0.0), ("", 0.0), ("o3 o4", 0.0)] {
            let events = [event("speaker", 0, "s1"), event("listener", 0, named)];
            let Step::Done(outcome) = game.step(&task, 0, &events) else {
                panic!()
            };
            assert_eq!(outcome.metrics[0], ("success", success));
            let parts: Vec<Vec<(&str, f32)>> = outcome
                .rewards
                .iter()
                .map(|r| r.parts.iter().map(|p| (p.name, p.value)).collect())
                .collect();
            let expected = success as f32;
            assert_eq!(
                parts,
                [
                    vec![("success", expected), ("length", 7.0)],
                    vec![("success", expected)]
                ]
            );
        }
        assert_eq!(game.roles()[0].parts, [("success", 1.0), ("length", -0.25)]);
    }

    #[test]
    fn a_label_that_is_no_word_is_refused() {
        let game = signal("");
        assert!(game.check_task(&task("o3", "o3".into())).is_ok());
        for bad in [serde_json::json!(3), serde_json::json!(" "), serde_json::Value::Null] {
            assert!(game.check_task(&task("o3", bad)).unwrap_err().contains("label"));
        }
        let empty = game.check_task(&task(" ", "o3".into())).unwrap_err();
        assert!(empty.starts_with("the prompt is empty"), "{empty}");
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        let params =
            "lambda = -1\nspeed = 3\nsymbols = \"x\"\ntemplates = { narrator = \"x\", speaker = \"/nowhere\" }";
        let mut config = config("signal", &["speaker", "judge"], params);
        let weights = std::collections::BTreeMap::from([("gain".to_owned(), 1.0), ("length".to_owned(), -0.1)]);
        config.reward.insert(RoleName::new("speaker").unwrap(), weights);
        let found = problems(Signal::new(&config).map(|_| ()));
        let expected = [
            "workflow.params.lambda",
            "workflow.params.speed",
            "workflow.params.symbols",
            "workflow.params.templates.narrator",
            "workflow.params.templates.speaker",
            "workflow.reward.speaker.gain",
            "workflow.roles.judge",
            "workflow.roles.listener",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_template_file_replaces_the_built_in_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("speaker.jinja");
        std::fs::write(&path, "show {{ prompt }}\n").unwrap();
        let params = format!("templates = {{ speaker = {:?} }}", path.to_str().unwrap());
        let ask = only_ask(signal(&params).step(&task("o3", "o3".into()), 0, &[]));
        assert_eq!(ask.messages[0].content, "show o3");
        std::fs::write(&path, "show {{ promt }}").unwrap();
        let found = problems(Signal::new(&config("signal", &["speaker", "listener"], &params)).map(|_| ()));
        assert_eq!(found, ["workflow.params.templates.speaker"]);
    }

    proptest! {
        #[test]
        fn any_list_of_events_is_answered(events in crate::workflow::testing::any_events()) {
            crate::workflow::testing::check_total(&signal(""), &task("o3", "o3".into()), &events)?;
        }
    }
}
