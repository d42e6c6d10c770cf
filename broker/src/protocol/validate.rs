//! Rejects messages that decode but cannot be true: numbers that are not finite, and log-probs and
//! spans that do not fit their tokens.
//!
//! A message that fails here goes to the dead letters unchanged. No healthy peer sends it, and
//! training on it would do harm that no later check could see.

use super::bundle::{Bundle, BundleContent, Row, Sample, Segment};
use super::engine::{EngineOutput, EngineProgress};
use super::turn::{Generation, LogProbs, ResultFrame, Sampling, TurnFrame, TurnOutcome, VersionSpan};
use crate::codec::CodecError;
use configs::RoleName;

/// The largest log-prob above 0 that rounding explains.
pub const ROUNDING: f32 = 1e-3;

fn hold(condition: bool, otherwise: &'static str) -> Result<(), CodecError> {
    if condition {
        Ok(())
    } else {
        Err(CodecError::Content(otherwise))
    }
}

fn finite(values: &[f32], otherwise: &'static str) -> Result<(), CodecError> {
    hold(values.iter().all(|value| value.is_finite()), otherwise)
}

/// Checks log-probs of chosen or likely tokens: finite, and above 0 by rounding alone.
fn log_probs(values: impl IntoIterator<Item = f32>) -> Result<(), CodecError> {
    values.into_iter().try_for_each(|value| {
        hold(value.is_finite(), "a log-prob that is not finite")?;
        hold(value <= ROUNDING, "a log-prob above 0")
    })
}

/// Checks that absent log-probs are 0.
fn absent(of: LogProbs, values: &[f32]) -> Result<(), CodecError> {
    hold(
        of != LogProbs::Absent || values.iter().all(|value| *value == 0.0),
        "log-probs that must be absent",
    )
}

fn temperature(value: f32) -> Result<(), CodecError> {
    hold(
        value.is_finite() && value >= 0.0,
        "a temperature that is negative or not finite",
    )
}

fn role(name: &str) -> Result<(), CodecError> {
    hold(RoleName::new(name).is_ok(), "a role that is no name")
}

/// Checks that spans cover `0..length` in order, without gaps and without empty spans.
fn covers(spans: &[VersionSpan], length: usize) -> Result<(), CodecError> {
    covers_from(0, spans, length)
}

/// Checks the same as [`covers`] for `start..start + length`.
fn covers_from(start: usize, spans: &[VersionSpan], length: usize) -> Result<(), CodecError> {
    let mut end = u32::try_from(start).map_err(|_| CodecError::Content("more tokens than can be counted"))?;
    for span in spans {
        hold(
            span.start == end && span.end > end,
            "version spans with a gap, an overlap or nothing in them",
        )?;
        end = span.end;
    }
    hold(
        end as usize == start + length,
        "version spans that do not end where the tokens end",
    )
}

impl Generation {
    /// Checks that log-probs and spans fit the output, and that every number is finite.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        hold(
            self.logprobs.len() == self.output_ids.len(),
            "unequal numbers of log-probs and tokens",
        )?;
        log_probs(self.logprobs.iter().copied())?;
        absent(self.logprobs_of, &self.logprobs)?;
        temperature(self.temperature)?;
        hold(
            self.temperature > 0.0 || !self.logprobs_of.are_of_behaviour(),
            "log-probs of a sampled distribution at temperature 0",
        )?;
        covers(&self.spans, self.output_ids.len())
    }
}

impl EngineOutput {
    /// Checks the same as [`Generation::validate`].
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        hold(
            self.logprobs.len() == self.output_ids.len(),
            "unequal numbers of log-probs and tokens",
        )?;
        log_probs(self.logprobs.iter().copied())?;
        absent(self.logprobs_of, &self.logprobs)?;
        covers(&self.spans, self.output_ids.len())
    }
}

impl EngineProgress {
    /// Checks the same as [`Generation::validate`]. `reported` is the number of the visit's tokens
    /// reported before, and `top` the requested number of most likely tokens.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self, reported: usize, top: u8) -> Result<(), CodecError> {
        hold(
            self.logprobs.len() == self.ids.len(),
            "unequal numbers of log-probs and tokens",
        )?;
        log_probs(self.logprobs.iter().copied())?;
        let places = if top > 0 { self.ids.len() } else { 0 };
        hold(
            self.top.len() == places && self.top.iter().all(|place| place.len() <= usize::from(top)),
            "lists of most likely tokens that were not requested",
        )?;
        log_probs(self.top.iter().flatten().map(|one| one.logprob))?;
        covers_from(reported, &self.spans, self.ids.len())
    }
}

impl Sampling {
    fn validate(&self) -> Result<(), CodecError> {
        temperature(self.temperature)?;
        finite(&[self.top_p, self.min_p], "a bound of probability that is not finite")
    }
}

impl TurnFrame {
    /// Checks every prompt, every sampling and every role.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        self.prompts.iter().try_for_each(|prompt| {
            hold(
                prompt.sampled as usize <= prompt.held.len(),
                "more sampled tokens than held ones",
            )
        })?;
        self.samplings.iter().try_for_each(Sampling::validate)?;
        self.requests.iter().try_for_each(|request| role(&request.role))
    }
}

impl ResultFrame {
    /// Checks every result.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        self.results.iter().try_for_each(|timed| {
            let result = &timed.result;
            role(&result.role)?;
            match &result.outcome {
                TurnOutcome::Done(generation) => generation.validate(),
                TurnOutcome::Failed { .. } => Ok(()),
            }
        })
    }
}

impl Row {
    /// Checks that segments are in order inside the ids, and that log-probs and spans fit them. The
    /// log-probs must be of the behaviour policy.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        let mut end = 0u64;
        for Segment {
            start,
            len,
            temperature: sampled_at,
            logprobs_of,
            spans,
            ..
        } in &self.segments
        {
            let (start, length) = (u64::from(*start), u64::from(*len));
            hold(start >= end, "segments that overlap or are out of order")?;
            end = start + length;
            temperature(*sampled_at)?;
            hold(
                logprobs_of.are_of_behaviour(),
                "trained tokens with log-probs of another distribution than the sampled one",
            )?;
            covers(spans, *len as usize)?;
        }
        hold(end <= self.ids.len() as u64, "a segment beyond the end of its row")?;
        hold(
            self.logprobs.len() == self.trained_tokens(),
            "unequal numbers of log-probs and trained tokens",
        )?;
        finite(&self.logprobs, "a log-prob that is not finite")
    }
}

impl Sample {
    /// Checks the reward, its parts and every row.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        role(&self.role)?;
        hold(self.reward.is_finite(), "a reward that is not finite")?;
        hold(
            self.parts.iter().all(|part| part.value.is_finite()),
            "a reward part that is not finite",
        )?;
        self.rows.iter().try_for_each(Row::validate)
    }
}

impl Bundle {
    /// Checks the count of parts and every sample.
    ///
    /// # Errors
    /// [`CodecError::Content`] names what is wrong.
    pub fn validate(&self) -> Result<(), CodecError> {
        hold(self.part < self.parts, "a part number beyond the number of parts")?;
        match &self.content {
            BundleContent::Samples(samples) => samples.iter().try_for_each(Sample::validate),
            BundleContent::Empty { .. } | BundleContent::Dead { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RequestId, WeightVersion};
    use crate::protocol::engine::TopLogprob;
    use crate::protocol::turn::{EngineTimes, Finish, TurnPrompt};

    const CASES: [(f32, bool); 5] = [(-1.0, true), (0.0, true), (1e-4, true), (0.5, false), (f32::NAN, false)];

    fn span() -> VersionSpan {
        VersionSpan {
            version: WeightVersion::default(),
            start: 0,
            end: 1,
        }
    }

    #[test]
    fn no_chosen_token_is_likelier_than_certain() {
        for (logprob, possible) in CASES {
            let generation = Generation {
                kept: 0,
                prompt_ids: vec![3],
                output_ids: vec![1],
                logprobs: vec![logprob],
                logprobs_of: LogProbs::Sampled,
                spans: vec![span()],
                oldest_kv: WeightVersion::default(),
                temperature: 1.0,
                finish: Finish::Stop,
                text: String::new(),
            };
            assert_eq!(generation.validate().is_ok(), possible, "{logprob}");
            let made = EngineOutput {
                output_ids: vec![1],
                logprobs: vec![logprob],
                logprobs_of: LogProbs::Sampled,
                spans: vec![span()],
                oldest_kv: WeightVersion::default(),
                reused: 0,
                finish: Finish::Stop,
                times: EngineTimes::default(),
            };
            assert_eq!(made.validate().is_ok(), possible, "{logprob}");
            let reported = EngineProgress {
                request: RequestId([1; 16]),
                ids: vec![1],
                logprobs: vec![logprob],
                top: Vec::new(),
                spans: vec![span()],
                end: None,
            };
            assert_eq!(reported.validate(0, 0).is_ok(), possible, "{logprob}");
        }
    }

    #[test]
    fn no_prompt_has_more_sampled_tokens_than_it_holds() {
        for (sampled, possible) in [(0, true), (2, true), (3, false), (u32::MAX, false)] {
            let prompt = TurnPrompt {
                held: vec![1, 2],
                sampled,
                messages: Vec::new(),
            };
            let frame = TurnFrame {
                reply_to: "c".into(),
                wave: None,
                prompts: vec![prompt],
                samplings: Vec::new(),
                requests: Vec::new(),
            };
            assert_eq!(frame.validate().is_ok(), possible, "{sampled}");
        }
    }

    #[test]
    fn no_likely_token_is_likelier_than_certain() {
        let reported = |logprob: f32| EngineProgress {
            request: RequestId([1; 16]),
            ids: vec![1],
            logprobs: vec![-0.5],
            top: vec![vec![TopLogprob { id: 2, logprob }]],
            spans: vec![span()],
            end: None,
        };
        for (logprob, possible) in CASES {
            assert_eq!(reported(logprob).validate(0, 1).is_ok(), possible, "{logprob}");
        }
    }

    #[test]
    fn an_impossible_distribution_of_log_probs_is_rejected() {
        let generation = |logprobs_of, logprob: f32, temperature: f32| Generation {
            kept: 0,
            prompt_ids: vec![3],
            output_ids: vec![1],
            logprobs: vec![logprob],
            logprobs_of,
            spans: vec![span()],
            oldest_kv: WeightVersion::default(),
            temperature,
            finish: Finish::Stop,
            text: String::new(),
        };
        for (of, logprob, temperature, possible) in [
            (LogProbs::Sampled, -1.0, 0.5, true),
            (LogProbs::Truncated, 0.0, 0.5, true),
            (LogProbs::Raw, -1.0, 0.0, true),
            (LogProbs::Absent, 0.0, 0.5, true),
            (LogProbs::Absent, -1.0, 0.5, false),
            (LogProbs::Sampled, -1.0, 0.0, false),
            (LogProbs::Truncated, -1.0, 0.0, false),
        ] {
            let found = generation(of, logprob, temperature).validate();
            assert_eq!(found.is_ok(), possible, "{of:?} {logprob} {temperature}: {found:?}");
        }
    }

    #[test]
    fn only_log_probs_of_the_behaviour_are_trained_on() {
        for (of, trained) in [
            (LogProbs::Sampled, true),
            (LogProbs::Truncated, true),
            (LogProbs::Tempered, false),
            (LogProbs::Raw, false),
            (LogProbs::Unknown, false),
            (LogProbs::Absent, false),
        ] {
            let row = Row {
                ids: vec![3, 1],
                segments: vec![Segment {
                    start: 1,
                    len: 1,
                    temperature: 1.0,
                    logprobs_of: of,
                    spans: vec![span()],
                    oldest_kv: WeightVersion::default(),
                }],
                logprobs: vec![0.0],
            };
            assert_eq!(row.validate().is_ok(), trained, "{of:?}");
        }
    }
}
