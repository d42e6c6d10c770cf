//! The coordinator: groups, conversations, turns, tasks and evaluations.

use prometheus_client::metrics::histogram::Histogram;

use crate::observe::batched::BatchedHistogram;
use crate::observe::table::{CALL_SECONDS, Labelled, Level, SeriesTable, TURN_SECONDS, Total};

/// Bounds for the turns of a conversation.
const TURNS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Bounds for the time of a conversation, in seconds.
const CONVERSATION_SECONDS: &[f64] = &[0.2, 1.0, 5.0, 20.0, 60.0, 300.0];

pub(crate) struct PlaySeries {
    pub(crate) groups_open: Labelled<Level, 0>,
    pub(crate) groups: Labelled<Total, 1>,
    pub(crate) conversations: Labelled<Total, 2>,
    pub(crate) conversation_turns: Labelled<BatchedHistogram, 0>,
    pub(crate) conversation_seconds: Labelled<BatchedHistogram, 0>,
    pub(crate) turns: Labelled<Total, 4>,
    pub(crate) turn_seconds: Labelled<BatchedHistogram, 2>,
    pub(crate) stale: Labelled<Total, 0>,
    pub(crate) tasks: Labelled<Total, 2>,
    pub(crate) commit: Labelled<Histogram, 0>,
    pub(crate) leases_lost: Labelled<Total, 0>,
    pub(crate) grader: Labelled<Histogram, 2>,
    pub(crate) tool: Labelled<Histogram, 2>,
    pub(crate) eval_value: Labelled<Level, 2>,
    pub(crate) eval_step: Labelled<Level, 0>,
    pub(crate) eval_held: Labelled<Total, 0>,
}

impl PlaySeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            groups_open: table.gauge("dyad_groups_open", [], "groups admitted or in play"),
            groups: table.counter(
                "dyad_groups",
                ["outcome"],
                "groups that train: `closed`, `empty` (no sample), `dead`, `voided`",
            ),
            conversations: table.counter(
                "dyad_conversations",
                ["outcome", "reason"],
                "conversations `played`; those and seats that `failed`",
            ),
            conversation_turns: table.batched(
                "dyad_conversation_turns",
                [],
                TURNS,
                "turns of all roles per conversation",
            ),
            conversation_seconds: table.batched(
                "dyad_conversation_seconds",
                [],
                CONVERSATION_SECONDS,
                "from asking for a conversation's first turn to the commit of its last",
            ),
            turns: table.counter(
                "dyad_turns",
                ["agent", "role", "outcome", "reason"],
                "turns that train: `committed`, `retried`, `failed`",
            ),
            turn_seconds: table.batched(
                "dyad_turn_seconds",
                ["agent", "role"],
                TURN_SECONDS,
                "from asking for a turn to its commit",
            ),
            stale: table.counter("dyad_results_stale", [], "results that came too late"),
            tasks: table.counter(
                "dyad_tasks",
                ["source", "outcome"],
                "tasks, `published` or `own`: `admitted`, `duplicate`, `dead`",
            ),
            commit: table.histogram(
                "dyad_commit_seconds",
                [],
                CALL_SECONDS,
                "a group's part of a commit in the state store",
            ),
            leases_lost: table.counter("dyad_leases_lost", [], "leases of groups that were lost"),
            grader: table.histogram(
                "dyad_grader_seconds",
                ["grader", "outcome"],
                TURN_SECONDS,
                "answers of programs and judges, by role",
            ),
            tool: table.histogram(
                "dyad_tool_call_seconds",
                ["tool", "outcome"],
                TURN_SECONDS,
                "tool calls",
            ),
            eval_value: table.gauge(
                "dyad_eval_value",
                ["suite", "figure"],
                "mean of the newest evaluation; suite is empty for the run's own",
            ),
            eval_step: table.gauge("dyad_eval_step", [], "step of the newest evaluation"),
            eval_held: table.counter(
                "dyad_eval_held_seconds",
                [],
                "time that agents held their weights for evaluations",
            ),
        }
    }
}
