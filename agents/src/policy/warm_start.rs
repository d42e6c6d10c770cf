//! Warm starts: cross-entropy batches of known answers, in the prompts of the workflow's templates.

use std::sync::Arc;

use anyhow::Context;
use broker::AgentName;
use broker::ids::Digest;
use broker::protocol::train::TrainBatch;
use broker::protocol::turn::TurnPrompt;
use configs::{History, RunConfig, WarmStartConfig};
use rollout::batch::cross_entropy;
use rollout::text::TextCodec;
use rollout::workflows::warm::{Example, WarmSource};

use super::Prepared;

/// An endless source of cross-entropy batches.
pub struct Batches {
    source: WarmSource,
    text: Arc<TextCodec>,
    history: History,
    size: usize,
}

impl Batches {
    pub fn open(
        config: &WarmStartConfig,
        run: &RunConfig,
        agent: &AgentName,
        prepared: &Prepared,
    ) -> anyhow::Result<Self> {
        let source = WarmSource::open(
            config,
            &run.workflow,
            &run.graders,
            &run.tasks,
            seed(run.run.seed, agent),
        )?;
        let (text, history) = (prepared.text.clone(), prepared.settings.history);
        Ok(Self {
            source,
            text,
            history,
            size: config.batch,
        })
    }

    pub fn next_batch(&mut self) -> anyhow::Result<TrainBatch> {
        let mut pairs = Vec::with_capacity(self.size);
        for _ in 0..self.size {
            let example = self.source.next().context("the warm start's source is empty")?;
            pairs.push(self.encode(example)?);
        }
        Ok(cross_entropy(&pairs))
    }

    fn encode(&self, example: Example) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
        let prompt = TurnPrompt {
            held: Vec::new(),
            sampled: 0,
            messages: example.messages,
        };
        let asked = self.text.render(&prompt, self.history)?;
        let answer = self.text.completion(&asked, &example.answer)?;
        Ok((asked, answer))
    }
}

fn seed(run_seed: u64, agent: &AgentName) -> u64 {
    Digest::of(format!("warm/{run_seed}/{agent}").as_bytes()).number()
}
