//! Plans one decode step over the slots of a [`KvCache`]: where new tokens are written, and which
//! keys are read.

use half::bf16;
use kernels::Element;
use tch::{Kind, Tensor};

use super::attention::Way;
use super::buckets::Reading;
use super::kv_cache::KvCache;
use super::prefixes::{Shared, SharedPlan};
use super::ragged::Ragged;
use crate::model::error::{ModelError, Result};
use crate::model::forward::{Heads, to_device};
use crate::shim::floats::{self, Number};

/// The places that one decode step writes and reads, equal for every layer.
#[derive(Debug)]
pub(super) struct StepPlan {
    rows: i64,
    /// The common place of all rows' new tokens; `None` if the rows have different places.
    place: Option<i64>,
    places: [Option<Tensor>; 3],
    seen: Seen,
    way: Way,
    shared: Option<SharedPlan>,
}

/// The keys that a step attends over.
#[derive(Debug)]
enum Seen {
    /// Each row reads this many of its own keys, including the new one.
    Each(Vec<usize>),
    /// Each row reads its own keys in one call.
    Ragged(Ragged),
    /// Each row reads as many keys as the longest row of its bucket, bucket by bucket.
    Buckets(Vec<Read>),
}

/// Neighbouring rows, attended in one call.
#[derive(Debug)]
struct Read {
    first: i64,
    rows: i64,
    longest: i64,
    /// `[rows, 1, 1, longest]`: 0 where a row has a token, else minus infinity. `None` if all rows
    /// have the same length.
    mask: Option<Tensor>,
}

impl StepPlan {
    /// Plans a step. Row `i` writes its new token at `lengths[i]`, the number of tokens in its slot
    /// of `cache`, and has the prompt `shared[i]` before them. Use [`Way::of`] for `way`.
    pub(in crate::model) fn new(lengths: &[i64], shared: &[Option<Shared>], cache: &KvCache, way: Way) -> Result<Self> {
        let (device, kind) = (cache.device(), cache.kind());
        let first = lengths.first().copied().unwrap_or(0);
        let place = lengths.iter().all(|&length| length == first).then_some(first);
        let rows = lengths.len() as i64;
        let positions = to_device(lengths, device)?;
        let with_new: Vec<usize> = lengths.iter().map(|length| *length as usize + 1).collect();
        let seen = match cache.reading {
            Reading::Own => Seen::Each(with_new),
            Reading::Ragged => Seen::Ragged(Ragged::new(&positions, cache)?),
            Reading::Buckets { .. } => Seen::Buckets(reads(&cache.buckets, &with_new, &positions, kind)?),
        };
        let all = Tensor::f_arange(rows, (Kind::Int64, device))?;
        Ok(Self {
            rows,
            place,
            places: [Some(all), None, Some(positions)],
            seen,
            way,
            shared: SharedPlan::new(shared, device, way)?,
        })
    }

    /// Plans a step of rows that share no prompt. Their numbers of tokens (`places`, i64) are in
    /// GPU memory only.
    pub(super) fn ragged(places: &Tensor, cache: &KvCache) -> Result<Self> {
        let (rows, device) = (places.size1()?, places.device());
        Ok(Self {
            rows,
            place: None,
            places: [
                Some(Tensor::f_arange(rows, (Kind::Int64, device))?),
                None,
                Some(places.shallow_clone()),
            ],
            seen: Seen::Ragged(Ragged::new(places, cache)?),
            way: Way::of(device),
            shared: None,
        })
    }

    /// Appends each row's key and value of a layer (`[rows, kv_heads, head_dim]`) and attends with
    /// its queries (`[rows, heads, head_dim]`) over all its keys. Returns
    /// `[rows, heads * head_dim]`.
    pub(in crate::model) fn attend(&self, cache: &KvCache, layer: usize, heads: &Heads) -> Result<Tensor> {
        let [keys, values] = cache.layer(layer)?;
        let (keys, values) = (keys.f_narrow(0, 0, self.rows)?, values.f_narrow(0, 0, self.rows)?);
        self.write(&keys, &heads.k)?;
        self.write(&values, &heads.v)?;
        // Queries that share a key head are placed like several queries of one row, so no key is
        // copied.
        let (_, kv_heads, _, dim) = keys.size4()?;
        let q = heads.q.f_reshape([self.rows, kv_heads, -1, dim])?;
        let (own, lse) = match &self.seen {
            Seen::Each(lengths) => own_keys(&q, &keys, &values, lengths)?,
            Seen::Ragged(ragged) => {
                let (out, lse) = ragged.attend(&q, &keys, &values)?;
                (out, Some(lse))
            }
            Seen::Buckets(buckets) => self.by_buckets(buckets, &q, &keys, &values)?,
        };
        let out = match (&self.shared, lse) {
            (Some(shared), Some(lse)) => shared.merge(&cache.prefixes, layer, &q, own, &lse)?,
            (Some(_), None) => {
                return Err(ModelError::shape(
                    "rows share a prompt, but their log-sum-exps are missing",
                ));
            }
            (None, _) => own,
        };
        Ok(out.f_reshape([self.rows, -1])?)
    }

    fn by_buckets(&self, buckets: &[Read], q: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Attended> {
        let attend = |bucket: &Read| {
            let of = |all: &Tensor| all.f_narrow(0, bucket.first, bucket.rows);
            let read = |all: &Tensor| of(all)?.f_narrow(2, 0, bucket.longest);
            let (q, keys, values, mask) = (of(q)?, read(keys)?, read(values)?, bucket.mask.as_ref());
            if self.shared.is_some() {
                let (out, lse) = self.way.attend(&q, &keys, &values, mask)?;
                return Ok((out, Some(lse)));
            }
            let out = Tensor::f_scaled_dot_product_attention(&q, &keys, &values, mask, 0.0, false, None, false)?;
            Ok((out, None))
        };
        if let [all] = buckets {
            return attend(all);
        }
        let parts = buckets.iter().map(attend).collect::<Result<Vec<Attended>>>()?;
        let (outs, sums): (Vec<Tensor>, Vec<Option<Tensor>>) = parts.into_iter().unzip();
        let sums: Option<Vec<Tensor>> = sums.into_iter().collect();
        let sums = sums.map(|sums| Tensor::f_cat(&sums, 0)).transpose()?;
        Ok((Tensor::f_cat(&outs, 0)?, sums))
    }

    fn write(&self, cache: &Tensor, new: &Tensor) -> Result<()> {
        match self.place {
            Some(place) => cache.f_select(2, place)?.f_copy_(new)?,
            None => {
                let _ = cache.shallow_clone().f_index_put_(&self.places, new, false)?;
            }
        }
        Ok(())
    }
}

/// The reads of each bucket. `lengths` include the new tokens; `positions` are those of the new
/// tokens.
fn reads(buckets: &[usize], lengths: &[usize], positions: &Tensor, kind: Kind) -> Result<Vec<Read>> {
    let whole = [lengths.len()];
    let buckets = if buckets.is_empty() { &whole } else { buckets };
    if buckets.iter().sum::<usize>() != lengths.len() {
        return Err(ModelError::shape("the buckets do not cover the rows"));
    }
    let (mut first, mut reads) = (0, Vec::with_capacity(buckets.len()));
    for &rows in buckets {
        let of = &lengths[first..first + rows];
        let longest = of.iter().copied().max().unwrap_or(0);
        let mask = if of.iter().all(|&length| length == longest) {
            None
        } else {
            let positions = positions.f_narrow(0, first as i64, rows as i64)?;
            Some(masked(&positions, longest as i64, kind)?)
        };
        reads.push(Read {
            first: first as i64,
            rows: rows as i64,
            longest: longest as i64,
            mask,
        });
        first += rows;
    }
    Ok(reads)
}

/// `[rows, 1, 1, longest]`: minus infinity after each row's new token.
fn masked(positions: &Tensor, longest: i64, kind: Kind) -> Result<Tensor> {
    let (rows, device) = (positions.size1()?, positions.device());
    let beyond = Tensor::f_arange(longest, (Kind::Int64, device))?.f_gt_tensor(&positions.f_unsqueeze(1)?)?;
    let mask = Tensor::f_zeros([rows, longest], (kind, device))?.f_masked_fill_(&beyond, f64::NEG_INFINITY)?;
    Ok(mask.f_view([rows, 1, 1, longest])?)
}

/// Attention, `[rows, kv_heads, group, head_dim]`, and if needed the log-sum-exp of its logits,
/// `[rows, kv_heads, group]` in f32.
type Attended = (Tensor, Option<Tensor>);

/// Each row's attention over its own keys. `q` is `[rows, kv_heads, group, head_dim]`, keys and
/// values are `[rows, kv_heads, room, head_dim]`, in f32 or bf16 on a CPU.
fn own_keys(q: &Tensor, keys: &Tensor, values: &Tensor, lengths: &[usize]) -> Result<Attended> {
    match keys.kind() {
        Kind::BFloat16 => own_keys_of::<bf16>(q, keys, values, lengths),
        _ => own_keys_of::<f32>(q, keys, values, lengths),
    }
}

fn own_keys_of<E: Element + Number>(q: &Tensor, keys: &Tensor, values: &Tensor, lengths: &[usize]) -> Result<Attended> {
    let (rows, heads, group, dim) = q.size4()?;
    let wide = q.f_to_kind(Kind::Float)?.f_contiguous()?;
    let (Some(numbers), Some(keys), Some(values)) =
        (floats::read(&wide), floats::read::<E>(keys), floats::read(values))
    else {
        return Err(ModelError::shape("attention over a cache that is not dense"));
    };
    let shape = kernels::Shape {
        kv_heads: heads as usize,
        group: group as usize,
        head_dim: dim as usize,
    };
    let room = keys.len() / (rows * heads * dim).max(1) as usize;
    let cache = kernels::Cache { keys, values, room };
    let mut sums = vec![0.0; (rows * heads * group) as usize];
    let out = floats::made(&[rows, heads, group, dim], |out| {
        kernels::attend(shape, numbers, cache, lengths, out, &mut sums);
    })?;
    let sums = Tensor::f_from_slice(&sums)?.f_view([rows, heads, group])?;
    Ok((out.f_to_kind(q.kind())?, Some(sums)))
}
