mod workflow;

use super::*;
use crate::shuffle::SplitMix;

const FIRST: usize = 0;
const VERIFIER: usize = 1;
const RETRY: usize = 2;

const S1: Term = Term {
    name: "s1",
    settled: FIRST,
};
const S2: Term = Term {
    name: "s2",
    settled: RETRY,
};

#[test]
fn the_gain_goes_to_verifier_and_retry_alone() {
    assert_eq!(check(VERIFIER, &[S2], &[S1]), Ok(()));
    assert_eq!(check(RETRY, &[S2], &[S1]), Ok(()));
    assert_eq!(
        check(FIRST, &[S2], &[S1]),
        Err(CreditError::Influenced {
            turn: FIRST,
            term: "s1",
            settled: FIRST
        })
    );
    assert_eq!(check(FIRST, &[S1], &[]), Ok(()));
    assert_eq!(
        check(RETRY, &[S1], &[]),
        Err(CreditError::Before {
            turn: RETRY,
            term: "s1",
            settled: FIRST
        })
    );
    assert_eq!(
        check(VERIFIER, &[S2], &[S2]),
        Err(CreditError::Influenced {
            turn: VERIFIER,
            term: "s2",
            settled: RETRY
        })
    );
    assert_eq!(gain(0.0, true, Some(1.0)), Some(1.0));
    assert_eq!(gain(1.0, true, Some(0.0)), Some(-1.0));
    assert_eq!(gain(1.0, false, None), None);
    assert_eq!(gain(0.0, false, Some(1.0)), None);
}

/// A solver, a verifier and a retry as coins, so that every gradient is known in closed form. Each
/// logit's gradient of the chance `p` is `p (1 - p)`.
#[derive(Clone, Copy)]
struct Play {
    /// The first attempt is right.
    right: f64,
    /// The verifier rejects a right attempt; it rejects a wrong one.
    reject: [f64; 2],
    /// The retry is right.
    mended: f64,
}

/// One conversation: s1, whether it was rejected, s2 if so.
struct Drawn {
    s1: bool,
    rejected: bool,
    s2: bool,
}

const PLAY: Play = Play {
    right: 0.4,
    reject: [0.2, 0.7],
    mended: 0.6,
};

impl Play {
    fn draw(self, random: &mut SplitMix) -> Drawn {
        let s1 = random.unit() < self.right;
        let rejected = random.unit() < self.reject[usize::from(!s1)];
        Drawn {
            s1,
            rejected,
            s2: random.unit() < self.mended,
        }
    }

    /// The expected final score: the first attempt's if approved, else the retry's.
    fn score(self) -> f64 {
        let [right, wrong] = self.reject;
        self.right * (1.0 - right) + (self.right * right + (1.0 - self.right) * wrong) * self.mended
    }

    /// Its derivative by one logit, by central difference of the closed form.
    fn slope(self, nudge: impl Fn(&mut Play, f64)) -> f64 {
        let at = |by: f64| {
            let mut play = self;
            nudge(&mut play, by);
            play.score()
        };
        (at(1e-5) - at(-1e-5)) / 2e-5
    }
}

fn shift(p: &mut f64, by: f64) {
    let logit = (*p / (1.0 - *p)).ln() + by;
    *p = 1.0 / (1.0 + (-logit).exp());
}

fn number(truth: bool) -> f64 {
    f64::from(u8::from(truth))
}

/// Returns the distance of the policy gradient of `reward` with the score function `score` from
/// `truth`, in standard errors.
fn error(truth: f64, reward: impl Fn(&Drawn) -> f64, score: impl Fn(&Drawn) -> f64) -> f64 {
    let mut random = SplitMix::new(11);
    let n = 200_000;
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..n {
        let drawn = PLAY.draw(&mut random);
        let gradient = reward(&drawn) * score(&drawn);
        sum += gradient;
        squares += gradient * gradient;
    }
    let mean = sum / f64::from(n);
    let variance = squares / f64::from(n) - mean * mean;
    (mean - truth).abs() / (variance / f64::from(n)).sqrt()
}

/// `s2 - s1` if rejected, else 0: the gain of the team's final score over the first attempt.
fn earned(drawn: &Drawn) -> f64 {
    let gain = gain(
        number(drawn.s1) as f32,
        drawn.rejected,
        drawn.rejected.then_some(number(drawn.s2) as f32),
    );
    f64::from(gain.unwrap_or(0.0))
}

fn final_score(drawn: &Drawn) -> f64 {
    number(if drawn.rejected { drawn.s2 } else { drawn.s1 })
}

#[test]
fn the_gain_is_an_unbiased_credit_of_the_final_score() {
    // The verifier's logit for rejecting a wrong answer.
    let truth = PLAY.slope(|play, by| shift(&mut play.reject[1], by));
    let score = |d: &Drawn| if d.s1 { 0.0 } else { number(d.rejected) - PLAY.reject[1] };
    assert!(error(truth, earned, score) <= 3.0);
    // Its logit for rejecting a right answer, where the gain is a loss.
    let truth = PLAY.slope(|play, by| shift(&mut play.reject[0], by));
    let score = |d: &Drawn| if d.s1 { number(d.rejected) - PLAY.reject[0] } else { 0.0 };
    assert!(error(truth, earned, score) <= 3.0);
    // The retry.
    let truth = PLAY.slope(|play, by| shift(&mut play.mended, by));
    let score = |d: &Drawn| if d.rejected { number(d.s2) - PLAY.mended } else { 0.0 };
    assert!(error(truth, earned, score) <= 3.0);
}

#[test]
fn the_gain_would_mislead_the_first_attempt() {
    let truth = PLAY.slope(|play, by| shift(&mut play.right, by));
    let score = |d: &Drawn| number(d.s1) - PLAY.right;
    assert!(
        error(truth, final_score, score) <= 3.0,
        "the final score itself is a fair reward"
    );
    assert!(truth > 0.0);
    let off = error(truth, earned, score);
    assert!(
        off > 30.0,
        "subtracting s1 from the turn that settles it went unseen: {off:.1} standard errors"
    );
}
