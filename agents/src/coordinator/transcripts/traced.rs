//! The traces of a finished group, built from the same record as its transcripts.

use broker::ids::{GroupId, TurnKey, conversation_seed};
use broker::protocol::turn::Generation;
use configs::{AgentName, ModelConfig};
use rollout::group::{Assembled, MemberEnd};
use rollout::workflow::graded_role;

use super::builder::TranscriptBuilder;
use super::{Open, Transcript, comparisons, prompts, turns_of};
use crate::coordinator::specs::GroupSpecs;
use crate::participant::TOOL;
use crate::traces::{AgentRequest, AskedOf, EndedConversation, Traces};

/// Sends the traces of a group's conversations that are chosen, whatever `run.transcripts` says.
/// `assembled`: what the group was decided to be, if it trains.
pub(crate) fn send_group(
    traces: &Traces,
    specs: &GroupSpecs,
    group: GroupId,
    open: &Open,
    members: &[MemberEnd],
    assembled: Option<&Assembled>,
) {
    let wanted: Vec<(u16, &MemberEnd)> = (0..)
        .zip(members)
        .filter(|(member, _)| traces.wants(group, *member))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let config = specs.config();
    let builder = TranscriptBuilder {
        config: &config.workflow,
        host: specs.host(open.purpose),
        rules: specs.rules(),
        comparisons: &comparisons(config, assembled),
        times: Some(&open.times),
    };
    for (member, end) in wanted {
        let about = Transcript {
            conversation: format!("{group}/{member}"),
            task: open.task_id.clone(),
            eval: !open.trains(),
            ..Transcript::default()
        };
        let mut transcript = builder.build(about, member, end);
        let turns = turns_of(end);
        let failure = match end {
            MemberEnd::Ended { .. } => None,
            MemberEnd::Failed { failure, .. } => Some(failure.code.name()),
        };
        if traces.sends_texts() {
            let seed = conversation_seed(config.run.seed, &open.task_id, member);
            let workflow = specs.workflow(open.purpose);
            prompts::add(&mut transcript, workflow, (&open.task, seed), turns, true);
        }
        let asked = turns.iter().map(|(key, made)| asked_of(specs, open, key, made));
        let ended = EndedConversation {
            workflow: config.workflow.kind.clone(),
            asked: asked.collect(),
            transcript,
            began_at: open.times.began_at,
            failure,
        };
        traces.send(group, member, &ended);
    }
}

/// The speaker of a committed turn, with the request as far as it is known.
fn asked_of(specs: &GroupSpecs, open: &Open, key: &TurnKey, made: &Generation) -> AskedOf {
    let host = specs.host(open.purpose);
    let Some(player) = specs.player(open.purpose, &key.role) else {
        let graded = graded_role(&key.role).map(str::to_owned);
        return match graded {
            _ if host.kind(&key.role) == TOOL => AskedOf::Tool,
            Some(graded) => AskedOf::Grader(graded),
            None => AskedOf::Program,
        };
    };
    let config = specs.config();
    let agent = config.agents.get(&player.agent);
    let limit = open.times.limit(key);
    let limited = |limit| specs.limit(&player.agent, &key.role, limit);
    AskedOf::Agent(AgentRequest {
        model: model(agent.map(|agent| &agent.model), &player.agent),
        temperature: made.temperature,
        top_p: agent.map_or(1.0, |agent| agent.sampling.top_p),
        max_tokens: limit.and_then(limited),
        input_tokens: u32::try_from(made.prompt_ids.len()).ok().filter(|tokens| *tokens > 0),
    })
}

/// The model's name: its folder or Hub name, the server's name, or the agent's own if the model is
/// random.
fn model(model: Option<&ModelConfig>, agent: &AgentName) -> String {
    match model {
        Some(ModelConfig::Path(path)) => path.display().to_string(),
        Some(ModelConfig::Served(name)) => name.clone(),
        Some(ModelConfig::Random(_)) | None => format!("random:{agent}"),
    }
}
