//! Deterministic computation: the bits of a token depend only on the token and on the earlier
//! tokens of its row.
//!
//! A matrix library chooses its order of summation by the sizes. Every product here therefore has
//! 64 rows (`BLOCK`): tokens are computed in blocks, and the last block is padded. Attention
//! handles each token by itself over its own row. It reads as many keys as fill the token's bucket,
//! and masks the keys after the token. Tokens with equal buckets go into one call, which treats
//! each of them separately. Prompts, pieces of prompts and generated tokens all take this path, so
//! their bits agree. After He et al., "Defeating nondeterminism in LLM inference" (Thinking
//! Machines Lab, 2025).
//!
//! Independence of a row in a block from its place and its neighbours is a property of the library
//! and the processor. [`Decoder::try_fixed`] tests it. Products with ordered weights
//! ([`crate::ordered`]) have this property by construction for any number of rows. Without an
//! adapter they are not padded.

use tch::{Device, Kind, Tensor};

use super::attention::flash;
use super::extend::{Extended, Piece};
use super::kv_cache::KvCache;
use super::row_kv::BUCKET;
use crate::model::error::Result;
use crate::model::forward::{Decoder, Heads, blocks, filled_up, to_device};

/// Neighbouring tokens of a step that are attended in one call.
#[derive(Debug)]
struct Call {
    start: i64,
    count: i64,
    bucket: i64,
    /// `[count, 1, 1, bucket]`: 0 where a token sees a key, else minus infinity.
    mask: Tensor,
}

impl Call {
    /// Plans the calls for consecutive tokens at these positions of their rows.
    fn plan(positions: &[i64], device: Device, kind: Kind) -> Result<Vec<Self>> {
        let bucket = |position: &i64| (*position as usize + 1).next_multiple_of(BUCKET) as i64;
        let mut calls: Vec<Self> = Vec::new();
        let mut start = 0;
        for same in positions.chunk_by(|a, b| bucket(a) == bucket(b)) {
            let (count, bucket) = (same.len() as i64, same.first().map_or(0, bucket));
            let places = Tensor::f_arange(bucket, (Kind::Int64, device))?;
            let unseen = places.f_gt_tensor(&to_device(same, device)?.f_unsqueeze(1)?)?;
            let mask = Tensor::f_zeros([count, bucket], (kind, device))?.f_masked_fill_(&unseen, f64::NEG_INFINITY)?;
            calls.push(Self {
                start,
                count,
                bucket,
                mask: mask.f_view([count, 1, 1, bucket])?,
            });
            start += count;
        }
        Ok(calls)
    }

    /// Attends with `q`, which holds all tokens of the step: `[tokens, heads, head_dim]`. `keys`
    /// and `values` are `[count or 1, kv_heads, places, head_dim]`. Returns
    /// `[count, heads * head_dim]`.
    fn attend(&self, q: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (_, heads, _, dim) = keys.size4()?;
        let q = q.f_narrow(0, self.start, self.count)?.f_contiguous()?;
        let q = q.f_view([self.count, heads, -1, dim])?;
        let read = |all: &Tensor| {
            let bucket = all.f_narrow(2, 0, self.bucket)?;
            bucket.f_expand([self.count, heads, self.bucket, dim], false)
        };
        let (out, _) = flash(&q, &read(keys)?, &read(values)?, Some(&self.mask))?;
        Ok(out.f_reshape([self.count, -1])?)
    }
}

impl Decoder {
    /// The same as [`Self::extend`]; the rows must come from [`crate::model::RowKv::in_buckets`].
    pub(crate) fn extend_fixed(&self, pieces: &mut [Piece<'_>]) -> Result<Extended> {
        let (mut ids, mut positions, mut last, mut plans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces.iter() {
            self.shape().check_ids(piece.ids)?;
            ids.extend(piece.ids.iter().map(|&id| i64::from(id)));
            let first = piece.kv.filled() as i64;
            let own: Vec<i64> = (first..first + piece.ids.len() as i64).collect();
            plans.push(Call::plan(&own, self.device(), self.kind())?);
            positions.extend(own);
            last.push(ids.len() as i64 - 1);
        }
        let extended = self.fixed(&ids, &positions, &last, |layer, heads| {
            let (mut done, mut start) = (Vec::new(), 0);
            for (piece, plan) in pieces.iter().zip(&plans) {
                let count = piece.ids.len() as i64;
                let of = |all: &Tensor| all.f_narrow(0, start, count);
                let _ = piece.kv.write(layer, [&of(&heads.k)?, &of(&heads.v)?])?;
                let ([keys, values], q) = (piece.kv.places(layer)?, of(&heads.q)?);
                for call in plan {
                    done.push(call.attend(&q, keys, values)?);
                }
                start += count;
            }
            Ok(Tensor::f_cat(&done, 0)?)
        })?;
        for piece in pieces {
            piece.kv.advance(piece.ids.len());
        }
        Ok(extended)
    }

    /// The same as [`Self::decode`], for rows without shared prompts.
    pub(crate) fn decode_fixed(&self, ids: &[i64], lengths: &[i64], cache: &KvCache) -> Result<Tensor> {
        let (device, rows) = (self.device(), lengths.len() as i64);
        let plan = Call::plan(lengths, device, self.kind())?;
        let all = Tensor::f_arange(rows, (Kind::Int64, device))?;
        let places = [Some(all), None, Some(to_device(lengths, device)?)];
        let last: Vec<i64> = (0..rows).collect();
        let extended = self.fixed(ids, lengths, &last, |layer, heads| {
            let [keys, values] = cache.layer(layer)?;
            let _ = keys.shallow_clone().f_index_put_(&places, &heads.k, false)?;
            let _ = values.shallow_clone().f_index_put_(&places, &heads.v, false)?;
            let attend = |call: &Call| {
                let of = |all: &Tensor| all.f_narrow(0, call.start, call.count);
                call.attend(&heads.q, &of(keys)?, &of(values)?)
            };
            let done = plan.iter().map(attend).collect::<Result<Vec<_>>>()?;
            Ok(Tensor::f_cat(&done, 0)?)
        })?;
        Ok(extended.logits)
    }

    /// Computes the states of these tokens, and the logits after the tokens listed in `last`.
    /// `attend` receives the heads of all tokens in a layer.
    fn fixed(
        &self,
        ids: &[i64],
        positions: &[i64],
        last: &[i64],
        mut attend: impl FnMut(usize, &Heads) -> Result<Tensor>,
    ) -> Result<Extended> {
        let (device, count) = (self.device(), ids.len() as i64);
        let end = positions.iter().max().map_or(0, |&at| at as usize) + 1;
        let (mut x, mut ropes) = (Vec::new(), Vec::new());
        let block = self.block(ids.len());
        for (ids, positions) in ids.chunks(block).zip(positions.chunks(block)) {
            let ids = to_device(&filled_up(ids, block), device)?;
            x.push(Tensor::f_embedding(&self.embedding, &ids, -1, false, false)?);
            ropes.push(self.rope.rows(&to_device(&filled_up(positions, block), device)?, end)?);
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let heads = x.iter().zip(&ropes).map(|(x, rope)| layer.heads(&self.shape, x, rope));
            let attended = attend(index, &together(&heads.collect::<Result<Vec<_>>>()?, count)?)?;
            for (x, attended) in x.iter_mut().zip(blocks(&attended, block)?) {
                *x = layer.rest(&self.shape, x, &attended)?;
            }
        }
        let states = Tensor::f_cat(&x, 0)?;
        let logits = self.fixed_logits(&states.f_index_select(0, &to_device(last, device)?)?)?;
        Ok(Extended { logits, states })
    }
}

/// The heads of the first `count` tokens of the blocks.
fn together(blocks: &[Heads], count: i64) -> Result<Heads> {
    let of = |part: fn(&Heads) -> &Tensor| -> Result<Tensor> {
        let parts: Vec<&Tensor> = blocks.iter().map(part).collect();
        Ok(Tensor::f_cat(&parts, 0)?.f_narrow(0, 0, count)?)
    };
    Ok(Heads {
        q: of(|heads| &heads.q)?,
        k: of(|heads| &heads.k)?,
        v: of(|heads| &heads.v)?,
    })
}
