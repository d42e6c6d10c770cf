//! Users of the servers, one for each kind of process, each with the permissions it needs in one
//! run.
//!
//! [`Topology::access`] holds the permissions. This module turns them into definitions for RabbitMQ
//! and an ACL file for Redis. Both contain hashes; only the URLs of [`User`] contain the passwords.

mod acl;
mod definitions;

use std::fmt;

pub use self::acl::acl;
pub use self::definitions::definitions;
use crate::local::LocalError;
use crate::local::process::random_secret;
use crate::topology::{Principal, Topology};

/// A shorter password can be guessed from a hash.
const SHORTEST: usize = 16;

/// The user of one kind of process.
#[derive(Clone)]
pub struct User {
    pub who: Principal,
    pub name: String,
    password: String,
}

/// Shows no password.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// The reason why a password cannot be used. Never shows the password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("it has {0} characters, and fewer than {SHORTEST} can be guessed")]
    Short(usize),
    #[error("it has characters that do not fit into a URL: use letters, digits, '-', '_', '.' and '~'")]
    Characters,
    #[error(transparent)]
    Random(#[from] LocalError),
}

impl User {
    /// Returns a user of this run with the `given` password, else a random one.
    ///
    /// # Errors
    /// The given password is too short or does not fit into a URL, or the system has no random
    /// numbers.
    pub fn new(topology: &Topology, who: Principal, given: Option<String>) -> Result<Self, PasswordError> {
        let password = match given {
            Some(password) => judged(password)?,
            None => random_secret()?,
        };
        Ok(Self {
            name: topology.user(&who),
            who,
            password,
        })
    }

    /// Returns `url` with this user instead of its own.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap_or(("amqp", url));
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{}:{}@{host}{path}", self.name, self.password)
    }
}

fn judged(password: String) -> Result<String, PasswordError> {
    if password.len() < SHORTEST {
        return Err(PasswordError::Short(password.len()));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    if password.chars().all(fits) {
        Ok(password)
    } else {
        Err(PasswordError::Characters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RunId;

    fn user(password: &str) -> Result<User, PasswordError> {
        let topology = Topology::new(RunId::new("r-1").unwrap());
        User::new(&topology, Principal::Publisher, Some(password.into()))
    }

    #[test]
    fn a_url_gets_the_user_and_loses_the_one_it_had() {
        let user = user("correct-horse-battery").unwrap();
        for (from, to) in [
            ("amqp://h:1/v", "amqp://r-1.publisher:correct-horse-battery@h:1/v"),
            (
                "amqp://admin:p@ss@h:1/%2f?x=1",
                "amqp://r-1.publisher:correct-horse-battery@h:1/%2f?x=1",
            ),
            ("redis://h", "redis://r-1.publisher:correct-horse-battery@h"),
        ] {
            assert_eq!(user.url(from), to);
        }
    }

    #[test]
    fn weak_passwords_are_refused_and_none_is_shown() {
        for (password, why) in [("short", "guessed"), ("with a blank and an @", "URL")] {
            let error = user(password).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains(password), "{error}");
        }
        let shown = format!("{:?}", user("correct-horse-battery").unwrap());
        assert_eq!(shown, "User(r-1.publisher)");
        let topology = Topology::new(RunId::new("r-1").unwrap());
        let random = || User::new(&topology, Principal::Operator, None).unwrap().password;
        assert_ne!(random(), random());
        assert_eq!(random().len(), 32);
    }
}
