//! Turns without an answer. If the turn is a grade, `graders.NAME.missing` decides, and it is never
//! a 0. If its prompt leaves no room for an answer and its workflow continues without one
//! ([`Workflow::goes_on_without`]), the turn is silent.
//!
//! With `missing = "tombstone"`, an agent that judges is asked again where that may help, until the
//! last try of its turn. Programs and participants give up at their first failure, judges on
//! servers when their own tries are spent. A grade that stays missing for good is committed as a
//! turn with the text [`TOMBSTONE`], so that a coordinator that takes the conversation over reads
//! the same.

use broker::RoleName;
use broker::ids::WeightVersion;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Finish, Generation, LogProbs, TurnOutcome};
use configs::{Missing, WorkflowConfig};

use super::program::TOMBSTONE;
use super::{Event, Workflow, player};

/// Returns the outcome of a failed turn. `retry` is true if asking again may help.
#[must_use]
pub fn unanswered(missing: Missing, failure: Failure, retry: bool) -> TurnOutcome {
    match missing {
        Missing::Retry => TurnOutcome::Failed { failure, retry },
        Missing::Drop => TurnOutcome::Failed { failure, retry: false },
        Missing::Tombstone => TurnOutcome::Done(said(TOMBSTONE.into())),
    }
}

/// Like [`unanswered`], for a role that an agent plays. Only a judging agent has a policy other
/// than to be asked again. `last` is true at the last try of the turn; before that, a failure that
/// may pass does not give up the grade.
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

/// Returns the outcome of a turn without room for an answer, if the workflow continues without it.
#[must_use]
pub fn without_room(workflow: &dyn Workflow, role: &RoleName) -> Option<TurnOutcome> {
    workflow
        .goes_on_without(role)
        .then(|| TurnOutcome::Done(said(String::new())))
}

/// Returns a text without tokens, in the form of a generation.
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

/// Returns true if this stands for a missing grade. A model's own text has tokens.
pub(crate) fn is_tombstone(generation: &Generation) -> bool {
    has_no_tokens(generation) && generation.text == TOMBSTONE
}

/// Returns true if this stands for an answer without room. A model's own text has tokens.
#[must_use]
pub fn is_silent(generation: &Generation) -> bool {
    has_no_tokens(generation) && generation.text.is_empty()
}

fn has_no_tokens(generation: &Generation) -> bool {
    generation.kept == 0 && generation.prompt_ids.is_empty() && generation.output_ids.is_empty()
}

/// Like [`is_silent`], for an event.
pub(crate) fn says_nothing(event: &Event) -> bool {
    event.prompt == 0 && event.tokens == 0 && event.text.is_empty()
}

/// Like [`is_tombstone`], for an event.
pub(crate) fn is_missing(event: &Event) -> bool {
    event.prompt == 0 && event.tokens == 0 && event.text == TOMBSTONE
}
