//! Models, adapters, tokenizers and chat templates of this machine that cannot be read or do not
//! fit together.

use std::path::Path;

use anyhow::Context;
use configs::{AgentConfig, Problem, RunConfig};
use rollout::hub_cache::Cache;
use rollout::text::{TextCodec, TextError, check_template};
use trainer::model::{Checked, ModelShape, check_folder, peft};

use crate::policy::check_tokens;
use crate::run_folder::models::{self, FoundModel, Reads};

/// Returns a problem for each model folder with a missing or damaged file, and for each adapter,
/// tokenizer or chat template that does not fit. Reads no weights, and leaves out models that are
/// not on this machine.
pub(in crate::cli) fn damaged(config: &RunConfig, cache: &Cache) -> Vec<Problem> {
    let found = models::found(config, cache).into_iter();
    let folders = found.filter_map(|model| of_folder(&model, config.agents.get(&model.agent)?));
    let templates = config.agents.iter().filter_map(|(name, settings)| {
        // A missing file is reported with the agent's files.
        let own = settings.chat_template.as_ref().filter(|path| path.is_file())?;
        let error = check_template(own).err()?;
        let message = format!("{}: {error}", own.display());
        Some((format!("agents.{name}.chat_template"), message))
    });
    let templates = templates.map(|(path, message)| Problem { path, message });
    folders.chain(templates).collect()
}

/// Returns the first problem of a model's folder for the agent of these settings.
fn of_folder(model: &FoundModel, settings: &AgentConfig) -> Option<Problem> {
    let folder = model.folder.as_ref().ok()?;
    let part = match model.reads {
        Reads::Whole => Checked::Whole,
        Reads::NoWeights => Checked::NoWeights,
    };
    let shape = match check_folder(folder, part) {
        Ok(shape) => shape,
        Err(error) => return Some(problem(model.key.clone(), &error.into())),
    };
    if let Err(error) = of_text(folder, settings, &shape) {
        return Some(problem(model.key.clone(), &error));
    }
    // A missing folder is reported with the agent's files.
    let adapter = settings.lora.as_ref()?.path.as_ref().filter(|path| path.is_dir())?;
    let error = peft::check(adapter, &shape).err()?;
    Some(problem(format!("agents.{}.lora.path", model.agent), &error.into()))
}

/// Checks the tokenizer and the chat template of a folder.
fn of_text(folder: &Path, settings: &AgentConfig, shape: &ModelShape) -> anyhow::Result<()> {
    match TextCodec::open_for(folder, settings) {
        // The agent's own template is checked separately.
        Err(TextError::Jinja { .. } | TextError::ChatTemplate { .. }) if settings.chat_template.is_some() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("reading {}", folder.display())),
        Ok(text) => check_tokens(folder, shape, &text),
    }
}

/// Returns a problem. Its message is the error with its causes.
fn problem(path: String, error: &anyhow::Error) -> Problem {
    Problem {
        path,
        message: format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use configs::{AgentName, LoraConfig, ModelConfig, TokenizerConfig};
    use rollout::text::make::write_tokenizer;
    use trainer::model::Weights;

    use super::*;
    use crate::policy;
    use crate::run_folder::tests::config_in;

    /// A configuration in which agent b has the model in `folder`.
    struct Host {
        base: tempfile::TempDir,
        folder: PathBuf,
        config: RunConfig,
        b: AgentName,
    }

    impl Host {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            let mut config = config_in(base.path());
            let (folder, b) = (base.path().join("model"), AgentName::new("b").unwrap());
            let ModelConfig::Random(random) = &config.agents[&b].model else {
                panic!("the test's model is random");
            };
            policy::make(random, &folder, &b, 1, &b).unwrap();
            config.agents.get_mut(&b).unwrap().model = ModelConfig::Path(folder.clone());
            let host = Self {
                base,
                folder,
                config,
                b,
            };
            assert_eq!(host.said(), "", "the folder is good");
            host
        }

        fn said(&self) -> String {
            let problems = damaged(&self.config, &Cache::at(self.base.path().join("cache")));
            problems
                .iter()
                .map(|one| format!("{}: {}\n", one.path, one.message))
                .collect()
        }

        fn replace(&self, file: &str, from: &str, to: &str) {
            let path = self.folder.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{text}");
            std::fs::write(path, text.replacen(from, to, 1)).unwrap();
        }

        fn settings(&mut self) -> &mut AgentConfig {
            self.config.agents.get_mut(&self.b).unwrap()
        }
    }

    #[test]
    fn parts_of_a_model_that_do_not_fit_are_named() {
        let host = Host::new();
        host.replace(
            "config.json",
            "\"intermediate_size\":",
            "\"intermediate_size\": 12, \"unused\":",
        );
        let said = host.said();
        assert!(said.starts_with("agents.b.model: ") && said.contains("12"), "{said}");

        let host = Host::new();
        let words = (0..400).map(|number| format!("w{number}")).collect();
        write_tokenizer(&host.folder, &TokenizerConfig::Words(words)).unwrap();
        std::fs::remove_file(host.folder.join("generation_config.json")).unwrap();
        let said = host.said();
        assert!(said.contains("resize the model's embeddings"), "{said}");

        let host = Host::new();
        std::fs::write(host.folder.join("chat_template.jinja"), "{% for %}").unwrap();
        let said = host.said();
        assert!(said.contains("the chat template is not valid Jinja"), "{said}");
    }

    #[test]
    fn own_template_that_does_not_compile_is_named_for_every_model() {
        let mut host = Host::new();
        let template = host.base.path().join("own.jinja");
        std::fs::write(&template, "{% if %}").unwrap();
        host.settings().chat_template = Some(template.clone());
        let a = host.config.agents.values_mut().next().unwrap();
        a.chat_template = Some(template.clone());
        let said = host.said();
        for name in ["a", "b"] {
            let fault = format!("agents.{name}.chat_template: {}: ", template.display());
            assert_eq!(said.matches(&fault).count(), 1, "{said}");
        }
        std::fs::write(
            &template,
            "{% for message in messages %}{{ message.content }}{% endfor %}",
        )
        .unwrap();
        assert_eq!(host.said(), "");
    }

    #[test]
    fn adapter_of_another_model_is_named() {
        let mut host = Host::new();
        let shape = ModelShape::load(&host.folder).unwrap();
        let wider = ModelShape {
            intermediate: shape.intermediate * 2,
            ..shape.clone()
        };
        let own = LoraConfig::default();
        for (shape, fits) in [(shape, true), (wider, false)] {
            let adapter = Weights::adapter(&shape, &policy::lora_shape(&own), 1).unwrap();
            let path = host.base.path().join("adapter");
            peft::save(&path, &adapter, "base").unwrap();
            host.settings().lora = Some(LoraConfig {
                path: Some(path),
                ..own.clone()
            });
            let said = host.said();
            assert_eq!(said.is_empty(), fits, "{said}");
            assert!(fits || said.starts_with("agents.b.lora.path: "), "{said}");
        }
    }
}
