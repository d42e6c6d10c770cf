//! Names of agents, roles and participants. They appear in queue names, routing keys and database
//! keys, so their alphabet is narrow.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An error for an illegal name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a name: use 1 to 32 of a-z, 0-9, '-' and '_', beginning with a letter or digit")]
pub struct NameError {
    pub value: String,
}

/// The names that [`check`] accepts, as a regular expression of JSON Schema.
const PATTERN: &str = "^[a-z0-9][a-z0-9_-]{0,31}$";

fn check(value: &str) -> Result<(), NameError> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let first = value
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if first && value.len() <= 32 && value.chars().all(legal) {
        Ok(())
    } else {
        Err(NameError {
            value: value.chars().take(64).collect(),
        })
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name after a check of its alphabet and length.
            ///
            /// # Errors
            /// [`NameError`] for an illegal name.
            pub fn new(value: &str) -> Result<Self, NameError> {
                check(value).map(|()| Self(Arc::from(value)))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": PATTERN })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = String::deserialize(deserializer)?;
                Self::new(&value).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type!(
    /// The name of an agent, for example `a` or `solver`.
    AgentName
);
name_type!(
    /// The name of a role in a conversation, for example `speaker` or `verifier`.
    RoleName
);
name_type!(
    /// The name of a remote participant, which answers over RabbitMQ, for example `judge`.
    ParticipantName
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_narrow() {
        for good in ["a", "agent-b", "0", "solver_2"] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", "a.b", "a b", "é", "a/../b", &"x".repeat(33)] {
            assert!(AgentName::new(bad).is_err(), "{bad}");
        }
    }
}
