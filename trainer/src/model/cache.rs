//! Keys and values of rows that are being generated: one slot per row (without a prompt that it shares, [`super::prefix`]), `[rows, kv_heads, length, head_dim]` per layer.
//!
//! Live rows are packed at the front, so attention reads a narrowed view and gathers nothing. Both rows and length grow by
//! doubling. Views of the storage are made from rows and length alone, so that after [`KvCache::clear`] the strides, and
//! with them the arithmetic, are a function of what is computed next and not of what was computed before. What lies behind
//! a row's end is masked; it is zero or an old, finite number.

use tch::{Device, Kind, Tensor};

use super::batch::to_device;
use super::error::{ModelError, Result};
use super::fixed::BUCKET;
use super::lse::Way;
use super::prefix::{Prefixes, Shared, SharedPlan};
use super::row_kv::RowKv;
use super::shape::ModelShape;
use crate::shim::floats;

/// Slots of keys and values.
#[derive(Debug)]
pub(crate) struct KvCache {
    storage: Tensor,
    /// Per layer: keys, values.
    layers: Vec<[Tensor; 2]>,
    rows: usize,
    length: usize,
    dims: Dims,
    pub(crate) prefixes: Prefixes,
}

#[derive(Debug, Clone, Copy)]
struct Dims {
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    max_context: usize,
}

impl Dims {
    fn numel(&self, rows: usize, length: usize) -> usize {
        2 * self.layers * rows * self.kv_heads * length * self.head_dim
    }
}

/// Keys and values of a prefill, one pair per layer, `[prompts, kv_heads, width, head_dim]`.
pub(crate) type Prefilled = Vec<[Tensor; 2]>;

const FIRST_ROWS: usize = 8;
const FIRST_LENGTH: usize = 64;

impl KvCache {
    pub(crate) fn new(shape: &ModelShape, device: Device, kind: Kind) -> Result<Self> {
        let dims = Dims {
            layers: shape.layers,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
            max_context: shape.max_context,
        };
        Ok(Self {
            storage: Tensor::f_zeros([0], (kind, device))?,
            layers: Vec::new(),
            rows: 0,
            length: 0,
            dims,
            prefixes: Prefixes::default(),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.storage.kind()
    }

    /// Bytes of the keys and values of one token.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.dims.numel(1, 1) * self.kind().elt_size_in_bytes()
    }

    /// Forgets everything but the memory.
    pub(crate) fn clear(&mut self) {
        self.layers.clear();
        self.prefixes.clear();
        (self.rows, self.length) = (0, 0);
    }

    /// Zeroes the memory too: after numbers that were not finite.
    pub(crate) fn wipe(&mut self) -> Result<()> {
        self.clear();
        let _ = self.storage.f_zero_()?;
        Ok(())
    }

    /// Makes room for `rows` rows of `length` tokens, keeping the first `live` rows.
    pub(crate) fn reserve(&mut self, rows: usize, length: usize, live: usize) -> Result<()> {
        if rows <= self.rows && length <= self.length {
            return Ok(());
        }
        let rows = rows.next_power_of_two().max(FIRST_ROWS).max(self.rows);
        let length = length
            .next_power_of_two()
            .max(FIRST_LENGTH)
            .min(self.dims.max_context.next_multiple_of(BUCKET))
            .max(self.length);
        let needed = self.dims.numel(rows, length);
        let old = std::mem::take(&mut self.layers);
        if live > 0 || needed > self.storage.numel() {
            self.storage = Tensor::f_zeros([needed as i64], (self.storage.kind(), self.storage.device()))?;
        }
        self.layers = views(&self.storage, &self.dims, rows, length)?;
        if live > 0 {
            for (new, old) in self.layers.iter().flatten().zip(old.iter().flatten()) {
                let mut target = new.f_narrow(0, 0, live as i64)?.f_narrow(2, 0, self.length as i64)?;
                target.f_copy_(&old.f_narrow(0, 0, live as i64)?)?;
            }
        }
        (self.rows, self.length) = (rows, length);
        Ok(())
    }

    /// Fills slots `first..` from a prefill: slot `first + i` with the first `length` tokens of prompt `prompts[i]`.
    pub(crate) fn admit(&mut self, first: usize, from: &Prefilled, prompts: &Tensor) -> Result<()> {
        let count = prompts.size1()?;
        for (slot, source) in self.layers.iter().flatten().zip(from.iter().flatten()) {
            let width = source.size()[2];
            let mut target = slot.f_narrow(0, first as i64, count)?.f_narrow(2, 0, width)?;
            target.f_copy_(&source.f_index_select(0, prompts)?)?;
        }
        Ok(())
    }

    /// Fills a slot from a row of its own.
    pub(crate) fn fill(&mut self, slot: usize, from: &RowKv) -> Result<()> {
        let length = from.filled() as i64;
        for (slots, source) in self.layers.iter().flatten().zip(from.layers()?.iter().flatten()) {
            let mut target = slots.f_narrow(0, slot as i64, 1)?.f_narrow(2, 0, length)?;
            target.f_copy_(source)?;
        }
        Ok(())
    }

    /// A row's keys and values as a row of its own: those that it shares, then the first `length` of its slot.
    pub(crate) fn copy(&self, slot: usize, length: usize, shared: Option<Shared>) -> Result<RowKv> {
        let part = |all: &Tensor| all.f_narrow(0, slot as i64, 1)?.f_narrow(2, 0, length as i64);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (index, [keys, values]) in self.layers.iter().enumerate() {
            layers.push(match shared {
                None => [part(keys)?.f_contiguous()?, part(values)?.f_contiguous()?],
                Some(shared) => {
                    let [before_k, before_v] = self.prefixes.layer(shared, index)?;
                    [
                        Tensor::f_cat(&[before_k, &part(keys)?], 2)?,
                        Tensor::f_cat(&[before_v, &part(values)?], 2)?,
                    ]
                }
            });
        }
        Ok(RowKv::whole(layers))
    }

    /// Copies the first `length` tokens of one slot over another.
    pub(crate) fn move_row(&mut self, from: usize, to: usize, length: usize) -> Result<()> {
        for tensor in self.layers.iter().flatten() {
            let part = |row: usize| tensor.f_narrow(0, row as i64, 1)?.f_narrow(2, 0, length as i64);
            part(to)?.f_copy_(&part(from)?)?;
        }
        Ok(())
    }

    /// Keys and values of all slots, `[rows, kv_heads, length, head_dim]`.
    pub(super) fn layer(&self, layer: usize) -> Result<&[Tensor; 2]> {
        let none = || ModelError::shape("the cache has no such layer");
        self.layers.get(layer).ok_or_else(none)
    }

    /// Appends each row's key and value (`[rows, kv_heads, head_dim]`) and attends with its queries
    /// (`[rows, heads, head_dim]`) over all it has; `[rows, heads * head_dim]`.
    pub(super) fn attend(&self, layer: usize, plan: &StepPlan, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let [keys, values] = self.layer(layer)?;
        let (rows, dim) = (plan.rows, self.dims.head_dim as i64);
        let (keys, values) = (keys.f_narrow(0, 0, rows)?, values.f_narrow(0, 0, rows)?);
        plan.write(&keys, k)?;
        plan.write(&values, v)?;
        // The queries that share a key head stand where several queries of one row would: no key is copied.
        let heads = self.dims.kv_heads as i64;
        let q = q.f_reshape([rows, heads, -1, dim])?;
        let (own, lse) = match &plan.seen {
            Seen::Each(lengths) => own_keys(&q, &keys, &values, lengths)?,
            Seen::Longest { longest, mask } => {
                let read = |all: &Tensor| all.f_narrow(2, 0, *longest);
                let (keys, values, mask) = (read(&keys)?, read(&values)?, mask.as_ref());
                if plan.shared.is_some() {
                    plan.way.attend(&q, &keys, &values, mask)?
                } else {
                    let out =
                        Tensor::f_scaled_dot_product_attention(&q, &keys, &values, mask, 0.0, false, None, false)?;
                    return Ok(out.f_reshape([rows, -1])?);
                }
            }
        };
        let out = match &plan.shared {
            Some(shared) => shared.merge(&self.prefixes, layer, &q, own, &lse)?,
            None => own,
        };
        Ok(out.f_reshape([rows, -1])?)
    }
}

/// Each row's attention over its own keys, and the log-sum-exp of its logits: `q` is `[rows, kv_heads, group, head_dim]`, keys and values
/// `[rows, kv_heads, room, head_dim]`, in f32 on a CPU.
fn own_keys(q: &Tensor, keys: &Tensor, values: &Tensor, lengths: &[usize]) -> Result<(Tensor, Tensor)> {
    let (rows, heads, group, dim) = q.size4()?;
    let q = q.f_contiguous()?;
    let (Some(numbers), Some(keys), Some(values)) = (floats::read(&q), floats::read(keys), floats::read(values)) else {
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
    Ok((out, Tensor::f_from_slice(&sums)?.f_view([rows, heads, group])?))
}

fn views(storage: &Tensor, dims: &Dims, rows: usize, length: usize) -> Result<Vec<[Tensor; 2]>> {
    let size = [rows, dims.kv_heads, length, dims.head_dim].map(|n| n as i64);
    let numel: i64 = size.iter().product();
    let part = |index: i64| storage.f_narrow(0, index * numel, numel)?.f_view(size);
    (0..dims.layers as i64)
        .map(|layer| Ok([part(2 * layer)?, part(2 * layer + 1)?]))
        .collect()
}

/// Where one decode step writes and what it reads; the same for every layer.
#[derive(Debug)]
pub(super) struct StepPlan {
    rows: i64,
    /// Where all rows write; `None` where each does at a place of its own.
    place: Option<i64>,
    places: [Option<Tensor>; 3],
    seen: Seen,
    way: Way,
    shared: Option<SharedPlan>,
}

/// The keys that a step attends over.
#[derive(Debug)]
enum Seen {
    /// Each row its own, so many, the new one included.
    Each(Vec<usize>),
    /// As many as the longest row has, in one call.
    Longest {
        longest: i64,
        /// `[rows, 1, 1, longest]`: 0 where a row has a token, else minus infinity.
        mask: Option<Tensor>,
    },
}

impl StepPlan {
    /// Row `i` writes its new token at `lengths[i]`, the number of tokens in its slot, and has `shared[i]` before them. [`Way::of`] says which `way`
    /// the device takes.
    pub(super) fn new(
        lengths: &[i64],
        shared: &[Option<Shared>],
        device: Device,
        kind: Kind,
        way: Way,
    ) -> Result<Self> {
        let last = lengths.iter().copied().max().unwrap_or(0);
        let place = lengths.iter().all(|&length| length == last).then_some(last);
        let rows = lengths.len() as i64;
        let positions = to_device(lengths, device)?;
        let seen = if way == Way::Kernels && kind == Kind::Float && kernels::pays() {
            Seen::Each(lengths.iter().map(|length| *length as usize + 1).collect())
        } else {
            let longest = last + 1;
            let mask = match place {
                Some(_) => None,
                None => Some(masked(&positions, longest, device, kind)?),
            };
            Seen::Longest { longest, mask }
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

/// `[rows, 1, 1, longest]`: minus infinity behind each row's new token.
fn masked(positions: &Tensor, longest: i64, device: Device, kind: Kind) -> Result<Tensor> {
    let rows = positions.size1()?;
    let beyond = Tensor::f_arange(longest, (Kind::Int64, device))?.f_gt_tensor(&positions.f_unsqueeze(1)?)?;
    let mask = Tensor::f_zeros([rows, longest], (kind, device))?.f_masked_fill_(&beyond, f64::NEG_INFINITY)?;
    Ok(mask.f_view([rows, 1, 1, longest])?)
}
