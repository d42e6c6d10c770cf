//! The spans of a conversation that has ended: a root, and a child for each turn.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use broker::ids::RunId;
use serde_json::json;

use super::ids::{self, TraceId};
use super::names;
use super::wire::{AnyValue, ArrayValue, CLIENT, ERROR, INTERNAL, KeyValue, Span, Status, Value};
use crate::run_folder::logs::{Transcript, TranscriptTurn};

/// The most bytes of a turn's text that are sent.
const TEXT: usize = 32 * 1024;

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
            .map(|total| KeyValue::new(format!("{}.{role}", names::REWARD), *total));
        attributes.extend(total);
    }
    let success = transcript.metrics.get("success");
    attributes.extend(success.map(|success| KeyValue::new(names::SUCCESS, *success)));
    // The reason of a failure may quote a text, so only its code is sent.
    attributes.extend(ended.failure.map(|code| KeyValue::new(names::ERROR_TYPE, code)));
    Span {
        trace_id: trace.0.to_vec(),
        span_id: ids::root(run, &transcript.conversation),
        parent_span_id: Vec::new(),
        name: format!("{} {}", names::INVOKE_WORKFLOW, ended.workflow),
        kind: INTERNAL,
        start_time_unix_nano: nanos(ended.began_at, 0.0),
        end_time_unix_nano: nanos(ended.began_at, last.fold(0.0, f64::max)),
        attributes,
        status: ended.failure.map(|code| Status {
            message: code.to_owned(),
            code: ERROR,
        }),
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
        AskedOf::Program => (names::PROGRAM, &turn.role, INTERNAL),
    };
    let mut attributes = vec![KeyValue::new(names::OPERATION, operation)];
    attributes.extend(place(&ended.transcript));
    attributes.push(KeyValue::new(names::ROLE, turn.role.as_str()));
    attributes.push(KeyValue::new(names::SEAT, u32::from(turn.seat)));
    match asked {
        AskedOf::Agent(request) => of_agent(&mut attributes, turn, request),
        AskedOf::Tool => attributes.push(KeyValue::new(names::TOOL, turn.role.as_str())),
        AskedOf::Program => {}
    }
    if with_texts {
        attributes.push(KeyValue::new(names::OUTPUT_MESSAGES, messages(turn)));
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
        status: None,
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

/// The turn's text in the form of `gen_ai.output.messages`, cut at a character.
fn messages(turn: &TranscriptTurn) -> String {
    let text = &turn.text[..turn.text.floor_char_boundary(TEXT)];
    json!([{
        "role": "assistant",
        "parts": [{"type": "text", "content": text}],
        "finish_reason": turn.finish,
    }])
    .to_string()
}

/// Nanoseconds since 1970.
fn nanos(began_at: SystemTime, seconds: f64) -> u64 {
    let began = began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let later = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from((began + later).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use broker::ids::GroupId;

    use super::*;
    use crate::run_folder::logs::TurnTime;

    const GROUP: GroupId = GroupId([0xab; 16]);

    fn run() -> RunId {
        RunId::new("r").unwrap()
    }

    fn turn(role: &str, time: Option<TurnTime>) -> TranscriptTurn {
        TranscriptTurn {
            role: role.into(),
            seat: 1,
            turn: 2,
            agent: "a".into(),
            text: "words".into(),
            tokens: 3,
            version: "4.5".into(),
            finish: "stop".into(),
            mean_logprob: -0.5,
            logprobs_of: "sampled".into(),
            time,
            ..TranscriptTurn::default()
        }
    }

    fn ended() -> EndedConversation {
        let request = AgentRequest {
            model: "Qwen/Qwen3".into(),
            temperature: 0.7,
            top_p: 1.0,
            max_tokens: Some(8),
            input_tokens: None,
        };
        let time = TurnTime {
            asked: 1.0,
            queue: Some(0.25),
            committed: 2.5,
            ..TurnTime::default()
        };
        EndedConversation {
            workflow: "signal".into(),
            transcript: Transcript {
                conversation: format!("{GROUP}/6"),
                task: "t".into(),
                turns: vec![turn("speaker", Some(time)), turn("search", None), turn("critic", None)],
                rewards: BTreeMap::from([("speaker".into(), BTreeMap::from([("total".into(), 0.5)]))]),
                metrics: BTreeMap::from([("success".into(), 1.0)]),
                ..Transcript::default()
            },
            asked: vec![AskedOf::Agent(request), AskedOf::Tool, AskedOf::Program],
            began_at: UNIX_EPOCH + Duration::from_secs(100),
            failure: None,
        }
    }

    fn made(ended: &EndedConversation, with_texts: bool) -> Vec<Span> {
        spans(&run(), TraceId::new(&run(), GROUP, 6), ended, with_texts)
    }

    fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
        let found = span.attributes.iter().find(|attribute| attribute.key == name);
        found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref())
    }

    fn has(span: &Span, name: &str, value: impl Into<Value>) {
        assert_eq!(attribute(span, name), Some(&value.into()), "{name} of {}", span.name);
    }

    #[test]
    fn a_root_has_the_conversation_and_its_rewards() {
        let root = &made(&ended(), false)[0];
        assert_eq!((root.name.as_str(), root.kind), ("invoke_workflow signal", 1));
        assert!(root.parent_span_id.is_empty() && root.status.is_none());
        assert_eq!(root.start_time_unix_nano, 100_000_000_000);
        assert_eq!(root.end_time_unix_nano, 102_500_000_000, "the last commit");
        has(root, names::OPERATION, "invoke_workflow");
        has(root, names::CONVERSATION, format!("{GROUP}/6"));
        has(root, names::GROUP, GROUP.to_string());
        has(root, names::TASK, "t");
        has(root, names::EVAL, false);
        has(root, "dyad.reward.speaker", 0.5);
        has(root, names::SUCCESS, 1.0);
    }

    #[test]
    fn a_turn_has_its_agent_request_tokens_weights_and_times() {
        let all = made(&ended(), false);
        let span = &all[1];
        assert_eq!((span.name.as_str(), span.kind), ("chat a", 3));
        assert_eq!(span.parent_span_id, all[0].span_id);
        assert!(all.iter().all(|one| one.trace_id == all[0].trace_id));
        assert_eq!(span.start_time_unix_nano, 101_000_000_000);
        assert_eq!(span.end_time_unix_nano, 102_500_000_000);
        has(span, names::PROVIDER, "dyad");
        has(span, names::MODEL, "Qwen/Qwen3");
        has(span, names::TEMPERATURE, 0.7);
        has(span, names::MAX_TOKENS, 8_u32);
        has(span, names::OUTPUT_TOKENS, 3_u32);
        has(span, names::ROLE, "speaker");
        has(span, names::SEAT, 1_u32);
        has(span, names::WEIGHTS_LINEAGE, 4_u32);
        has(span, names::WEIGHTS_STEP, 5_u64);
        has(span, names::LOGPROB, -0.5);
        has(span, names::QUEUE, 0.25);
        assert_eq!(attribute(span, names::INPUT_TOKENS), None);
    }

    #[test]
    fn tools_and_programs_have_no_model_and_no_weights() {
        let all = made(&ended(), false);
        assert_eq!(all[2].name, "execute_tool search");
        has(&all[2], names::TOOL, "search");
        assert_eq!(all[3].name, "dyad.program critic");
        for span in &all[2..] {
            assert_eq!(attribute(span, names::MODEL), None);
            assert_eq!(attribute(span, names::WEIGHTS_STEP), None);
            assert_eq!(span.start_time_unix_nano, span.end_time_unix_nano, "no times are known");
        }
    }

    #[test]
    fn texts_are_sent_on_request_only_and_cut_at_a_character() {
        let mut ended = ended();
        ended.transcript.turns[0].text = "é".repeat(TEXT);
        for span in made(&ended, false) {
            assert_eq!(attribute(&span, names::OUTPUT_MESSAGES), None);
        }
        let span = &made(&ended, true)[1];
        let Some(Value::Text(text)) = attribute(span, names::OUTPUT_MESSAGES) else {
            panic!("no text");
        };
        let messages: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(messages[0]["parts"][0]["content"], "é".repeat(TEXT / 2));
        assert_eq!(messages[0]["finish_reason"], "stop");
    }

    #[test]
    fn a_failed_conversation_is_an_error_with_the_code_alone() {
        let ended = EndedConversation {
            failure: Some("engine"),
            ..ended()
        };
        let root = &made(&ended, false)[0];
        let status = root.status.as_ref().unwrap();
        assert_eq!((status.code, status.message.as_str()), (2, "engine"));
        has(root, names::ERROR_TYPE, "engine");
    }
}
