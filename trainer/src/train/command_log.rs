//! The order of commands. Each command takes effect once; a repeat gets the reply of the first.

use std::collections::VecDeque;

use broker::protocol::train::{TrainCommand, TrainReply};

use super::error::{Refusal, TrainError};

/// Replies kept for repeats. A caller that lost a reply repeats its last command, so a few are
/// enough.
const REMEMBERED: usize = 8;

/// The number of a new command and its [`fingerprint`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    mark: blake3::Hash,
}

/// The treatment of an incoming command.
#[derive(Debug, PartialEq)]
enum CommandDecision {
    /// The command is new.
    Run,
    /// The command has run before: send its reply again.
    Repeat(TrainReply),
}

/// The numbers and replies of the last commands.
#[derive(Debug, Default)]
pub(crate) struct CommandLog {
    entries: VecDeque<(u64, blake3::Hash, TrainReply)>,
}

/// The number of a command.
pub(crate) fn seq(command: &TrainCommand) -> u64 {
    match command {
        TrainCommand::ForwardBackward { seq, .. }
        | TrainCommand::OptimStep { seq, .. }
        | TrainCommand::Forward { seq, .. }
        | TrainCommand::SaveState { seq, .. }
        | TrainCommand::LoadState { seq, .. }
        | TrainCommand::Publish { seq, .. }
        | TrainCommand::Sample { seq, .. } => *seq,
    }
}

/// A hash that distinguishes a repeat from a different command with the same number.
fn fingerprint(command: &TrainCommand) -> blake3::Hash {
    blake3::hash(&broker::codec::encode(command))
}

impl CommandLog {
    /// Returns a new command's entry, to be recorded after it has run, or the reply of a repeat.
    ///
    /// # Errors
    /// [`TrainError::User`] for a command out of order.
    pub(crate) fn begin(&self, command: &TrainCommand) -> Result<Result<Entry, TrainReply>, TrainError> {
        let (seq, mark) = (seq(command), fingerprint(command));
        match self.admit(seq, &mark) {
            Ok(CommandDecision::Run) => Ok(Ok(Entry { seq, mark })),
            Ok(CommandDecision::Repeat(reply)) => Ok(Err(reply)),
            Err(reason) => Err(TrainError::User { seq, reason }),
        }
    }

    /// Decides about a command. The first command may have any number. Each later one must be the
    /// next, or a repeat of a recent one.
    fn admit(&self, seq: u64, fingerprint: &blake3::Hash) -> Result<CommandDecision, Refusal> {
        let Some((last, _, _)) = self.entries.back() else {
            return Ok(CommandDecision::Run);
        };
        if seq > *last {
            let expected = last + 1;
            return if seq == expected {
                Ok(CommandDecision::Run)
            } else {
                Err(Refusal::Gap { expected })
            };
        }
        match self.entries.iter().find(|(known, _, _)| *known == seq) {
            Some((_, known, reply)) if known == fingerprint => Ok(CommandDecision::Repeat(reply.clone())),
            Some(_) => Err(Refusal::Reused),
            None => Err(Refusal::Forgotten {
                oldest: self.entries.front().map_or(0, |(oldest, _, _)| *oldest),
            }),
        }
    }

    /// The number after the last command's.
    pub(crate) fn next(&self) -> u64 {
        self.entries.back().map_or(0, |(last, _, _)| last + 1)
    }

    pub(crate) fn record(&mut self, entry: Entry, reply: TrainReply) {
        if self.entries.len() == REMEMBERED {
            self.entries.pop_front();
        }
        self.entries.push_back((entry.seq, entry.mark, reply));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever arrives, commands take effect in order and once each, and repeats get their own
        /// reply.
        #[test]
        fn effects_are_ordered_and_single(arrivals in prop::collection::vec((0u64..30, 0u8..4), 0..120)) {
            let mut log = CommandLog::default();
            let mut effects: Vec<(u64, u8)> = Vec::new();
            for (seq, content) in arrivals {
                let mark = blake3::hash(&[content]);
                let reply = TrainReply::Saved { digest: format!("{seq} {content}") };
                match log.admit(seq, &mark) {
                    Ok(CommandDecision::Run) => {
                        if let Some((last, _)) = effects.last() {
                            prop_assert_eq!(seq, last + 1);
                        }
                        effects.push((seq, content));
                        log.record(Entry { seq, mark }, reply);
                    }
                    Ok(CommandDecision::Repeat(known)) => {
                        prop_assert!(effects.contains(&(seq, content)));
                        prop_assert_eq!(known, reply);
                    }
                    Err(Refusal::Reused) => {
                        prop_assert!(effects.iter().any(|(s, c)| *s == seq && *c != content));
                    }
                    Err(Refusal::Forgotten { oldest }) => prop_assert!(seq < oldest),
                    Err(Refusal::Gap { expected }) => prop_assert!(seq > expected),
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
        }
    }
}
