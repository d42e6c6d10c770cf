//! Turns: asking the agents, committing what they answer, telling the group.
//!
//! Asynchronous: whatever is wanted is asked at once, and each answer is committed as it comes. Synchronous: all that is
//! wanted is one wave; nothing is asked while anything is outstanding, and answers are applied in the order of their ids.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Delivery, Outgoing};
use broker::codec;
use broker::ids::{Digest, GroupId, RequestId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::inference::SharedTurn;
use broker::protocol::turn::{Generation, Prompt, ResultFrame, Sampling, TurnFrame, TurnOutcome, TurnResult, turn_key};
use broker::store::{Committed, Record, StoreError};
use configs::Mode;
use futures_util::future::join_all;

use super::actor::{CommitDone, Coordinator, Input, Open, Purpose, WaveState};
use super::frames::{self, Wanted};
use super::{admission, io};

/// After how long a silent request is sent again to an agent that is alive. Repeats are harmless.
const SILENT: Duration = Duration::from_secs(60);

impl Coordinator {
    /// Asks for what is wanted and closes what is done.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        let sync = self.env.config.run.mode == Mode::Sync;
        if sync && !self.wave_may_begin() {
            return;
        }
        let dirty: Vec<GroupId> = self.dirty.drain().collect();
        let mut wanted = Vec::new();
        for group in dirty {
            let Some(open) = self.open.get_mut(&group) else {
                continue;
            };
            if open.run.is_done() {
                if open.outstanding == 0 {
                    self.close(group, ctx);
                }
                continue;
            }
            let taken = open.run.take_wanted();
            open.outstanding += taken.len();
            open.moved = Instant::now();
            wanted.extend(taken.into_iter().filter_map(|one| self.address(group, one)));
        }
        if !wanted.is_empty() {
            self.ask(wanted, sync);
        }
    }

    /// Whether everything that belongs into the next wave is known.
    fn wave_may_begin(&self) -> bool {
        self.wave.is_none()
            && self.admitting.is_empty()
            && self.claiming.is_empty()
            && self.open.values().all(|open| open.outstanding == 0)
    }

    fn address(&self, group: GroupId, one: rollout::group::Wanted) -> Option<Wanted> {
        let open = self.open.get(&group)?;
        let agent = self.env.config.workflow.roles.get(&one.key.role)?;
        let settings = self.env.config.agents.get(agent)?.sampling;
        let limit = one
            .ask
            .max_new_tokens
            .unwrap_or(settings.max_new_tokens)
            .min(settings.max_new_tokens);
        let greedy = open.purpose == Purpose::Eval;
        Some(Wanted {
            agent: agent.clone(),
            group,
            attempt: open.attempt,
            task_order: open.order,
            key: one.key,
            prompt: Prompt {
                held: one.held,
                messages: one.ask.messages,
            },
            sampling: Sampling {
                temperature: if greedy { 0.0 } else { settings.temperature },
                top_p: settings.top_p,
                top_k: settings.top_k,
                min_p: settings.min_p,
                max_new_tokens: limit,
                stop: one.ask.stop,
            },
            seed: one.seed,
        })
    }

    fn ask(&mut self, wanted: Vec<Wanted>, sync: bool) {
        let wave = sync.then(|| {
            self.wave_seq += 1;
            self.wave_seq
        });
        let missing: HashSet<RequestId> = wanted.iter().map(Wanted::request).collect();
        let frames = frames::build(wanted, &self.env.incarnation, wave);
        for (agent, frame) in &frames {
            self.send_frame(agent, frame);
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

    fn send_frame(&self, agent: &AgentName, frame: &TurnFrame) {
        let body = codec::encode(frame);
        let message = Outgoing {
            to: self.env.topology.to(&self.env.topology.turns(agent)),
            kind: Kind::TurnRequest,
            message_id: Digest::of(&body).to_string(),
            correlation_id: frame.requests.first().map(|request| request.request.to_string()),
            headers: vec![
                ("run".into(), self.env.run.to_string()),
                ("agent".into(), agent.to_string()),
                ("requests".into(), frame.requests.len().to_string()),
            ],
            body: body.into(),
            durable: true,
        };
        let bus = self.env.bus.clone();
        tokio::spawn(async move {
            if let Err(error) = io::publish(&bus, message).await {
                tracing::warn!(%error, "turn requests were not sent; they are sent again when they stay silent");
            }
        });
    }

    pub(super) fn on_results(&mut self, frame: ResultFrame, delivery: Delivery, ctx: &mut Context<Self>) {
        if frame.wave.is_none() {
            let results = self.sort_by_group(frame.results);
            return self.commit(results, vec![delivery], ctx);
        }
        let Some(wave) = self.wave.as_mut() else {
            self.counters.stale_results += frame.results.len() as u64;
            return admission::ack(Some(delivery));
        };
        for result in frame.results {
            if wave.missing.remove(&result.request) {
                wave.held.push(result);
            } else {
                self.counters.stale_results += 1;
            }
        }
        wave.deliveries.push(delivery);
        if wave.missing.is_empty()
            && let Some(wave) = self.wave.take()
        {
            let results = self.sort_by_group(wave.held);
            self.commit(results, wave.deliveries, ctx);
        }
    }

    /// Results that belong to open groups and their present attempts, by group, in the order of their keys.
    fn sort_by_group(&mut self, results: Vec<TurnResult>) -> BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>> {
        let mut by_group: BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>> = BTreeMap::new();
        for result in results {
            match self.admissible(&result) {
                Some(key) => by_group.entry(result.group).or_default().push((key, result)),
                None => self.counters.stale_results += 1,
            }
        }
        for list in by_group.values_mut() {
            list.sort_by(|(a, _), (b, _)| a.cmp(b));
            list.dedup_by(|(a, _), (b, _)| a == b);
        }
        by_group
    }

    fn admissible(&self, result: &TurnResult) -> Option<TurnKey> {
        let open = self.open.get(&result.group)?;
        let key = turn_key(result.member, &result.role, result.seat, result.turn)?;
        let same = result.attempt == open.attempt && result.request == RequestId::new(result.group, open.attempt, &key);
        let wanted = match &result.outcome {
            TurnOutcome::Done(generation) => open.run.admits(&key, generation).is_ok(),
            TurnOutcome::Failed { .. } => true,
        };
        (same && wanted).then_some(key)
    }

    /// Commits results before anything is made of them; the deliveries are acked after that.
    fn commit(
        &mut self,
        by_group: BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>>,
        deliveries: Vec<Delivery>,
        ctx: &mut Context<Self>,
    ) {
        let mut steps = Vec::new();
        for (group, results) in by_group {
            let Some(open) = self.open.get(&group) else { continue };
            let records: Vec<Record> = results.iter().filter_map(|(key, result)| record(key, result)).collect();
            steps.push((group, open.lease, records, results));
        }
        if steps
            .iter()
            .all(|(_, lease, records, _)| lease.is_none() || records.is_empty())
        {
            // Evaluations and failures leave no trace in the store.
            let done = steps.into_iter().map(|(group, lease, records, results)| CommitDone {
                group,
                lease,
                outcome: Ok(vec![Committed::New; records.len()]),
                results,
            });
            let done: Vec<CommitDone> = done.collect();
            deliveries
                .into_iter()
                .for_each(|delivery| admission::ack(Some(delivery)));
            return self.on_committed(done, ctx);
        }
        let (store, addr) = (self.env.store.clone(), ctx.address());
        tokio::spawn(async move {
            let store = &store;
            let done = join_all(steps.into_iter().map(|(group, lease, records, results)| async move {
                let outcome = match lease {
                    Some(lease) if !records.is_empty() => io::settle("commit", || store.commit(lease, &records)).await,
                    _ => Ok(vec![Committed::New; records.len()]),
                };
                CommitDone {
                    group,
                    lease,
                    results,
                    outcome,
                }
            }))
            .await;
            if addr.send(Input::Committed(done)).await.is_ok() {
                for delivery in deliveries {
                    delivery.ack().await;
                }
            }
        });
    }

    pub(super) fn on_committed(&mut self, mut done: Vec<CommitDone>, ctx: &mut Context<Self>) {
        let order = |done: &CommitDone| self.open.get(&done.group).map_or(u64::MAX, |open| open.order);
        done.sort_by_key(order);
        let mut shared = Vec::new();
        for one in done {
            // The group was lost and claimed anew meanwhile: its new claim has read what is stored.
            if self.open.get(&one.group).is_none_or(|open| open.lease != one.lease) {
                self.counters.stale_results += one.results.len() as u64;
                continue;
            }
            match one.outcome {
                Ok(committed) if !committed.contains(&Committed::Conflict) => {
                    self.apply(one.group, one.results, &mut shared);
                }
                Ok(_) => {
                    tracing::warn!(group = %one.group, "another answer to a turn was committed first; reading it");
                    self.lose(one.group, ctx);
                }
                Err(StoreError::Stale) => self.lose(one.group, ctx),
                Err(error) => tracing::error!(group = %one.group, %error, "a commit cannot be made"),
            }
        }
        self.share(shared);
    }

    fn apply(&mut self, group: GroupId, results: Vec<(TurnKey, TurnResult)>, shared: &mut Vec<SharedTurn>) {
        let Some(open) = self.open.get_mut(&group) else { return };
        for (key, result) in results {
            open.outstanding = open.outstanding.saturating_sub(1);
            match result.outcome {
                TurnOutcome::Done(generation) => {
                    self.counters.turns += u64::from(open.purpose == Purpose::Train);
                    self.counters.tokens += generation.output_ids.len() as u64;
                    let view = shared_turn(&self.env, group, open, &key, &generation);
                    match open.run.on_result(key, generation) {
                        Ok(()) => shared.extend(view),
                        Err(refusal) => tracing::debug!(%group, %refusal, "a committed turn changes nothing"),
                    }
                }
                TurnOutcome::Failed { reason, retry } => {
                    tracing::warn!(%group, member = key.member, role = %key.role, reason, retry, "a generation failed");
                    open.run.on_failure(&key, &reason, retry);
                }
            }
        }
        open.moved = Instant::now();
        self.dirty.insert(group);
    }

    /// Shows committed turns to whoever looks on.
    fn share(&self, turns: Vec<SharedTurn>) {
        let mut by_place: BTreeMap<(AgentName, String), Vec<SharedTurn>> = BTreeMap::new();
        for turn in turns {
            by_place
                .entry((turn.agent.clone(), turn.role.to_string()))
                .or_default()
                .push(turn);
        }
        for ((agent, role), turns) in by_place {
            let body = codec::encode_json(&turns);
            let message = Outgoing {
                to: self.env.topology.to_inference(&agent, &role),
                kind: Kind::Inference,
                message_id: Digest::of(&body).to_string(),
                correlation_id: None,
                headers: vec![
                    ("run".into(), self.env.run.to_string()),
                    ("agent".into(), agent.to_string()),
                ],
                body: body.into(),
                durable: false,
            };
            let bus = self.env.bus.clone();
            tokio::spawn(async move {
                // Onlookers only: nobody listening is no fault.
                let _ = bus.publish(message).await;
            });
        }
    }

    /// Sends requests again that have been silent for long.
    pub(super) fn ask_again(&mut self, _: &mut Context<Self>) {
        if let Some(wave) = self.wave.as_mut() {
            if wave.since.elapsed() > SILENT {
                wave.since = Instant::now();
                let frames = wave.frames.clone();
                tracing::warn!(missing = wave.missing.len(), "a wave is silent; asking again");
                frames.iter().for_each(|(agent, frame)| self.send_frame(agent, frame));
            }
            return;
        }
        let silent = |open: &Open| open.outstanding > 0 && open.moved.elapsed() > SILENT;
        let groups: Vec<GroupId> = self
            .open
            .iter()
            .filter(|(_, open)| silent(open))
            .map(|(group, _)| *group)
            .collect();
        for group in groups {
            if let Some(open) = self.open.get_mut(&group) {
                tracing::warn!(%group, outstanding = open.outstanding, "turns are silent; asking again");
                open.run.requeue_roles(|_| true);
                open.outstanding = 0;
                self.dirty.insert(group);
            }
        }
    }
}

fn record(key: &TurnKey, result: &TurnResult) -> Option<Record> {
    matches!(result.outcome, TurnOutcome::Done(_)).then(|| Record {
        key: format!("{}/{}/{}/{}", key.member, key.role, key.seat, key.turn),
        payload: codec::encode(result).into(),
    })
}

/// The turn that a record holds.
pub(super) fn read_record(record: &Record) -> Option<(TurnKey, Generation)> {
    let result: TurnResult = codec::decode(&record.payload).ok()?;
    let key = turn_key(result.member, &result.role, result.seat, result.turn)?;
    match result.outcome {
        TurnOutcome::Done(generation) => Some((key, generation)),
        TurnOutcome::Failed { .. } => None,
    }
}

fn shared_turn(env: &super::Env, group: GroupId, open: &Open, key: &TurnKey, made: &Generation) -> Option<SharedTurn> {
    let agent = env.config.workflow.roles.get(&key.role)?.clone();
    let tokens = made.output_ids.len() as u32;
    Some(SharedTurn {
        group,
        task: open.task_id.clone(),
        member: key.member,
        role: key.role.clone(),
        seat: key.seat,
        turn: key.turn,
        agent,
        text: made.text.clone(),
        finish: made.finish,
        tokens,
        mean_logprob: made.logprobs.iter().sum::<f32>() / (tokens.max(1) as f32),
        version: made.spans.first().map_or(made.oldest_kv, |span| span.version),
    })
}
