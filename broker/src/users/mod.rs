//! Users of the servers, one for each kind of process, each able to touch only what it needs of one run.
//!
//! What each may touch is [`Topology::access`]; here it becomes what the servers load: definitions for RabbitMQ, an ACL file
//! for Redis. Both hold hashes; the passwords themselves go nowhere but into the URLs of [`User`].

mod acl;
mod definitions;

use std::fmt;

pub use self::acl::acl;
pub use self::definitions::definitions;
use crate::local::LocalError;
use crate::local::process::random_secret;
use crate::topology::{Principal, Topology};

/// Fewer characters can be guessed from a hash.
const SHORTEST: usize = 16;

/// One kind of process and how it logs in.
#[derive(Clone)]
pub struct User {
    pub who: Principal,
    pub name: String,
    password: String,
}

/// Without its password.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name)
    }
}

/// Why a password cannot be used. Never says the password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("it has {0} characters, and fewer than {SHORTEST} can be guessed")]
    Short(usize),
    #[error("it has characters that a URL would not carry: use letters, digits, '-', '_', '.' and '~'")]
    Characters,
    #[error(transparent)]
    Random(#[from] LocalError),
}

impl User {
    /// A user of this run, with the password that was `given`, else a random one.
    ///
    /// # Errors
    /// The given password is too short or does not fit into a URL, or the system has no random numbers.
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

    /// `url` with this user in place of whoever it names.
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
