//! Weights with logits that are not finite. Nothing can be sampled from them and a retry does not
//! help, so the agent ends and reports what to try.
//!
//! The agent ends before it answers, so that all requests come again after a restart. Reported to
//! coordinators, the failures would use up every conversation's tries. Evaluations end too, because
//! their figures would count conversations that were not played. An evaluation also ends when its
//! first requests, even a single conversation, cannot be sampled at all.

use std::collections::HashSet;

use broker::AgentName;
use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::FailureCode;
use configs::ModelConfig;
use tokio::sync::watch;

use crate::base::fault::Usage;
use crate::engine::{EngineFailure, GenerationOutput};

/// This number of different requests in succession that cannot be sampled proves that the weights
/// are at fault. A request that comes again may be at fault itself: its conversation is given up
/// when its tries are spent.
const REQUESTS: usize = 3;

/// Texts for [`explain`]: what the logits were not finite for.
pub(crate) const IN_SUCCESSION: &str = "for three requests in succession";
pub(crate) const AT_ALL: &str = "for anything that was asked";

/// Counts the requests that could not be sampled from one version of the weights since the last
/// success.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    version: WeightVersion,
    requests: HashSet<RequestId>,
}

impl Broken {
    /// The version that some request could not be sampled from; `None` if a later request could.
    pub(crate) fn failing(&self) -> Option<WeightVersion> {
        (!self.requests.is_empty()).then_some(self.version)
    }

    /// Records answers that an engine gave together. Returns the version if it is given up. If any
    /// of them was sampled from the version, its failures are forgotten.
    pub(crate) fn record<'a>(
        &mut self,
        answers: impl Iterator<Item = (RequestId, &'a Result<GenerationOutput, EngineFailure>)> + Clone,
    ) -> Option<WeightVersion> {
        for (request, failure) in answers
            .clone()
            .filter_map(|(id, result)| Some((id, result.as_ref().err()?)))
        {
            let FailureCode::NotFinite { version } = failure.cause.code else {
                continue;
            };
            if self.version != version {
                self.version = version;
                self.requests.clear();
            }
            self.requests.insert(request);
        }
        if self.requests.is_empty() {
            return None;
        }
        let mut spans = answers
            .filter_map(|(_, result)| result.as_ref().ok())
            .flat_map(|made| &made.spans);
        if spans.any(|span| span.version == self.version) {
            self.requests.clear();
        }
        (self.requests.len() >= REQUESTS).then_some(self.version)
    }
}

/// Builds the error text; `asked` says what the logits were not finite for.
pub(crate) fn explain(agent: &AgentName, version: WeightVersion, asked: &str) -> String {
    format!(
        "agent {agent}: the logits of weights {version} were not finite {asked}, so nothing can be sampled from \
         them. Its sampling.temperature, or a role's, may be too near 0 (0.01 or more will do), its model's file may be damaged (fetch \
         it again), or training has diverged: {}",
        advice(agent)
    )
}

/// Advice after a warm start that diverged.
pub(super) fn lower_warm_start(agent: &AgentName) -> String {
    format!(
        "begin a new run with a lower agents.{agent}.train.warm_start.lr, or with a train.optimizer.clip_norm where it is 0"
    )
}

/// Advice where weights without any training compute nothing.
pub(super) fn damaged(agent: &AgentName, model: &ModelConfig) -> String {
    match model {
        ModelConfig::Random(_) => format!("agents.{agent}.model.random.matrix_std or embedding_std may be too large"),
        _ => format!("the file of agents.{agent}.model.path may be damaged: fetch it again, or use other weights"),
    }
}

/// Advice after training that diverged.
pub(super) fn advice(agent: &AgentName) -> String {
    format!(
        "`dyad export {agent} --step N --out FOLDER` exports an earlier checkpoint; start a new run from it with \
         agents.{agent}.model.path = \"FOLDER\" (an adapter: lora.path) and a lower train.optimizer.lr"
    )
}

/// Waits until the router reports why it gave up; waits for ever if it never does.
pub(super) async fn given_up(mut router: watch::Receiver<Option<String>>) -> anyhow::Error {
    let why = router.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    match why {
        // Restarted the agent would end again: no supervisor may restart it.
        Some(why) => Usage::new(why).into(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::Failure;
    use broker::protocol::turn::{Finish, LogProbs, VersionSpan};

    use super::*;
    use crate::testing::version;

    fn not_finite(step: u64) -> Result<GenerationOutput, EngineFailure> {
        let cause = Failure::not_finite(version(step), "the logits are not finite");
        Err(EngineFailure { cause, retry: true })
    }

    fn sampled(step: u64) -> Result<GenerationOutput, EngineFailure> {
        let span = VersionSpan {
            version: version(step),
            start: 0,
            end: 1,
        };
        Ok(GenerationOutput {
            output_ids: vec![1],
            logprobs: vec![-1.0],
            logprobs_of: LogProbs::Sampled,
            top: Vec::new(),
            spans: vec![span],
            oldest_kv: version(step),
            reused: 0,
            finish: Finish::Stop,
            times: None,
        })
    }

    /// Returns the version that is given up, and the index of the answer that decided it.
    fn given_up_at(answers: &[(u8, Result<GenerationOutput, EngineFailure>)]) -> Option<(usize, WeightVersion)> {
        let mut broken = Broken::default();
        let mut answers = answers.iter().enumerate();
        answers.find_map(|(place, (id, result))| {
            let one = std::iter::once((RequestId([*id; 16]), result));
            Some((place, broken.record(one)?))
        })
    }

    /// Otherwise one task that cannot be sampled would end its agent, although other tasks in the
    /// same batch can be.
    #[test]
    fn a_sample_in_the_same_answers_clears_the_weights() {
        let failing = |id| (RequestId([id; 16]), not_finite(4));
        let mut together: Vec<_> = (0..8).map(failing).collect();
        let record =
            |answers: &[(RequestId, _)]| Broken::default().record(answers.iter().map(|(id, result)| (*id, result)));
        assert_eq!(record(&together), Some(version(4)));
        together.insert(0, (RequestId([9; 16]), sampled(4)));
        assert_eq!(record(&together), None);
        together[0].1 = sampled(3);
        assert_eq!(
            record(&together),
            Some(version(4)),
            "other weights prove nothing about these"
        );
    }

    #[test]
    fn three_different_requests_in_succession_are_the_weights_fault() {
        let failing: Vec<_> = (0..9).map(|id| (id, not_finite(4))).collect();
        assert_eq!(given_up_at(&failing), Some((2, version(4))));
        let again: Vec<_> = (0..9).map(|n| (n % 2, not_finite(4))).collect();
        assert_eq!(given_up_at(&again), None, "two requests, asked again and again");
    }

    #[test]
    fn a_later_sample_clears_the_same_weights() {
        let with = |middle| {
            let around = [0, 1].map(|id| (id, not_finite(4)));
            let after = (2..5).map(|id| (id, not_finite(4)));
            let answers: Vec<_> = around.into_iter().chain([middle]).chain(after).collect();
            given_up_at(&answers).map(|(place, _)| place)
        };
        assert_eq!(with((9, sampled(4))), Some(5), "counted from zero again");
        assert_eq!(
            with((9, sampled(3))),
            Some(3),
            "other weights prove nothing about these"
        );
        let context = EngineFailure {
            cause: Failure::context("70 tokens"),
            retry: false,
        };
        assert_eq!(with((9, Err(context))), Some(3), "nor do other failures");
        let later = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)].map(|(id, step)| (id, not_finite(step)));
        assert_eq!(
            given_up_at(&later),
            Some((4, version(2))),
            "each version counts for itself"
        );
    }

    #[test]
    fn the_error_names_agent_weights_and_remedies() {
        let text = explain(&AgentName::new("a").unwrap(), version(4), IN_SUCCESSION);
        for part in [
            "agent a",
            "weights 1.4 were not finite for three requests",
            "sampling.temperature",
            "damaged",
            "train.optimizer.lr",
            "dyad export a --step N",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[tokio::test]
    async fn given_up_waits_for_the_router_s_reason() {
        let why = watch::Sender::new(None);
        let waiting = tokio::spawn(given_up(why.subscribe()));
        why.send_replace(Some("weights 1.4".to_owned()));
        assert_eq!(waiting.await.unwrap().to_string(), "weights 1.4");
    }
}
