//! `dyad conversations`: lists conversations by reward and role.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use broker::RoleName;
use clap::Args;
use configs::RunConfig;

use super::render::table::{Align, Table};
use super::select::RunArg;
use crate::base::fault::Usage;
use crate::run_folder::logs::{Newest, RewardBound, Transcript, one_line, printable};

/// List conversations with their tasks and rewards
#[derive(Debug, Args)]
pub struct ConversationsArgs {
    /// The number of newest conversations shown
    #[arg(long, value_name = "N", default_value = "10")]
    pub last: NonZeroUsize,
    /// Only conversations with such a reward, for example '>0.5', '<=0' or '=1'
    #[arg(long, value_name = "BOUND", allow_hyphen_values = true)]
    pub reward: Option<RewardBound>,
    /// Only this role's rewards
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Print the stored JSON, one object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &ConversationsArgs) -> anyhow::Result<()> {
    let folder = args.run.folder()?;
    if let Some(role) = &args.role {
        require_role(role, &folder.config()?)?;
    }
    let newest = newest(Newest::open(folder.files("transcripts")?, None)?, args)?;
    if newest.is_empty() {
        return Err(Usage::new(format!("run {} has no such conversation", folder.run()))
            .hint("run.transcripts selects the conversations that are written; leave out --reward and --role")
            .into());
    }
    if args.json {
        for transcript in &newest {
            println!("{}", printable(&serde_json::to_string(transcript)?));
        }
    } else {
        print!("{}", args.table(&newest));
    }
    Ok(())
}

fn require_role(role: &str, config: &RunConfig) -> anyhow::Result<()> {
    let roles: Vec<&str> = config.workflow.roles.keys().map(RoleName::as_str).collect();
    if roles.contains(&role) {
        return Ok(());
    }
    let usage = Usage::new(format!("the workflow {} has no role {role:?}", config.workflow.kind));
    Err(usage.hint(format!("its roles: {}", roles.join(", "))).into())
}

/// Returns the newest conversations that are wanted, the newest last.
fn newest(mut all: Newest, args: &ConversationsArgs) -> std::io::Result<VecDeque<Transcript>> {
    let mut found = VecDeque::new();
    while found.len() < args.last.get()
        && let Some(transcript) = all.next_transcript()?
    {
        if args.wants(&transcript) {
            found.push_front(transcript);
        }
    }
    Ok(found)
}

impl ConversationsArgs {
    /// Returns the rewards that are asked for, by seat.
    fn rewards<'a>(&'a self, transcript: &'a Transcript) -> impl Iterator<Item = (&'a str, f64)> {
        let seats = transcript.rewards.iter();
        seats
            .filter(move |(seat, _)| {
                let role = seat.split('/').next();
                self.role.as_deref().is_none_or(|wanted| role == Some(wanted))
            })
            .filter_map(|(seat, parts)| Some((seat.as_str(), *parts.get("total")?)))
    }

    fn wants(&self, transcript: &Transcript) -> bool {
        let any = self.role.is_none() && self.reward.is_none();
        any || self
            .rewards(transcript)
            .any(|(_, reward)| self.reward.is_none_or(|bound| bound.holds(reward)))
    }

    fn table(&self, found: &VecDeque<Transcript>) -> String {
        let mut table = Table::new(&[("conversation", Align::Left), ("task", Align::Left)]);
        table.column("step", Align::Right);
        table.column("status", Align::Left);
        table.column("rewards", Align::Left);
        for transcript in found {
            let rewards: Vec<String> = self
                .rewards(transcript)
                .map(|(seat, reward)| format!("{seat} {reward:.3}"))
                .collect();
            let cells = [&transcript.conversation, &transcript.task].map(|text| one_line(text).into_owned());
            let [conversation, task] = cells;
            table.row(vec![
                conversation,
                task,
                transcript.step.to_string(),
                one_line(&transcript.status).into_owned(),
                rewards.join("  "),
            ]);
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run_folder::logs::Transcripts;

    fn conversation(step: u64, rewards: &[(&str, f64)]) -> Transcript {
        let total = |reward: f64| BTreeMap::from([("total".to_owned(), reward)]);
        Transcript {
            conversation: format!("ab/{step}"),
            task: "t1".into(),
            step,
            rewards: rewards
                .iter()
                .map(|(seat, reward)| ((*seat).to_owned(), total(*reward)))
                .collect(),
            ..Transcript::default()
        }
    }

    fn args(reward: Option<&str>, role: Option<&str>) -> ConversationsArgs {
        ConversationsArgs {
            last: NonZeroUsize::MIN,
            reward: reward.map(|text| text.parse().unwrap()),
            role: role.map(str::to_owned),
            json: false,
            run: RunArg {
                run: "latest".into(),
                runs: "runs".into(),
            },
        }
    }

    #[test]
    fn conversations_are_selected_by_reward_and_role() {
        let found = conversation(3, &[("speaker", 1.0), ("listener/1", 0.25)]);
        for (reward, role, wanted) in [
            (None, None, true),
            (Some(">0.5"), None, true),
            (Some(">0.5"), Some("listener"), false),
            (Some("<= 0.25"), Some("listener"), true),
            (Some("=1"), Some("speaker"), true),
            (None, Some("judge"), false),
        ] {
            assert_eq!(args(reward, role).wants(&found), wanted, "{reward:?} {role:?}");
        }
        assert!("0.5".parse::<RewardBound>().is_err() && ">x".parse::<RewardBound>().is_err());
        let text = args(None, None).table(&VecDeque::from([found]));
        assert!(text.contains("listener/1 0.250  speaker 1.000"), "{text}");
    }

    #[test]
    fn unknown_role_is_refused_with_the_roles_that_exist() {
        let config = crate::run_folder::tests::config_in(std::path::Path::new("runs"));
        require_role("speaker", &config).unwrap();
        let text = crate::cli::exit_code::render(&require_role("nix", &config).unwrap_err());
        assert!(
            text.contains("signal has no role \"nix\"\nhint: its roles: listener, speaker"),
            "{text}"
        );
    }

    #[test]
    fn newest_wanted_conversations_of_all_files_come_last() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        for (name, steps) in [("x.jsonl", [1, 4, 6]), ("y.jsonl", [2, 3, 5])] {
            let written = Transcripts::open(&path(name)).unwrap();
            for step in steps {
                written.write(&conversation(step, &[("speaker", (step % 2) as f64)]));
            }
            written.flush();
        }
        for (last, reward, wanted) in [(2, None, vec![5, 6]), (9, Some("=0"), vec![2, 4, 6])] {
            let args = ConversationsArgs {
                last: NonZeroUsize::new(last).unwrap(),
                ..args(reward, None)
            };
            let all = Newest::open(vec![path("x.jsonl"), path("y.jsonl")], None).unwrap();
            let found = newest(all, &args).unwrap();
            assert_eq!(found.iter().map(|one| one.step).collect::<Vec<_>>(), wanted);
        }
    }
}
