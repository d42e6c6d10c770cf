//! Keys and values of active rows: one slot per row, `[rows, kv_heads, length, head_dim]` per
//! layer. A shared prompt is stored elsewhere ([`super::prefixes`]).
//!
//! Live rows are packed at the front, so attention reads a narrowed view without a gather. Rows and
//! length grow in steps ([`grown`]). Views depend only on rows and length. So after
//! [`KvCache::clear`], the strides and therefore the arithmetic are a function of the next
//! computation, not of earlier ones. Places after a row's end are masked; they hold zero or an old,
//! finite number.
//!
//! Without a bound, a larger storage replaces the old one. A bounded cache ([`KvCache::bounded`])
//! has one storage for ever: slots are views of it, and live rows move inside it ([`shift`]).

use tch::{Device, Kind, Tensor};

use super::buckets::Reading;
use super::budget::{Budget, Slots};
use super::prefixes::{Prefixes, Shared};
use super::row_kv::{BUCKET, Prefilled, RowKv};
use super::slots::{Dims, Views, copy, shift};
use crate::model::error::{ModelError, Result};
use crate::model::shape::ModelShape;

/// Slots of keys and values.
#[derive(Debug)]
pub(crate) struct KvCache {
    storage: Tensor,
    layers: Views,
    slots: Slots,
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
    budget: Budget,
    /// The slots that the live rows may come to need, within the budget. Unused without one.
    pub(crate) promised: Slots,
}

const FIRST_ROWS: usize = 8;
const FIRST_LENGTH: usize = 64;

impl KvCache {
    pub(crate) fn new(shape: &ModelShape, device: Device, kind: Kind) -> Result<Self> {
        Ok(Self {
            storage: Tensor::f_zeros([0], (kind, device))?,
            layers: Vec::new(),
            slots: Slots::default(),
            layout: 0,
            dims: Dims::of(shape),
            reading: Reading::of(device, kind, shape.head_dim),
            buckets: Vec::new(),
            laid_out: Vec::new(),
            prefixes: Prefixes::default(),
            budget: Budget::NONE,
            promised: Slots::default(),
        })
    }

    /// A cache whose slots take exactly these bytes, allocated now.
    pub(crate) fn bounded(shape: &ModelShape, device: Device, kind: Kind, bytes: usize) -> Result<Self> {
        let mut cache = Self::new(shape, device, kind)?;
        cache.storage = Tensor::f_zeros([(bytes / kind.elt_size_in_bytes()) as i64], (kind, device))?;
        cache.budget = Budget::of(bytes / cache.bytes_per_token().max(1));
        Ok(cache)
    }

    /// Returns true if rows may share a prompt that is stored outside the slots. With a bound there
    /// is no such memory: each slot has its whole row.
    pub(crate) fn shares(&self) -> bool {
        !self.budget.is_bounded()
    }

    /// The number of tokens that the slots may hold.
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    pub(crate) fn kind(&self) -> Kind {
        self.storage.kind()
    }

    pub(in crate::model) fn device(&self) -> Device {
        self.storage.device()
    }

    /// The number of slots.
    pub(in crate::model) fn rows(&self) -> usize {
        self.slots.rows
    }

    /// The number of tokens that each slot has room for.
    pub(in crate::model) fn room(&self) -> usize {
        self.slots.room
    }

    /// The number of tokens that it has memory for.
    pub(crate) fn places(&self) -> usize {
        let allocated = self.slots.rows * self.slots.room;
        self.budget.tokens().unwrap_or(allocated)
    }

    /// Changes whenever slots move in memory.
    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    /// The address of the storage, and its bytes.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> (usize, usize) {
        (
            self.storage.data_ptr() as usize,
            self.storage.numel() * self.kind().elt_size_in_bytes(),
        )
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> Slots {
        self.slots
    }

    /// Bytes of the keys and values of one token.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.dims.numel(Slots { rows: 1, room: 1 }) * self.kind().elt_size_in_bytes()
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
        self.slots = Slots::default();
    }

    /// Zeroes the memory too. Needed after numbers that were not finite.
    pub(crate) fn wipe(&mut self) -> Result<()> {
        self.clear();
        let _ = self.storage.f_zero_()?;
        Ok(())
    }

    /// Makes room for `rows` rows of `length` tokens, keeping the first `live` rows, none of which
    /// is longer than `length`.
    pub(crate) fn reserve(&mut self, rows: usize, length: usize, live: usize) -> Result<()> {
        let needed = Slots { rows, room: length };
        if self.slots.cover(needed) {
            return Ok(());
        }
        let grown = self.grown(needed);
        let wishes = [grown.and(self.slots), grown];
        let Some(slots) = self.budget.choose(needed, wishes, self.promised) else {
            return Err(ModelError::shape(format!(
                "{needed:?} exceed {:?}, which were promised",
                self.promised
            )));
        };
        self.layout += 1;
        let (old, before) = (std::mem::take(&mut self.layers), std::mem::take(&mut self.slots));
        let kept = before.room.min(slots.room);
        if self.budget.is_bounded() {
            self.layers = self.dims.views(&self.storage, slots)?;
            if live > 0 {
                shift(&old, &self.layers, live, kept)?;
            }
        } else {
            self.replace(old, slots, live, kept)?;
        }
        self.slots = slots;
        Ok(())
    }

    /// Slots with room to grow.
    fn grown(&self, needed: Slots) -> Slots {
        let most = self.dims.max_context.next_multiple_of(BUCKET);
        Slots {
            rows: grown(needed.rows, self.device()).max(FIRST_ROWS),
            room: grown(needed.room, self.device()).max(FIRST_LENGTH).min(most),
        }
    }

    /// Makes a larger storage, if the old one is too small or in use, and copies the first `length`
    /// tokens of the `live` rows.
    fn replace(&mut self, mut old: Views, slots: Slots, live: usize, length: usize) -> Result<()> {
        let needed = self.dims.numel(slots);
        if live > 0 || needed > self.storage.numel() {
            if live == 0 {
                // Nothing is copied, so the old memory need not exist with the new one.
                old.clear();
                self.storage = Tensor::f_zeros([0], (self.kind(), self.device()))?;
            }
            self.storage = Tensor::f_zeros([needed as i64], (self.storage.kind(), self.storage.device()))?;
        }
        self.layers = self.dims.views(&self.storage, slots)?;
        if live > 0 {
            copy(&old, &self.layers, live, length)?;
        }
        Ok(())
    }

    /// Fills slots `first..` from a prefill: slot `first + i` receives the tokens of prompt
    /// `prompts[i]`, as many as it has room for.
    pub(crate) fn admit(&mut self, first: usize, from: &Prefilled, prompts: &Tensor) -> Result<()> {
        let count = prompts.size1()?;
        for (slot, source) in self.layers.iter().flatten().zip(from.iter().flatten()) {
            let width = source.size()[2].min(self.slots.room as i64);
            let mut target = slot.f_narrow(0, first as i64, count)?.f_narrow(2, 0, width)?;
            target.f_copy_(&source.f_narrow(2, 0, width)?.f_index_select(0, prompts)?)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tiny;

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

    fn row(shape: &ModelShape, tokens: usize) -> RowKv {
        let size = [1, shape.kv_heads, tokens, shape.head_dim].map(|n| n as i64);
        let random = || Tensor::rand(size, (Kind::Float, Device::Cpu));
        RowKv::whole((0..shape.layers).map(|_| [random(), random()]).collect())
    }

    fn same(a: &RowKv, b: &RowKv) -> bool {
        let (a, b) = (a.layers().unwrap(), b.layers().unwrap());
        a.iter().flatten().zip(b.iter().flatten()).all(|(a, b)| a == b)
    }

    #[test]
    fn rows_of_a_bounded_cache_move_inside_its_storage() {
        let shape = ModelShape {
            max_context: 1000,
            ..tiny()
        };
        let per_token = KvCache::new(&shape, Device::Cpu, Kind::Float)
            .unwrap()
            .bytes_per_token();
        let mut cache = KvCache::bounded(&shape, Device::Cpu, Kind::Float, 1024 * per_token).unwrap();
        let (memory, mut rows) = (cache.memory(), Vec::new());
        assert_eq!(memory.1, 1024 * per_token);
        // A new row, the rows to keep, and the slots that are promised and come of it.
        let steps = [
            (20, 0, (1, 64), (8, 64)),
            (60, 1, (2, 64), (8, 64)),
            (100, 2, (3, 192), (8, 128)),
            (130, 3, (4, 192), (5, 192)),
            (9, 4, (5, 192), (5, 192)),
            (500, 1, (2, 512), (2, 512)),
            (1, 1, (2, 64), (2, 512)),
            (2, 2, (3, 64), (8, 64)),
        ];
        for (tokens, live, promised, expected) in steps {
            rows.truncate(live);
            rows.push(row(&shape, tokens));
            let (slots, layout) = (cache.slots(), cache.layout());
            cache.promised = Slots {
                rows: promised.0,
                room: promised.1,
            };
            let longest = rows.iter().map(RowKv::filled).max().unwrap();
            cache.reserve(rows.len(), longest + 1, live).unwrap();
            cache.fill(live, &rows[live]).unwrap();
            assert_eq!((cache.rows(), cache.room()), expected);
            assert_eq!(
                cache.layout() != layout,
                cache.slots() != slots,
                "recorded steps notice a move"
            );
            assert_eq!(cache.memory(), memory);
            for (slot, row) in rows.iter().enumerate() {
                assert!(
                    same(row, &cache.copy(slot, row.filled(), None).unwrap()),
                    "slot {slot} of {expected:?}"
                );
            }
        }
        assert!(cache.reserve(17, 64, 3).is_err(), "17 rows were not promised");
    }
}
