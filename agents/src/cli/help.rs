//! The page of `dyad --help`.

/// The help is written by hand, because clap cannot put commands into groups.
pub const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}{after-help}\n";

/// The commands in groups.
pub const GUIDE: &str = "\
Options: -h, --help; -V, --version. `dyad COMMAND --help` describes one command.

Run:
  init NAME           Copy a shipped configuration here; without NAME, list them
  run CONFIG          The whole run in one process, no server needed
  up CONFIG           One process per agent and coordinator, with RabbitMQ and Redis
  agent, coordinator  One process of a run, for containers and clusters
  engine CONFIG       One agent's engine as a separate process
Look:
  status              Agents, weights, rewards, rates and queues (--watch, --json)
  logs AGENT          Log lines of one process (-f, --level, --conversation)
  conversation, conversations  One by its id, or a task's outcome; the newest ones
  dashboard, report, samples  Live pages in the browser; a run's page; its turns as Parquet
Publish:
  publish FILE        Tasks to a run, one JSON object per line
  tasks dead          Tasks that failed, with reasons (--requeue, --drop)
  schema NAME         JSON Schema of tasks, configurations and programs' messages
  workflow test       Play a workflow with scripted answers, no model needed
Models:
  export AGENT        Weights in Hugging Face or PEFT format
  checkpoint RUN      One checkpoint of each agent, with nothing in flight
Evaluate:
  eval CONFIG         Tasks and suites with chosen weights: avg@k, pass@k, maj@k
  grade FILE          Answers with a shipped grader: what is read, and why
  cross-play RUN      Trained agents with initial partners: which training helped
  compare A B         Two runs, or two sets of runs, by their last evaluations
  audit               Check that no task was lost or counted twice
Operate:
  check CONFIG        All problems of a configuration, or all its defaults
  doctor              What this machine has, what is missing, how to fix it
  pause, resume, drain  Start no new groups; continue; finish tasks and open groups, then end
  compose, topology export  The run's containers; users with minimal permissions

For developers: recipes, learn, trainer (dyad starts it). First run: dyad run signal (a minute)
Select a run with --run: `latest` (the default), its id or the beginning of it, or its folder.
Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 70 a bug, 75 a service is unavailable.";
