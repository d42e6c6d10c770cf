//! Log lines for people: the filter and the layout.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{one_line, printable};

/// Keys of a log line that have a fixed place in the layout.
const PLACED: [&str; 7] = ["time", "level", "message", "target", "agent", "role", "run"];

/// The target of the line that a coordinator logs, at DEBUG, for each conversation with a
/// transcript. Log files have it by default.
pub const CONVERSATION: &str = "conversation";

/// One line of a `logs/<process>.jsonl` file.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine(pub Map<String, Value>);

impl LogLine {
    /// Parses a line; `None` if it is not a JSON object.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok().map(Self)
    }

    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The lines to show.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// The least severe level shown. `None`: every line but those of single conversations.
    pub level: Option<tracing::Level>,
    /// A conversation's id, or a prefix of it.
    pub conversation: Option<String>,
}

impl LogFilter {
    #[must_use]
    pub fn wants(&self, line: &LogLine) -> bool {
        let level = line.text("level").parse::<tracing::Level>().ok();
        let severe = match (self.level, level) {
            (Some(least), Some(level)) => level <= least,
            (Some(_), None) => true,
            (None, _) => self.conversation.is_some() || line.text("target") != CONVERSATION,
        };
        severe && self.conversation.as_deref().is_none_or(|wanted| is_about(line, wanted))
    }
}

/// Returns true if the line is about the conversation, or about its whole group.
fn is_about(line: &LogLine, wanted: &str) -> bool {
    let group = wanted.split('/').next().unwrap_or(wanted);
    line.text("conversation_id").starts_with(wanted)
        || (line.text("conversation_id").is_empty() && !group.is_empty() && line.text("group").starts_with(group))
}

/// Renders a line: `12:00:01.250  WARN  turn was asked again  conversation_id=ab01/3 turn=1`
#[must_use]
pub fn render_line(line: &LogLine, color: bool) -> String {
    let time = line.text("time");
    let clock = one_line(time.get(11..23).unwrap_or(time));
    let level = &*one_line(line.text("level"));
    let (open, dim, close) = match (color, level) {
        (false, _) => ("", "", ""),
        (true, "ERROR") => ("\x1b[31m", "\x1b[2m", "\x1b[0m"),
        (true, "WARN") => ("\x1b[33m", "\x1b[2m", "\x1b[0m"),
        (true, "INFO") => ("\x1b[32m", "\x1b[2m", "\x1b[0m"),
        (true, _) => ("\x1b[34m", "\x1b[2m", "\x1b[0m"),
    };
    // Continuation lines are indented, so that they cannot look like a log line.
    let message = printable(line.text("message")).replace('\n', "\n    ");
    let mut text = format!("{dim}{clock}{close} {open}{level:>5}{close}  {message}");
    // In a line about a turn these are the player's, not the process's.
    let of_turn = |key: &str| matches!(key, "agent" | "role") && line.0.contains_key("turn");
    let shows = |key: &str| !PLACED.contains(&key) || of_turn(key);
    for (key, value) in line.0.iter().filter(|(key, _)| shows(key)) {
        let shown = match value {
            Value::String(value) if value.contains(' ') => format!("{value:?}"),
            Value::String(value) => value.clone(),
            value => value.to_string(),
        };
        let _ = write!(text, "  {dim}{}={close}{}", one_line(key), one_line(&shown));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2026-11-20T12:00:01.250Z","level":"WARN","message":"turn was asked again","target":"agents","run":"r-1","conversation_id":"ab01/3","turn":1,"reason":"no answer"}"#;

    #[test]
    fn lines_are_shown_with_their_fields() {
        let line = LogLine::parse(LINE).unwrap();
        assert_eq!(
            render_line(&line, false),
            "12:00:01.250  WARN  turn was asked again  conversation_id=ab01/3  turn=1  reason=\"no answer\""
        );
        assert!(LogLine::parse("not json").is_none());
    }

    #[test]
    fn text_in_a_line_never_reaches_the_terminal_as_a_command() {
        let hostile = "s7\u{1b}[2J\u{9b}6n\n12:00:00.000  INFO  forged";
        let values = [hostile.to_owned(), hostile.replace(' ', "_")];
        for (key, value) in ["time", "level", "message", "text"]
            .into_iter()
            .flat_map(|k| values.iter().map(move |v| (k, v)))
        {
            let line =
                serde_json::json!({"time": "t", "level": "INFO", "message": "m", key: value, "k\u{1b}": [value]});
            let shown = render_line(&LogLine::parse(&line.to_string()).unwrap(), false);
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{key}: {shown:?}");
            assert!(
                !shown.lines().skip(1).any(|line| line.starts_with("12:")),
                "{key}: {shown:?}"
            );
            let colored = render_line(&LogLine::parse(&line.to_string()).unwrap(), true);
            assert!(!colored.contains("\u{1b}[2J"), "{key}: {colored:?}");
        }
    }

    #[test]
    fn conversation_filter_finds_lines_about_its_group() {
        let line = |text: &str| LogLine::parse(text).unwrap();
        let of_group = line(r#"{"level":"WARN","message":"turns are silent","group":"ab01"}"#);
        assert!(is_about(&of_group, "ab01/3"));
        assert!(!is_about(&of_group, "ab02/3"));
        let of_other = line(r#"{"level":"WARN","message":"m","group":"ab01","conversation_id":"ab01/2"}"#);
        assert!(!is_about(&of_other, "ab01/3"));
    }

    #[test]
    fn line_of_a_conversation_is_shown_where_it_is_asked_for() {
        let line = r#"{"level":"DEBUG","message":"m","target":"conversation","conversation_id":"ab01/3"}"#;
        let line = LogLine::parse(line).unwrap();
        for (level, conversation, wanted) in [
            (None, None, false),
            (None, Some("ab01"), true),
            (Some(tracing::Level::DEBUG), None, true),
            (Some(tracing::Level::INFO), Some("ab01"), false),
        ] {
            let conversation = conversation.map(str::to_owned);
            assert_eq!(LogFilter { level, conversation }.wants(&line), wanted);
        }
    }

    #[test]
    fn filters_by_level_and_conversation() {
        let line = LogLine::parse(LINE).unwrap();
        let wants = |level: Option<tracing::Level>, conversation: Option<&str>| {
            let filter = LogFilter {
                level,
                conversation: conversation.map(str::to_owned),
            };
            filter.wants(&line)
        };
        assert!(wants(None, None));
        assert!(wants(Some(tracing::Level::INFO), Some("ab01")));
        assert!(!wants(Some(tracing::Level::ERROR), None));
        assert!(!wants(None, Some("ab02")));
    }
}
