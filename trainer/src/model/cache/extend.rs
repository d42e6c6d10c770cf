//! Extends rows: computes new tokens after keys and values that exist already.
//!
//! The linear layers take the new tokens of all rows together. Attention handles one row at a time,
//! in blocks of queries, so that a mask is never larger than a block. Queries that share a key head
//! are placed like several queries of one row, as in decoding.

use tch::{Device, Kind, Tensor};

use super::row_kv::RowKv;
use crate::model::error::Result;
use crate::model::forward::{Decoder, to_device};

/// A row and its next tokens to compute.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) kv: &'a mut RowKv,
    /// At least one token; `kv` must have room for all.
    pub(crate) ids: &'a [u32],
}

/// The result of computing some rows' next tokens.
#[derive(Debug)]
pub(crate) struct Extended {
    /// After the last token of each row: `[rows, vocab]` in f32.
    pub(crate) logits: Tensor,
    /// States of the new tokens before the final norm, row after row: `[tokens, hidden]`. Padding
    /// of a block may follow.
    pub(crate) states: Tensor,
}

/// The number of queries in one attention call.
const BLOCK: usize = 256;

impl Decoder {
    /// Computes each row's next tokens into its keys and values.
    pub(crate) fn extend(&self, pieces: &mut [Piece<'_>]) -> Result<Extended> {
        let device = self.device();
        let (mut ids, mut positions, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces.iter() {
            self.shape.check_ids(piece.ids)?;
            ids.extend(piece.ids.iter().map(|&id| i64::from(id)));
            positions.extend((piece.kv.filled()..).take(piece.ids.len()).map(|at| at as i64));
            last.push(ids.len() as i64 - 1);
        }
        let end = positions.iter().max().map_or(0, |&at| at as usize) + 1;
        let rope = self.rope.rows(&to_device(&positions, device)?, end)?;
        let mask = BlockMask::new(pieces, self.shape.group(), device, self.embedding.kind())?;
        let mut x = Tensor::f_embedding(&self.embedding, &to_device(&ids, device)?, -1, false, false)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&self.shape, &x, &rope, |heads| {
                let (mut rows, mut start) = (Vec::with_capacity(pieces.len()), 0);
                for piece in pieces.iter() {
                    let count = piece.ids.len() as i64;
                    let of = |all: &Tensor| all.f_narrow(0, start, count);
                    let kv = piece.kv.write(index, [&of(&heads.k)?, &of(&heads.v)?])?;
                    self.attend_blocks(&of(&heads.q)?, &kv, piece.kv.filled(), &mask, &mut rows)?;
                    start += count;
                }
                Ok(Tensor::f_cat(&rows, 0)?)
            })?;
        }
        for piece in pieces {
            piece.kv.advance(piece.ids.len());
        }
        let logits = self.next_logits(&x.f_index_select(0, &to_device(&last, device)?)?)?;
        Ok(Extended { logits, states: x })
    }

    /// Attention of one row's queries (`[tokens, heads, head_dim]`) after `past` tokens. Pushes
    /// `[tokens, heads * head_dim]` to `out`, block by block.
    fn attend_blocks(
        &self,
        q: &Tensor,
        [keys, values]: &[Tensor; 2],
        past: usize,
        mask: &BlockMask,
        out: &mut Vec<Tensor>,
    ) -> Result<()> {
        let (heads, dim) = (self.shape.kv_heads as i64, self.shape.head_dim as i64);
        let tokens = q.size()[0] as usize;
        for start in (0..tokens).step_by(BLOCK) {
            let count = BLOCK.min(tokens - start);
            let seen = (past + start + count) as i64;
            let folded = q
                .f_narrow(0, start as i64, count as i64)?
                .f_reshape([count as i64, heads, -1, dim])?
                .f_transpose(0, 1)?
                .f_reshape([1, heads, -1, dim])?;
            let (keys, values) = (keys.f_narrow(2, 0, seen)?, values.f_narrow(2, 0, seen)?);
            let mask = mask.of(past + start, count)?;
            let made = Tensor::f_scaled_dot_product_attention(
                &folded,
                &keys,
                &values,
                mask.as_ref(),
                0.0,
                false,
                None,
                false,
            )?;
            out.push(
                made.f_reshape([heads, count as i64, -1, dim])?
                    .f_transpose(0, 1)?
                    .f_reshape([count as i64, -1])?,
            );
        }
        Ok(())
    }
}

/// The mask of a block's queries: each sees all tokens before the block, and the block's tokens up
/// to itself. The masks of all blocks are windows of one tensor.
#[derive(Debug)]
struct BlockMask {
    /// `[block * group, before + block]`: 0 where a query sees a token, else minus infinity.
    all: Option<Tensor>,
    before: usize,
    group: usize,
}

impl BlockMask {
    fn new(pieces: &[Piece<'_>], group: usize, device: Device, kind: Kind) -> Result<Self> {
        let block = pieces.iter().map(|piece| piece.ids.len()).max().unwrap_or(0).min(BLOCK);
        let before = pieces
            .iter()
            .map(|piece| piece.kv.filled() + (piece.ids.len().max(1) - 1) / BLOCK * BLOCK)
            .max()
            .unwrap_or(0);
        if block <= 1 {
            return Ok(Self {
                all: None,
                before,
                group,
            });
        }
        let arange = |count: usize| Tensor::f_arange(count as i64, (Kind::Int64, device));
        let places = arange(before + block)?.f_sub_scalar(before as i64)?;
        let queries = arange(block * group)?.f_floor_divide_scalar(group as i64)?;
        let unseen = places.f_unsqueeze(0)?.f_gt_tensor(&queries.f_unsqueeze(1)?)?;
        let size = [(block * group) as i64, (before + block) as i64];
        let all = Tensor::f_zeros(size, (kind, device))?.f_masked_fill_(&unseen, f64::NEG_INFINITY)?;
        Ok(Self {
            all: Some(all),
            before,
            group,
        })
    }

    /// The mask of `count` queries after `past` tokens, `[1, 1, count * group, past + count]`.
    /// `None` if they see everything.
    fn of(&self, past: usize, count: usize) -> Result<Option<Tensor>> {
        let Some(all) = self.all.as_ref().filter(|_| count > 1) else {
            return Ok(None);
        };
        let rows = all.f_narrow(0, 0, (count * self.group) as i64)?;
        let window = rows.f_narrow(1, (self.before - past) as i64, (past + count) as i64)?;
        Ok(Some(window.f_unsqueeze(0)?.f_unsqueeze(0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::forward::RowBatch;
    use crate::model::shape::{ModelShape, tiny};
    use crate::model::weights::{Init, Weights};

    fn row(len: usize, salt: usize) -> Vec<u32> {
        (0..len).map(|i| ((i * 7 + salt * 13 + i * i) % 40) as u32).collect()
    }

    /// Computes rows in pieces of the given lengths, all rows together, and compares the logits
    /// after each piece with those of the whole.
    fn check(shape: &ModelShape, rows: &[(Vec<u32>, Vec<usize>)]) {
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let weights = Weights::random(shape, init, 11).unwrap();
        let decoder = Decoder::new(shape, &weights).unwrap();
        let mut kvs: Vec<RowKv> = rows
            .iter()
            .map(|(ids, _)| RowKv::new(shape, ids.len(), Device::Cpu, Kind::Float).unwrap())
            .collect();
        let rounds = rows.iter().map(|(_, cuts)| cuts.len()).max().unwrap();
        for round in 0..rounds {
            let mut expected = Vec::new();
            let mut pieces = Vec::new();
            for ((ids, cuts), kv) in rows.iter().zip(&mut kvs) {
                if let Some(&count) = cuts.get(round) {
                    let from = kv.filled();
                    expected.push(&ids[..from + count]);
                    pieces.push(Piece {
                        kv,
                        ids: &ids[from..from + count],
                    });
                }
            }
            let logits = decoder.extend(&mut pieces).unwrap().logits;
            let batch = RowBatch::new(shape, &expected, Device::Cpu).unwrap();
            let (wanted, kept) = decoder.prefill(&batch, true).unwrap();
            let gap = (&logits - &wanted).abs().max().double_value(&[]);
            assert!(gap < 2e-5, "round {round}: {gap}");
            if round + 1 == rounds && rows.len() == 1 {
                for (mine, theirs) in kvs[0].layers().unwrap().iter().flatten().zip(kept.iter().flatten()) {
                    assert!((mine - theirs).abs().max().double_value(&[]) < 2e-5);
                }
            }
        }
    }

    #[test]
    fn pieces_equal_the_whole() {
        let _guard = tch::no_grad_guard();
        for kv_heads in [1, 2, 4] {
            let shape = ModelShape { kv_heads, ..tiny() };
            check(&shape, &[(row(60, 0), vec![20, 1, 30, 9])]);
            check(
                &shape,
                &[
                    (row(50, 1), vec![50]),
                    (row(33, 2), vec![1, 16, 16]),
                    (row(90, 3), vec![40, 2, 48]),
                ],
            );
        }
    }

    #[test]
    fn pieces_longer_than_a_block_equal_the_whole() {
        let _guard = tch::no_grad_guard();
        let shape = ModelShape {
            max_context: 2048,
            ..tiny()
        };
        check(&shape, &[(row(900, 0), vec![600, 300])]);
        check(&shape, &[(row(700, 1), vec![10, 690]), (row(520, 2), vec![512, 8])]);
    }

    #[test]
    fn a_row_begins_with_what_another_has() {
        let _guard = tch::no_grad_guard();
        let shape = tiny();
        let init = Init {
            embedding_std: 1.0,
            matrix_std: 0.2,
        };
        let weights = Weights::random(&shape, init, 11).unwrap();
        let decoder = Decoder::new(&shape, &weights).unwrap();
        let new = |room| RowKv::new(&shape, room, Device::Cpu, Kind::Float).unwrap();
        let (first, mut second) = (row(40, 1), row(40, 1)[..30].to_vec());
        second.extend(row(12, 7));
        let (mut one, mut other) = (new(40), new(42));
        let extend = |kv: &mut RowKv, ids: &[u32]| decoder.extend(&mut [Piece { kv, ids }]).unwrap().logits;
        let _ = extend(&mut one, &first);
        other.begin_with(&one, 30).unwrap();
        let got = extend(&mut other, &second[30..]);
        let wanted = extend(&mut new(42), &second);
        assert!((got - wanted).abs().max().double_value(&[]) < 2e-5);
        assert_eq!(other.filled(), 42);
    }
}
