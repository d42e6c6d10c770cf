//! Checks the words of a game against what its agents can read and say.

use broker::RoleName;
use broker::codec::excerpt;
use broker::protocol::task::Task;
use configs::{AgentConfig, AgentName, RunConfig, TokenizerConfig};
use rollout::workflow::{Need, NeedKind, Workflow, last_number};

use super::random_agent;

/// Checks what the workflow needs of the agents with generated tokenizers. Unknown words all look
/// the same to an agent, and it cannot say them. Agents that say bytes know every word; a game of
/// words between them is a trial of the machinery, so the lengths of its words are not checked.
pub(super) fn check(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    for need in workflow.needs(task) {
        if let Some((name, agent, model)) = random_agent(config, workflow, &need.role) {
            let limit = Limit::of(config, &name, agent, &need);
            Voice {
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

/// The words of an agent, and what it needs them for.
struct Voice<'a> {
    tokenizer: &'a TokenizerConfig,
    need: &'a Need,
    limit: Limit,
}

impl Voice<'_> {
    fn check(&self) -> Result<(), String> {
        match &self.need.kind {
            NeedKind::Read(text) => self.knows(text),
            NeedKind::Say(text) => self.says(text),
            NeedKind::SayNumber(number) => self.says_number(*number),
            NeedKind::SayOneOf(words, key) => self.says_one_of(words, key),
        }
    }

    fn knows_word(&self, word: &str) -> bool {
        match self.tokenizer {
            TokenizerConfig::Bytes => true,
            TokenizerConfig::Words(words) => words.iter().any(|known| known == word),
        }
    }

    fn knows(&self, text: &str) -> Result<(), String> {
        let Need { role, field, .. } = self.need;
        match text.split_whitespace().find(|word| !self.knows_word(word)) {
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
        match self.tokenizer {
            TokenizerConfig::Bytes => {
                let bytes = number.to_string().len();
                self.has_room(bytes, &format!("the {field} is {number}, of {bytes} bytes"))
            }
            TokenizerConfig::Words(words) if words.iter().any(|word| last_number(word) == Some(number)) => Ok(()),
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
        if words.iter().any(|word| self.knows_word(word)) {
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
            "{text}, and a turn of the {role} has {most} at most: shorten it, or raise {key}"
        ))
    }
}
