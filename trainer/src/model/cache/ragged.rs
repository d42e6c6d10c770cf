//! Decode attention where one call reads as many keys of each row as the row has, on a GPU in bf16.

use tch::{Device, Kind, Tensor};

use super::kv_cache::KvCache;
use crate::model::error::Result;
use crate::shim::flash::{self, Spans};

/// The keys of a step's rows. The numbers are in GPU memory, so a recorded step reads those of its
/// replay.
#[derive(Debug)]
pub(super) struct Ragged {
    spans: Spans,
}

impl Ragged {
    /// Plans a step. Row `i` has `places[i]` (i64) tokens in its slot, and one more when it
    /// attends.
    pub(super) fn new(places: &Tensor, cache: &KvCache) -> Result<Self> {
        let (rows, [keys, _]) = (places.size1()?, cache.layer(0)?);
        let (_, heads, room, _) = keys.size4()?;
        let counted = Tensor::f_arange(rows + 1, (Kind::Int, places.device()))?;
        Ok(Self {
            spans: Spans {
                begins: counted.f_mul_scalar(heads * room)?,
                ends: counted,
                used: places.f_add_scalar(1)?.f_to_kind(Kind::Int)?,
                longest: room,
            },
        })
    }

    /// Attends with `q` (`[rows, kv_heads, group, head_dim]`) over the rows' slots, the first of
    /// `keys` and `values` (`[slots, kv_heads, room, head_dim]`). Returns the attention in the
    /// shape of `q`, and its log-sum-exp `[rows, kv_heads, group]` in f32.
    pub(super) fn attend(&self, q: &Tensor, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let (rows, heads, group, dim) = q.size4()?;
        let one = q.f_reshape([rows, heads * group, dim])?;
        let attend = match q.device() {
            Device::Cpu => by_rows,
            _ => flash::attend,
        };
        let (out, sums) = attend(&one, &places(keys)?, &places(values)?, &self.spans)?;
        let sums = sums.f_transpose(0, 1)?.f_reshape([rows, heads, group])?;
        Ok((out.f_reshape([rows, heads, group, dim])?, sums))
    }
}

/// `[slots, kv_heads, room, head_dim]` as `[places, kv_heads, head_dim]`, without a copy. The token
/// at place `t` of a slot is at `slot * kv_heads * room + t`. Places from `room` on, up to the next
/// slot, are tokens of other heads; nothing reads them.
fn places(slots: &Tensor) -> Result<Tensor> {
    let (count, heads, room, dim) = slots.size4()?;
    let places = count * heads * room - (heads - 1) * room;
    Ok(slots.f_as_strided([places, heads, dim], [dim, room * dim, 1], None::<i64>)?)
}

/// Computes the same as [`flash::attend`], on a CPU: row after row, with plain products. Tests show
/// with it that the places are right.
fn by_rows(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    spans: &Spans,
) -> std::result::Result<(Tensor, Tensor), tch::TchError> {
    let (rows, heads, dim) = q.size3()?;
    let group = heads / keys.size3()?.1;
    let numbers = |tensor: &Tensor| Vec::<i64>::try_from(tensor.f_to_kind(Kind::Int64)?);
    let (begins, used) = (numbers(&spans.begins)?, numbers(&spans.used)?);
    let (mut outs, mut sums) = (Vec::new(), Vec::new());
    for (row, (begin, used)) in (0..rows).zip(begins.into_iter().zip(used)) {
        let of = |all: &Tensor| -> std::result::Result<Tensor, tch::TchError> {
            let wide = all.f_narrow(0, begin, used)?.f_to_kind(Kind::Float)?;
            wide.f_repeat_interleave_self_int(group, 1, None)?.f_transpose(0, 1)
        };
        let one = q.f_narrow(0, row, 1)?.f_transpose(0, 1)?.f_to_kind(Kind::Float)?;
        let logits = one
            .f_matmul(&of(keys)?.f_transpose(1, 2)?)?
            .f_div_scalar((dim as f64).sqrt())?;
        let out = logits.f_softmax(-1, Kind::Float)?.f_matmul(&of(values)?)?;
        outs.push(out.f_transpose(0, 1)?.f_to_kind(q.kind())?);
        sums.push(logits.f_logsumexp(-1i64, false)?);
    }
    Ok((Tensor::f_cat(&outs, 0)?, Tensor::f_cat(&sums, 1)?))
}
