//! Failpoints: named places where a test ends or halts this process, like a crash or a pause at
//! that instant.
//!
//! [`point`] is an empty function unless this crate is built with the feature `failpoints`, which
//! only the workspace's tests enable. Then the environment arms points, in the syntax of the crate
//! `fail`:
//!
//! ```text
//! DYAD_FAILPOINTS='turn.generated=3*off->kill;bundle.sent=stop'
//!     passes three times, then kills; stops at once
//! DYAD_FAILPOINTS='job.begun/GROUP=kill'
//!     kills whenever work on that group begins (`point_of`)
//! DYAD_FAILPOINTS_ONCE=/a/folder
//!     each point kills, stops, panics or hangs once in all processes that share the folder
//! ```
//!
//! Actions:
//!
//! - `off`
//! - `kill`: SIGKILL to this process; nothing is flushed, no destructor runs
//! - `stop`: SIGSTOP; the process halts until it receives SIGCONT
//! - `panic`
//! - `hang`: this thread halts for ever, the others continue
//! - `sleep(MILLISECONDS)`

/// Marks a named step boundary.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn point(_name: &str) {}

#[cfg(feature = "failpoints")]
pub use armed::point;

/// Calls [`point`] with the name `NAME/OWNER`, for places that act on one group's work only.
#[inline]
pub fn point_of(name: &str, owner: &impl std::fmt::Display) {
    if cfg!(feature = "failpoints") {
        point(&format!("{name}/{owner}"));
    }
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    static ARMED: LazyLock<Armed> = LazyLock::new(|| {
        let text = std::env::var("DYAD_FAILPOINTS").unwrap_or_default();
        Armed {
            points: parse(&text).unwrap_or_else(|problem| panic!("DYAD_FAILPOINTS: {problem}")),
            once: std::env::var_os("DYAD_FAILPOINTS_ONCE").map(PathBuf::from),
        }
    });

    struct Armed {
        points: HashMap<String, Point>,
        /// A folder in which a file with a point's name marks that the point has acted.
        once: Option<PathBuf>,
    }

    #[derive(Debug, Default)]
    struct Point {
        passed: AtomicU64,
        terms: Vec<Term>,
    }

    /// An action and the number of passes it applies to; without a number, to all later passes.
    #[derive(Debug, PartialEq)]
    struct Term {
        times: Option<u64>,
        action: Action,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Action {
        Off,
        Kill,
        Stop,
        Panic,
        Hang,
        Sleep(u64),
    }

    /// Marks a named step boundary and does what the environment asks for it.
    pub fn point(name: &str) {
        let armed = &*ARMED;
        let Some(action) = armed.points.get(name).and_then(Point::next) else {
            return;
        };
        if let Action::Sleep(ms) = action {
            return std::thread::sleep(Duration::from_millis(ms));
        }
        if action == Action::Off || !armed.first(name) {
            return;
        }
        eprintln!("failpoint {name}: {action:?}");
        match action {
            Action::Off | Action::Sleep(_) => {}
            Action::Kill => signal(Signal::KILL),
            Action::Stop => signal(Signal::STOP),
            Action::Panic => panic!("failpoint {name}"),
            Action::Hang => loop {
                std::thread::park();
            },
        }
    }

    fn signal(signal: Signal) {
        // A process may always signal itself; the pause lets the kernel deliver the signal before
        // another line runs.
        let _ = kill_process(getpid(), signal);
        std::thread::sleep(Duration::from_millis(100));
    }

    impl Armed {
        /// Returns true at the first action of this point in all processes of the same folder.
        fn first(&self, name: &str) -> bool {
            let Some(folder) = &self.once else { return true };
            let path = folder.join(name.replace('/', "_"));
            std::fs::File::create_new(path).is_ok()
        }
    }

    impl Point {
        fn next(&self) -> Option<Action> {
            let mut passed = self.passed.fetch_add(1, Ordering::Relaxed);
            for term in &self.terms {
                match term.times {
                    Some(times) if passed >= times => passed -= times,
                    _ => return Some(term.action),
                }
            }
            None
        }
    }

    fn parse(text: &str) -> Result<HashMap<String, Point>, String> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (name, terms) = part.split_once('=').ok_or_else(|| format!("{part:?} has no '='"))?;
                let terms = terms.split("->").map(term).collect::<Result<_, _>>()?;
                let passed = AtomicU64::new(0);
                Ok((name.trim().to_owned(), Point { passed, terms }))
            })
            .collect()
    }

    fn term(text: &str) -> Result<Term, String> {
        let text = text.trim();
        let unknown = || format!("{text:?} is not [N*]off, kill, stop, panic, hang or sleep(MILLISECONDS)");
        let (times, action) = match text.split_once('*') {
            Some((times, action)) => (Some(times.trim().parse().map_err(|_| unknown())?), action.trim()),
            None => (None, text),
        };
        let action = match action {
            "off" => Action::Off,
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "panic" => Action::Panic,
            "hang" => Action::Hang,
            other => {
                let ms = other.strip_prefix("sleep(").and_then(|rest| rest.strip_suffix(')'));
                Action::Sleep(ms.and_then(|ms| ms.parse().ok()).ok_or_else(unknown)?)
            }
        };
        Ok(Term { times, action })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn terms_follow_each_other() {
            let points = parse("a.b=2*off->1*sleep(5)->kill; c=stop").unwrap();
            let acts: Vec<_> = (0..5).filter_map(|_| points["a.b"].next()).collect();
            use Action::{Kill, Off, Sleep, Stop};
            assert_eq!(acts, [Off, Off, Sleep(5), Kill, Kill]);
            assert_eq!(points["c"].next(), Some(Stop));
            let passes = parse("d=1*stop").unwrap();
            assert_eq!((passes["d"].next(), passes["d"].next()), (Some(Stop), None));
            assert_eq!(parse("e=hang").unwrap()["e"].next(), Some(Action::Hang));
            for wrong in ["a", "a=die", "a=x*kill", "a=sleep(x)"] {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
        }

        #[test]
        fn a_point_acts_once_in_a_folder() {
            let folder = tempfile::tempdir().unwrap();
            let armed = Armed {
                points: HashMap::new(),
                once: Some(folder.path().into()),
            };
            assert!(armed.first("a") && !armed.first("a") && armed.first("b"));
        }
    }
}
