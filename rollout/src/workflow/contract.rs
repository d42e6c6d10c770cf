//! The contract of every workflow, checked with made-up conversations. It is also for the user's
//! own workflows, in a test of theirs or by `dyad workflow test`, which asks programs and
//! participants for their answers ([`Played`]).

mod played;

use broker::RoleName;
use broker::protocol::task::Task;
use broker::protocol::turn::Finish;

use super::{Ask, Event, Outcome, SeatReward, Step, Workflow};
use crate::random::Random;

pub use played::{PLAYED, Played};

/// The number of conversations that [`check`] makes up.
pub const CONVERSATIONS: u64 = 100;
/// The most events of one conversation.
const EVENTS: u64 = 16;
/// Rounds of answers after which a conversation must have ended.
const ROUNDS: usize = 300;
/// The answers given in turn so that a conversation ends.
const ANSWERS: [&str; 4] = ["5", "reject", "Judgment: 1", "{\"criteria_met\": true}"];
const TEXTS: [&str; 10] = [
    "",
    "5",
    "\\boxed{5}",
    "approve",
    "reject",
    "<answer>5</answer>",
    "<think>x",
    "{{ prompt }}",
    "\u{4f60}\u{597d}\n",
    "-99999999999999999999",
];

/// Checks whether a workflow keeps its contract over `task`, by [`CONVERSATIONS`] conversations
/// that are the same every time. Its asks are answered out of order and with any words, between
/// events that it did not ask for.
///
/// The answers of programs, judges and participants are unknown here. So no conversation of a
/// workflow with any of them is played to its end; that is for a caller that can ask them
/// ([`Played`]).
///
/// # Errors
/// The rule that is broken, and the events before it.
pub fn check(workflow: &dyn Workflow, task: &Task) -> Result<(), String> {
    workflow
        .check_task(task)
        .map_err(|why| format!("it does not take the task: {why}"))?;
    let roles = roles(workflow);
    for conversation in 0..CONVERSATIONS {
        let events = made_up(workflow, task, &roles, conversation);
        let kept = |()| {
            if workflow.programs().is_empty() {
                check_events(workflow, task, &events)
            } else {
                check_prefixes(workflow, task, &events)
            }
        };
        asks_known(workflow, task, &events, &roles)
            .and_then(kept)
            .map_err(|broken| format!("{broken}, after or among the events {}", shown(&events)))?;
    }
    Ok(())
}

/// Checks the rules for every list of events:
/// - there is an answer, and asking again gives the same one;
/// - an answered turn is not asked again, no turn is asked twice, and an ask has messages;
/// - an ask of a prefix is still asked, or answered, or the conversation is done;
/// - answering the asks reaches the end, with finite rewards for seats that spoke, one entry each,
///   all parts known, and a finite `success`; an outcome that could not be graded
///   ([`Outcome::is_ungraded`]) has neither.
///
/// # Errors
/// The rule that is broken.
pub fn check_events(workflow: &dyn Workflow, task: &Task, events: &[Event]) -> Result<(), String> {
    check_prefixes(workflow, task, events)?;
    check_end(workflow, task, events.to_vec())
}

type Turn = (RoleName, u16, u16);

fn name((role, seat, turn): &Turn) -> String {
    format!("turn {turn} of {role}/{seat}")
}

fn of_event(event: &Event) -> Turn {
    (event.role.clone(), event.seat, event.turn)
}

fn of_ask(ask: &Ask) -> Turn {
    (ask.role.clone(), ask.seat, ask.turn)
}

fn is_answered(turn: &Turn, events: &[Event]) -> bool {
    events.iter().any(|event| of_event(event) == *turn)
}

fn check_prefixes(workflow: &dyn Workflow, task: &Task, events: &[Event]) -> Result<(), String> {
    let mut wanted: Vec<Turn> = Vec::new();
    for end in 0..=events.len() {
        let so_far = &events[..end];
        let (step, again) = (workflow.step(task, 1, so_far), workflow.step(task, 1, so_far));
        // NaN equals nothing, and is reported at the end.
        if step != again && format!("{step:?}") != format!("{again:?}") {
            return Err("asked twice with the same events, it gives different answers".into());
        }
        let Step::Ask(asks) = step else { break };
        let asked = check_asks(&asks, so_far)?;
        let forgotten = wanted
            .iter()
            .find(|turn| !asked.contains(turn) && !is_answered(turn, so_far));
        if let Some(turn) = forgotten {
            return Err(format!("{} was asked for, and is forgotten", name(turn)));
        }
        wanted = asked;
    }
    Ok(())
}

/// Returns the turns that are asked for.
fn check_asks(asks: &[Ask], events: &[Event]) -> Result<Vec<Turn>, String> {
    if asks.is_empty() {
        return Err("it asks for nothing, and is not done".into());
    }
    let mut asked = Vec::new();
    for ask in asks {
        let turn = of_ask(ask);
        if asked.contains(&turn) {
            return Err(format!("{} is asked for twice", name(&turn)));
        }
        if is_answered(&turn, events) {
            return Err(format!("{} is asked for after it was answered", name(&turn)));
        }
        if ask.messages.is_empty() {
            return Err(format!("{} is asked for without a message", name(&turn)));
        }
        asked.push(turn);
    }
    Ok(asked)
}

/// Answers the asks until the conversation ends.
fn check_end(workflow: &dyn Workflow, task: &Task, mut events: Vec<Event>) -> Result<(), String> {
    for round in 0..ROUNDS {
        let asks = match workflow.step(task, 1, &events) {
            Step::Ask(asks) => asks,
            Step::Done(outcome) => return check_outcome(workflow, &outcome, &events),
            Step::Fail(reason) => return Err(format!("it fails: {reason}")),
        };
        let text = ANSWERS[round % ANSWERS.len()];
        events.extend(asks.iter().map(|ask| answer(ask, text, Finish::Stop)));
    }
    Err(format!("the conversation has no end after {ROUNDS} rounds of answers"))
}

fn check_outcome(workflow: &dyn Workflow, outcome: &Outcome, events: &[Event]) -> Result<(), String> {
    let success = outcome.metrics.iter().find(|(name, _)| *name == "success");
    if !outcome.is_ungraded() && !success.is_some_and(|(_, value)| value.is_finite()) {
        return Err(format!("its metrics have no finite `success`: {:?}", outcome.metrics));
    }
    let roles = workflow.roles();
    for (at, reward) in outcome.rewards.iter().enumerate() {
        let SeatReward { role, seat, parts, .. } = reward;
        let same = |other: &SeatReward| other.role == *role && other.seat == *seat;
        if !events.iter().any(|event| event.role == *role && event.seat == *seat) {
            return Err(format!("{role}/{seat} earns, and never spoke"));
        }
        if outcome.rewards[..at].iter().any(same) {
            return Err(format!("{role}/{seat} earns twice"));
        }
        let Some(spec) = roles.iter().find(|spec| spec.name == *role) else {
            return Err(format!("{role} earns, and is none of its roles"));
        };
        let known: Vec<_> = spec.parts.iter().map(|(name, _)| *name).collect();
        let earned: Vec<_> = parts.iter().map(|part| part.name).collect();
        if known != earned {
            return Err(format!("{role} earns the parts {earned:?}, and its role has {known:?}"));
        }
        if let Some(part) = parts.iter().find(|part| !part.value.is_finite()) {
            return Err(format!("part {} of {role}/{seat} is {}", part.name, part.value));
        }
    }
    Ok(())
}

/// Checks that only roles with a player are asked for.
fn asks_known(workflow: &dyn Workflow, task: &Task, events: &[Event], roles: &[RoleName]) -> Result<(), String> {
    for end in 0..=events.len() {
        let Step::Ask(asks) = workflow.step(task, 1, &events[..end]) else {
            break;
        };
        if let Some(ask) = asks.iter().find(|ask| !roles.contains(&ask.role)) {
            return Err(format!("it asks for {}, which is none of its roles", ask.role));
        }
    }
    Ok(())
}

/// Returns all roles that may be asked for: of agents, of programs and of tools.
fn roles(workflow: &dyn Workflow) -> Vec<RoleName> {
    let own = workflow.roles().into_iter().map(|spec| spec.name);
    let programs = workflow.programs().into_iter().flat_map(|program| program.roles);
    let tools = workflow.tools().into_iter().flat_map(|tool| tool.roles);
    own.chain(programs).chain(tools).collect()
}

/// Returns events of which about half answer an ask, in any order.
fn made_up(workflow: &dyn Workflow, task: &Task, roles: &[RoleName], conversation: u64) -> Vec<Event> {
    let mut random = Random::new("dyad workflow contract", 0, &[conversation]);
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..random.below(EVENTS + 1) {
        let text = TEXTS[random.below(TEXTS.len() as u64) as usize];
        let finish = if random.below(4) == 0 {
            Finish::Length
        } else {
            Finish::Stop
        };
        let asked = match workflow.step(task, 1, &events) {
            Step::Ask(asks) if random.below(2) == 0 => {
                let place = random.below(asks.len() as u64) as usize;
                asks.get(place).map(|ask| answer(ask, text, finish))
            }
            _ => None,
        };
        let stray = roles.get(random.below(roles.len() as u64) as usize).map(|role| Event {
            role: role.clone(),
            seat: random.below(4) as u16,
            turn: random.below(3) as u16,
            text: text.to_owned(),
            finish,
            tokens: random.next() as u32,
            prompt: random.next() as u32 / 2,
        });
        events.extend(asked.or(stray));
    }
    events
}

fn answer(ask: &Ask, text: &str, finish: Finish) -> Event {
    Event {
        role: ask.role.clone(),
        seat: ask.seat,
        turn: ask.turn,
        text: text.to_owned(),
        finish,
        tokens: 7,
        prompt: 5,
    }
}

fn shown(events: &[Event]) -> String {
    let one = |event: &Event| format!("{}: {:?}", name(&of_event(event)), event.text);
    format!("[{}]", events.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
