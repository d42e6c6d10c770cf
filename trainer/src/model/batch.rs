//! Rows of tokens that are computed together, packed: token `i` of row `r` is row `start(r) + i` of every result.
//!
//! Linear layers see packed tokens only; attention sees rows padded on the right to the longest, where the causal mask
//! keeps the padding from every real token. Rows of equal length need neither gather nor mask. Callers speak in packed
//! positions, so that rows which share a prefix can come later without a change for them.

use tch::{Device, Tensor};

use super::error::{ModelError, Result};
use super::shape::ModelShape;

/// A batch of rows on a device.
#[derive(Debug)]
pub struct RowBatch {
    pub(super) ids: Tensor,
    pub(super) positions: Tensor,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) padding: Option<Padding>,
    starts: Vec<usize>,
}

/// Index tensors between packed and padded tokens.
#[derive(Debug)]
pub(super) struct Padding {
    /// `[rows * width]`: the packed token of each padded place; places past a row's end repeat its last token.
    pub(super) to_padded: Tensor,
    /// `[tokens]`: the padded place of each packed token.
    pub(super) to_packed: Tensor,
}

impl RowBatch {
    /// Packs rows. Ids and lengths are checked here, on the host.
    ///
    /// # Errors
    /// [`ModelError::EmptyBatch`], [`ModelError::RowLength`] (1 to `max_context` tokens), [`ModelError::BadId`].
    pub fn new<R: AsRef<[u32]>>(shape: &ModelShape, rows: &[R], device: Device) -> Result<Self> {
        let width = rows
            .iter()
            .map(|row| row.as_ref().len())
            .max()
            .ok_or(ModelError::EmptyBatch)?;
        let total = rows.iter().map(|row| row.as_ref().len()).sum();
        let (mut ids, mut positions) = (Vec::with_capacity(total), Vec::with_capacity(total));
        let mut starts = Vec::with_capacity(rows.len() + 1);
        for row in rows {
            let row = row.as_ref();
            if row.is_empty() || row.len() > shape.max_context {
                return Err(ModelError::RowLength {
                    len: row.len(),
                    max: shape.max_context,
                });
            }
            shape.check_ids(row)?;
            starts.push(ids.len());
            ids.extend(row.iter().map(|&id| i64::from(id)));
            positions.extend(0..row.len() as i64);
        }
        starts.push(ids.len());
        let ragged = total != rows.len() * width;
        let padding = if ragged {
            Some(Padding::new(&starts, width, device)?)
        } else {
            None
        };
        Ok(Self {
            ids: to_device(&ids, device)?,
            positions: to_device(&positions, device)?,
            rows: rows.len(),
            width,
            padding,
            starts,
        })
    }

    /// Rows of the batch.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Tokens of all rows: the first dimension of every packed result.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The packed position of a row's first token; `start(rows())` is `tokens()`.
    #[must_use]
    pub fn start(&self, row: usize) -> usize {
        self.starts[row]
    }

    /// Tokens of a row.
    #[must_use]
    pub fn len_of(&self, row: usize) -> usize {
        self.starts[row + 1] - self.starts[row]
    }

    /// The token ids, packed, `[tokens]` of i64.
    pub fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// The packed position of each row's last token, `[rows]` of i64.
    ///
    /// # Errors
    /// [`ModelError::Torch`].
    pub fn last(&self) -> Result<Tensor> {
        let last: Vec<i64> = self.starts[1..].iter().map(|&end| end as i64 - 1).collect();
        to_device(&last, self.ids.device())
    }
}

impl Padding {
    fn new(starts: &[usize], width: usize, device: Device) -> Result<Self> {
        let rows = starts.len() - 1;
        let mut to_padded = Vec::with_capacity(rows * width);
        let mut to_packed = Vec::with_capacity(starts[rows]);
        for (row, ends) in starts.windows(2).enumerate() {
            let len = ends[1] - ends[0];
            to_padded.extend((0..width).map(|i| (ends[0] + i.min(len - 1)) as i64));
            to_packed.extend((0..len).map(|i| (row * width + i) as i64));
        }
        Ok(Self {
            to_padded: to_device(&to_padded, device)?,
            to_packed: to_device(&to_packed, device)?,
        })
    }
}

/// Indices as a tensor on a device.
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
    use super::super::shape::tests::tiny;
    use super::*;

    #[test]
    fn padded_places_and_packed_tokens_name_each_other() {
        let batch = RowBatch::new(&tiny(), &[vec![3, 4, 5], vec![6], vec![7, 8]], Device::Cpu).unwrap();
        assert_eq!((batch.rows(), batch.tokens(), batch.width), (3, 6, 3));
        assert_eq!((batch.start(1), batch.len_of(1), batch.start(3)), (3, 1, 6));
        let padding = batch.padding.as_ref().unwrap();
        let round = padding.to_padded.index_select(0, &padding.to_packed);
        assert_eq!(Vec::<i64>::try_from(round).unwrap(), (0..6).collect::<Vec<_>>());
        assert_eq!(Vec::<i64>::try_from(batch.last().unwrap()).unwrap(), [2, 3, 5]);
        let equal = RowBatch::new(&tiny(), &[[3, 4], [5, 6]], Device::Cpu).unwrap();
        assert!(equal.padding.is_none());
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
