//! Turns: what groups want is asked of agents and programs, and asked again when it stays silent.

use std::collections::HashSet;

use actix::Context;
use broker::AgentName;
use broker::RoleName;
use broker::ids::RequestId;
use broker::protocol::failure::Failure;

use super::{Coordinator, mailbox};
use crate::base::log_scope;
use crate::coordinator::play::{AgentFrame, ProgramTurn, Step, send_frame};
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
            let question = turn.ask(mailbox(ctx));
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
}
