//! Graders that are models: their prompts, and the rewards in their answers. This crate never calls
//! them.

pub(crate) mod read;
pub(crate) mod words;

use std::collections::BTreeSet;

use broker::protocol::task::Task;
use configs::JudgeConfig;
use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::Value;

const TEMPLATE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/judge/judge.jinja"));
/// The variables that a template may use.
const VARIABLES: [&str; 11] = [
    "prompt",
    "conversation",
    "answer",
    "role",
    "label",
    "reference",
    "rubric",
    "metadata",
    "parts",
    "low",
    "high",
];
/// An answer with the marks by which templates take answers apart.
const LIKELY: &str = "<think>1 + 1 = 2</think>\nIt is 2.\n<answer>2</answer>\n\\boxed{2}\n#### 2";
/// Most steps of a template, so that an endless one is stopped.
const FUEL: u64 = 1_000_000;

/// A model that grades answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Judge {
    pub config: JudgeConfig,
    template: String,
}

impl Judge {
    /// Reads the template, if the configuration names one. A relative path starts at the working
    /// directory.
    ///
    /// # Errors
    /// Says what is wrong with the template.
    pub fn new(config: &JudgeConfig) -> Result<Self, String> {
        let template = match &config.template {
            None => TEMPLATE.to_owned(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read the judge's template {}: {error}", path.display()))?,
        };
        let judge = Self {
            config: config.clone(),
            template,
        };
        let environment = judge
            .environment()
            .map_err(|error| format!("the judge's template: {error:#}"))?;
        // Functions of the template language, for example `range`.
        let globals = environment.globals().map(|(name, _)| name);
        let known: BTreeSet<&str> = VARIABLES.into_iter().chain(globals).collect();
        let named = environment
            .get_template("judge")
            .map(|template| template.undeclared_variables(false))
            .unwrap_or_default();
        match named.iter().find(|name| !known.contains(name.as_str())) {
            Some(name) => Err(format!(
                "the judge's template uses the unknown name {name:?}; use one of {}",
                VARIABLES.join(", ")
            )),
            None => Ok(judge),
        }
    }

    fn environment(&self) -> Result<Environment<'_>, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.add_template("judge", &self.template)?;
        Ok(environment)
    }

    /// Returns the prompt for an answer.
    ///
    /// # Errors
    /// Names what the template needs and the task does not have.
    pub fn prompt(&self, role: &str, text: &str, task: &Task) -> Result<String, String> {
        let failed = |error: minijinja::Error| format!("the judge's template does not render: {error:#}");
        let environment = self.environment().map_err(failed)?;
        let template = environment.get_template("judge").map_err(failed)?;
        let [low, high] = self.config.scale;
        let parts: Vec<&String> = self.config.parts.keys().collect();
        let variables = context! {
            prompt => task.prompt.text(),
            conversation => task.prompt.conversation(),
            answer => text,
            role,
            label => task.label,
            reference => reference(task),
            rubric => task.metadata.get("rubric"),
            metadata => task.metadata,
            parts,
            low,
            high,
        };
        template.render(variables).map_err(failed)
    }

    /// Checks that this task has everything that the template needs for an answer of `role`. A
    /// template may also need something of the answer. So the task fails only if no likely answer
    /// renders.
    pub fn check_task(&self, task: &Task, role: &str) -> Result<(), String> {
        let mut fault = None;
        for text in ["?".to_owned(), reference(task), LIKELY.to_owned()] {
            match self.prompt(role, &text, task) {
                Ok(_) => return Ok(()),
                Err(reason) => fault = fault.or(Some(reason)),
            }
        }
        fault.map_or(Ok(()), Err)
    }

    /// Returns the message after a judge's answer without a usable number. Models read it.
    #[must_use]
    pub fn again(&self, reason: &str) -> String {
        let [low, high] = self.config.scale;
        let parts: Vec<String> = self
            .config
            .parts
            .keys()
            .map(|part| format!("\"{part}\": {high}"))
            .collect();
        format!(
            "That cannot be used: {reason}. Answer with one JSON object alone, with numbers from {low} to {high}, such as {{{}}}.",
            parts.join(", ")
        )
    }

    /// Returns the reward in a judge's answer: the sum of weight x part, with each part scaled to 0
    /// to 1.
    ///
    /// # Errors
    /// Says why there is no reward. The judge reads this text in [`Self::again`].
    pub fn reward(&self, said: &str) -> Result<f64, String> {
        let names: Vec<&str> = self.config.parts.keys().map(String::as_str).collect();
        let numbers = read::numbers(said, &names)?;
        let [low, high] = self.config.scale;
        let mut reward = 0.0;
        for ((part, weight), number) in self.config.parts.iter().zip(numbers) {
            if !(low..=high).contains(&number) {
                return Err(format!(
                    "it says {number} for {part:?}, which is not from {low} to {high}"
                ));
            }
            reward += weight * (number - low) / (high - low);
        }
        Ok(reward)
    }
}

/// Returns the label as text, empty if there is none.
fn reference(task: &Task) -> String {
    match &task.label {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::testing::{several, task};

    fn config(more: serde_json::Value) -> JudgeConfig {
        let mut config = serde_json::json!({"url": "http://h/v1", "model": "m"});
        let given = more.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(given);
        serde_json::from_value(config).unwrap()
    }

    fn task_with_rubric() -> Task {
        let mut task = task("2+3=", 5.into());
        let rubric = serde_json::json!([{"criterion": "is short", "points": 2}, "is kind"]);
        task.metadata.insert("rubric".into(), rubric);
        task.metadata.insert("level".into(), "easy".into());
        task
    }

    fn prompt(judge: &Judge, task: &Task) -> Result<String, String> {
        judge.prompt("solver", "it is 5", task)
    }

    #[test]
    fn the_prompt_has_task_answer_reference_and_rubric() {
        let judge = Judge::new(&config(serde_json::json!({"scale": [0, 10]}))).unwrap();
        let prompt = prompt(&judge, &task_with_rubric()).unwrap();
        for part in [
            "2+3=",
            "REFERENCE ANSWER:\n5\n",
            "- is short (2 points)\n- is kind\n",
            "SOLVER:\nit is 5\n",
            "{\"score\": 10.0}",
        ] {
            assert!(prompt.contains(part), "{part:?} is not in {prompt}");
        }
    }

    #[test]
    fn the_prompt_has_all_messages_of_the_task() {
        let judge = Judge::new(&config(serde_json::json!({}))).unwrap();
        let mut task = task_with_rubric();
        task.prompt = several();
        let prompt = prompt(&judge, &task).unwrap();
        let all = "TASK:\nuser: My child is three and has a fever.\n\nassistant: Since when?\n\nuser: Two days. What helps?\n";
        assert!(prompt.contains(all), "{prompt}");
    }

    #[test]
    fn own_templates_see_metadata_and_unknown_names_fail() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("judge.jinja");
        let with = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Judge::new(&config(serde_json::json!({"template": file})))
        };
        let judge = with("{{ metadata.level }}: {{ answer }}").unwrap();
        assert_eq!(prompt(&judge, &task_with_rubric()), Ok("easy: it is 5".into()));
        let lacking = with("{{ metadata.hint }}").unwrap();
        assert!(
            prompt(&lacking, &task_with_rubric())
                .unwrap_err()
                .contains("does not render")
        );
        assert!(with("{{ solution }}").unwrap_err().contains("\"solution\""));
        assert!(with("{% if %}").unwrap_err().contains("template"));
        assert!(
            with("{% for i in range(100000000) %}{% endfor %}")
                .and_then(|judge| prompt(&judge, &task_with_rubric()))
                .is_err()
        );
    }

    #[test]
    fn parts_are_weighed_within_their_scale() {
        let judge = Judge::new(&config(
            serde_json::json!({"scale": [1, 5], "parts": {"a": 1.0, "b": 0.5}}),
        ))
        .unwrap();
        assert_eq!(judge.reward(r#"{"a": 5, "b": 3}"#), Ok(1.25));
        assert!(judge.reward(r#"{"a": 6, "b": 3}"#).unwrap_err().contains("from 1 to 5"));
        assert!(judge.reward(r#"{"a": 5}"#).is_err());
    }
}
