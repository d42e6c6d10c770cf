//! The shipped workflows, each with its tasks and warm starts, and the registry that makes them by
//! kind.

mod adversarial;
pub mod arithmetic;
mod deep_research;
mod doctor_patient;
pub mod guess_number;
mod process;
mod self_reward;
mod sequential;
pub mod signal;
mod solo;
mod solve_rewrite_select;
pub mod solve_verify;
mod sources;
#[cfg(test)]
mod tests;
pub mod warm;

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::{GraderConfig, PROCESS, Problem, REMOTE, ToolConfig, WorkflowConfig};

use crate::own;
use crate::workflow::tools::{Tools, WithTools};
use crate::workflow::{Workflow, shaped};

/// Makes the workflow that `[workflow]` describes, or returns everything that is wrong with it,
/// each problem with its key path.
///
/// Template files that `workflow.params.templates` names are read here, once. Relative paths count
/// from the working directory.
pub fn build(
    config: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
    tools: &BTreeMap<String, ToolConfig>,
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    shaped::over(unshaped(config, graders, tools)?, config)
}

fn unshaped(
    config: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
    tools: &BTreeMap<String, ToolConfig>,
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    let tools = Tools::new(config, tools);
    if config.kind == "deep-research" {
        return Ok(Arc::new(deep_research::DeepResearch::new(config, graders, tools?)?));
    }
    match (without_tools(config, graders), tools) {
        (Ok(workflow), Ok(tools)) if tools.is_empty() => Ok(workflow),
        (Ok(workflow), Ok(tools)) => Ok(Arc::new(WithTools::new(workflow, tools))),
        (workflow, tools) => Err([workflow.err(), tools.err()].into_iter().flatten().flatten().collect()),
    }
}

fn without_tools(
    config: &WorkflowConfig,
    graders: &BTreeMap<String, GraderConfig>,
) -> Result<Arc<dyn Workflow>, Vec<Problem>> {
    match config.kind.as_str() {
        "signal" => Ok(Arc::new(signal::Signal::new(config)?)),
        "adversarial" => adversarial::build(config, graders),
        "doctor-patient" => Ok(Arc::new(doctor_patient::DoctorPatient::new(config, graders)?)),
        "self-reward" => Ok(Arc::new(self_reward::SelfReward::new(config)?)),
        "sequential" => Ok(Arc::new(sequential::Sequential::new(config, graders)?)),
        "guess-number" => Ok(Arc::new(guess_number::GuessNumber::new(config)?)),
        "solve-verify" => Ok(Arc::new(solve_verify::SolveVerify::new(config, graders)?)),
        "solo" => Ok(Arc::new(solo::Solo::new(config, graders)?)),
        "solve-rewrite-select" => Ok(Arc::new(solve_rewrite_select::SolveRewriteSelect::new(
            config, graders,
        )?)),
        kind if kind.starts_with(PROCESS) || kind.starts_with(REMOTE) => Ok(Arc::new(process::Process::new(config)?)),
        other => own::workflow(config, graders).unwrap_or_else(|| {
            let message = format!(
                "there is no workflow {other:?}: use signal, guess-number, doctor-patient, self-reward, sequential, solo, solve-verify, solve-rewrite-select, adversarial, deep-research, process:FILE or remote:NAME"
            );
            Err(vec![Problem {
                path: "workflow.kind".into(),
                message,
            }])
        }),
    }
}
