//! A bundle in parts that fit under the message cap, and the digest that identifies the whole
//! bundle.

use broker::codec;
use broker::ids::Digest;
use broker::protocol::bundle::{Bundle, BundleContent, RewardPart, Row, Sample};

/// A single row does not fit into a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a row of {tokens} tokens of {role}/{seat} in conversation {member} takes {bytes} bytes, and a message has room for {cap}: \
     in a new run raise run.message_cap by {} or more, or shorten the agent's context", bytes - cap
)]
pub struct RowTooLarge {
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub tokens: usize,
    pub bytes: usize,
    pub cap: usize,
}

/// The reason why parts do not make a bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("there are {found} parts of {wanted}")]
    Missing { found: usize, wanted: u16 },
    #[error("part {0} differs from the first in group, attempt or digest, or is there twice")]
    Foreign(u16),
    #[error("a bundle of several parts can only hold samples")]
    Empty,
    #[error("the joined content has digest {found} and its parts say {said}")]
    Digest { found: Digest, said: Digest },
}

/// Returns the digest of a bundle's whole content: samples and rewards. The attempt, the order of
/// admission and the cut into parts are left out. Equal content has an equal digest on every
/// machine.
#[must_use]
pub fn digest(bundle: &Bundle) -> Digest {
    let Bundle {
        group,
        task,
        conversations,
        content,
        ..
    } = bundle;
    Digest::of(&codec::encode_for_digest(&(group, task, conversations, content)))
}

/// Cuts a whole bundle into parts of at most `cap` bytes when encoded. A bundle that fits is
/// returned unchanged.
pub fn split(bundle: Bundle, cap: usize) -> Result<Vec<Bundle>, RowTooLarge> {
    let samples = match &bundle.content {
        BundleContent::Samples(samples) if codec::encode(&bundle).len() > cap => samples,
        _ => return Ok(vec![bundle]),
    };
    let head = Bundle {
        content: BundleContent::Samples(Vec::new()),
        ..bundle.clone()
    };
    let mut packer = Packer {
        lists: vec![Vec::new()],
        head: codec::encode(&head).len(),
        used: 0,
        cap,
    };
    packer.used = packer.head;
    for sample in samples {
        packer.add(sample)?;
    }
    let parts = packer.lists.len() as u16;
    let part = |(part, samples)| Bundle {
        part: part as u16,
        parts,
        content: BundleContent::Samples(samples),
        ..head.clone()
    };
    Ok(packer.lists.into_iter().enumerate().map(part).collect())
}

/// Fills lists of samples row by row. A sample that does not fit continues in the next list, under
/// the same key.
struct Packer {
    lists: Vec<Vec<Sample>>,
    /// Bytes of a part without samples.
    head: usize,
    /// Bytes of the last part so far.
    used: usize,
    cap: usize,
}

impl Packer {
    fn add(&mut self, sample: &Sample) -> Result<(), RowTooLarge> {
        let frame = Sample {
            rows: Vec::new(),
            ..sample.clone()
        };
        let frame_size = codec::encode(&frame).len();
        let Some((first, rest)) = sample.rows.split_first() else {
            self.make_room(frame_size);
            self.open(frame, frame_size);
            return Ok(());
        };
        self.make_room(frame_size + codec::encode(first).len());
        self.open(frame.clone(), frame_size);
        self.push(first, sample)?;
        for row in rest {
            if self.make_room(codec::encode(row).len()) {
                self.open(frame.clone(), frame_size);
            }
            self.push(row, sample)?;
        }
        Ok(())
    }

    /// Begins a new part if `bytes` do not fit into this one and it has samples. Returns true if it
    /// did.
    fn make_room(&mut self, bytes: usize) -> bool {
        let full = self.used + bytes > self.cap && self.used > self.head;
        if full {
            self.lists.push(Vec::new());
            self.used = self.head;
        }
        full
    }

    fn open(&mut self, frame: Sample, bytes: usize) {
        self.used += bytes;
        if let Some(list) = self.lists.last_mut() {
            list.push(frame);
        }
    }

    fn push(&mut self, row: &Row, sample: &Sample) -> Result<(), RowTooLarge> {
        self.used += codec::encode(row).len();
        if self.used > self.cap {
            return Err(too_large(sample, row, self.used, self.cap));
        }
        if let Some(open) = self.lists.last_mut().and_then(|list| list.last_mut()) {
            open.rows.push(row.clone());
        }
        Ok(())
    }
}

fn too_large(sample: &Sample, row: &Row, bytes: usize, cap: usize) -> RowTooLarge {
    RowTooLarge {
        member: sample.member,
        role: sample.role.clone(),
        seat: sample.seat,
        tokens: row.ids.len(),
        bytes,
        cap,
    }
}

/// Puts the parts of one bundle together, in any order, and checks its digest.
pub fn join(mut parts: Vec<Bundle>) -> Result<Bundle, JoinError> {
    parts.sort_by_key(|part| part.part);
    let found = parts.len();
    let Some(first) = parts.first().cloned() else {
        return Err(JoinError::Missing { found: 0, wanted: 1 });
    };
    let whole = |(at, part): (usize, &Bundle)| usize::from(part.part) == at && same_bundle(&first, part);
    if let Some(bad) = parts.iter().enumerate().find(|(at, part)| !whole((*at, part))) {
        return Err(JoinError::Foreign(bad.1.part));
    }
    if found != usize::from(first.parts) {
        return Err(JoinError::Missing {
            found,
            wanted: first.parts,
        });
    }
    let content = if found == 1 {
        first.content
    } else {
        BundleContent::Samples(join_samples(parts)?)
    };
    let bundle = Bundle {
        part: 0,
        parts: 1,
        content,
        ..first
    };
    match digest(&bundle) {
        found if found == bundle.digest => Ok(bundle),
        found => Err(JoinError::Digest {
            found,
            said: bundle.digest,
        }),
    }
}

fn same_bundle(a: &Bundle, b: &Bundle) -> bool {
    let of = |x: &Bundle| (x.group, x.attempt, x.digest, x.parts, x.order, x.conversations);
    of(a) == of(b) && a.task == b.task
}

fn join_samples(parts: Vec<Bundle>) -> Result<Vec<Sample>, JoinError> {
    let mut whole: Vec<Sample> = Vec::new();
    for part in parts {
        let BundleContent::Samples(samples) = part.content else {
            return Err(JoinError::Empty);
        };
        for sample in samples {
            match whole.last_mut() {
                Some(last) if same_seat(last, &sample) => last.rows.extend(sample.rows),
                _ => whole.push(sample),
            }
        }
    }
    Ok(whole)
}

fn same_seat(a: &Sample, b: &Sample) -> bool {
    (a.member, &a.role, a.seat) == (b.member, &b.role, b.seat)
}

/// Named parts of a reward, as a bundle carries them.
pub(super) fn reward_parts(parts: &[crate::workflow::Part]) -> Vec<RewardPart> {
    parts
        .iter()
        .map(|part| RewardPart {
            name: part.name.to_owned(),
            value: part.value,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::rows;
    use crate::sample::tests::generation;
    use broker::ids::{Attempt, GroupId};
    use broker::protocol::bundle::SampleStatus;
    use proptest::prelude::*;

    fn bundle(rows_of: &[usize]) -> Bundle {
        let sample = |(member, rows_wanted): (usize, &usize)| Sample {
            member: member as u16,
            role: "solver".into(),
            seat: 0,
            subkey: String::new(),
            target: None,
            status: SampleStatus::Completed,
            reward: member as f32,
            parts: vec![RewardPart {
                name: "correct".into(),
                value: 1.0,
            }],
            rows: (0..*rows_wanted as u32)
                .flat_map(|n| rows(&[generation(&[n, 7, 7], &[n + 1, 2, 3])]))
                .collect(),
        };
        let mut bundle = Bundle {
            group: GroupId([1; 16]),
            task: "t".into(),
            order: 4,
            attempt: Attempt([2; 16]),
            digest: Digest([0; 16]),
            part: 0,
            parts: 1,
            conversations: rows_of.len() as u16,
            content: BundleContent::Samples(rows_of.iter().enumerate().map(sample).collect()),
        };
        bundle.digest = digest(&bundle);
        bundle
    }

    #[test]
    fn the_digest_is_of_the_content_alone() {
        let one = bundle(&[1, 2]);
        let moved = Bundle {
            attempt: Attempt([9; 16]),
            order: 77,
            part: 1,
            parts: 3,
            ..one.clone()
        };
        assert_eq!(digest(&one), digest(&moved));
        let mut other = one.clone();
        let BundleContent::Samples(samples) = &mut other.content else {
            unreachable!()
        };
        samples[0].reward += 1.0;
        assert_ne!(digest(&one), digest(&other));
        assert_ne!(
            digest(&one),
            digest(&Bundle {
                conversations: 3,
                ..one.clone()
            })
        );
    }

    #[test]
    fn a_part_of_another_attempt_does_not_join() {
        let parts = split(bundle(&[3, 3, 3]), 400).unwrap();
        assert!(parts.len() > 1);
        let mut foreign = parts.clone();
        foreign[1].attempt = Attempt([3; 16]);
        assert_eq!(join(foreign), Err(JoinError::Foreign(1)));
        let mut twice = parts.clone();
        twice[1] = twice[0].clone();
        assert_eq!(join(twice), Err(JoinError::Foreign(0)));
        let mut short = parts.clone();
        short.pop();
        assert_eq!(
            join(short),
            Err(JoinError::Missing {
                found: parts.len() - 1,
                wanted: parts.len() as u16
            })
        );
        let mut changed = parts;
        let BundleContent::Samples(samples) = &mut changed[0].content else {
            unreachable!()
        };
        samples[0].rows[0].ids[0] ^= 1;
        assert!(matches!(join(changed), Err(JoinError::Digest { .. })));
    }

    #[test]
    fn a_row_over_the_cap_is_an_error_that_says_which() {
        let error = split(bundle(&[0, 1]), 150).unwrap_err();
        assert_eq!((error.member, error.cap, error.tokens), (1, 150, 6));
    }

    proptest! {
        #[test]
        fn parts_fit_and_join_to_the_same_bundle(rows_of in prop::collection::vec(0usize..6, 1..6), cap in 340usize..2000) {
            let whole = bundle(&rows_of);
            let mut parts = split(whole.clone(), cap).unwrap();
            for part in &parts {
                let size = codec::encode(part).len();
                prop_assert!(size <= cap, "{size} > {cap}");
            }
            parts.reverse();
            prop_assert_eq!(join(parts).unwrap(), whole);
        }
    }
}
