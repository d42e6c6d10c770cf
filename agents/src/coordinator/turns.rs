//! Turns: what groups want is asked of the agents, and asked again when it stays silent.
//!
//! Asynchronous: whatever is wanted is asked at once. Synchronous: all that is wanted is one wave; nothing is asked while
//! anything is outstanding. What the answers do is in [`super::commits`].

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::bus::{Outgoing, PublishError};
use broker::codec;
use broker::ids::{Digest, GroupId, RequestId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Prompt, ResultFrame, TurnFrame};
use broker::{AgentName, RoleName};
use configs::Mode;
use tokio::time::Instant;

use rollout::workflow::player;

use super::actor::{Coordinator, Input, Open, Purpose, WaveState};
use super::hosted::Hosted;
use crate::base::retry;
use crate::turn::frames;
use crate::turn::frames::Wanted;
use crate::turn::image_support;
use crate::turn::sampling::sampling;

/// After how long a silent request is sent again to an agent that is alive. Repeats are harmless.
pub(super) const SILENT: Duration = Duration::from_secs(60);

impl Coordinator {
    /// Asks for what is wanted and closes what is done.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        let sync = self.env.config.run.mode == Mode::Sync;
        if sync {
            if !self.wave_may_begin() {
                return;
            }
            self.restart_broken_round(ctx);
            if !self.claiming.is_empty() {
                return;
            }
        }
        let dirty = std::mem::take(&mut self.dirty);
        let (mut wanted, mut hosted) = (Vec::new(), Vec::new());
        for group in dirty {
            let Some(open) = self.open.get_mut(&group) else {
                continue;
            };
            if open.run.is_done() {
                if open.committing == 0 {
                    self.close(group, ctx);
                }
                continue;
            }
            let taken = open.run.take_wanted();
            open.moved = Instant::now();
            let (attempt, purpose) = (open.attempt, open.purpose);
            for one in taken {
                let host = self.host_of(purpose);
                if host.plays(&one.key.role) {
                    let host = host.clone();
                    let (key, messages) = (one.key, one.ask.messages);
                    hosted.push(Hosted {
                        host,
                        group,
                        attempt,
                        key,
                        messages,
                    });
                } else {
                    let key = one.key.clone();
                    match self.address(group, one) {
                        Some(one) => wanted.push(one),
                        None => self.unplayed(group, &key),
                    }
                }
            }
        }
        if !wanted.is_empty() || !hosted.is_empty() {
            self.ask(wanted, &hosted, sync, ctx);
            self.ask_programs(hosted, ctx);
        }
        self.send_round(ctx);
    }

    /// Whether everything that belongs into the next wave is known.
    fn wave_may_begin(&self) -> bool {
        self.wave.is_none()
            && self.admitting.is_empty()
            && self.claiming.is_empty()
            && self
                .open
                .values()
                .all(|open| open.run.outstanding() == 0 && open.committing == 0)
    }

    /// Nobody would ever answer: the conversation has failed.
    fn unplayed(&mut self, group: GroupId, key: &TurnKey) {
        let Some(open) = self.open.get_mut(&group) else { return };
        tracing::error!(%group, member = key.member, role = %key.role, "no agent plays the role");
        let failure = Failure::other(format_args!("no agent plays {}", key.role));
        open.run.give_up(key.member, failure);
        self.dirty.insert(group);
    }

    fn address(&self, group: GroupId, one: rollout::group::Wanted) -> Option<Wanted> {
        let open = self.open.get(&group)?;
        let workflow = self.workflow_of(open.purpose);
        let played = player(&self.env.config.workflow, workflow, &one.key.role)?;
        let agent = &played.agent;
        let player = self.env.config.agents.get(agent)?;
        let of_role = self.env.config.workflow.sampling.get(&one.key.role);
        let greedy = matches!(open.purpose, Purpose::Eval | Purpose::Suite { greedy: true, .. });
        let mut sampling = sampling(player.sampling, of_role, one.ask.max_new_tokens, one.ask.stop, greedy);
        if !greedy {
            let own = played.temperature.or(self.temperature_of(open.purpose));
            sampling.temperature = own.unwrap_or(sampling.temperature);
        }
        let messages = image_support::shown(workflow, (agent, &one.key.role), player.engine.kind, one.ask.messages);
        Some(Wanted {
            agent: agent.clone(),
            group,
            attempt: open.attempt,
            task_order: open.order,
            key: one.key,
            prompt: Prompt {
                held: one.held,
                sampled: one.sampled,
                messages,
            },
            sampling,
            seed: one.seed,
        })
    }

    fn ask(&mut self, wanted: Vec<Wanted>, hosted: &[Hosted], sync: bool, ctx: &mut Context<Self>) {
        let wave = sync.then(|| {
            self.wave_seq += 1;
            self.wave_seq
        });
        let programs = hosted.iter().map(Hosted::request);
        let missing: HashSet<RequestId> = wanted.iter().map(Wanted::request).chain(programs).collect();
        let frames = frames::build(wanted, &self.env.incarnation, wave);
        for (agent, frame) in &frames {
            self.send_frame(agent, frame, ctx);
        }
        if sync {
            let since = Instant::now();
            self.wave = Some(WaveState {
                missing,
                held: Vec::new(),
                deliveries: Vec::new(),
                frames,
                since,
            });
        }
    }

    fn send_frame(&self, agent: &AgentName, frame: &TurnFrame, ctx: &mut Context<Self>) {
        let (env, addr) = (self.env.clone(), ctx.address());
        let (agent, frame) = (agent.clone(), frame.clone());
        tokio::spawn(async move {
            let mut results = Vec::new();
            if let Err(PublishError::TooLarge { .. }) = publish(&env, &agent, &frame).await {
                for single in frames::singles(&frame) {
                    let Err(PublishError::TooLarge { size, limit }) = publish(&env, &agent, &single).await else {
                        continue;
                    };
                    // Asked again, it would be as large.
                    let failure = Failure::too_large(size, limit, "shorten the prompts or the agent's context");
                    results.extend(
                        single
                            .requests
                            .into_iter()
                            .map(|request| request.failed(failure.clone())),
                    );
                }
            }
            if !results.is_empty() {
                let (agent, wave) = (agent.to_string(), frame.wave);
                let _ = addr
                    .send(Input::Results(ResultFrame { agent, wave, results }, None))
                    .await;
            }
        });
    }

    /// Whether an agent has been heard of within a lease. One that is away has its requests in its queue: more of them
    /// would only make it longer.
    pub(super) fn alive(&self, agent: &AgentName) -> bool {
        let heard = self.beats.get(agent);
        heard.is_some_and(|(beat, at)| beat.serving && at.elapsed() < self.env.config.run.lease.0)
    }

    /// An agent that starts anew finds those requests of a wave in its queue that its predecessor has not answered. It
    /// computes the wave when it has it whole.
    pub(super) fn ask_whole_wave(&self, agent: &AgentName, ctx: &mut Context<Self>) {
        let Some(wave) = &self.wave else { return };
        let missing = |frame: &TurnFrame| frame.requests.iter().any(|one| wave.missing.contains(&one.request));
        let frames = wave.frames.iter().filter(|(to, _)| to == agent).map(|(_, frame)| frame);
        if frames.clone().any(missing) {
            frames.for_each(|frame| self.send_frame(agent, frame, ctx));
        }
    }

    /// Sends requests again that have been silent for long, to agents that are alive.
    pub(super) fn ask_again(&mut self, ctx: &mut Context<Self>) {
        let alive: BTreeSet<AgentName> = self.beats.keys().filter(|agent| self.alive(agent)).cloned().collect();
        if let Some(wave) = self.wave.as_mut() {
            if wave.since.elapsed() > SILENT && wave.frames.iter().all(|(agent, _)| alive.contains(agent)) {
                wave.since = Instant::now();
                let frames = wave.frames.clone();
                tracing::warn!(missing = wave.missing.len(), "a wave is silent; asking again");
                frames
                    .iter()
                    .for_each(|(agent, frame)| self.send_frame(agent, frame, ctx));
            }
            return;
        }
        let env = self.env.clone();
        let is_silent = |open: &Open| open.run.outstanding() > 0 && open.moved.elapsed() > SILENT;
        let silent = self.open.iter().filter(|(_, open)| is_silent(open));
        let silent: Vec<(GroupId, Purpose)> = silent.map(|(group, open)| (*group, open.purpose)).collect();
        for (group, purpose) in silent {
            // Of the group's own workflow: a suite may have a judge that the run has not.
            let host = self.host_of(purpose).clone();
            let agent =
                |role: &RoleName| player(&env.config.workflow, host.workflow(), role).map(|player| player.agent);
            let may_ask = |role: &RoleName| agent(role).is_some_and(|agent| alive.contains(&agent));
            let Some(open) = self.open.get_mut(&group) else {
                continue;
            };
            let lost = open.run.requeue_roles(may_ask);
            if lost > 0 {
                tracing::warn!(%group, lost, "turns are silent; asking again");
                open.moved = Instant::now();
                self.dirty.insert(group);
            }
        }
    }
}

async fn publish(env: &super::Env, agent: &AgentName, frame: &TurnFrame) -> Result<(), PublishError> {
    let body = codec::encode(frame);
    let message = Outgoing {
        to: env.topology.to(&env.topology.turns(agent)),
        kind: Kind::TurnRequest,
        message_id: Digest::of(&body).to_string(),
        correlation_id: frame.requests.first().map(|request| request.request.to_string()),
        headers: vec![
            ("run".into(), env.run.to_string()),
            ("agent".into(), agent.to_string()),
            ("requests".into(), frame.requests.len().to_string()),
        ],
        body: body.into(),
        durable: true,
    };
    let sent = retry::publish(&env.bus, message).await;
    if let Err(error @ (PublishError::Unroutable(_) | PublishError::Closed)) = &sent {
        tracing::warn!(%error, "turn requests were not sent; they are sent again when they stay silent");
    }
    sent
}
