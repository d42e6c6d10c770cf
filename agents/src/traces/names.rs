//! Names of spans and attributes.
//!
//! The `gen_ai` names are those of OpenTelemetry's semantic conventions 1.41. Their part for
//! generative AI is in Development: a later release may rename them. Only this file changes then.

/// The schema of the names, which is sent with the spans.
pub(super) const SCHEMA: &str = "https://opentelemetry.io/schemas/1.41.0";
/// The instrumentation scope.
pub(super) const SCOPE: &str = "dyad";

pub(super) const SERVICE_NAME: &str = "service.name";
pub(super) const SERVICE_VERSION: &str = "service.version";

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const INVOKE_WORKFLOW: &str = "invoke_workflow";
pub(super) const CHAT: &str = "chat";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";

pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const TEMPERATURE: &str = "gen_ai.request.temperature";
pub(super) const TOP_P: &str = "gen_ai.request.top_p";
pub(super) const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const ERROR_TYPE: &str = "error.type";

/// The provider.
pub(super) const DYAD: &str = "dyad";
/// The operation of a grader that is a program or a judge behind a server.
pub(super) const GRADE: &str = "dyad.grade";
/// The operation of a workflow that is a program.
pub(super) const PROGRAM: &str = "dyad.program";
pub(super) const RUN: &str = "dyad.run";
pub(super) const ROLE: &str = "dyad.role";
pub(super) const SEAT: &str = "dyad.seat";
pub(super) const GROUP: &str = "dyad.group";
pub(super) const TASK: &str = "dyad.task";
pub(super) const WEIGHTS_STEP: &str = "dyad.weights.step";
pub(super) const WEIGHTS_LINEAGE: &str = "dyad.weights.lineage";
pub(super) const LOGPROB: &str = "dyad.logprob.mean";
pub(super) const QUEUE: &str = "dyad.queue.seconds";
/// This and the next are followed by a dot and the role, or `role/seat` where a role has several
/// seats.
pub(super) const REWARD: &str = "dyad.reward";
pub(super) const ADVANTAGE: &str = "dyad.advantage";
pub(super) const SUCCESS: &str = "dyad.success";
pub(super) const EVAL: &str = "dyad.eval";

/// The first word of a trained batch's span. Its parts are called after the metrics `time/PART_s`.
pub(super) const TRAIN: &str = "train";
pub(super) const TRAINED_AGENT: &str = "dyad.agent";
pub(super) const GROUPS: &str = "dyad.batch.groups";
pub(super) const SAMPLES: &str = "dyad.batch.samples";
pub(super) const TOKENS: &str = "dyad.batch.tokens";
pub(super) const LOSS: &str = "dyad.loss";
pub(super) const STALENESS_MEAN: &str = "dyad.staleness.mean";
pub(super) const STALENESS_MAX: &str = "dyad.staleness.max";
