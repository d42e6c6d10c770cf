use std::collections::BTreeMap;

use broker::ids::GroupId;
use broker::protocol::turn::Message;

use super::*;
use crate::run_folder::logs::{Compared, Earned, TurnTime};

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
            turns: vec![
                turn("speaker", Some(time)),
                turn("search", None),
                turn("grade-speaker", None),
                turn("workflow", None),
            ],
            rewards: BTreeMap::from([("speaker".into(), BTreeMap::from([("total".into(), 0.5)]))]),
            metrics: BTreeMap::from([("success".into(), 1.0)]),
            ..Transcript::default()
        },
        asked: vec![
            AskedOf::Agent(request),
            AskedOf::Tool,
            AskedOf::Grader("speaker".into()),
            AskedOf::Program,
        ],
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
    has(span, names::TOP_P, 1.0);
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
fn tools_graders_and_programs_have_no_model_and_no_weights() {
    let all = made(&ended(), false);
    assert_eq!(all[2].name, "execute_tool search");
    has(&all[2], names::TOOL, "search");
    assert_eq!(all[3].name, "dyad.grade speaker");
    has(&all[3], names::OPERATION, "dyad.grade");
    has(&all[3], names::ROLE, "grade-speaker");
    assert_eq!(all[4].name, "dyad.program workflow");
    for span in &all[2..] {
        assert_eq!(attribute(span, names::MODEL), None);
        assert_eq!(attribute(span, names::WEIGHTS_STEP), None);
        assert_eq!(span.start_time_unix_nano, span.end_time_unix_nano, "no times are known");
    }
}

#[test]
fn texts_are_sent_on_request_only() {
    let mut ended = ended();
    ended.transcript.turns[0].reads = vec![Message {
        role: "user".into(),
        content: "o3".into(),
        images: Vec::new(),
    }];
    for span in made(&ended, false) {
        assert_eq!(attribute(&span, names::INPUT_MESSAGES), None);
        assert_eq!(attribute(&span, names::OUTPUT_MESSAGES), None);
    }
    let all = made(&ended, true);
    let read = messages::input(&ended.transcript.turns[0].reads);
    assert!(read.contains("o3"));
    has(&all[1], names::INPUT_MESSAGES, read);
    has(&all[1], names::OUTPUT_MESSAGES, messages::output("words", "stop"));
    assert_eq!(
        attribute(&all[2], names::INPUT_MESSAGES),
        None,
        "a tool reads no prompt"
    );
}

#[test]
fn a_root_has_the_advantages_of_seats_that_are_compared() {
    let mut ended = ended();
    let compared = |advantage| Earned {
        compared: Some(Compared {
            advantage,
            ..Compared::default()
        }),
        ..Earned::default()
    };
    ended.transcript.earned = BTreeMap::from([
        ("speaker".into(), compared(-0.5)),
        ("judge".into(), Earned::default()),
        ("solver/1".into(), compared(0.25)),
    ]);
    let root = &made(&ended, false)[0];
    has(root, "dyad.advantage.speaker", -0.5);
    has(root, "dyad.advantage.solver/1", 0.25);
    assert_eq!(attribute(root, "dyad.advantage.judge"), None);
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
