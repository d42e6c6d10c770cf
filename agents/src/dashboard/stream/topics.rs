//! The topics of a stream.

use super::files::FileTopic;
use crate::dashboard::answer::ApiError;

/// The topics that a page asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics {
    /// Committed turns.
    pub(super) turns: bool,
    /// The run's state, every second.
    pub(super) beats: bool,
    pub(super) files: Vec<FileTopic>,
}

impl Topics {
    /// Reads a list such as `turns,logs:a`.
    ///
    /// # Errors
    /// A topic is unknown, or the list is empty.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut topics = Self::default();
        for topic in text.split(',') {
            match topic {
                "turns" => topics.turns = true,
                "beats" => topics.beats = true,
                "ended" => topics.files.push(FileTopic::Ended),
                "metrics" => topics.files.push(FileTopic::Metrics),
                other => match other.strip_prefix("logs:") {
                    Some(process) => topics.files.push(FileTopic::Log(process.to_owned())),
                    None => {
                        let message = "the topics of a stream are turns, beats, ended, metrics and logs:PROCESS";
                        return Err(ApiError::wrong(message));
                    }
                },
            }
        }
        Ok(topics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_a_list_of_known_names() {
        let topics = Topics::parse("turns,logs:a,ended").unwrap();
        assert_eq!(topics.files, [FileTopic::Log("a".into()), FileTopic::Ended]);
        assert!(topics.turns && !topics.beats);
        for wrong in ["", "turns,", "log:a", "everything"] {
            assert_eq!(Topics::parse(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }
}
