//! Keys and values of active rows: one slot per row, `[rows, kv_heads, length, head_dim]` per
//! layer. A shared prompt is stored elsewhere ([`super::prefixes`]).
//!
//! Live rows are packed at the front, so attention reads a narrowed view without a gather. Rows and
//! length grow in steps ([`grown`]). Views depend only on rows and length. So after
//! [`KvCache::clear`], the strides and therefore the arithmetic are a function of the next
//! computation, not of earlier ones. Places after a row's end are masked; they hold zero or an old,
//! finite number.

use tch::{Device, Kind, Tensor};

use super::buckets::Reading;
use super::prefixes::{Prefixes, Shared};
use super::row_kv::{BUCKET, Prefilled, RowKv};
use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;

/// Slots of keys and values.
#[derive(Debug)]
pub(crate) struct KvCache {
    storage: Tensor,
    /// Per layer: keys, values.
    layers: Vec<[Tensor; 2]>,
    rows: usize,
    length: usize,
    /// See [`KvCache::layout`].
    layout: u64,
    dims: Dims,
    /// How a step's attention reads the cache.
    pub(crate) reading: Reading,
    /// The number of neighbouring rows in each bucket. Empty means all rows in one bucket.
    pub(crate) buckets: Vec<usize>,
    /// The number of keys that each row read when the buckets were chosen.
    pub(crate) laid_out: Vec<usize>,
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
            layout: 0,
            dims,
            reading: Reading::of(device, kind, shape.head_dim),
            buckets: Vec::new(),
            laid_out: Vec::new(),
            prefixes: Prefixes::default(),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.storage.kind()
    }

    pub(in crate::model) fn device(&self) -> Device {
        self.storage.device()
    }

    /// The number of slots.
    pub(in crate::model) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of tokens that each slot has room for.
    pub(in crate::model) fn room(&self) -> usize {
        self.length
    }

    /// Changes whenever slots move in memory.
    pub(in crate::model) fn layout(&self) -> u64 {
        self.layout
    }

    /// Bytes of the keys and values of one token.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.dims.numel(1, 1) * self.kind().elt_size_in_bytes()
    }

    /// The cost of one more bucket of rows, in keys of a layer. `None` if each row reads its own
    /// keys.
    pub(crate) fn call(&self) -> Option<usize> {
        let per_key = self.bytes_per_token() / self.dims.layers.max(1);
        match self.reading {
            Reading::Own | Reading::Ragged => None,
            Reading::Buckets { call } => Some(call / per_key.max(1)),
        }
    }

    /// Forgets everything but keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.layers.clear();
        self.buckets.clear();
        self.laid_out.clear();
        self.prefixes.clear();
        (self.rows, self.length) = (0, 0);
    }

    /// Zeroes the memory too. Needed after numbers that were not finite.
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
        let rows = grown(rows, self.device()).max(FIRST_ROWS).max(self.rows);
        let length = grown(length, self.device())
            .max(FIRST_LENGTH)
            .min(self.dims.max_context.next_multiple_of(BUCKET))
            .max(self.length);
        let needed = self.dims.numel(rows, length);
        self.layout += 1;
        let mut old = std::mem::take(&mut self.layers);
        let before = std::mem::take(&mut self.length);
        self.rows = 0;
        if live > 0 || needed > self.storage.numel() {
            if live == 0 {
                // Nothing is copied, so the old memory need not exist with the new one.
                old.clear();
                self.storage = Tensor::f_zeros([0], (self.kind(), self.device()))?;
            }
            self.storage = Tensor::f_zeros([needed as i64], (self.storage.kind(), self.storage.device()))?;
        }
        self.layers = views(&self.storage, &self.dims, rows, length)?;
        if live > 0 {
            for (new, old) in self.layers.iter().flatten().zip(old.iter().flatten()) {
                let mut target = new.f_narrow(0, 0, live as i64)?.f_narrow(2, 0, before as i64)?;
                target.f_copy_(&old.f_narrow(0, 0, live as i64)?)?;
            }
        }
        (self.rows, self.length) = (rows, length);
        Ok(())
    }

    /// Fills slots `first..` from a prefill: slot `first + i` receives the first `length` tokens of
    /// prompt `prompts[i]`.
    pub(crate) fn admit(&mut self, first: usize, from: &Prefilled, prompts: &Tensor) -> Result<()> {
        let count = prompts.size1()?;
        for (slot, source) in self.layers.iter().flatten().zip(from.iter().flatten()) {
            let width = source.size()[2];
            let mut target = slot.f_narrow(0, first as i64, count)?.f_narrow(2, 0, width)?;
            target.f_copy_(&source.f_index_select(0, prompts)?)?;
        }
        Ok(())
    }

    /// Fills a slot from a single row.
    pub(crate) fn fill(&mut self, slot: usize, from: &RowKv) -> Result<()> {
        let length = from.filled() as i64;
        for (slots, source) in self.layers.iter().flatten().zip(from.layers()?.iter().flatten()) {
            let mut target = slots.f_narrow(0, slot as i64, 1)?.f_narrow(2, 0, length)?;
            target.f_copy_(source)?;
        }
        Ok(())
    }

    /// Copies a row's keys and values: those of its shared prompt, then the first `length` of its
    /// slot.
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

    /// Copies the first `length` tokens of one slot to another.
    pub(crate) fn move_row(&mut self, from: usize, to: usize, length: usize) -> Result<()> {
        for tensor in self.layers.iter().flatten() {
            let part = |row: usize| tensor.f_narrow(0, row as i64, 1)?.f_narrow(2, 0, length as i64);
            part(to)?.f_copy_(&part(from)?)?;
        }
        Ok(())
    }

    /// Exchanges the first `length` tokens of two slots.
    pub(crate) fn exchange(&mut self, a: usize, b: usize, length: usize) -> Result<()> {
        let dims = [1, self.dims.kv_heads, length, self.dims.head_dim].map(|n| n as i64);
        let mut kept = Tensor::f_empty(dims, (self.kind(), self.device()))?;
        for tensor in self.layers.iter().flatten() {
            let part = |row: usize| tensor.f_narrow(0, row as i64, 1)?.f_narrow(2, 0, length as i64);
            let (mut a, mut b) = (part(a)?, part(b)?);
            kept.f_copy_(&a)?;
            a.f_copy_(&b)?;
            b.f_copy_(&kept)?;
        }
        Ok(())
    }

    /// Keys and values of all slots, `[rows, kv_heads, length, head_dim]`.
    pub(in crate::model) fn layer(&self, layer: usize) -> Result<&[Tensor; 2]> {
        let none = || ModelError::shape("the cache has no such layer");
        self.layers.get(layer).ok_or_else(none)
    }
}

/// The number of rows, or tokens of a row, to make room for: the next power of two. A GPU's memory
/// is scarce, so there three quarters of it are taken where they suffice.
pub(super) fn grown(needed: usize, device: Device) -> usize {
    let power = needed.next_power_of_two();
    match device {
        Device::Cpu => power,
        _ if power >= 16 && needed <= power / 4 * 3 => power / 4 * 3,
        _ => power,
    }
}

fn views(storage: &Tensor, dims: &Dims, rows: usize, length: usize) -> Result<Vec<[Tensor; 2]>> {
    let size = [rows, dims.kv_heads, length, dims.head_dim].map(|n| n as i64);
    let numel: i64 = size.iter().product();
    let part = |index: i64| storage.f_narrow(0, index * numel, numel)?.f_view(size);
    (0..dims.layers as i64)
        .map(|layer| Ok([part(2 * layer)?, part(2 * layer + 1)?]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_less_than_the_next_power_of_two() {
        let gpu = |needed| grown(needed, Device::Cuda(0));
        assert_eq!(
            [1, 9, 12, 13, 640, 769, 1024].map(gpu),
            [1, 12, 12, 16, 768, 1024, 1024]
        );
        let cpu = |needed| grown(needed, Device::Cpu);
        assert_eq!([1, 9, 640].map(cpu), [1, 16, 1024]);
    }
}
