//! Typed configuration of a run.
//!
//! A run is one TOML file. [`RunConfig::load`] reads it and merges `[defaults.agent]` under every
//! `[agents.NAME]`. It returns the typed configuration, or *all* problems at once
//! ([`ConfigError`]), each with its key path. The shipped configurations are `configs/*.toml`.

pub mod agent;
pub mod alarms;
pub mod check;
pub mod engine;
pub mod eval;
pub mod http;
pub mod kinds;
mod load;
pub mod loss;
pub mod metrics;
pub mod names;
pub mod notes;
pub mod past;
pub mod problem;
pub mod reference;
pub mod run;
pub mod shaping;
pub mod suites;
pub mod tasks;
pub mod tools;
pub mod train;
pub mod units;
pub mod workflow;

pub use agent::{
    AgentConfig, Dtype, History, LEAST_TEMPERATURE, LoraConfig, LoraTarget, ModelConfig, RandomModel, SamplingConfig,
    TokenizerConfig,
};
pub use alarms::AlarmsConfig;
pub use check::nearest;
pub use engine::{EngineConfig, EngineKind, Swap};
pub use eval::EvalConfig;
pub use http::HttpConfig;
pub use kinds::{OwnKindError, OwnKinds, WORKFLOWS};
pub use loss::{Aggregation, KlConfig, KlKind, KlPlace, KlReference, LossConfig, LossKind, M2poMode, M2poScope, Ratio};
pub use metrics::MetricsConfig;
pub use names::{AgentName, NameError, ParticipantName, RoleName};
pub use past::PastConfig;
pub use problem::{ConfigError, Problem};
pub use run::{LastBatch, Mode, RunConfig, RunSection, TokenRecordPolicy, TranscriptPolicy};
pub use shaping::{CreditConfig, LengthConfig, OverlongConfig, ShapingConfig};
pub use suites::SuiteConfig;
pub use tasks::{CurriculumConfig, MixConfig, Stopping, TasksConfig, Unmeasured};
pub use tools::{ToolConfig, ToolFailure, ToolLimits};
pub use train::{
    Advantage, EmaConfig, Offload, OptimizerConfig, Schedule, Shard, Stale, TrainConfig, Truncated, WarmStartConfig,
    ZeroAdvantage,
};
pub use units::{ByteSize, Date, DeviceName, HumanDuration};
pub use workflow::{
    GraderConfig, JUDGE, JUDGE_KEY, JudgeConfig, Missing, PROCESS, ProcessConfig, REMOTE, RoleSampling, Take,
    WorkflowConfig,
};
