//! What becomes of a turn that nobody answered. Where the turn is a grade: by `graders.NAME.missing`, and never a 0. Where its prompt
//! leaves no room for an answer, and its workflow goes on without one ([`Workflow::goes_on_without`]): a turn that says nothing.
//!
//! With `missing = "tombstone"`, an agent that judges is asked again where that may help, until the last try of its turn. Programs
//! and participants give the grade up at their first failure, judges behind servers when their own tries are spent. A grade that
//! stays missing for good is committed as a turn that says so ([`TOMBSTONE`]), so that whoever takes the conversation over reads
//! the same.

use broker::RoleName;
use broker::ids::WeightVersion;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Finish, Generation, LogProbs, TurnOutcome};
use configs::{Missing, WorkflowConfig};

use super::program::TOMBSTONE;
use super::{Event, Workflow, player};

/// What a failed turn comes to. `retry` says whether asking again may help.
#[must_use]
pub fn unanswered(missing: Missing, failure: Failure, retry: bool) -> TurnOutcome {
    match missing {
        Missing::Retry => TurnOutcome::Failed { failure, retry },
        Missing::Drop => TurnOutcome::Failed { failure, retry: false },
        Missing::Tombstone => TurnOutcome::Done(said(TOMBSTONE.into())),
    }
}

/// As [`unanswered`], of a role that an agent plays: only one that judges has another policy than to be asked again. `last` says
/// whether that was the last try of its turn: until then, what may pass buries no grade.
#[must_use]
pub fn unanswered_by(
    config: &WorkflowConfig,
    workflow: &dyn Workflow,
    role: &RoleName,
    failure: Failure,
    retry: bool,
    last: bool,
) -> TurnOutcome {
    let missing = player(config, workflow, role).and_then(|player| player.missing);
    let missing = match missing.unwrap_or_default() {
        Missing::Tombstone if retry && !last => Missing::Retry,
        missing => missing,
    };
    let reason = failure.to_string();
    let outcome = unanswered(missing, failure, retry);
    if matches!(outcome, TurnOutcome::Done(_)) {
        tracing::warn!(%role, reason, "an answer stays without a grade");
    }
    outcome
}

/// What a turn comes to whose prompt leaves no room for an answer, if the workflow goes on without it.
#[must_use]
pub fn without_room(workflow: &dyn Workflow, role: &RoleName) -> Option<TurnOutcome> {
    workflow
        .goes_on_without(role)
        .then(|| TurnOutcome::Done(said(String::new())))
}

/// A text without tokens, in the form of a generation.
#[must_use]
pub fn said(text: String) -> Generation {
    Generation {
        kept: 0,
        prompt_ids: Vec::new(),
        output_ids: Vec::new(),
        logprobs: Vec::new(),
        logprobs_of: LogProbs::Absent,
        spans: Vec::new(),
        oldest_kv: WeightVersion::default(),
        temperature: 0.0,
        finish: Finish::Stop,
        text,
    }
}

/// Whether this stands for a grade that nobody gave. What a model itself says has tokens.
pub(crate) fn is_tombstone(generation: &Generation) -> bool {
    has_no_tokens(generation) && generation.text == TOMBSTONE
}

/// Whether this stands for an answer for which there was no room. What a model itself says has tokens.
#[must_use]
pub fn is_silent(generation: &Generation) -> bool {
    has_no_tokens(generation) && generation.text.is_empty()
}

fn has_no_tokens(generation: &Generation) -> bool {
    generation.kept == 0 && generation.prompt_ids.is_empty() && generation.output_ids.is_empty()
}

/// As [`is_silent`], of what everyone may see of it.
pub(crate) fn says_nothing(event: &Event) -> bool {
    event.prompt == 0 && event.tokens == 0 && event.text.is_empty()
}

/// As [`is_tombstone`], of what everyone may see of it.
pub(crate) fn is_missing(event: &Event) -> bool {
    event.prompt == 0 && event.tokens == 0 && event.text == TOMBSTONE
}
