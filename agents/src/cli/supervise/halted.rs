//! Notices a child process that a signal has stopped (SIGSTOP) and that does not continue.
//!
//! A stopped process ends no connection and sends nothing, so the run would wait for it for ever.
//! Time is counted in looks, not by a clock: a supervisor that was stopped itself has not looked,
//! and starts to count again. A process in a debugger is not counted.

use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::time::Instant;

/// The number of looks after which a stopped process is lost.
const LOOKS: u32 = 10;

/// Successive looks at which a process was stopped.
#[derive(Debug, Default)]
struct Stopped(u32);

impl Stopped {
    /// Returns true if the process is lost. `late`: much more time has passed since the last look
    /// than planned, so this process did not run.
    fn look(&mut self, is_stopped: bool, late: bool) -> bool {
        self.0 = if is_stopped && !late { self.0 + 1 } else { 0 };
        self.0 >= LOOKS
    }
}

/// Returns when the child process has been stopped for `patience`. Never if that is zero.
pub(super) async fn for_longer_than(patience: Duration, child: Option<u32>) {
    let child = child.and_then(|id| Pid::from_raw(id.cast_signed()));
    let (Some(child), false) = (child, patience.is_zero()) else {
        return std::future::pending().await;
    };
    let (mut stopped, interval) = (Stopped::default(), patience / LOOKS);
    loop {
        let began = Instant::now();
        tokio::time::sleep(interval).await;
        if stopped.look(is_stopped(child), began.elapsed() > 2 * interval) {
            return;
        }
    }
}

/// Returns true if a child of this process is stopped now. Leaves its state to later calls.
fn is_stopped(child: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // An error means that it has ended.
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(status)) if status.stopped())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Signal, kill_process};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(600);

    /// A child that ends with this value.
    struct Sleeping(Child);

    impl Sleeping {
        fn start() -> Self {
            Self(Command::new("sleep").arg("600").spawn().unwrap())
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }

        fn signal(&self, signal: Signal, seen: WaitIdOptions) {
            kill_process(self.pid(), signal).unwrap();
            // Blocks until the signal has taken effect.
            waitid(WaitId::Pid(self.pid()), seen | WaitIdOptions::NOWAIT).unwrap();
        }

        /// Returns true if the child counts as lost within ten times `patience`, on a clock that
        /// does not wait.
        async fn is_lost(&self, patience: Duration) -> bool {
            let lost = for_longer_than(patience, Some(self.0.id()));
            tokio::time::timeout(10 * PATIENCE, lost).await.is_ok()
        }
    }

    impl Drop for Sleeping {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn child_that_stays_stopped_is_lost() {
        let child = Sleeping::start();
        assert!(!child.is_lost(PATIENCE).await, "it runs");
        child.signal(Signal::STOP, WaitIdOptions::STOPPED);
        assert!(!child.is_lost(Duration::ZERO).await, "the check is off");
        assert!(child.is_lost(PATIENCE).await);
        child.signal(Signal::CONT, WaitIdOptions::CONTINUED);
        assert!(!child.is_lost(PATIENCE).await, "it runs again");
    }

    #[test]
    fn looks_begin_again_after_a_continue_or_a_late_look() {
        let lost_at = |looks: &[(bool, bool)]| {
            let mut stopped = Stopped::default();
            let mut looks = looks.iter();
            looks.position(|(is_stopped, late)| stopped.look(*is_stopped, *late))
        };
        let (halt, go, late) = ([(true, false); 9], [(false, false)], [(true, true)]);
        assert_eq!(lost_at(&[halt, halt].concat()), Some(9));
        assert_eq!(lost_at(&[&halt[..], &go, &halt].concat()), None);
        assert_eq!(
            lost_at(&[&halt[..], &late, &halt].concat()),
            None,
            "this process was stopped"
        );
    }
}
