//! The conversations of a finished group that are written down or sent as traces.

pub mod builder;
pub mod compared;
pub(crate) mod prompts;
pub(super) mod shared;
pub(super) mod traced;

use broker::ids::{GroupId, TurnKey, conversation_seed};
use broker::protocol::turn::Generation;
use configs::{RunConfig, TranscriptPolicy};
use rollout::group::{Assembled, MemberEnd};

use self::builder::{Comparisons, TranscriptBuilder};
use super::play::Open;
use super::specs::{GroupSpecs, Purpose};
use crate::run_folder::logs::Transcript;

/// The transcripts of a group, as far as the configuration wants them. `assembled`: what the group
/// was decided to be, if it trains.
#[must_use]
pub fn of_group(
    specs: &GroupSpecs,
    group: GroupId,
    open: &Open,
    members: &[MemberEnd],
    step: u64,
    assembled: Option<&Assembled>,
) -> Vec<Transcript> {
    let config = specs.config();
    let wanted = match (config.run.transcripts, open.purpose) {
        (_, Purpose::Eval | Purpose::Suite { greedy: true, .. }) | (TranscriptPolicy::All, _) => members.len(),
        (TranscriptPolicy::First, _) => 1,
        (TranscriptPolicy::None, _) => 0,
    };
    if wanted == 0 {
        return Vec::new();
    }
    let comparisons = comparisons(config, assembled);
    let builder = TranscriptBuilder {
        config: &config.workflow,
        host: specs.host(open.purpose),
        rules: specs.rules(),
        comparisons: &comparisons,
        times: Some(&open.times),
    };
    let one = |(member, end): (usize, &MemberEnd)| {
        let about = Transcript {
            conversation: format!("{group}/{member}"),
            task: open.task_id.clone(),
            prompt: serde_json::to_value(&open.task.prompt).unwrap_or_default(),
            label: open.task.label.clone(),
            step,
            eval: !open.trains(),
            ..Transcript::default()
        };
        let mut transcript = builder.build(about, member as u16, end);
        let seed = conversation_seed(config.run.seed, &open.task_id, member as u16);
        let workflow = specs.workflow(open.purpose);
        prompts::add(&mut transcript, workflow, (&open.task, seed), turns_of(end), true);
        // The task's prompt has these images.
        let read = transcript.turns.iter_mut().flat_map(|turn| &mut turn.reads);
        read.for_each(|message| message.images.retain(|image| !image.url.starts_with("data:")));
        transcript
    };
    members.iter().take(wanted).enumerate().map(one).collect()
}

/// The committed turns of a conversation.
fn turns_of(end: &MemberEnd) -> &[(TurnKey, Generation)] {
    match end {
        MemberEnd::Ended { turns, .. } | MemberEnd::Failed { turns, .. } => turns,
    }
}

/// Compares the seats of a decided group; a group that does not train has nothing to compare.
fn comparisons(config: &RunConfig, assembled: Option<&Assembled>) -> Comparisons {
    assembled.map_or_else(Comparisons::default, |decided| Comparisons::of(&config.agents, decided))
}
