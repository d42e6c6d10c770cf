//! Every figure that a run writes, with its meaning: the source of the tables in `METRICS.md`.
//!
//! Words in capitals stand for names: of a role, agent, reward part, reason, suite or figure. `N`,
//! `K` and `k` stand for numbers.

/// Names that share a meaning.
type Row = (&'static [&'static str], &'static str);

/// The figures of one kind of line.
pub struct Section {
    pub kind: &'static str,
    /// The beginning of each name.
    pub prefix: &'static str,
    rows: &'static [Row],
}

/// The sections of the page, in its order. Evaluations have the workflow's own figures too.
pub const SECTIONS: [Section; 5] = [
    Section {
        kind: "conversations",
        prefix: "",
        rows: &[
            (&["conversations"], "conversations counted"),
            (
                &["multi_agent/avg_turns"],
                "mean per conversation, of roles in `[workflow.roles]`",
            ),
            (
                &["multi_agent/early_termination_rate"],
                "share with fewer turns than allowed; where length varies",
            ),
            (
                &["multi_agent/truncation_rate"],
                "share in which a token limit, not the game's own, cut off a turn",
            ),
            (
                &[
                    "multi_agent/conversation_token_count",
                    "multi_agent/conversation_token_count/p95",
                ],
                "tokens of all roles: mean, 95th percentile",
            ),
            (
                &["loss_mask/role_split", "loss_mask/role_split/ROLE"],
                "largest and each role's share of trained tokens",
            ),
            (&["reward/avg", "reward/avg/ROLE"], "mean over seats"),
            (&["success"], "as the workflow defines it"),
        ],
    },
    Section {
        kind: "train",
        prefix: "",
        rows: &[
            (&["groups", "samples"], "in the batch"),
            (
                &["reward/mean", "reward/std", "reward/ROLE", "reward_std/ROLE"],
                "over samples; of one role",
            ),
            (&["part/ROLE/PART"], "a reward part before its weight"),
            (&["advantage/abs"], "mean size"),
            (
                &["advantage/zero_share"],
                "share of groups without a difference in reward",
            ),
            (&["advantage/kl"], "KL (nats) taken off them, `kl.place = \"reward\"`"),
            (
                &["tokens", "tokens/trained", "tokens/stale", "tokens/per_sample"],
                "sampled; with a gradient; too old; mean",
            ),
            (
                &["samples/truncated"],
                "cut off by a token limit that is no rule of the game",
            ),
            (&["discarded/REASON"], "samples without a gradient, by reason"),
            (
                &["staleness/mean", "staleness/max"],
                "age of a sample's oldest token, steps",
            ),
            (&["staleness/samples/N"], "samples of age N; 16: and older"),
            (&["loss"], "as `train.loss` defines it"),
            (&["loss/entropy"], "nats per token"),
            (
                &["loss/clipped"],
                "share of tokens that lost their gradient to the clip (CISPO: have a bounded one)",
            ),
            (&["loss/ratio", "loss/ratio_max"], "mean and largest"),
            (&["loss/reference_kl"], "KL to `kl.ref`, nats"),
            (
                &["m2po/second_moment", "m2po/second_moment_kept"],
                "before and after the bound",
            ),
            (&["m2po/kept"], "share of tokens kept"),
            (&["mismatch/behaviour_kl"], "KL to the weights that sampled, nats"),
            (
                &["mismatch/on_policy_gap", "mismatch/off_policy_gap"],
                "engine against trainer, on equal weights (below 1e-4) and others",
            ),
            (&["optim/grad_norm", "optim/lr"], "before clipping; learning rate"),
            (&["optim/skipped"], "steps skipped: gradient not finite"),
            (
                &["collapse/repetition"],
                "share of an answer that repeats itself, in runs of three tokens",
            ),
            (&["collapse/sameness"], "share of a group's answers equal to another"),
            (&["collapse/alarms"], "figures outside `train.alarms`"),
            (&["collapse/idle"], "1: nothing learned"),
            (&["time/train_s", "time/groups_waiting"], "seconds; groups in the batch"),
            (
                &["time/wait_s", "time/checkpoint_s", "time/ledger_s"],
                "seconds before the batch was formed; in the checkpoint before; recording the batch",
            ),
            (
                &[
                    "time/old_logprobs_s",
                    "time/forward_backward_s",
                    "time/optimizer_s",
                    "time/publish_s",
                ],
                "seconds in the step's parts; with the row above, its wall time",
            ),
        ],
    },
    Section {
        kind: "train",
        prefix: "role/ROLE/",
        rows: &[
            (&["zero_advantage", "truncated", "discarded"], "shares of samples"),
            (&["discarded/REASON"], "samples, by reason"),
            (&["tokens", "tokens_trained", "tokens_per_sample"], "as above"),
            (&["staleness/mean", "staleness/max", "staleness/samples/N"], "as above"),
            (
                &["entropy", "clipped", "ratio", "ratio_max", "reference_kl"],
                "as `loss/*`",
            ),
            (
                &["behaviour_kl", "on_policy_gap", "off_policy_gap", "repetition"],
                "as `mismatch/*`, `collapse/*`",
            ),
        ],
    },
    Section {
        kind: "coordinator",
        prefix: "",
        rows: &[
            (
                &["groups", "conversations", "turns", "tokens"],
                "closed, ended, committed, sampled",
            ),
            (
                &["conversations/failed", "conversations/failed/REASON"],
                "conversations and seats that left the statistics",
            ),
            (
                &["turns/retried/ROLE/REASON", "turns/failed/ROLE/REASON"],
                "generations asked for again; failed for good",
            ),
            (&["results/stale"], "results that came too late"),
            (&["tasks/dead"], "tasks this coordinator put into the dead letters"),
            (
                &["time/conversations_per_s", "time/turns_per_s"],
                "rates since its start",
            ),
        ],
    },
    Section {
        kind: "eval",
        prefix: "",
        rows: &[
            (
                &["success"],
                "mean over tasks, like the [workflow's own](../rollout/README.md) figures",
            ),
            (
                &["reward/AGENT", "reward/AGENT/ROLE"],
                "mean reward; by role where it plays several",
            ),
            (&["tokens/ROLE", "tokens/votes"], "said per task; of a majority vote"),
            (
                &["majority", "verifier_balanced"],
                "majority vote (`eval.votes`); the verifier on its pool (`eval.pool`)",
            ),
            (&["conversations/failed"], "left out"),
            (
                &[
                    "SUITE/FIGURE",
                    "SUITE/avg@K/FIGURE",
                    "SUITE/pass@k/FIGURE",
                    "SUITE/maj@K/success",
                ],
                "[suites](EVALUATING.md#suites)",
            ),
            (&["collapse/alarms"], "figures below `eval.floors`"),
            (
                &["weights/pinned", "weights/step/AGENT"],
                "[which weights](EVALUATING.md#while-a-run-trains)",
            ),
            (&["time/held_s"], "how long agents held their weights"),
        ],
    },
];

/// Returns true if the page documents a figure of a line of `kind`. Evaluations are open, because a
/// workflow names figures, and so are kinds without a table.
#[must_use]
pub fn is_documented(kind: &str, name: &str) -> bool {
    let mut sections = SECTIONS.iter().filter(|section| section.kind == kind).peekable();
    let is_open = kind == "eval" || sections.peek().is_none();
    is_open
        || ["kind", "step", "agent", "time/elapsed_s"].contains(&name)
        || sections.any(|section| {
            let names = section.rows.iter().flat_map(|(names, _)| *names);
            names
                .map(|pattern| format!("{}{pattern}", section.prefix))
                .any(|pattern| fits(&pattern, name))
        })
}

/// Returns true if each part of the name equals the pattern's, or stands for a word in capitals.
fn fits(pattern: &str, name: &str) -> bool {
    let is_free = |part: &str| part.chars().all(|c| c.is_ascii_uppercase());
    let (pattern, name): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), name.split('/').collect());
    pattern.len() == name.len()
        && pattern
            .iter()
            .zip(&name)
            .all(|(wanted, part)| is_free(wanted) || wanted == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "| figure | meaning |\n|---|---|\n";

    fn table(section: &Section) -> String {
        let row = |(names, meaning): &Row| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {} | {meaning} |\n", names.join(", "))
        };
        section.rows.iter().map(row).collect()
    }

    /// Replaces each table of figures by the section's, in order.
    fn page(written: &str) -> String {
        let mut parts = written.split(BEGIN);
        let mut page = parts.next().unwrap_or_default().to_owned();
        for (section, part) in SECTIONS.iter().zip(parts) {
            let (_, after) = part.split_once("\n\n").unwrap_or((part, ""));
            page += &[BEGIN, &table(section), "\n", after].concat();
        }
        format!("{}\n", page.trim_end())
    }

    /// After an intended change, `DYAD_GOLDEN=write cargo test -p agents figures` writes the page.
    #[test]
    fn tables_of_the_page_are_these() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("METRICS.md");
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.matches(BEGIN).count(), SECTIONS.len());
        let page = page(&written);
        if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&path, &page).unwrap();
        } else {
            assert!(
                written == page,
                "METRICS.md is stale: run DYAD_GOLDEN=write cargo test -p agents figures"
            );
        }
    }

    #[test]
    fn names_fit_their_patterns_part_by_part() {
        for (kind, name) in [
            ("train", "reward/solver"),
            ("train", "role/solver/staleness/samples/3"),
            ("coordinator", "turns/failed/solver/context"),
        ] {
            assert!(is_documented(kind, name), "{kind} {name}");
        }
        for (kind, name) in [
            ("train", "reward/solver/again"),
            ("train", "role/solver/strange"),
            ("coordinator", "advantage/abs"),
        ] {
            assert!(!is_documented(kind, name), "{kind} {name}");
        }
    }
}
