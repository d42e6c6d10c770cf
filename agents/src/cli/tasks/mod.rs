//! `dyad tasks dead`: tasks and messages that failed, with reasons; requeued or dropped by a
//! person.

mod change;
pub(super) mod letters;
mod reading;
pub(super) mod saved;

use std::path::PathBuf;

use broker::topology::Topology;
use clap::{Args, Subcommand};

use super::ended::Over;
use super::render::dead_letters::{json_lines, render};
use super::select::{self, RunArg};
use super::{publish, task_rules};
use crate::base::fault::Usage;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::printable;
pub(super) use change::Change;
pub use letters::{Letter, Order, handle, look};

/// Manage a run's tasks
#[derive(Debug, Args)]
pub struct TasksArgs {
    #[command(subcommand)]
    command: TasksCommand,
}

#[derive(Debug, Subcommand)]
enum TasksCommand {
    Dead(DeadArgs),
}

/// List, requeue or drop tasks that could not be handled
///
/// Each letter has the reason, the stage and class of its failure, the time of the first one, their
/// number, and its origin. A requeued task that fails again becomes a dead letter once more. Only
/// this command requeues letters. Those of an ended run with a private broker are in its folder,
/// and can only be listed.
#[derive(Debug, Args)]
pub struct DeadArgs {
    /// Show only these letters, with their bodies
    #[arg(value_name = "ID", conflicts_with_all = ["requeue", "drop"])]
    pub ids: Vec<String>,
    /// Requeue the tasks with these ids
    #[arg(long, num_args = 0.., value_name = "ID", conflicts_with = "drop")]
    pub requeue: Option<Vec<String>>,
    /// With --requeue ID: publish the task in this file instead; - is standard input
    #[arg(long, value_name = "FILE", requires = "requeue")]
    pub edit: Option<PathBuf>,
    /// With --requeue ID: give the task this id; needed if it was accepted before it failed
    #[arg(long = "as", value_name = "NEW-ID", requires = "requeue")]
    pub as_id: Option<String>,
    /// Remove the letters with these ids
    #[arg(long, num_args = 0.., value_name = "ID")]
    pub drop: Option<Vec<String>>,
    /// With --requeue or --drop: apply it to all letters
    #[arg(long, conflicts_with_all = ["ids", "edit", "as_id"])]
    pub all: bool,
    /// Print the bodies as well
    #[arg(long)]
    pub bodies: bool,
    /// Print each letter as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Broker URL, instead of the run's own
    #[arg(long, env = "DYAD_BROKER", hide_env_values = true, value_name = "URL")]
    pub broker: Option<String>,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &TasksArgs) -> anyhow::Result<()> {
    let TasksCommand::Dead(args) = &args.command;
    let folder = args.run.of_broker(None, args.broker.as_deref())?;
    let order = args.order(&folder)?;
    let show = |letters: &[Letter]| args.show(&order, letters);
    if let Some((letters, over)) = saved_letters(args, &folder, &order)? {
        show(&letters)?;
        if args.json {
            return Ok(());
        }
        println!("{}: these dead letters were saved at its end", printable(over.text()));
        if !letters.is_empty() {
            println!("to play them, {}", saved::advice(&folder, &over));
        }
        return Ok(());
    }
    let url = select::broker_url(args.broker.as_deref(), Some(&folder))?;
    let topology = Topology::new(folder.run().clone());
    let letters = select::block_on(async {
        let bus = select::connect(&url, "tasks dead").await?;
        let letters = handle(&bus, &topology, &order).await;
        // Letters that were not taken return to the queue.
        bus.close().await;
        letters
    })?;
    show(&letters)?;
    let (named, _) = order.named_and_missing(&letters);
    let kept = letters.iter().filter(|letter| letter.kept).count();
    let ordered = !matches!(order, Order::List(_));
    anyhow::ensure!(
        !(ordered && named && kept > 0),
        "{kept} of {} letters were kept",
        letters.len()
    );
    Ok(())
}

/// Returns the saved letters of a run that has ended with its own broker.
fn saved_letters(args: &DeadArgs, folder: &RunFolder, order: &Order) -> anyhow::Result<Option<(Vec<Letter>, Over)>> {
    match args.broker {
        Some(_) => Ok(None),
        None => saved::of_an_ended_run(folder, order),
    }
}

impl DeadArgs {
    /// Prints the letters, and returns an error if an id belongs to none.
    fn show(&self, order: &Order, letters: &[Letter]) -> anyhow::Result<()> {
        let bodies = self.bodies || !self.ids.is_empty();
        let (named, _) = order.named_and_missing(letters);
        if self.json {
            print!("{}", json_lines(letters, bodies)?);
        } else if !(named && letters.is_empty()) {
            print!("{}", render(letters, bodies));
        }
        order.all_found(letters)
    }

    fn order(&self, folder: &RunFolder) -> anyhow::Result<Order> {
        if self.edit.is_some() || self.as_id.is_some() {
            let [letter] = self.requeue.as_deref().unwrap_or_default() else {
                return Err(
                    Usage::new("--edit and --as change one letter: name it with --requeue ID")
                        .hint("list the ids with `dyad tasks dead`")
                        .into(),
                );
            };
            return Ok(Order::Change(Change {
                letter: letter.clone(),
                edited: self.edit.as_deref().map(publish::input::read).transpose()?,
                as_id: self.as_id.clone(),
                rules: task_rules::Rules::of(&folder.config()?)?,
                published: folder.published(),
            }));
        }
        if let Some(ids) = self.requeue.as_ref().or(self.drop.as_ref())
            && ids.is_empty() != self.all
        {
            let message = if self.all {
                "--all and ids exclude each other"
            } else {
                "--requeue and --drop need the ids of letters"
            };
            return Err(Usage::new(message)
                .hint("list the ids with `dyad tasks dead`; --all means every letter")
                .into());
        }
        Ok(match (&self.requeue, &self.drop) {
            (Some(ids), _) => Order::Requeue(ids.clone()),
            (_, Some(ids)) => Order::Drop(ids.clone()),
            _ => Order::List(self.ids.clone()),
        })
    }
}

impl Order {
    /// Returns an error if an id belongs to no letter.
    fn all_found(&self, letters: &[Letter]) -> anyhow::Result<()> {
        let (_, missing) = self.named_and_missing(letters);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Usage::new(format!("no dead letter has id {}", missing.join(", ")))
            .hint("list all with `dyad tasks dead`")
            .into())
    }

    /// Returns whether letters were asked for by id, and the ids that do not exist.
    pub(super) fn named_and_missing(&self, letters: &[Letter]) -> (bool, Vec<String>) {
        let asked = match self {
            Order::List(ids) | Order::Requeue(ids) | Order::Drop(ids) => ids.as_slice(),
            Order::Change(change) => std::slice::from_ref(&change.letter),
        };
        let gone = asked
            .iter()
            .filter(|id| !letters.iter().any(|letter| letter.is_named(id)));
        (!asked.is_empty(), gone.cloned().collect())
    }
}

#[cfg(test)]
mod tests;
