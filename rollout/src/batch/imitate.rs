//! Cross-entropy on known answers: each replaces what a seat sampled.
//!
//! The context stays that of the conversation, with the partner's real messages. So a second
//! speaker learns to answer after what the first one really says, right or wrong.

use broker::protocol::bundle::{Bundle, BundleContent, Row, Sample, Segment};
use broker::protocol::turn::{LogProbs, VersionSpan};

/// The bundles to train on, and the known answers that were left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Imitated<E> {
    pub bundles: Vec<Bundle>,
    /// The number of known answers that do not fit the context after their prompt.
    pub too_long: usize,
    /// The errors of known answers that could not be encoded.
    pub unreadable: Vec<E>,
}

/// Returns the bundles with each sample's target in place of its last answer. `encode` returns the
/// ids of a target after the ids of its prompt, end of turn included.
///
/// A sample keeps no row, and so is not trained, in three cases: it has no target, the target
/// cannot be encoded, or prompt and target exceed `max_context` tokens. The trainer would reject
/// the whole batch for a longer row.
pub fn imitate<E>(
    bundles: &[Bundle],
    max_context: usize,
    encode: impl Fn(&[u32], &str) -> Result<Vec<u32>, E>,
) -> Imitated<E> {
    let (mut too_long, mut unreadable) = (0, Vec::new());
    let mut row_of = |sample: &Sample| -> Option<Row> {
        let target = sample.target.as_deref()?;
        let asked = asked(sample)?;
        let answer = match encode(asked, target) {
            Ok(answer) => answer,
            Err(error) => {
                unreadable.push(error);
                return None;
            }
        };
        let row = corrected(sample, asked, &answer)?;
        let fits = row.ids.len() <= max_context;
        too_long += usize::from(!fits);
        fits.then_some(row)
    };
    let mut sample_of = |sample: &Sample| Sample {
        rows: row_of(sample).into_iter().collect(),
        ..sample.clone()
    };
    let bundle_of = |bundle: &Bundle| {
        let content = match &bundle.content {
            BundleContent::Samples(samples) => BundleContent::Samples(samples.iter().map(&mut sample_of).collect()),
            empty @ (BundleContent::Empty { .. } | BundleContent::Dead { .. }) => empty.clone(),
        };
        Bundle {
            content,
            ..bundle.clone()
        }
    };
    let bundles = bundles.iter().map(bundle_of).collect();
    Imitated {
        bundles,
        too_long,
        unreadable,
    }
}

/// Returns the last row of a sample up to its last answer.
fn asked(sample: &Sample) -> Option<&[u32]> {
    let row = sample.rows.last()?;
    let context = row.ids.get(..row.segments.last()?.start as usize);
    context.filter(|ids| !ids.is_empty())
}

/// Returns a row with the prompt and then the known answer, at temperature 1. It has the age of the
/// answer that it replaces.
fn corrected(sample: &Sample, asked: &[u32], answer: &[u32]) -> Option<Row> {
    let row = sample.rows.last()?;
    let last = row.segments.last()?;
    let len = answer.len() as u32;
    let spans = last.spans.last().map(|span| VersionSpan {
        version: span.version,
        start: 0,
        end: len,
    });
    (len > 0).then(|| Row {
        ids: [asked, answer].concat(),
        segments: vec![Segment {
            start: last.start,
            len,
            temperature: 1.0,
            // A known answer was never sampled, and cross-entropy uses no ratio.
            logprobs_of: LogProbs::Absent,
            spans: spans.into_iter().collect(),
            oldest_kv: last.oldest_kv,
        }],
        logprobs: vec![0.0; answer.len()],
    })
}
