//! A seat between its question and its final answer: turns that call tools, and the results.
//!
//! This is a fold of committed events, like workflows. The answer to a valid call is among the
//! events; a call that cannot be read or made is answered here.

use broker::RoleName;
use broker::protocol::turn::{Finish, Message};
use configs::ToolLimits;

use super::call::{Call, calls};
use crate::workflow::room::{Room, prompt_after, tokens_of};
use crate::workflow::transcript::Transcript;
use crate::workflow::{Ask, Event};

/// The first words of the result of a failed call.
pub const ERROR: &str = "error: ";

/// A seat that may call.
#[derive(Clone, Copy)]
pub(crate) struct CallingSeat<'w> {
    pub(crate) limits: &'w ToolLimits,
    pub(crate) role: &'w RoleName,
    pub(crate) seat: u16,
    /// True if only the first of several calls in a turn is made.
    pub(crate) first_only: bool,
}

/// The start of an exchange: the seat's turn, and the number of its earlier calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) turn: u16,
    pub(crate) calls: u16,
}

/// The state of an exchange.
pub(crate) enum Progress<'a> {
    Open(Vec<Ask>),
    Done(SeatTurns<'a>),
}

/// The turns of an exchange that has ended.
#[derive(Default)]
pub(crate) struct SeatTurns<'a> {
    /// The turns; the last one is the answer.
    pub(crate) turns: Vec<&'a Event>,
    /// Calls made, including failed ones.
    pub(crate) calls: u16,
    pub(crate) failed: u16,
    /// True if the seat was asked to answer because its context or its turns were used up.
    pub(crate) hurried: bool,
}

/// The result of a call, or the asks that come first.
pub(crate) type CallAnswer = Result<String, Vec<Ask>>;

impl CallingSeat<'_> {
    /// Follows the seat from `start` on. `first` is its question; `answer` receives the number of a
    /// call and the call.
    pub(crate) fn follow<'a>(
        &self,
        events: Transcript<'a>,
        start: Start,
        first: impl Fn() -> Ask,
        answer: &mut dyn FnMut(u16, &Call) -> CallAnswer,
    ) -> Progress<'a> {
        let (mut spoken, mut next) = (SeatTurns::default(), None);
        let mut last = self.limits.turns == 0;
        for turn in start.turn..=u16::MAX {
            let Some(event) = events.turn(self.role, self.seat, turn) else {
                let first = first();
                let messages = next.unwrap_or(first.messages);
                return Progress::Open(vec![Ask {
                    turn,
                    messages,
                    ..first
                }]);
            };
            spoken.turns.push(event);
            // A text that was cut off is no call, whatever would have followed.
            let mut made = if last || event.finish == Finish::Length {
                Vec::new()
            } else {
                calls(&event.text)
            };
            made.truncate(if self.first_only { 1 } else { usize::MAX });
            if made.is_empty() {
                break;
            }
            let results = match self.answers(made, start.calls, &mut spoken, answer) {
                Ok(results) => results,
                Err(asks) => return Progress::Open(asks),
            };
            let out_of_turns = spoken.turns.len() >= usize::from(self.limits.turns);
            let (messages, out_of_context) = self.next_messages(event, results, out_of_turns);
            last = out_of_turns || out_of_context;
            spoken.hurried |= last;
            next = Some(messages);
        }
        Progress::Done(spoken)
    }

    fn answers(
        &self,
        made: Vec<Result<Call, String>>,
        before: u16,
        spoken: &mut SeatTurns<'_>,
        answer: &mut dyn FnMut(u16, &Call) -> CallAnswer,
    ) -> Result<Vec<String>, Vec<Ask>> {
        let (mut results, mut open) = (Vec::new(), Vec::new());
        for call in made {
            let number = before.saturating_add(spoken.calls);
            spoken.calls = spoken.calls.saturating_add(1);
            let result = match call {
                Err(why) => format!("{ERROR}{why}"),
                Ok(_) if number >= self.limits.calls => {
                    format!("{ERROR}{} calls are the most, and all were made", self.limits.calls)
                }
                Ok(call) => match answer(number, &call) {
                    Ok(result) => result,
                    Err(asks) => {
                        open.extend(asks);
                        continue;
                    }
                },
            };
            spoken.failed += u16::from(result.starts_with(ERROR));
            results.push(result);
        }
        if open.is_empty() { Ok(results) } else { Err(open) }
    }

    /// Returns the seat's next messages, and true if its context is used up.
    fn next_messages(&self, event: &Event, results: Vec<String>, out_of_turns: bool) -> (Vec<Message>, bool) {
        let ToolLimits {
            context,
            reserve,
            hurry,
            ..
        } = self.limits;
        let results_and_hurry = results.iter().chain(std::iter::once(hurry));
        let new: u64 = results_and_hurry.map(|text| tokens_of(text)).sum();
        let room = Room {
            most: *context,
            reserve: *reserve,
        };
        if !room.is_left(prompt_after(event, new, results.len() as u64)) {
            return (vec![Message::user(hurry.clone())], true);
        }
        let mut messages: Vec<Message> = results.into_iter().map(Message::tool).collect();
        messages.extend(out_of_turns.then(|| Message::user(hurry.clone())));
        (messages, false)
    }
}
