//! Plays groups of conversations to their end, over engines in this process.
//!
//! All wanted turns are asked as one closed wave, and no new turn while any is outstanding, like
//! the coordinator's synchronous rounds. The bits of an answer then depend on the wave alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use broker::AgentName;
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::task::Task;
use broker::protocol::turn::{TurnFrame, TurnOutcome, TurnPrompt, turn_key};
use configs::{EngineKind, RunConfig};
use rollout::group::{GroupRun, MemberEnd, RunSpec};
use rollout::workflow::unanswered::{unanswered_by, without_room};
use rollout::workflow::{Workflow, player};
use tokio::sync::mpsc::unbounded_channel;

use super::engines::Seat;
use crate::agent::router::answers::outcome;
use crate::base::fault::Usage;
use crate::engine::GenerationJob;
use crate::participant::Host;
use crate::turn::frames;
use crate::turn::frames::OutgoingTurn;
use crate::turn::room;
use crate::turn::sampling::sampling;
use crate::turn::{failure, image_support};

/// Tasks with their ids.
pub type Tasks = Vec<(String, Arc<Task>)>;

/// The way in which tasks are played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Manner {
    /// One conversation per task, at temperature 0, with the seeds of a run's first evaluation.
    Greedy,
    /// This number of sampled conversations per task, at one temperature.
    Sampled { samples: u16, temperature: f32 },
    /// This number of sampled conversations per task, with each role's configured sampling.
    AsInTraining { samples: u16 },
}

/// One task's conversations, in the order of members.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedTask {
    /// The task's id.
    pub task: String,
    pub content: Arc<Task>,
    pub ends: Vec<MemberEnd>,
}

/// The target number of conversations that are played at once.
const AT_ONCE: usize = 256;

/// The number of tasks that are played together, with `samples` conversations of each.
#[must_use]
pub fn chunk(samples: u16) -> usize {
    (AT_ONCE / usize::from(samples.max(1))).max(1)
}

/// The name under which a task is played; its seeds follow from it. Greedy conversations of an
/// evaluation use the run's step. Samples are the same draws each time.
#[must_use]
pub fn task_id(greedy: bool, step: u64, suite: Option<&str>, id: &str) -> String {
    let suite = suite.map_or_else(String::new, |suite| format!("{suite}/"));
    if greedy {
        format!("eval/{step}/{suite}{id}")
    } else {
        format!("sample/{suite}{id}")
    }
}

/// Plays conversations of one workflow with given agents.
pub struct Player<'a> {
    config: &'a RunConfig,
    workflow: Arc<dyn Workflow>,
    host: Host,
    suite: Option<String>,
    seats: &'a BTreeMap<AgentName, Seat>,
}

/// No other process writes these groups, so only their ids need to differ.
const ATTEMPT: Attempt = Attempt([0; 16]);

impl<'a> Player<'a> {
    /// Needs a tokio runtime for programs that take part.
    #[must_use]
    pub fn new(config: &'a RunConfig, workflow: Arc<dyn Workflow>, seats: &'a BTreeMap<AgentName, Seat>) -> Self {
        let host = Host::start(workflow.clone(), None);
        Self::with_host(config, workflow, seats, host)
    }

    /// Creates a player like [`Player::new`], with programs that are already started.
    #[must_use]
    pub fn with_host(
        config: &'a RunConfig,
        workflow: Arc<dyn Workflow>,
        seats: &'a BTreeMap<AgentName, Seat>,
        host: Host,
    ) -> Self {
        Self {
            config,
            workflow,
            host,
            suite: None,
            seats,
        }
    }

    /// Sets the suite that the tasks belong to.
    #[must_use]
    pub fn of_suite(mut self, name: Option<String>) -> Self {
        self.suite = name;
        self
    }

    /// Plays the tasks like [`Player::play`], one chunk after another.
    ///
    /// # Errors
    /// The same as [`Player::play`].
    pub async fn play_in_chunks(&self, tasks: &Tasks, manner: Manner) -> anyhow::Result<Vec<PlayedTask>> {
        let samples = match manner {
            Manner::Greedy => 1,
            Manner::Sampled { samples, .. } | Manner::AsInTraining { samples } => samples,
        };
        let mut played = Vec::new();
        for some in tasks.chunks(chunk(samples)) {
            played.extend(self.play(some, manner).await?);
        }
        Ok(played)
    }

    #[must_use]
    pub fn workflow(&self) -> &Arc<dyn Workflow> {
        &self.workflow
    }

    /// The programs and tools of the roles that no agent plays.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Plays all tasks at once, in their order.
    ///
    /// # Errors
    /// Fails if the workflow cannot use a task, a role has no player, an engine is gone, a program
    /// fails and never answers, or no request can be sampled. A conversation that fails is part
    /// of the result.
    pub async fn play(&self, tasks: &[(String, Arc<Task>)], manner: Manner) -> anyhow::Result<Vec<PlayedTask>> {
        for (id, task) in tasks {
            rollout::workflow::check_task(self.workflow.as_ref(), task)
                .map_err(|reason| anyhow::anyhow!("task {id} cannot be played: {reason}"))?;
        }
        let mut runs: Vec<GroupRun> = tasks
            .iter()
            .map(|(id, task)| GroupRun::new(self.spec(id, task, manner)))
            .collect();
        loop {
            let mut asked = Vec::new();
            for (index, run) in runs.iter_mut().enumerate().filter(|(_, run)| !run.is_done()) {
                asked.extend(run.take_wanted().into_iter().map(|wanted| (index, wanted)));
            }
            if asked.is_empty() {
                break;
            }
            for (index, key, outcome) in self.wave(asked, manner).await? {
                let Some(run) = runs.get_mut(index) else { continue };
                let last = run.last_try(&key).unwrap_or(true);
                match self.by_policy(&key, outcome, last) {
                    TurnOutcome::Done(made) => run
                        .on_result(key, made)
                        .context("an answer does not belong to its conversation")?,
                    TurnOutcome::Failed { failure, retry } => {
                        tracing::warn!(role = %key.role, reason = failure.to_string(), retry, "a turn failed");
                        run.on_failure(&key, &failure, retry);
                    }
                }
            }
            if let Some(why) = self.host.take_broken() {
                return Err(Usage::new(why)
                    .hint("correct it, and try it with `dyad workflow test CONFIG`")
                    .into());
            }
        }
        let ended = |(run, (id, task)): (GroupRun, &(String, Arc<Task>))| PlayedTask {
            task: id.clone(),
            content: task.clone(),
            ends: run.finish(),
        };
        Ok(runs.into_iter().zip(tasks).map(ended).collect())
    }

    fn spec(&self, id: &str, task: &Arc<Task>, manner: Manner) -> RunSpec {
        let (greedy, group_size) = match manner {
            Manner::Greedy => (true, 1),
            Manner::Sampled { samples, .. } | Manner::AsInTraining { samples } => (false, samples.max(1)),
        };
        let task_id = task_id(greedy, 0, self.suite.as_deref(), id);
        RunSpec {
            workflow: self.workflow.clone(),
            task: task.clone(),
            task_id,
            run_seed: self.config.run.seed,
            group_size,
            retries: self.config.workflow.retries,
            min_valid: 1,
        }
    }

    /// Asks for all turns and waits for all of them. Answers come in the order of groups and keys.
    async fn wave(
        &self,
        asked: Vec<(usize, rollout::group::Wanted)>,
        manner: Manner,
    ) -> anyhow::Result<Vec<(usize, TurnKey, TurnOutcome)>> {
        let (of_programs, of_agents): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .partition(|(_, wanted)| self.host.plays(&wanted.key.role));
        let programs = of_programs.into_iter().map(|(index, wanted)| async move {
            let outcome = self.host.ask(&wanted.key.role, &wanted.ask.messages).await;
            (index, wanted.key, outcome)
        });
        let wanted = of_agents
            .into_iter()
            .map(|(index, wanted)| self.address(index, wanted, manner))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut by_agent: BTreeMap<AgentName, Vec<TurnFrame>> = BTreeMap::new();
        for (agent, frame) in frames::build(wanted, "eval", None) {
            by_agent.entry(agent).or_default().push(frame);
        }
        let agents = by_agent.into_iter().map(|(agent, frames)| self.generate(agent, frames));
        let (programs, agents) = futures_util::future::join(
            futures_util::future::join_all(programs),
            futures_util::future::try_join_all(agents),
        )
        .await;
        let mut answers: Vec<_> = agents?.into_iter().flatten().chain(programs).collect();
        answers.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Ok(answers)
    }

    /// A judge's turn that failed for good is a missing grade, for every kind of judge. A turn
    /// without room may be left out.
    fn by_policy(&self, key: &TurnKey, outcome: TurnOutcome, last: bool) -> TurnOutcome {
        match outcome {
            TurnOutcome::Failed { failure, retry } => {
                let left_out = (failure.code == FailureCode::Context).then(|| without_room(&*self.workflow, &key.role));
                left_out.flatten().unwrap_or_else(|| {
                    unanswered_by(&self.config.workflow, &*self.workflow, &key.role, failure, retry, last)
                })
            }
            done @ TurnOutcome::Done(_) => done,
        }
    }

    fn address(&self, index: usize, one: rollout::group::Wanted, manner: Manner) -> anyhow::Result<OutgoingTurn> {
        let role = &one.key.role;
        let player = player(&self.config.workflow, &*self.workflow, role);
        let player = player.with_context(|| format!("no agent or program plays the role {role}"))?;
        let agent = &player.agent;
        let seat = self
            .seats
            .get(agent)
            .with_context(|| format!("agent {agent} does not play"))?;
        let of_role = self.config.workflow.sampling.get(role);
        let engine = self
            .config
            .agents
            .get(agent)
            .map_or(EngineKind::Embedded, |agent| agent.engine.kind);
        let greedy = manner == Manner::Greedy;
        let mut sampling = sampling(seat.sampling, of_role, one.ask.max_new_tokens, one.ask.stop, greedy);
        let all = match manner {
            Manner::Sampled { temperature, .. } => Some(temperature),
            Manner::AsInTraining { .. } | Manner::Greedy => None,
        };
        if !greedy {
            sampling.temperature = player.temperature.or(all).unwrap_or(sampling.temperature);
        }
        let messages = image_support::shown(&*self.workflow, (agent, role), engine, one.ask.messages);
        Ok(OutgoingTurn {
            agent: agent.clone(),
            group: group(index),
            attempt: ATTEMPT,
            task_order: index as u64,
            key: one.key,
            prompt: TurnPrompt {
                held: one.held,
                sampled: one.sampled,
                messages,
            },
            sampling,
            seed: one.seed,
            is_recorded: false,
        })
    }

    /// Generates one agent's part of a wave.
    async fn generate(
        &self,
        agent: AgentName,
        frames: Vec<TurnFrame>,
    ) -> anyhow::Result<Vec<(usize, TurnKey, TurnOutcome)>> {
        let seat = self.seats.get(&agent).context("an agent has no engine")?;
        let mut answers = Vec::new();
        let mut jobs = Vec::new();
        let mut asked: BTreeMap<RequestId, (usize, TurnKey, usize)> = BTreeMap::new();
        for frame in frames {
            let prompts = seat.renderer.render(frame.prompts.into()).await;
            for request in frame.requests {
                let key = turn_key(request.member, &request.role, request.seat, request.turn);
                let key = key.with_context(|| format!("{:?} is not a role's name", request.role))?;
                let index = index_of(request.group);
                let prompt = prompts.get(request.prompt as usize);
                let sampling = frame.samplings.get(request.sampling as usize);
                let fitted = prompt.zip(sampling).map(|(prompt, sampling)| -> Result<_, Failure> {
                    let prompt = prompt.as_ref();
                    let prompt = prompt.map_err(|why| failure::prompt(agent.as_str(), &request.role, why))?;
                    Ok((prompt, room::within(prompt.ids.len(), sampling)?))
                });
                match fitted {
                    Some(Ok((prompt, sampling))) => {
                        asked.insert(request.request, (index, key, prompt.kept));
                        jobs.push(GenerationJob {
                            request: request.request,
                            group: request.group,
                            member: request.member,
                            prompt_ids: prompt.ids.clone(),
                            sampling,
                            seed: request.seed,
                            keep: false,
                        });
                    }
                    Some(Err(failure)) => answers.push((index, key, TurnOutcome::Failed { failure, retry: false })),
                    None => anyhow::bail!("a frame names a prompt that it does not hold"),
                }
            }
        }
        if jobs.is_empty() {
            return Ok(answers);
        }
        let (done, mut finished) = unbounded_channel();
        seat.engine.submit(jobs, true, done);
        while !asked.is_empty() {
            let list = finished
                .recv()
                .await
                .with_context(|| format!("the engine of {agent} is gone"))?;
            seat.record(&agent, &list)?;
            for one in list {
                let Some((index, key, kept)) = asked.remove(&one.job.request) else {
                    continue;
                };
                let made = one.result.as_ref();
                let text = made.map_or_else(
                    |_| String::new(),
                    |made| seat.text.decode(&one.job.prompt_ids, &made.output_ids),
                );
                answers.push((index, key, outcome(one, text, kept)));
            }
        }
        seat.check_wave(&agent)?;
        Ok(answers)
    }
}

/// The id of the group at this index; the index can be read back from it.
fn group(index: usize) -> GroupId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
    GroupId(bytes)
}

fn index_of(group: GroupId) -> usize {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&group.0[..8]);
    u64::from_le_bytes(bytes) as usize
}
