//! From an event and its open spans to one flat line.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::Fields;
use crate::logs::{Appender, LogLine, render_line};

enum Output {
    /// JSON lines, with the fields that every line of this process has.
    Json {
        file: Appender,
        identity: Map<String, Value>,
    },
    /// Lines on stderr.
    People { color: bool },
}

/// A layer that writes one line for each event.
pub(super) struct Lines(Output);

impl Lines {
    pub(super) fn json(file: Appender, identity: Map<String, Value>) -> Self {
        Self(Output::Json { file, identity })
    }

    pub(super) fn people(color: bool) -> Self {
        Self(Output::People { color })
    }

    fn write(&self, line: Map<String, Value>) {
        match &self.0 {
            Output::Json { file, .. } => {
                if let Ok(line) = serde_json::to_vec(&line) {
                    file.line(line);
                }
            }
            Output::People { color } => {
                let mut text = render_line(&LogLine(line), *color);
                text.push('\n');
                // Nobody reads it: nothing to do about that.
                let _ = std::io::stderr().lock().write_all(text.as_bytes());
            }
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut extensions = span.extensions_mut();
            // Two layers see the span; the first has collected its fields.
            if extensions.get_mut::<Fields>().is_none() {
                let mut fields = Fields::default();
                attributes.record(&mut fields);
                extensions.insert(fields);
            }
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut own = fields.0;
        let message = own.shift_remove("message").unwrap_or_else(|| "".into());
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("time".into(), rfc3339(SystemTime::now()).into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("message".into(), message);
        line.insert("target".into(), metadata.target().into());
        if let Output::Json { identity, .. } = &self.0 {
            line.extend(identity.clone());
        }
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.extend(fields.0.clone());
            }
        }
        line.extend(own);
        self.write(line);
    }
}

/// `2026-11-20T12:00:01.250Z`, proleptic Gregorian, from Howard Hinnant's `civil_from_days`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_calendar_times() {
        let at = |seconds: u64| rfc3339(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_795_176_000), "2026-11-20T12:00:00.007Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.007Z");
    }
}
