//! The prompts that agents read. A workflow is a function of its task and events, so its requests
//! can be computed again.

use std::collections::BTreeMap;

use broker::RoleName;
use broker::ids::TurnKey;
use broker::protocol::task::Task;
use broker::protocol::turn::{Generation, Message};
use rollout::workflow::tools::ERROR;
use rollout::workflow::{Event, Step, Workflow};

use crate::participant::{PROGRAM, TOOL};
use crate::run_folder::logs::Transcript;

/// A turn of a conversation: role, seat and number.
type Place = (RoleName, u16, u16);

/// Returns the request of each turn of a conversation. The turns must be in their order of play.
fn of(
    workflow: &dyn Workflow,
    task: &Task,
    seed: u64,
    turns: &[(TurnKey, Generation)],
) -> BTreeMap<Place, Vec<Message>> {
    let events: Vec<Event> = turns.iter().map(|(key, made)| Event::of(key, made)).collect();
    let mut asked = BTreeMap::new();
    // A turn is requested before its event. The last step is left out: it would grade again.
    for until in 0..events.len() {
        if let Step::Ask(asks) = workflow.step(task, seed, &events[..until]) {
            for ask in asks {
                let place = (ask.role, ask.seat, ask.turn);
                asked.entry(place).or_insert(ask.messages);
            }
        }
    }
    asked
}

/// Adds to agents' turns what they read: everything, or only the errors of calls that reached no
/// tool.
pub(crate) fn add(
    transcript: &mut Transcript,
    workflow: &dyn Workflow,
    (task, seed): (&Task, u64),
    turns: &[(TurnKey, Generation)],
    all: bool,
) {
    let mut asked = of(workflow, task, seed, turns);
    let answered: Vec<String> = transcript.turns.iter().map(|turn| turn.text.clone()).collect();
    let refused = |message: &Message| {
        message.role == "tool" && message.content.starts_with(ERROR) && !answered.contains(&message.content)
    };
    for (turn, (key, _)) in transcript.turns.iter_mut().zip(turns) {
        if [PROGRAM, TOOL].contains(&turn.agent.as_str()) {
            continue;
        }
        let read = asked
            .remove(&(key.role.clone(), key.seat, key.turn))
            .unwrap_or_default();
        let said = read.into_iter().filter(Message::is_said);
        turn.reads = said.filter(|message| all || refused(message)).collect();
    }
}
