//! Typed configuration of a run.
//!
//! A run is one TOML file. [`RunConfig::load`] reads it, merges `[defaults.agent]` under every `[agents.NAME]`, and
//! answers with the typed configuration or with *all* its problems at once ([`ConfigError`]), each with its key path.
//! The shipped configurations lie beside this crate's sources, in `configs/*.toml`.

pub mod agent;
pub mod alarms;
pub mod check;
pub mod http;
pub mod kinds;
pub mod names;
pub mod past;
pub mod run;
pub mod shaping;
pub mod suites;
pub mod tasks;
pub mod tools;
pub mod train;
pub mod units;
pub mod workflow;

pub use agent::{
    AgentConfig, Dtype, EngineConfig, EngineKind, History, LEAST_TEMPERATURE, LoraConfig, LoraTarget, ModelConfig,
    RandomModel, SamplingConfig, Swap, TokenizerConfig,
};
pub use alarms::AlarmsConfig;
pub use http::HttpConfig;
pub use names::{AgentName, NameError, ParticipantName, RoleName};
pub use kinds::{OwnKindError, OwnKinds};
pub use past::PastConfig;
pub use run::{ConfigError, EvalConfig, LastBatch, Mode, Problem, RunConfig, RunSection, TranscriptPolicy};
pub use shaping::{CreditConfig, LengthConfig, OverlongConfig, ShapingConfig};
pub use suites::SuiteConfig;
pub use tasks::{CurriculumConfig, MixConfig, Stopping, TasksConfig, Unmeasured};
pub use tools::{ToolConfig, ToolFailure, ToolLimits};
pub use train::{
    Advantage, Aggregation, EmaConfig, KlConfig, KlKind, KlPlace, KlReference, LossConfig, LossKind, M2poMode,
    M2poScope, OptimizerConfig, Ratio, Schedule, Stale, TrainConfig, Truncated, WarmStartConfig, ZeroAdvantage,
};
pub use units::{ByteSize, Date, DeviceName, HumanDuration};
pub use workflow::{
    GraderConfig, JUDGE, JUDGE_KEY, JudgeConfig, Missing, PROCESS, ProcessConfig, REMOTE, RoleSampling, Take,
    WorkflowConfig,
};
