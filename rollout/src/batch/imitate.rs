//! Cross-entropy on known answers: what a seat should have said in the place of what it said.
//!
//! The context stays the one that the conversation came to, a partner's words among it. So a second speaker learns to answer
//! after what the first one really says, right or wrong.

use broker::protocol::bundle::{Bundle, BundleContent, Row, Sample, Segment};
use broker::protocol::turn::{LogProbs, VersionSpan};

/// The bundles to train on, and how many known answers have no place in them.
#[derive(Debug, Clone, PartialEq)]
pub struct Imitated<E> {
    pub bundles: Vec<Bundle>,
    /// Known answers for which the context leaves no room behind what was asked.
    pub too_long: usize,
    /// Why known answers could not be encoded, one for each.
    pub unreadable: Vec<E>,
}

/// The bundles with each sample's target in the place of its last answer. `encode` gives a target's ids behind the ids of what was
/// asked, end of turn included. A sample keeps no row, so that nothing of it is trained, if it has no target, or one that cannot be encoded or
/// that makes more than `max_context` tokens with what was asked: the trainer would refuse the whole batch.
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

/// The last row of a sample up to its last answer.
fn asked(sample: &Sample) -> Option<&[u32]> {
    let row = sample.rows.last()?;
    let context = row.ids.get(..row.segments.last()?.start as usize);
    context.filter(|ids| !ids.is_empty())
}

/// What was asked, then the known answer, at temperature 1. It is as old as the answer it
/// replaces.
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
            // Nobody sampled it, and cross-entropy takes no ratio.
            logprobs_of: LogProbs::Absent,
            spans: spans.into_iter().collect(),
            oldest_kv: last.oldest_kv,
        }],
        logprobs: vec![0.0; answer.len()],
    })
}
