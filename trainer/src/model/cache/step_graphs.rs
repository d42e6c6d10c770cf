//! Recorded decode steps: a GPU starts all kernels of a step with one call, as a CUDA graph.
//!
//! A step of a small model is some hundred short kernels, and starting each of them takes longer
//! than running it. A graph belongs to a number of rows; a step with fewer rows computes empty ones
//! too. It reads the weights and the cache where they were when it was recorded.

use std::collections::BTreeMap;

use tch::{Device, Kind, TchError, Tensor};

use super::buckets::Reading;
use super::kv_cache::{KvCache, grown};
use super::prefixes::Shared;
use super::step_plan::StepPlan;
use crate::model::error::Result;
use crate::model::forward::{Decoder, RopeTable, to_device};
use crate::shim::graph::{self, Graph};

/// The number of steps with equally many rows after which a step is recorded. Recording takes as
/// long as some steps.
const WORTH: usize = 8;

/// The recorded steps of an engine.
#[derive(Debug, Default)]
pub(crate) struct StepGraphs {
    /// Keeps the memory of graphs for the next ones: libtorch gives back no memory of graphs that
    /// are gone, and uses it again only while another graph shares it.
    memory: Option<Memory>,
    /// By their number of rows.
    recorded: BTreeMap<usize, Recorded>,
    /// How often a step had to run without a graph, by its number of rows. Numbers that came often
    /// are recorded again at once.
    seen: BTreeMap<usize, usize>,
    /// [`KvCache::layout`] of the recorded steps.
    layout: u64,
    /// Set when a step could not be recorded.
    off: bool,
    /// Set when memory was short for a recording, until [`StepGraphs::clear`].
    short: bool,
}

/// A graph that does nothing of use, and the tensor that it changes.
#[derive(Debug)]
struct Memory {
    graph: Graph,
    _changed: Tensor,
}

#[derive(Debug)]
struct Recorded {
    graph: Graph,
    /// `[2, rows]`: the tokens, and their places in the slots.
    inputs: Tensor,
    /// `[rows, vocab]` in f32.
    logits: Tensor,
    /// The graph reads its tables.
    _rope: RopeTable,
}

impl StepGraphs {
    /// Forgets all graphs: call it before the weights or their places change.
    pub(crate) fn clear(&mut self) {
        self.recorded.clear();
        self.short = false;
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.recorded.len()
    }

    /// [`Decoder::decode`], as a graph where that is possible and worth it. The logits are valid
    /// until the next call.
    pub(crate) fn decode(
        &mut self,
        decoder: &Decoder,
        ids: &[i64],
        lengths: &[i64],
        shared: &[Option<Shared>],
        cache: &KvCache,
    ) -> Result<Tensor> {
        let rows = rows_of(ids.len());
        let gpu = match decoder.device() {
            Device::Cuda(gpu) if self.may_record() && cache.reading == Reading::Ragged => gpu,
            _ => return decoder.decode(ids, lengths, shared, cache),
        };
        if rows > cache.rows() || shared.iter().any(Option::is_some) {
            return decoder.decode(ids, lengths, shared, cache);
        }
        if self.layout != cache.layout() {
            self.clear();
            self.layout = cache.layout();
        }
        if !self.recorded.contains_key(&rows) {
            let seen = self.seen.entry(rows).or_default();
            *seen += 1;
            if *seen < WORTH {
                return decoder.decode(ids, lengths, shared, cache);
            }
            match self.record(gpu, rows, decoder, ids, lengths, cache) {
                Ok(recorded) => {
                    self.recorded.insert(rows, recorded);
                }
                Err(error) if error.is_out_of_memory() => {
                    self.short = true;
                    tracing::debug!(%error, rows, "memory is short for a CUDA graph");
                    return decoder.decode(ids, lengths, shared, cache);
                }
                Err(error) => {
                    self.off = true;
                    self.clear();
                    tracing::warn!(%error, rows, "decode steps cannot be recorded as CUDA graphs; they run without");
                    return decoder.decode(ids, lengths, shared, cache);
                }
            }
        }
        let Some(recorded) = self.recorded.get_mut(&rows) else {
            return decoder.decode(ids, lengths, shared, cache);
        };
        recorded.inputs.f_copy_(&inputs(rows, ids, lengths)?)?;
        recorded.graph.replay()?;
        Ok(recorded.logits.f_narrow(0, 0, ids.len() as i64)?)
    }

    fn may_record(&self) -> bool {
        !self.off && !self.short && graph::is_there()
    }

    fn record(
        &mut self,
        gpu: usize,
        rows: usize,
        decoder: &Decoder,
        ids: &[i64],
        lengths: &[i64],
        cache: &KvCache,
    ) -> Result<Recorded> {
        let inputs = inputs(rows, ids, lengths)?.f_to_device(decoder.device())?;
        let (tokens, places) = (inputs.f_select(0, 0)?, inputs.f_select(0, 1)?);
        // A table made during the recording would be lost with it.
        decoder.rope.reach(cache.room())?;
        let mut logits = None;
        let step = || -> std::result::Result<(), TchError> {
            let step = || -> Result<Tensor> {
                let rope = decoder.rope.rows(&places, cache.room())?;
                decoder.step(&tokens, &rope, &StepPlan::ragged(&places, cache)?, cache)
            };
            logits = Some(step().map_err(|error| TchError::Torch(error.to_string()))?);
            Ok(())
        };
        if self.memory.is_none() {
            self.memory = Some(Memory::new(gpu)?);
        }
        let sibling = self.memory.as_ref().map(|memory| &memory.graph);
        let graph = Graph::record(gpu, sibling, step)?;
        Ok(Recorded {
            graph,
            inputs,
            logits: logits.ok_or_else(|| TchError::Torch("nothing was recorded".into()))?,
            _rope: decoder.rope.shallow_clone(),
        })
    }
}

impl Memory {
    fn new(gpu: usize) -> Result<Self> {
        let changed = Tensor::f_zeros([1], (Kind::Float, Device::Cuda(gpu)))?;
        let graph = Graph::record(gpu, None, || changed.shallow_clone().f_add_scalar_(1.0).map(|_| ()))?;
        Ok(Self {
            graph,
            _changed: changed,
        })
    }
}

/// The rows of the graph for a step of `count` rows: few numbers, none of them half empty, and no
/// more than the cache has.
fn rows_of(count: usize) -> usize {
    grown(count, Device::Cuda(0))
}

/// `[2, rows]` in host memory. Rows after the given ones are empty: token 0 at place 0.
fn inputs(rows: usize, ids: &[i64], lengths: &[i64]) -> Result<Tensor> {
    let mut all = vec![0; 2 * rows];
    all[..ids.len()].copy_from_slice(ids);
    all[rows..rows + lengths.len()].copy_from_slice(lengths);
    Ok(to_device(&all, Device::Cpu)?.f_view([2, rows as i64])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_have_few_numbers_of_rows() {
        let rows = [1, 2, 3, 5, 8, 9, 12, 13, 17, 24, 25, 49, 64, 65].map(rows_of);
        assert_eq!(rows, [1, 2, 4, 8, 8, 12, 12, 16, 24, 24, 32, 64, 64, 96]);
    }

    #[test]
    fn rows_without_a_token_are_at_place_0() {
        let made = inputs(4, &[7, 8, 9], &[30, 31, 32]).unwrap();
        assert_eq!((made.size(), made.kind()), (vec![2, 4], Kind::Int64));
        let numbers = Vec::<i64>::try_from(made.view([-1])).unwrap();
        assert_eq!(numbers, [7, 8, 9, 0, 30, 31, 32, 0]);
    }
}
