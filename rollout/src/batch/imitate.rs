//! Cross-entropy on known answers: what a seat should have said in the place of what it said.
//!
//! The context stays the one that the conversation came to, a partner's words among it. So a second speaker learns to answer
//! after what the first one really says, right or wrong.

use broker::protocol::bundle::{Bundle, BundleContent, Row, Sample, Segment};
use broker::protocol::turn::VersionSpan;

/// The bundles with each sample's target in the place of its last answer. `encode` gives a target's ids, end of turn
/// included. A sample without a target keeps no row, so that nothing of it is trained.
///
/// # Errors
/// The first of `encode`.
pub fn imitate<E>(bundles: &[Bundle], encode: impl Fn(&str) -> Result<Vec<u32>, E>) -> Result<Vec<Bundle>, E> {
    let corrected = |sample: &Sample| {
        let answer = sample.target.as_deref().map(&encode).transpose()?;
        let row = answer.and_then(|answer| corrected(sample, &answer));
        Ok(Sample {
            rows: row.into_iter().collect(),
            ..sample.clone()
        })
    };
    let bundle = |bundle: &Bundle| {
        let content = match &bundle.content {
            BundleContent::Samples(samples) => {
                BundleContent::Samples(samples.iter().map(corrected).collect::<Result<_, E>>()?)
            }
            empty @ BundleContent::Empty { .. } => empty.clone(),
        };
        Ok(Bundle {
            content,
            ..bundle.clone()
        })
    };
    bundles.iter().map(bundle).collect()
}

/// The last row of a sample up to its last answer, then the known one, at temperature 1. It is as old as the answer it
/// replaces.
fn corrected(sample: &Sample, answer: &[u32]) -> Option<Row> {
    let row = sample.rows.last()?;
    let last = row.segments.last()?;
    let len = answer.len() as u32;
    let spans = last.spans.last().map(|span| VersionSpan {
        version: span.version,
        start: 0,
        end: len,
    });
    let context = row.ids.get(..last.start as usize).filter(|ids| !ids.is_empty())?;
    (len > 0).then(|| Row {
        ids: [context, answer].concat(),
        segments: vec![Segment {
            start: last.start,
            len,
            temperature: 1.0,
            spans: spans.into_iter().collect(),
            oldest_kv: last.oldest_kv,
        }],
        logprobs: vec![0.0; answer.len()],
    })
}
