//! Weights whose logits are not finite. Nothing can be sampled of them, and asking again does not help: the agent ends and says what to try.
//!
//! It ends before it has answered, so that all of it comes again when it is started: told to coordinators, the failures would use up the
//! tries of every conversation. So do evaluations, whose figures would be of conversations that were not played; those end as well when
//! nothing at all could be sampled of what was asked first, be it one conversation.

use std::collections::HashSet;

use broker::AgentName;
use broker::ids::{RequestId, WeightVersion};
use broker::protocol::failure::FailureCode;
use configs::ModelConfig;
use tokio::sync::watch;

use crate::base::fault::Usage;
use crate::engine::{EngineFailure, Made};

/// So many different requests in succession, none of which could be sampled, are the weights' fault. One that comes again may be at fault
/// itself: its conversation is given up when its tries are spent.
const REQUESTS: usize = 3;

/// What the logits were not finite for.
pub(crate) const IN_SUCCESSION: &str = "for three requests in succession";
pub(crate) const AT_ALL: &str = "for anything that was asked";

/// Counts the requests that one version of the weights could not be sampled for since it last was.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    version: WeightVersion,
    requests: HashSet<RequestId>,
}

impl Broken {
    /// The version of which some request could not be sampled, if none was since.
    pub(crate) fn failing(&self) -> Option<WeightVersion> {
        (!self.requests.is_empty()).then_some(self.version)
    }

    /// Answers that an engine gave together. `Some`: this version is given up. Of weights that some of them were sampled of, the others
    /// say nothing.
    pub(crate) fn hear<'a>(
        &mut self,
        answers: impl Iterator<Item = (RequestId, &'a Result<Made, EngineFailure>)> + Clone,
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

/// What a person is told: `asked` is what the logits were not finite for.
pub(crate) fn told(agent: &AgentName, version: WeightVersion, asked: &str) -> String {
    format!(
        "agent {agent}: the logits of weights {version} were not finite {asked}, so nothing can be sampled of \
         them. Its sampling.temperature, or a role's, may be too near 0 (0.01 or more will do), its model's file may be damaged (fetch \
         it again), or training has diverged: {}",
        advice(agent)
    )
}

/// How to go on after a warm start has diverged.
pub(super) fn lower_warm_start(agent: &AgentName) -> String {
    format!(
        "begin a new run with a lower agents.{agent}.train.warm_start.lr, or with a train.optimizer.clip_norm where it is 0"
    )
}

/// What to look at where weights that nobody has trained compute nothing.
pub(super) fn damaged(agent: &AgentName, model: &ModelConfig) -> String {
    match model {
        ModelConfig::Random(_) => format!("agents.{agent}.model.random.matrix_std or embedding_std may be too large"),
        _ => format!("the file of agents.{agent}.model.path may be damaged: fetch it again, or take other weights"),
    }
}

/// How to go on after training has diverged.
pub(super) fn advice(agent: &AgentName) -> String {
    format!(
        "`dyad export {agent} --step N --out FOLDER` takes out an earlier checkpoint, from which a new run goes on with \
         agents.{agent}.model.path = \"FOLDER\" (an adapter: lora.path) and a lower train.optimizer.lr"
    )
}

/// Waits until the router says why it has given up; for ever if it never does.
pub(super) async fn given_up(mut router: watch::Receiver<Option<String>>) -> anyhow::Error {
    let why = router.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    match why {
        // Started again it would end again, so that no supervisor is to do so.
        Some(why) => Usage::new(why).into(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::Failure;
    use broker::protocol::turn::{Finish, LogProbs, VersionSpan};

    use super::*;

    fn version(step: u64) -> WeightVersion {
        WeightVersion { lineage: 1, step }
    }

    fn not_finite(step: u64) -> Result<Made, EngineFailure> {
        let cause = Failure::not_finite(version(step), "the logits are not finite");
        Err(EngineFailure { cause, retry: true })
    }

    fn sampled(step: u64) -> Result<Made, EngineFailure> {
        let span = VersionSpan {
            version: version(step),
            start: 0,
            end: 1,
        };
        Ok(Made {
            output_ids: vec![1],
            logprobs: vec![-1.0],
            logprobs_of: LogProbs::Sampled,
            top: Vec::new(),
            spans: vec![span],
            oldest_kv: version(step),
            reused: 0,
            finish: Finish::Stop,
        })
    }

    /// The version that is given up, and after which of these answers.
    fn heard(answers: &[(u8, Result<Made, EngineFailure>)]) -> Option<(usize, WeightVersion)> {
        let mut broken = Broken::default();
        let mut answers = answers.iter().enumerate();
        answers.find_map(|(place, (id, result))| {
            let one = std::iter::once((RequestId([*id; 16]), result));
            Some((place, broken.hear(one)?))
        })
    }

    /// Else a task of which nothing can be sampled would end its agent, whatever is sampled beside it.
    #[test]
    fn what_was_sampled_with_them_clears_the_weights_too() {
        let failing = |id| (RequestId([id; 16]), not_finite(4));
        let mut together: Vec<_> = (0..8).map(failing).collect();
        let hear =
            |answers: &[(RequestId, _)]| Broken::default().hear(answers.iter().map(|(id, result)| (*id, result)));
        assert_eq!(hear(&together), Some(version(4)));
        together.insert(0, (RequestId([9; 16]), sampled(4)));
        assert_eq!(hear(&together), None);
        together[0].1 = sampled(3);
        assert_eq!(hear(&together), Some(version(4)), "other weights say nothing of these");
    }

    #[test]
    fn three_different_requests_in_succession_are_the_weights_fault() {
        let failing: Vec<_> = (0..9).map(|id| (id, not_finite(4))).collect();
        assert_eq!(heard(&failing), Some((2, version(4))));
        let again: Vec<_> = (0..9).map(|n| (n % 2, not_finite(4))).collect();
        assert_eq!(heard(&again), None, "two requests, asked again and again");
    }

    #[test]
    fn what_was_sampled_of_the_same_weights_clears_them() {
        let with = |middle| {
            let around = [0, 1].map(|id| (id, not_finite(4)));
            let after = (2..5).map(|id| (id, not_finite(4)));
            let answers: Vec<_> = around.into_iter().chain([middle]).chain(after).collect();
            heard(&answers).map(|(place, _)| place)
        };
        assert_eq!(with((9, sampled(4))), Some(5), "counted anew");
        assert_eq!(with((9, sampled(3))), Some(3), "other weights say nothing of these");
        let context = EngineFailure {
            cause: Failure::context("70 tokens"),
            retry: false,
        };
        assert_eq!(with((9, Err(context))), Some(3), "nor do other failures");
        let later = [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)].map(|(id, step)| (id, not_finite(step)));
        assert_eq!(heard(&later), Some((4, version(2))), "each version counts for itself");
    }

    #[test]
    fn a_person_is_told_which_agent_and_weights_and_what_to_try() {
        let said = told(&AgentName::new("a").unwrap(), version(4), IN_SUCCESSION);
        for part in [
            "agent a",
            "weights 1.4 were not finite for three requests",
            "sampling.temperature",
            "damaged",
            "train.optimizer.lr",
            "dyad export a --step N",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[tokio::test]
    async fn why_it_was_given_up_is_waited_for() {
        let why = watch::Sender::new(None);
        let waiting = tokio::spawn(given_up(why.subscribe()));
        why.send_replace(Some("weights 1.4".to_owned()));
        assert_eq!(waiting.await.unwrap().to_string(), "weights 1.4");
    }
}
