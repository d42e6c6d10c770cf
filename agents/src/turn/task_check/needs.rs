//! Checks the words of a game against what its agents can read and say.

use std::collections::HashSet;

use broker::RoleName;
use broker::codec::excerpt;
use broker::protocol::task::Task;
use configs::{AgentConfig, AgentName, RunConfig, TokenizerConfig};
use rollout::workflow::{Need, NeedKind, Workflow, last_number};

use super::random_agent;

/// Checks what the workflow needs of the agents with generated tokenizers. Unknown words all look
/// the same to an agent, and it cannot say them. Agents with a byte tokenizer know every word. A
/// game of words between them only tests that a run works, so the lengths of its words are not
/// checked.
pub(super) fn check(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    for need in workflow.needs(task) {
        if let Some((name, agent, model)) = random_agent(config, workflow, &need.role) {
            let limit = Limit::of(config, &name, agent, &need);
            NeedCheck {
                tokenizer: &model.tokenizer,
                need: &need,
                limit,
            }
            .check()?;
        }
    }
    Ok(())
}

/// The most tokens of a turn, and the key that sets it.
struct Limit {
    tokens: u32,
    key: String,
}

impl Limit {
    fn of(config: &RunConfig, name: &AgentName, agent: &AgentConfig, need: &Need) -> Self {
        let role: &RoleName = &need.role;
        let of_agent = Self {
            tokens: agent.sampling.max_new_tokens,
            key: format!("agents.{name}.sampling.max_new_tokens"),
        };
        let of_role = config.workflow.sampling.get(role).and_then(|role| role.max_new_tokens);
        let of_role = of_role.map(|tokens| Self {
            tokens,
            key: format!("workflow.sampling.{role}.max_new_tokens"),
        });
        let of_game = need.limit.map(|(tokens, key)| Self {
            tokens,
            key: key.to_owned(),
        });
        let limits = [of_role, of_game].into_iter().flatten();
        limits.fold(
            of_agent,
            |least, other| if other.tokens < least.tokens { other } else { least },
        )
    }
}

/// One need of a workflow, with the vocabulary and the limit of the agent that must meet it.
struct NeedCheck<'a> {
    tokenizer: &'a TokenizerConfig,
    need: &'a Need,
    limit: Limit,
}

impl NeedCheck<'_> {
    fn check(&self) -> Result<(), String> {
        match &self.need.kind {
            NeedKind::Read(text) => self.knows(text),
            NeedKind::Say(text) => self.says(text),
            NeedKind::SayNumber(number) => self.says_number(*number),
            NeedKind::SayOneOf(words, key) => self.says_one_of(words, key),
        }
    }

    /// Returns the first word of a text that is not in the vocabulary. Reads the vocabulary at most
    /// once, because generators make thousands of tasks.
    fn unknown_word<'t>(&self, text: &'t str) -> Option<&'t str> {
        let TokenizerConfig::Words(vocabulary) = self.tokenizer else {
            return None;
        };
        let mut unknown: HashSet<&str> = text.split_whitespace().collect();
        for word in vocabulary {
            if unknown.is_empty() {
                return None;
            }
            unknown.remove(word.as_str());
        }
        text.split_whitespace().find(|word| unknown.contains(word))
    }

    fn knows(&self, text: &str) -> Result<(), String> {
        let Need { role, field, .. } = self.need;
        match self.unknown_word(text) {
            None => Ok(()),
            Some(word) => Err(format!(
                "the {field} has the word {}, which is not in the vocabulary of the {role}'s agent: use a word of its \
                 model.random.tokenizer, or add it there and begin a new run",
                excerpt(&word.into())
            )),
        }
    }

    fn says(&self, text: &str) -> Result<(), String> {
        self.knows(text)?;
        let TokenizerConfig::Words(_) = self.tokenizer else {
            return Ok(());
        };
        let Need { role, field, .. } = self.need;
        let shown = excerpt(&text.into());
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.join(" ") != text {
            return Err(format!(
                "the {field} is {shown}, and the {role}'s agent writes one space between words: write one space there"
            ));
        }
        self.has_room(
            words.len(),
            &format!("the {field} is {shown}, of {} words", words.len()),
        )
    }

    fn says_number(&self, number: u64) -> Result<(), String> {
        let Need { role, field, .. } = self.need;
        let digits = number.to_string();
        match self.tokenizer {
            TokenizerConfig::Bytes => {
                let bytes = digits.len();
                self.has_room(bytes, &format!("the {field} is {number}, of {bytes} bytes"))
            }
            TokenizerConfig::Words(words) if words.iter().any(|word| is_number(word, number, &digits)) => Ok(()),
            TokenizerConfig::Words(_) => Err(format!(
                "the {field} is {number}, and no word of the {role}'s agent is that number: use a number of its \
                 model.random.tokenizer, or add it there and begin a new run"
            )),
        }
    }

    fn says_one_of(&self, words: &[String], key: &str) -> Result<(), String> {
        let role = &self.need.role;
        let (Some(first), Some(last)) = (words.first(), words.last()) else {
            return Ok(());
        };
        let TokenizerConfig::Words(vocabulary) = self.tokenizer else {
            return Ok(());
        };
        let counted: HashSet<&str> = words.iter().map(String::as_str).collect();
        if vocabulary.iter().any(|word| counted.contains(word.as_str())) {
            return Ok(());
        }
        Err(format!(
            "no word of the {role}'s agent is among {first} to {last}, and other words do not count: add one of them \
             to its model.random.tokenizer, or change {key}"
        ))
    }

    fn has_room(&self, tokens: usize, text: &str) -> Result<(), String> {
        let (Limit { tokens: most, key }, role) = (&self.limit, &self.need.role);
        if tokens <= *most as usize {
            return Ok(());
        }
        Err(format!(
            "{text}, and the limit of the {role}'s turn is {most}: shorten it, or raise {key}"
        ))
    }
}

/// Returns true if a number is the last one of a word. Only words with its digits are parsed, and
/// few words have them.
fn is_number(word: &str, number: u64, digits: &str) -> bool {
    word == digits || (word.contains(digits) && last_number(word) == Some(number))
}
