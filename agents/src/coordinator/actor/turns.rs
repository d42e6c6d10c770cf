//! Turns, asked and answered: what groups want is asked of agents and programs, again after a
//! silence. Results are gathered into their wave, committed to the store, and only then applied to
//! their groups and shown to onlookers.

use std::collections::{BTreeMap, HashSet};

use actix::Context;
use broker::AgentName;
use broker::RoleName;
use broker::bus::Delivery;
use broker::ids::{GroupId, RequestId, TurnKey};
use broker::protocol::failure::{Failure, FailureCode};
use broker::protocol::inference::SharedTurn;
use broker::protocol::turn::{Generation, ResultFrame, TurnOutcome, TurnResult};
use broker::store::{Committed, StoreError};

use super::{Coordinator, mailbox};
use crate::base::log_scope;
use crate::coordinator::admission::queues::ack;
use crate::coordinator::input::CommitDone;
use crate::coordinator::play::commit::{CommitStep, commit_all};
use crate::coordinator::play::onlookers::{share, shared_turn};
use crate::coordinator::play::{AgentFrame, CommitEnd, GroupResults, Open, ProgramTurn, Step, record, send_frame};
use crate::coordinator::specs::{GroupPlace, Purpose};
use crate::turn::frames::{self, OutgoingTurn};

impl Coordinator {
    /// Asks for the turns that are wanted and closes the groups that have ended.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        if self.is_sync() {
            // Everything that belongs into the next wave must be known.
            if !self.play.is_between_waves() || !self.admission.is_idle() {
                return;
            }
            self.restart_broken_round(ctx);
            if !self.admission.none_is_claimed() {
                return;
            }
        }
        let (mut wanted, mut programs) = (Vec::new(), Vec::new());
        for step in self.play.take_steps() {
            match step {
                Step::Close(group) => self.close(group, ctx),
                Step::Ask(place, turns) => {
                    for turn in turns {
                        self.address(&place, turn, &mut wanted, &mut programs);
                    }
                }
            }
        }
        if !wanted.is_empty() || !programs.is_empty() {
            self.ask(wanted, programs, ctx);
        }
        self.send_round(ctx);
    }

    /// Sorts a wanted turn to the agent or program that takes it.
    fn address(
        &mut self,
        place: &GroupPlace,
        turn: rollout::group::Wanted,
        wanted: &mut Vec<OutgoingTurn>,
        programs: &mut Vec<ProgramTurn>,
    ) {
        let host = self.specs.host(place.purpose);
        if host.plays(&turn.key.role) {
            programs.push(ProgramTurn {
                host: host.clone(),
                group: place.group,
                attempt: place.attempt,
                key: turn.key,
                messages: turn.ask.messages,
            });
            return;
        }
        let (member, role, number) = (turn.key.member, turn.key.role.clone(), turn.key.turn);
        match self.specs.request(place, turn) {
            Some(request) => wanted.push(request),
            None => {
                log_scope::turn(place.group, member, role.as_str(), number)
                    .in_scope(|| tracing::error!("no agent plays the role"));
                let failure = Failure::other(format_args!("no agent plays {role}"));
                self.play.give_up(place.group, member, failure);
            }
        }
    }

    fn ask(&mut self, wanted: Vec<OutgoingTurn>, programs: Vec<ProgramTurn>, ctx: &mut Context<Self>) {
        let wave = self.is_sync().then(|| self.play.next_wave());
        let asked = programs.iter().map(ProgramTurn::request);
        let missing: HashSet<RequestId> = wanted.iter().map(OutgoingTurn::request).chain(asked).collect();
        let frames = frames::build(wanted, &self.env.incarnation, wave);
        self.send_frames(&frames, ctx);
        if wave.is_some() {
            self.play.begin_wave(missing, frames);
        }
        self.ask_programs(programs, ctx);
    }

    fn send_frames(&self, frames: &[AgentFrame], ctx: &Context<Self>) {
        for frame in frames {
            send_frame(&self.env, mailbox(ctx), frame.clone());
        }
    }

    pub(super) fn ask_programs(&mut self, programs: Vec<ProgramTurn>, ctx: &mut Context<Self>) {
        for turn in programs {
            let (group, keeps) = (turn.group, !turn.is_tool() && !self.is_sync());
            let question = turn.ask(mailbox(ctx), self.env.observer.clone());
            if keeps {
                self.play.keep_question(&group, question);
            }
        }
    }

    /// Sends an agent that has restarted its part of the wave.
    pub(super) fn ask_whole_wave(&self, agent: &AgentName, ctx: &Context<Self>) {
        self.send_frames(&self.play.wave_of(agent), ctx);
    }

    /// Sends requests again that have been silent for long, to agents that are alive.
    pub(super) fn ask_again(&mut self, ctx: &mut Context<Self>) {
        let alive = self.peers.alive();
        if self.play.has_wave() {
            let frames = self.play.take_silent_wave(&alive);
            return self.send_frames(&frames, ctx);
        }
        let specs = &self.specs;
        // A suite may have a judge that the run's own workflow does not have.
        let agent = |purpose: Purpose, role: &RoleName| specs.player(purpose, role).map(|player| player.agent);
        self.play
            .requeue_silent(|purpose, role| agent(purpose, role).is_some_and(|agent| alive.contains(&agent)));
    }

    /// `delivery` has brought the results, if a message did.
    pub(super) fn on_results(&mut self, frame: ResultFrame, delivery: Option<Delivery>, ctx: &mut Context<Self>) {
        let results = self.play.note_times(frame.results);
        if frame.wave.is_some() {
            self.add_to_wave(results, delivery, ctx);
        } else {
            self.sort_and_commit(results, delivery.into_iter().collect(), ctx);
        }
    }

    pub(super) fn on_answered(&mut self, result: TurnResult, ctx: &mut Context<Self>) {
        if self.is_sync() {
            self.add_to_wave(vec![result], None, ctx);
        } else {
            self.sort_and_commit(vec![result], Vec::new(), ctx);
        }
    }

    /// Takes results of the wave under way. With the last one, all of them are committed.
    fn add_to_wave(&mut self, results: Vec<TurnResult>, delivery: Option<Delivery>, ctx: &mut Context<Self>) {
        let (stale, whole) = self.play.add_to_wave(results, delivery);
        self.figures.count_stale(stale);
        if let Some((results, deliveries)) = whole {
            self.sort_and_commit(results, deliveries, ctx);
        }
    }

    fn sort_and_commit(&mut self, results: Vec<TurnResult>, deliveries: Vec<Delivery>, ctx: &mut Context<Self>) {
        let sorted = self.play.sort(&self.specs, results);
        self.figures.count_stale(sorted.stale);
        self.commit(sorted.by_group, deliveries, ctx);
    }

    /// Commits results before anything is made of them. The deliveries are acked after that.
    fn commit(
        &mut self,
        by_group: BTreeMap<GroupId, GroupResults>,
        deliveries: Vec<Delivery>,
        ctx: &mut Context<Self>,
    ) {
        let mut steps = Vec::new();
        for (group, results) in by_group {
            let Some(open) = self.play.begin_commit(&group) else {
                continue;
            };
            let records = results.iter().filter_map(|(key, result)| record(key, result));
            steps.push(CommitStep {
                group,
                lease: open.lease,
                records: records.collect(),
                results,
            });
        }
        if steps.iter().any(CommitStep::needs_store) {
            return commit_all(&self.env, mailbox(ctx), steps, deliveries);
        }
        let done = steps.into_iter().map(CommitStep::done).collect();
        deliveries.into_iter().for_each(ack);
        self.on_committed(done, ctx);
    }

    pub(super) fn on_committed(&mut self, mut done: Vec<CommitDone>, ctx: &mut Context<Self>) {
        done.sort_by_key(|done| self.play.order(&done.group));
        let mut shared = Vec::new();
        for CommitDone {
            group,
            lease,
            results,
            outcome,
        } in done
        {
            if self.play.end_commit(group, lease) == CommitEnd::Stale {
                self.figures.count_stale(results.len());
                continue;
            }
            match outcome {
                Ok(committed) if !committed.contains(&Committed::Conflict) => {
                    self.apply(group, results, &mut shared);
                }
                Ok(_) => {
                    tracing::warn!(%group, "another answer to a turn was committed first; reading it");
                    self.lose(group, ctx);
                }
                Err(StoreError::Stale) => self.lose(group, ctx),
                Err(error) => tracing::error!(%group, %error, "a commit cannot be made"),
            }
        }
        share(&self.env, shared);
    }

    fn apply(&mut self, group: GroupId, results: GroupResults, shared: &mut Vec<SharedTurn>) {
        // Workflows and graders that read a text may end the process.
        self.strikes.begin([group]);
        for (key, result) in results {
            let is_answer = matches!(result.outcome, TurnOutcome::Done(_));
            let took = if is_answer {
                self.play.note_committed(&group, &key)
            } else {
                None
            };
            let open = self.play.get(&group);
            let player = open.and_then(|open| self.specs.player(open.purpose, &key.role));
            let trains = open.is_some_and(Open::trains);
            let _scope = log_scope::turn_of(player.as_ref().map(|player| &player.agent), group, &key).entered();
            if trains && is_answer {
                self.figures.observed().turn(&key.role, took);
            }
            match result.outcome {
                TurnOutcome::Done(generation) => shared.extend(self.apply_answer(group, key, generation)),
                TurnOutcome::Failed { failure, retry } => self.apply_failure(group, &key, failure, retry),
            }
        }
        self.strikes.end([group]);
    }

    fn apply_answer(&mut self, group: GroupId, key: TurnKey, generation: Generation) -> Option<SharedTurn> {
        let open = self.play.get(&group)?;
        if open.trains() {
            self.figures.count_turn(generation.output_ids.len());
        }
        tracing::debug!(tokens = generation.output_ids.len(), "a turn was committed");
        let shared = shared_turn(&self.specs, group, open, &key, &generation);
        match self.play.answer(group, key, generation) {
            Ok(()) => shared,
            Err(refusal) => {
                tracing::debug!(%refusal, "a committed turn changes nothing");
                None
            }
        }
    }

    fn apply_failure(&mut self, group: GroupId, key: &TurnKey, failure: Failure, retry: bool) {
        tracing::warn!(reason = %failure, retry, "a turn failed");
        if failure.code == FailureCode::Crashed {
            return self.play.mark_dead(group, failure);
        }
        let over = self.play.fail(group, key, &failure, retry);
        // A turn that is not wanted any more is neither asked for again nor lost.
        if let Some(over) = over
            && self.play.get(&group).is_some_and(|open| open.trains())
        {
            self.figures.count_failure(&key.role, failure.code, over);
        }
    }
}
