//! Rows of tokens that are computed together, packed. Callers address tokens by packed places
//! ([`RowBatch::place`]).
//!
//! Linear layers see packed tokens only. Attention sees families: stretches of tokens after the
//! same beginning, padded on the right to the longest. The causal mask hides the padding from every
//! real token. Stretches of equal length need no gather. A batch of separate rows
//! ([`RowBatch::new`]) is one family without a beginning. [`RowBatch::sharing`] computes common
//! beginnings of rows once.

use tch::{Device, Kind, Tensor};

use super::forest::{Family, Forest};
use super::layer::Heads;
use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;

/// A batch of rows on a device.
#[derive(Debug)]
pub struct RowBatch {
    pub(in crate::model) ids: Tensor,
    pub(in crate::model) positions: Tensor,
    /// The length of the longest row.
    pub(in crate::model) longest: usize,
    /// In the order of their packed tokens.
    pub(super) families: Vec<Stretches>,
    /// For each row, its stretches: the stretch's first token in the row, and its packed place.
    paths: Vec<Vec<(usize, usize)>>,
    lengths: Vec<usize>,
}

/// A family on a device.
#[derive(Debug)]
pub(super) struct Stretches {
    /// Its first packed token.
    pub(in crate::model) start: usize,
    pub(in crate::model) tokens: usize,
    /// Padded, it is `rows * width`.
    pub(in crate::model) rows: usize,
    pub(in crate::model) width: usize,
    pub(super) padding: Option<Padding>,
    pub(in crate::model) behind: Option<Behind>,
}

/// The shared beginning of a family.
#[derive(Debug)]
pub(super) struct Behind {
    /// The stretches of the beginning, from its first token on.
    pub(super) stretches: Vec<SharedPart>,
    pub(in crate::model) length: usize,
    /// `[group * width, length + width]`, with the queries of a key head one after the other: 0
    /// where a token sees another, else minus infinity. `None` for a single token, which sees all.
    pub(in crate::model) mask: Option<Tensor>,
}

/// Neighbouring tokens of a family, counted from its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SharedPart {
    pub(super) family: usize,
    pub(in crate::model) start: usize,
    pub(in crate::model) length: usize,
}

/// Queries, keys and values of each family, `[tokens, heads or kv_heads, head_dim]`.
#[derive(Debug)]
pub(super) struct FamilyHeads {
    pub(in crate::model) q: Vec<Tensor>,
    pub(in crate::model) k: Vec<Tensor>,
    pub(in crate::model) v: Vec<Tensor>,
}

impl FamilyHeads {
    pub(super) fn each(&self) -> std::ops::Range<usize> {
        0..self.q.len()
    }
}

/// Index tensors between packed and padded tokens of a family, counted from its first.
#[derive(Debug)]
pub(super) struct Padding {
    /// `[rows * width]`: the packed token of each padded place; places after a row's end repeat its
    /// last token.
    pub(super) to_padded: Tensor,
    /// `[tokens]`: the padded place of each packed token.
    pub(super) to_packed: Tensor,
}

impl RowBatch {
    /// Packs separate rows in their order. Checks ids and lengths on the host.
    ///
    /// # Errors
    /// [`ModelError::EmptyBatch`], [`ModelError::RowLength`] (1 to `max_context` tokens),
    /// [`ModelError::BadId`].
    pub fn new<R: AsRef<[u32]>>(shape: &ModelShape, rows: &[R], device: Device) -> Result<Self> {
        let forest = Forest::apart(rows);
        let together = Family {
            parent: None,
            members: (0..rows.len()).collect(),
        };
        Self::of(shape, rows, &forest, &[together], device, Kind::Float)
    }

    /// Packs rows and computes common beginnings once. `kind` is the kind of attention.
    ///
    /// # Errors
    /// The same as for [`RowBatch::new`].
    pub fn sharing<R: AsRef<[u32]>>(shape: &ModelShape, rows: &[R], device: Device, kind: Kind) -> Result<Self> {
        let forest = Forest::sharing(rows);
        Self::of(shape, rows, &forest, &forest.families(), device, kind)
    }

    fn of<R: AsRef<[u32]>>(
        shape: &ModelShape,
        rows: &[R],
        forest: &Forest,
        families: &[Family],
        device: Device,
        kind: Kind,
    ) -> Result<Self> {
        check(shape, rows)?;
        let (mut ids, mut positions) = (Vec::new(), Vec::new());
        let mut pieces = vec![SharedPart::default(); forest.stretches.len()];
        let mut placed: Vec<Stretches> = Vec::with_capacity(families.len());
        for (index, family) in families.iter().enumerate() {
            let start = ids.len();
            for member in &family.members {
                let stretch = &forest.stretches[*member];
                pieces[*member] = SharedPart {
                    family: index,
                    start: ids.len() - start,
                    length: stretch.tokens.len(),
                };
                let tokens = &rows[stretch.row].as_ref()[stretch.tokens.clone()];
                ids.extend(tokens.iter().map(|&id| i64::from(id)));
                positions.extend(stretch.tokens.clone().map(|at| at as i64));
            }
            let lengths: Vec<usize> = family.members.iter().map(|member| pieces[*member].length).collect();
            let mut stretches = Stretches::new(start, &lengths, device)?;
            if let Some(parent) = family.parent {
                let path = forest.above(parent).into_iter().chain([parent]);
                let above = path.map(|stretch| pieces[stretch]).collect();
                stretches.behind = Some(Behind::new(above, stretches.width, shape.group(), device, kind)?);
            }
            placed.push(stretches);
        }
        let spots = |path: &Vec<usize>| {
            let spot = |stretch: &usize| {
                let piece = pieces[*stretch];
                (
                    forest.stretches[*stretch].tokens.start,
                    placed[piece.family].start + piece.start,
                )
            };
            path.iter().map(spot).collect()
        };
        let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
        Ok(Self {
            ids: to_device(&ids, device)?,
            positions: to_device(&positions, device)?,
            longest: lengths.iter().max().copied().unwrap_or(0),
            paths: forest.paths.iter().map(spots).collect(),
            families: placed,
            lengths,
        })
    }

    /// Splits heads by family. Its backward pass is one concatenation.
    pub(super) fn split(&self, heads: &Heads) -> Result<FamilyHeads> {
        let tokens: Vec<i64> = self.families.iter().map(|family| family.tokens as i64).collect();
        let parts = |all: &Tensor| match tokens.as_slice() {
            [_] => Ok(vec![all.shallow_clone()]),
            several => all.f_split_with_sizes(several, 0),
        };
        Ok(FamilyHeads {
            q: parts(&heads.q)?,
            k: parts(&heads.k)?,
            v: parts(&heads.v)?,
        })
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// The number of computed tokens: the first dimension of every packed result.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.families.last().map_or(0, |family| family.start + family.tokens)
    }

    /// The packed place of token `index` of a row.
    #[must_use]
    pub fn place(&self, row: usize, index: usize) -> usize {
        let path = &self.paths[row];
        let stretch = path.partition_point(|(first, _)| *first <= index).saturating_sub(1);
        path.get(stretch).map_or(0, |(first, packed)| packed + index - first)
    }

    /// The number of tokens in a row.
    #[must_use]
    pub fn len_of(&self, row: usize) -> usize {
        self.lengths[row]
    }

    /// The token ids, packed, `[tokens]` of i64.
    pub fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// The packed place of each row's last token, `[rows]` of i64.
    ///
    /// # Errors
    /// [`ModelError::Torch`].
    pub fn last(&self) -> Result<Tensor> {
        let last = |row: usize| self.place(row, self.lengths[row] - 1) as i64;
        to_device(&(0..self.rows()).map(last).collect::<Vec<_>>(), self.ids.device())
    }
}

fn check<R: AsRef<[u32]>>(shape: &ModelShape, rows: &[R]) -> Result<()> {
    if rows.is_empty() {
        return Err(ModelError::EmptyBatch);
    }
    for row in rows {
        let row = row.as_ref();
        if row.is_empty() || row.len() > shape.max_context {
            return Err(ModelError::RowLength {
                len: row.len(),
                max: shape.max_context,
            });
        }
        shape.check_ids(row)?;
    }
    Ok(())
}

impl Stretches {
    fn new(start: usize, lengths: &[usize], device: Device) -> Result<Self> {
        let width = lengths.iter().max().copied().unwrap_or(0);
        let tokens = lengths.iter().sum();
        let ragged = tokens != lengths.len() * width;
        Ok(Self {
            start,
            tokens,
            rows: lengths.len(),
            width,
            padding: if ragged {
                Some(Padding::new(lengths, width, device)?)
            } else {
                None
            },
            behind: None,
        })
    }
}

impl Behind {
    fn new(stretches: Vec<SharedPart>, width: usize, group: usize, device: Device, kind: Kind) -> Result<Self> {
        let length = stretches.iter().map(|piece| piece.length).sum();
        let mask = if width > 1 {
            Some(seen(length, width, device, kind)?.f_repeat([group as i64, 1])?)
        } else {
            None
        };
        Ok(Self {
            stretches,
            length,
            mask,
        })
    }

    /// Puts the keys or values of the beginning, taken from `families`, before a family's own
    /// `[rows, heads, width, head_dim]`.
    pub(in crate::model) fn before(&self, families: &[Tensor], own: &Tensor) -> Result<Tensor> {
        let part = |piece: &SharedPart| families[piece.family].f_narrow(0, piece.start as i64, piece.length as i64);
        let parts: std::result::Result<Vec<Tensor>, _> = self.stretches.iter().map(part).collect();
        let [rows, heads, _, dim] = own.size4().map(|(a, b, c, d)| [a, b, c, d])?;
        let whole = Tensor::f_cat(&parts?, 0)?.f_transpose(0, 1)?;
        let shared = whole.f_expand([rows, heads, self.length as i64, dim], false)?;
        Ok(Tensor::f_cat(&[&shared, own], 2)?)
    }
}

/// The mask of `width` tokens after `before` others: each sees all of those, and its own stretch up
/// to itself.
fn seen(before: usize, width: usize, device: Device, kind: Kind) -> Result<Tensor> {
    let (rows, columns) = (width as i64, (before + width) as i64);
    let hidden = Tensor::f_full([rows, columns], f64::NEG_INFINITY, (kind, device))?;
    Ok(hidden.f_triu(before as i64 + 1)?)
}

impl Padding {
    fn new(lengths: &[usize], width: usize, device: Device) -> Result<Self> {
        let (mut to_padded, mut to_packed) = (Vec::with_capacity(lengths.len() * width), Vec::new());
        let mut start = 0;
        for (row, &length) in lengths.iter().enumerate() {
            to_padded.extend((0..width).map(|i| (start + i.min(length - 1)) as i64));
            to_packed.extend((0..length).map(|i| (row * width + i) as i64));
            start += length;
        }
        Ok(Self {
            to_padded: to_device(&to_padded, device)?,
            to_packed: to_device(&to_packed, device)?,
        })
    }
}

/// Copies indices to a device as a tensor.
pub(crate) fn to_device(values: &[i64], device: Device) -> Result<Tensor> {
    let tensor = Tensor::f_from_slice(values)?;
    Ok(if device == Device::Cpu {
        tensor
    } else {
        tensor.f_to_device(device)?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tiny;

    #[test]
    fn padded_places_and_packed_tokens_name_each_other() {
        let batch = RowBatch::new(&tiny(), &[vec![3, 4, 5], vec![6], vec![7, 8]], Device::Cpu).unwrap();
        assert_eq!((batch.rows(), batch.tokens(), batch.families[0].width), (3, 6, 3));
        assert_eq!((batch.place(1, 0), batch.len_of(1), batch.place(2, 1)), (3, 1, 5));
        let padding = batch.families[0].padding.as_ref().unwrap();
        let round = padding.to_padded.index_select(0, &padding.to_packed);
        assert_eq!(Vec::<i64>::try_from(round).unwrap(), (0..6).collect::<Vec<_>>());
        assert_eq!(Vec::<i64>::try_from(batch.last().unwrap()).unwrap(), [2, 3, 5]);
        let equal = RowBatch::new(&tiny(), &[[3, 4], [5, 6]], Device::Cpu).unwrap();
        assert!(equal.families[0].padding.is_none());
    }

    #[test]
    fn what_rows_share_is_packed_once() {
        let shape = ModelShape { vocab: 64, ..tiny() };
        let prompt: Vec<u32> = (0..20).collect();
        let row = |own: &[u32]| [&prompt, own].concat();
        let rows = [row(&[30, 31, 32]), row(&[40]), row(&[50, 51])];
        let batch = RowBatch::sharing(&shape, &rows, Device::Cpu, Kind::Float).unwrap();
        assert_eq!((batch.rows(), batch.tokens()), (3, 26));
        let ids: Vec<i64> = batch.ids().try_into().unwrap();
        let positions: Vec<i64> = (&batch.positions).try_into().unwrap();
        for (r, row) in rows.iter().enumerate() {
            for (i, id) in row.iter().enumerate() {
                let place = batch.place(r, i);
                assert_eq!((ids[place], positions[place]), (i64::from(*id), i as i64));
            }
        }
        // Three and two tokens after the prompt, and one that sees everything.
        let behind: Vec<_> = batch.families[1..]
            .iter()
            .map(|family| family.behind.as_ref().unwrap())
            .collect();
        let prompt = SharedPart {
            family: 0,
            start: 0,
            length: 20,
        };
        assert!(behind.iter().all(|behind| behind.stretches == [prompt]));
        // Two query heads for each key head.
        let mask = behind[0].mask.as_ref().unwrap();
        assert_eq!(mask.size(), [6, 23]);
        let seen: Vec<i64> = mask.eq(0.0).sum_dim_intlist(1, false, Kind::Int64).try_into().unwrap();
        assert_eq!(seen, [21, 22, 23, 21, 22, 23]);
        assert!(behind[1].mask.is_none());
    }

    #[test]
    fn rows_that_cannot_be_computed_are_refused() {
        let refused = |rows: &[Vec<u32>]| RowBatch::new(&tiny(), rows, Device::Cpu).unwrap_err();
        assert!(matches!(refused(&[]), ModelError::EmptyBatch));
        assert!(matches!(refused(&[vec![]]), ModelError::RowLength { len: 0, .. }));
        assert!(matches!(
            refused(&[vec![1; 129]]),
            ModelError::RowLength { len: 129, max: 128 }
        ));
        assert!(matches!(refused(&[vec![40]]), ModelError::BadId { id: 40, .. }));
    }
}
