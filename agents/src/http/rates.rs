//! Limits requests and tokens per minute: two buckets that fill evenly.
//!
//! A request is charged its possible cost, which is its prompts plus all the tokens that it allows.
//! Unused tokens are returned when it ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::request_error::RequestError;

/// A bucket that holds a minute's worth.
#[derive(Debug)]
struct Bucket {
    limit: f64,
    level: f64,
    /// The time at which `level` was computed, counted from the beginning.
    at: Duration,
}

impl Bucket {
    fn new(limit: u64) -> Self {
        Self {
            limit: limit as f64,
            level: limit as f64,
            at: Duration::ZERO,
        }
    }

    /// Takes `amount`, or returns the time until it is available.
    fn take(&mut self, amount: u64, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + passed * self.limit / 60.0).min(self.limit);
        self.at = self.at.max(now);
        let missing = amount as f64 - self.level;
        if missing > 0.0 {
            return Err(Duration::try_from_secs_f64(missing * 60.0 / self.limit).unwrap_or(Duration::MAX));
        }
        self.level -= amount as f64;
        Ok(())
    }

    fn give_back(&mut self, amount: u64) {
        self.level = (self.level + amount as f64).min(self.limit);
    }
}

/// The rates of one front.
#[derive(Debug)]
pub struct FrontRates {
    requests: Option<Mutex<Bucket>>,
    tokens: Option<Arc<Mutex<Bucket>>>,
    begun: Instant,
}

impl FrontRates {
    /// Creates the rates; `None` stands for no limit.
    #[must_use]
    pub fn new(requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>) -> Self {
        Self {
            requests: requests_per_minute.map(|limit| Mutex::new(Bucket::new(limit))),
            tokens: tokens_per_minute.map(|limit| Arc::new(Mutex::new(Bucket::new(limit)))),
            begun: Instant::now(),
        }
    }

    /// Counts a request.
    pub fn request(&self) -> Result<(), RequestError> {
        self.request_at(self.begun.elapsed())
    }

    fn request_at(&self, now: Duration) -> Result<(), RequestError> {
        let Some(bucket) = &self.requests else {
            return Ok(());
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = bucket.take(1, now);
        taken.map_err(|wait| RequestError::too_fast("requests", bucket.limit, wait))
    }

    /// Charges the tokens of prompts and all that may be generated.
    pub fn tokens(&self, prompts: usize, new: usize) -> Result<Charge, RequestError> {
        self.tokens_at(prompts, new, self.begun.elapsed())
    }

    fn tokens_at(&self, prompts: usize, new: usize, now: Duration) -> Result<Charge, RequestError> {
        let (prompts, new) = (prompts as u64, new as u64);
        let Some(bucket) = &self.tokens else {
            return Ok(Charge::default());
        };
        let wanted = prompts.saturating_add(new);
        let mut open = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted as f64 > open.limit {
            return Err(RequestError::more_than_a_minute(wanted, open.limit));
        }
        let taken = open.take(wanted, now);
        taken.map_err(|wait| RequestError::too_fast("tokens", open.limit, wait))?;
        Ok(Charge {
            bucket: Some(bucket.clone()),
            unused: new,
        })
    }
}

/// Charged tokens that were not generated so far; returned when dropped.
#[derive(Debug, Default)]
pub struct Charge {
    bucket: Option<Arc<Mutex<Bucket>>>,
    unused: u64,
}

impl Charge {
    pub fn made(&mut self, tokens: usize) {
        self.unused = self.unused.saturating_sub(tokens as u64);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(bucket) = &self.bucket {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.give_back(self.unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_full_minute_rejects_requests_and_names_the_wait() {
        let rates = FrontRates::new(Some(2), None);
        assert!(rates.request_at(after(0)).is_ok() && rates.request_at(after(0)).is_ok());
        let refusal = rates.request_at(after(0)).unwrap_err();
        assert_eq!((refusal.status, refusal.after), (429, 30));
        assert_eq!(rates.request_at(after(29)).unwrap_err().after, 1);
        assert!(rates.request_at(after(30)).is_ok());
        assert_eq!(
            rates.request_at(after(30)).unwrap_err().status,
            429,
            "one request became available"
        );
        // After a long pause no more than a minute's worth is available.
        assert!((0..2).all(|_| rates.request_at(after(6000)).is_ok()));
        assert!(rates.request_at(after(6000)).is_err());
        let free = FrontRates::new(None, None);
        assert!((0..1000).all(|_| free.request_at(after(0)).is_ok()));
    }

    #[test]
    fn unused_tokens_are_returned() {
        let rates = FrontRates::new(None, Some(600));
        let mut charge = rates.tokens_at(100, 400, after(0)).unwrap();
        let refusal = rates.tokens_at(100, 100, after(0)).unwrap_err();
        assert_eq!((refusal.status, refusal.after), (429, 10));
        charge.made(50);
        drop(charge);
        // The 100 tokens of the prompt and the 50 generated ones are used up.
        drop(rates.tokens_at(0, 450, after(0)).unwrap());
        assert!(rates.tokens_at(0, 451, after(0)).is_err());
        assert_eq!(
            rates.tokens_at(1, 600, after(0)).unwrap_err().status,
            400,
            "it would wait for ever"
        );
    }
}
