//! Turns an event and its open spans into one flat line.

use std::io::Write;
use std::time::SystemTime;

use broker::clock::rfc3339;
use serde_json::{Map, Value};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::EventFields;
use super::files::LogFiles;
use crate::base::log_scope::{COORDINATOR, PROCESS};
use crate::run_folder::logs::{LogLine, render_line};

enum Output {
    /// JSON lines, with the fields that every line of this process has.
    Json {
        files: LogFiles,
        identity: Map<String, Value>,
    },
    /// Lines on stderr.
    People { color: bool },
}

/// A layer that writes one line for each event.
pub(crate) struct Lines(Output);

impl Lines {
    pub(crate) fn json(files: LogFiles, identity: Map<String, Value>) -> Self {
        Self(Output::Json { files, identity })
    }

    pub(crate) fn people(color: bool) -> Self {
        Self(Output::People { color })
    }

    fn write(&self, part: Option<&str>, line: Map<String, Value>) {
        match &self.0 {
            Output::Json { files, .. } => {
                if let Ok(line) = serde_json::to_vec(&line) {
                    files.line(part, line);
                }
            }
            Output::People { color } => {
                let mut text = render_line(&LogLine(line), *color);
                text.push('\n');
                // A closed standard error loses the line; there is no other place to report it.
                let _ = std::io::stderr().lock().write_all(text.as_bytes());
            }
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut extensions = span.extensions_mut();
            // Two layers see the span; the first has already collected its fields.
            if extensions.get_mut::<EventFields>().is_none() {
                let mut fields = EventFields::default();
                attributes.record(&mut fields);
                extensions.insert(fields);
            }
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<EventFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let mut own = fields.0;
        let message = own.shift_remove("message").unwrap_or_else(|| "".into());
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("time".into(), rfc3339(SystemTime::now()).into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("message".into(), message);
        line.insert("target".into(), metadata.target().into());
        let mut spans = Map::new();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(fields) = span.extensions().get::<EventFields>() {
                spans.extend(fields.0.clone());
            }
        }
        let part = spans.shift_remove(PROCESS);
        let part = part.as_ref().and_then(Value::as_str);
        if let Output::Json { identity, files } = &self.0 {
            line.extend(identity.clone());
            if let Some(part) = part.filter(|_| files.has_parts()) {
                let role = if part == COORDINATOR { part } else { "agent" };
                line.insert("role".into(), role.into());
            }
        }
        line.extend(spans);
        line.extend(own);
        self.write(part, line);
    }
}
