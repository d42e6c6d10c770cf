//! The spans of a conversation that has ended: a root, and a child for each turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::ids::RunId;

use super::ids::{self, TraceId};
use super::wire::{AnyValue, ArrayValue, CLIENT, ERROR, INTERNAL, KeyValue, Span, Status, Value};
use super::{messages, names};
use crate::run_folder::logs::{Transcript, TranscriptTurn};

/// A conversation that has ended, as its trace needs it.
#[derive(Debug)]
pub(crate) struct EndedConversation {
    /// The workflow's kind.
    pub(crate) workflow: String,
    pub(crate) transcript: Transcript,
    /// The requests of the transcript's turns, in the same order.
    pub(crate) asked: Vec<AskedOf>,
    /// The zero of the transcript's times on the wall clock: the start of the group at the
    /// coordinator that closes it.
    pub(crate) began_at: SystemTime,
    /// The code of the failure, if the conversation was given up.
    pub(crate) failure: Option<&'static str>,
}

/// The speaker of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AskedOf {
    Agent(AgentRequest),
    Tool,
    /// A grader of a role's answer.
    Grader(String),
    Program,
}

/// A request to an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AgentRequest {
    pub(crate) model: String,
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
    /// Absent if an earlier coordinator requested the turn.
    pub(crate) max_tokens: Option<u32>,
    /// Absent if an engine server keeps its tokens to itself.
    pub(crate) input_tokens: Option<u32>,
}

/// Returns the spans of a conversation, the root first.
pub(super) fn spans(run: &RunId, trace: TraceId, ended: &EndedConversation, with_texts: bool) -> Vec<Span> {
    let transcript = &ended.transcript;
    let turns = transcript.turns.iter().zip(&ended.asked);
    let turns = turns.map(|(turn, asked)| child(run, trace, ended, (turn, asked), with_texts));
    let mut all = vec![root(run, trace, ended)];
    all.extend(turns);
    all
}

fn root(run: &RunId, trace: TraceId, ended: &EndedConversation) -> Span {
    let transcript = &ended.transcript;
    let last = transcript.turns.iter().filter_map(|turn| Some(turn.time?.committed));
    let mut attributes = vec![KeyValue::new(names::OPERATION, names::INVOKE_WORKFLOW)];
    attributes.extend(place(transcript));
    attributes.push(KeyValue::new(names::EVAL, transcript.eval));
    for (role, parts) in &transcript.rewards {
        let total = parts
            .get("total")
            .filter(|total| total.is_finite())
            .map(|total| KeyValue::new(format!("{}.{role}", names::REWARD), *total));
        attributes.extend(total);
    }
    for (role, earned) in &transcript.earned {
        let compared = earned.compared.as_ref();
        let compared = compared.filter(|found| found.advantage.is_finite());
        let advantage = compared.map(|found| KeyValue::new(format!("{}.{role}", names::ADVANTAGE), found.advantage));
        attributes.extend(advantage);
    }
    let success = transcript.metrics.get("success");
    attributes.extend(success.map(|success| KeyValue::new(names::SUCCESS, *success)));
    // The reason of a failure may quote a text, so only its code is sent.
    attributes.extend(ended.failure.map(|code| KeyValue::new(names::ERROR_TYPE, code)));
    Span {
        trace_id: trace.0.to_vec(),
        span_id: ids::root(run, &transcript.conversation),
        name: format!("{} {}", names::INVOKE_WORKFLOW, ended.workflow),
        kind: INTERNAL,
        start_time_unix_nano: nanos(ended.began_at, 0.0),
        end_time_unix_nano: nanos(ended.began_at, last.fold(0.0, f64::max)),
        attributes,
        status: ended.failure.map(|code| Status {
            message: code.to_owned(),
            code: ERROR,
        }),
        ..Span::default()
    }
}

fn child(
    run: &RunId,
    trace: TraceId,
    ended: &EndedConversation,
    (turn, asked): (&TranscriptTurn, &AskedOf),
    with_texts: bool,
) -> Span {
    let conversation = &ended.transcript.conversation;
    let (operation, name, kind) = match asked {
        AskedOf::Agent(_) => (names::CHAT, &turn.agent, CLIENT),
        AskedOf::Tool => (names::EXECUTE_TOOL, &turn.role, INTERNAL),
        AskedOf::Grader(graded) => (names::GRADE, graded, INTERNAL),
        AskedOf::Program => (names::PROGRAM, &turn.role, INTERNAL),
    };
    let mut attributes = vec![KeyValue::new(names::OPERATION, operation)];
    attributes.extend(place(&ended.transcript));
    attributes.push(KeyValue::new(names::ROLE, turn.role.as_str()));
    attributes.push(KeyValue::new(names::SEAT, u32::from(turn.seat)));
    match asked {
        AskedOf::Agent(request) => of_agent(&mut attributes, turn, request),
        AskedOf::Tool => attributes.push(KeyValue::new(names::TOOL, turn.role.as_str())),
        AskedOf::Grader(_) | AskedOf::Program => {}
    }
    if with_texts {
        let said = messages::output(&turn.text, &turn.finish);
        attributes.push(KeyValue::new(names::OUTPUT_MESSAGES, said));
        if !turn.reads.is_empty() {
            attributes.push(KeyValue::new(names::INPUT_MESSAGES, messages::input(&turn.reads)));
        }
    }
    // A turn that an earlier coordinator committed has no times here.
    let (asked_at, committed) = turn.time.map_or((0.0, 0.0), |time| (time.asked, time.committed));
    Span {
        trace_id: trace.0.to_vec(),
        span_id: ids::turn(run, conversation, &turn.role, turn.seat, turn.turn),
        parent_span_id: ids::root(run, conversation),
        name: format!("{operation} {name}"),
        kind,
        start_time_unix_nano: nanos(ended.began_at, asked_at),
        end_time_unix_nano: nanos(ended.began_at, committed),
        attributes,
        ..Span::default()
    }
}

/// The attributes that say where a span belongs.
fn place(transcript: &Transcript) -> [KeyValue; 3] {
    let group = transcript.conversation.split('/').next().unwrap_or_default();
    [
        KeyValue::new(names::CONVERSATION, transcript.conversation.as_str()),
        KeyValue::new(names::GROUP, group),
        KeyValue::new(names::TASK, transcript.task.as_str()),
    ]
}

fn of_agent(attributes: &mut Vec<KeyValue>, turn: &TranscriptTurn, request: &AgentRequest) {
    let finish = AnyValue::from(Value::from(turn.finish.as_str()));
    attributes.extend([
        KeyValue::new(names::AGENT, turn.agent.as_str()),
        KeyValue::new(names::PROVIDER, names::DYAD),
        KeyValue::new(names::MODEL, request.model.as_str()),
        KeyValue::new(names::TEMPERATURE, request.temperature),
        KeyValue::new(names::TOP_P, request.top_p),
        KeyValue::new(names::OUTPUT_TOKENS, turn.tokens),
        KeyValue::new(names::FINISH_REASONS, Value::List(ArrayValue { values: vec![finish] })),
    ]);
    let limit = request.max_tokens.map(|limit| KeyValue::new(names::MAX_TOKENS, limit));
    let input = request
        .input_tokens
        .map(|tokens| KeyValue::new(names::INPUT_TOKENS, tokens));
    attributes.extend(limit.into_iter().chain(input));
    if let Some((lineage, step)) = version(&turn.version) {
        attributes.push(KeyValue::new(names::WEIGHTS_LINEAGE, lineage));
        attributes.push(KeyValue::new(names::WEIGHTS_STEP, step));
    }
    if turn.tokens > 0 && turn.logprobs_of != "absent" && turn.mean_logprob.is_finite() {
        attributes.push(KeyValue::new(names::LOGPROB, turn.mean_logprob));
    }
    let queue = turn.time.and_then(|time| time.queue);
    attributes.extend(queue.map(|seconds| KeyValue::new(names::QUEUE, seconds)));
}

/// Reads `lineage.step`.
fn version(text: &str) -> Option<(u32, u64)> {
    let (lineage, step) = text.split_once('.')?;
    Some((lineage.parse().ok()?, step.parse().ok()?))
}

/// Nanoseconds since 1970.
fn nanos(began_at: SystemTime, seconds: f64) -> u64 {
    let began = began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let later = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from((began + later).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
