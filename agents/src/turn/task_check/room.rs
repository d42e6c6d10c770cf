//! Checks that the first prompts of a task leave room for an answer.

use broker::protocol::task::Task;
use configs::{EngineKind, RunConfig, WORKFLOWS};
use rollout::text::make::tokens_of_chat;
use rollout::workflow::{Ask, Step, Workflow};

use super::random_agent;

/// Checks the first prompts of the agents with generated models: their contexts are known. A failed
/// first turn is the end of its conversation.
///
/// Only shipped workflows are checked, and only prompts that are the same for two seeds. Programs
/// and workflows of other crates may choose their first prompts by the seed, and a few seeds show
/// nothing about the other seeds.
pub(super) fn check(config: &RunConfig, workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    if !WORKFLOWS.contains(&workflow.kind()) {
        return Ok(());
    }
    let Step::Ask(asks) = workflow.step(task, 0, &[]) else {
        return Ok(());
    };
    let Some(reason) = asks.iter().find_map(|ask| without_room(config, workflow, ask)) else {
        return Ok(());
    };
    match workflow.step(task, 1, &[]) {
        Step::Ask(others) if others == asks => Err(reason),
        Step::Ask(_) | Step::Done(_) | Step::Fail(_) => Ok(()),
    }
}

/// Returns the reason why a prompt leaves no room for one token of an answer.
fn without_room(config: &RunConfig, workflow: &dyn Workflow, ask: &Ask) -> Option<String> {
    let role = &ask.role;
    let (name, agent, model) = random_agent(config, workflow, role)?;
    // The tokens of another template are not known here.
    if agent.chat_template.is_some() || workflow.goes_on_without(role) {
        return None;
    }
    let of_role = config.workflow.sampling.get(role).and_then(|role| role.max_context);
    let cap = |tokens: Option<u32>, key| tokens.filter(|tokens| *tokens > 0).map(|tokens| (tokens as usize, key));
    // A scripted engine has no context of its own.
    let own = (agent.engine.kind != EngineKind::Scripted).then(|| {
        let key = format!("agents.{name}.model.random.max_context");
        (model.max_context, key)
    });
    let caps = [
        own,
        cap(
            agent.sampling.max_context,
            format!("agents.{name}.sampling.max_context"),
        ),
        cap(of_role, format!("workflow.sampling.{role}.max_context")),
    ];
    let (most, key) = caps.into_iter().flatten().min_by_key(|(tokens, _)| *tokens)?;
    let tokens = tokens_of_chat(&model.tokenizer, &ask.messages);
    (tokens >= most).then(|| {
        format!(
            "the first prompt of the {role} has {tokens} tokens, and {key} is {most}, which must hold one new token too: \
             shorten `prompt` (or what the template adds to it), or raise that key"
        )
    })
}
