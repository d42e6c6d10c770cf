//! Results: gathered into their wave, committed to the store, and only then applied to their groups and shown to onlookers.

use std::collections::BTreeMap;

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Delivery, Outgoing};
use broker::codec;
use broker::ids::{Digest, GroupId, RequestId, TurnKey};
use broker::protocol::Kind;
use broker::protocol::failure::FailureCode;
use broker::protocol::inference::SharedTurn;
use broker::protocol::turn::{Generation, ResultFrame, TurnOutcome, TurnResult, turn_key};
use broker::store::{Committed, Record, StoreError};
use futures_util::future::join_all;
use rollout::workflow::unanswered::{unanswered_by, without_room};
use rollout::workflow::{Workflow, player};
use tokio::time::Instant;

use super::actor::{CommitDone, Coordinator, Input, Open, Purpose};
use super::admission;
use crate::base::retry;

impl Coordinator {
    /// `delivery` is what brought the results, if a message did.
    pub(super) fn on_results(&mut self, frame: ResultFrame, delivery: Option<Delivery>, ctx: &mut Context<Self>) {
        if frame.wave.is_none() {
            let results = self.sort_by_group(frame.results);
            return self.commit(results, delivery.into_iter().collect(), ctx);
        }
        self.add_to_wave(frame.results, delivery, ctx);
    }

    /// Results of the wave under way; with the last one they are all committed.
    pub(super) fn add_to_wave(
        &mut self,
        results: Vec<TurnResult>,
        delivery: Option<Delivery>,
        ctx: &mut Context<Self>,
    ) {
        let Some(wave) = self.wave.as_mut() else {
            self.counters.stale_results += results.len() as u64;
            return admission::ack(delivery);
        };
        for result in results {
            if wave.missing.remove(&result.request) {
                wave.held.push(result);
            } else {
                self.counters.stale_results += 1;
            }
        }
        wave.deliveries.extend(delivery);
        if wave.missing.is_empty()
            && let Some(wave) = self.wave.take()
        {
            let results = self.sort_by_group(wave.held);
            self.commit(results, wave.deliveries, ctx);
        }
    }

    /// Results that belong to open groups and their present attempts, by group, in the order of their keys.
    pub(super) fn sort_by_group(&mut self, results: Vec<TurnResult>) -> BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>> {
        let mut by_group: BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>> = BTreeMap::new();
        for result in results {
            // What is no answer to what is asked for leaves nobody without a grade.
            let result = match self.admissible(&result) {
                Some(key) => self.by_policy(&key, result),
                None => result,
            };
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

    /// A judge's turn that failed for good is a missing grade, whatever played the judge; one without room may be left out. What killed processes is buried with its group.
    fn by_policy(&self, key: &TurnKey, mut result: TurnResult) -> TurnResult {
        let TurnOutcome::Failed { failure, retry } = &result.outcome else {
            return result;
        };
        if let Some(open) = self.open.get(&result.group)
            && let Some(last) = open.run.last_try(key)
            && failure.code != FailureCode::Crashed
        {
            let workflow = self.workflow_of(open.purpose);
            let config = &self.env.config.workflow;
            let left_out = (failure.code == FailureCode::Context).then(|| without_room(workflow, &key.role));
            result.outcome = left_out
                .flatten()
                .unwrap_or_else(|| unanswered_by(config, workflow, &key.role, failure.clone(), *retry, last));
        }
        result
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
    pub(super) fn commit(
        &mut self,
        by_group: BTreeMap<GroupId, Vec<(TurnKey, TurnResult)>>,
        deliveries: Vec<Delivery>,
        ctx: &mut Context<Self>,
    ) {
        let mut steps = Vec::new();
        for (group, results) in by_group {
            let Some(open) = self.open.get_mut(&group) else {
                continue;
            };
            open.committing += 1;
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
                    Some(lease) if !records.is_empty() => {
                        retry::settle("commit", || store.commit(lease, &records)).await
                    }
                    _ => Ok(vec![Committed::New; records.len()]),
                };
                broker::fail::point("turn.part-committed");
                CommitDone {
                    group,
                    lease,
                    results,
                    outcome,
                }
            }))
            .await;
            broker::fail::point("turn.committed");
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
            let Some(open) = self.open.get_mut(&one.group).filter(|open| open.lease == one.lease) else {
                self.counters.stale_results += one.results.len() as u64;
                continue;
            };
            open.committing = open.committing.saturating_sub(1);
            self.dirty.insert(one.group);
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
        let Some(purpose) = self.open.get(&group).map(|open| open.purpose) else {
            return;
        };
        let host = self.host_of(purpose).clone();
        let Some(open) = self.open.get_mut(&group) else { return };
        // What workflows and graders make of a text may end the process.
        self.strikes.begin([group]);
        for (key, result) in results {
            match result.outcome {
                TurnOutcome::Done(generation) => {
                    if open.purpose == Purpose::Train {
                        self.counters.turns += 1;
                        self.counters.tokens += generation.output_ids.len() as u64;
                    }
                    let view = shared_turn((&*self.env, host.workflow()), group, open, &key, &generation);
                    match open.run.on_result(key, generation) {
                        Ok(()) => shared.extend(view),
                        Err(refusal) => tracing::debug!(%group, %refusal, "a committed turn changes nothing"),
                    }
                }
                TurnOutcome::Failed { failure, retry } => {
                    let reason = failure.to_string();
                    tracing::warn!(%group, member = key.member, role = %key.role, reason, retry, "a generation failed");
                    if failure.code == FailureCode::Crashed {
                        open.bury(failure);
                    } else {
                        let over = open.run.on_failure(&key, &failure, retry);
                        // One that nobody wants any more is neither asked for again nor lost.
                        if let Some(over) = over
                            && open.purpose == Purpose::Train
                        {
                            let place = (key.role.clone(), failure.code.name());
                            let failures = self.failures.entry(place).or_default();
                            *(if over {
                                &mut failures.over
                            } else {
                                &mut failures.retried
                            }) += 1;
                        }
                    }
                }
            }
        }
        self.strikes.end([group]);
        open.moved = Instant::now();
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
}

fn record(key: &TurnKey, result: &TurnResult) -> Option<Record> {
    matches!(result.outcome, TurnOutcome::Done(_)).then(|| Record {
        key: format!("{}/{}/{}/{}", key.member, key.role, key.seat, key.turn),
        payload: codec::encode(result).into(),
    })
}

/// The turn that a record holds.
pub(super) fn read_record(record: &Record) -> Option<(TurnKey, Generation)> {
    let result: TurnResult = codec::decode_stored(&record.payload).ok()?;
    let key = turn_key(result.member, &result.role, result.seat, result.turn)?;
    match result.outcome {
        TurnOutcome::Done(generation) => Some((key, generation)),
        TurnOutcome::Failed { .. } => None,
    }
}

/// A turn as onlookers see it; of a group that is played by this workflow.
fn shared_turn(
    (env, workflow): (&super::Env, &dyn Workflow),
    group: GroupId,
    open: &Open,
    key: &TurnKey,
    made: &Generation,
) -> Option<SharedTurn> {
    let agent = player(&env.config.workflow, workflow, &key.role)?.agent;
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
        logprobs_of: made.logprobs_of,
        version: made.spans.first().map_or(made.oldest_kv, |span| span.version),
    })
}
