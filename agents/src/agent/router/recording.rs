//! Records the tokens of turns, if their requests ask for it.

use broker::protocol::turn::{LogProbs, TurnRequest};
use rollout::text::Speech;

use crate::engine::GenerationOutput;
use crate::run_folder::logs::{TokenRecord, TokenSpan};

/// Returns the record of a turn; `None` if its engine gives no tokens or no log-probs.
pub(super) fn record(request: &TurnRequest, made: &GenerationOutput, text: &dyn Speech) -> Option<TokenRecord> {
    let pieces = text.pieces(&made.output_ids)?;
    if made.logprobs_of == LogProbs::Absent {
        return None;
    }
    let span = |span: &broker::protocol::turn::VersionSpan| TokenSpan {
        version: span.version.to_string(),
        start: span.start,
        end: span.end,
    };
    Some(TokenRecord {
        conversation: format!("{}/{}", request.group, request.member),
        role: request.role.clone(),
        seat: request.seat,
        turn: request.turn,
        ids: made.output_ids.clone(),
        pieces,
        logprobs: made
            .logprobs
            .iter()
            .map(|value| Some(*value).filter(|value| value.is_finite()))
            .collect(),
        logprobs_of: made.logprobs_of.name().into(),
        spans: made.spans.iter().map(span).collect(),
    })
}
