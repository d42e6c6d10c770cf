//! A conversation's events, looked up by seat, and helpers for workflows: role names, asks,
//! rewards. The first event of a turn counts; a repeat changes nothing.

use broker::RoleName;
use broker::protocol::turn::Message;
use configs::Problem;

use super::{Ask, Event, Part, SeatReward};

/// A view of the events so far.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a>(pub &'a [Event]);

impl<'a> Transcript<'a> {
    /// Returns the seat's first generation.
    #[must_use]
    pub fn first(self, role: &RoleName, seat: u16) -> Option<&'a Event> {
        self.turn(role, seat, 0)
    }

    /// Returns the seat's generation of this turn, counted from 0.
    #[must_use]
    pub fn turn(self, role: &RoleName, seat: u16, turn: u16) -> Option<&'a Event> {
        self.0
            .iter()
            .find(|event| event.turn == turn && event.seat == seat && &event.role == role)
    }

    /// Returns the first generations of seats `0..seats` once all are there, else an ask for each
    /// missing one.
    pub fn stage(
        self,
        role: &RoleName,
        seats: u16,
        messages: impl Fn() -> Vec<Message>,
    ) -> Result<Vec<&'a Event>, Vec<Ask>> {
        let events: Vec<Option<&Event>> = (0..seats).map(|seat| self.first(role, seat)).collect();
        if let Some(events) = events.iter().copied().collect() {
            return Ok(events);
        }
        let messages = messages();
        let missing = (0..seats).zip(events).filter(|(_, event)| event.is_none());
        Err(missing.map(|(seat, _)| ask(role, seat, messages.clone())).collect())
    }
}

/// Returns an ask for a seat's first generation, within the agent's own limits.
#[must_use]
pub fn ask(role: &RoleName, seat: u16, messages: Vec<Message>) -> Ask {
    Ask {
        role: role.clone(),
        seat,
        turn: 0,
        messages,
        max_new_tokens: None,
        stop: Vec::new(),
    }
}

/// Returns the name of a role.
///
/// # Errors
/// A text that is not a legal name, as a problem of the configuration.
pub fn role(name: &str) -> Result<RoleName, Vec<Problem>> {
    RoleName::new(name).map_err(|error| {
        vec![Problem {
            path: "workflow.kind".into(),
            message: error.to_string(),
        }]
    })
}

/// Returns a seat's reward: all parts of its role, in their order.
#[must_use]
pub fn reward(role: &RoleName, seat: u16, parts: &[(&'static str, f32)]) -> SeatReward {
    SeatReward {
        role: role.clone(),
        seat,
        subkey: String::new(),
        target: None,
        parts: parts.iter().map(|&(name, value)| Part { name, value }).collect(),
    }
}
