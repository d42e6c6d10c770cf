//! Recorded decode steps: a GPU starts all kernels of a step with one call, as a CUDA graph.
//!
//! A step of a small model is some hundred short kernels, and starting each of them takes longer
//! than running it. A graph belongs to a number of rows; a step with fewer rows computes empty ones
//! too. It reads the weights and the cache where they were when it was recorded.

use std::collections::{BTreeMap, BTreeSet};

use tch::{Device, Kind, TchError, Tensor};

use super::buckets::Reading;
use super::kv_cache::{KvCache, grown};
use super::prefixes::Shared;
use super::step_plan::StepPlan;
use crate::model::error::{ModelError, Result};
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

/// Returns the number of rows of all graphs together that an engine comes to record with this many
/// slots. Each graph keeps its logits.
#[must_use]
pub fn recorded_rows(slots: usize) -> usize {
    let numbers: BTreeSet<usize> = (1..=slots).map(|rows| grown(rows, Device::Cuda(0))).collect();
    numbers.into_iter().sum()
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
        let step = Step {
            decoder,
            ids,
            lengths,
            cache,
        };
        let alone = shared.iter().all(Option::is_none);
        match self.gpu(&step).filter(|_| alone).and_then(|gpu| self.graph(gpu, &step)) {
            Some(recorded) => recorded.replay(&step),
            None => decoder.decode(ids, lengths, shared, cache),
        }
    }

    /// The GPU on which steps may be recorded.
    fn gpu(&self, step: &Step<'_>) -> Option<usize> {
        let may = !self.off && !self.short && step.cache.reading == Reading::Ragged && graph::is_there();
        match step.decoder.device() {
            Device::Cuda(gpu) if may && step.ids.len() <= step.cache.rows() => Some(gpu),
            _ => None,
        }
    }

    /// The graph for a step, which is recorded now if steps with as many rows have come often.
    fn graph(&mut self, gpu: usize, step: &Step<'_>) -> Option<&mut Recorded> {
        if self.layout != step.cache.layout() {
            self.clear();
            self.layout = step.cache.layout();
        }
        let rows = step.rows();
        if !self.recorded.contains_key(&rows) {
            let seen = self.seen.entry(rows).or_default();
            *seen += 1;
            if *seen < WORTH {
                return None;
            }
            match self.record(gpu, step) {
                Ok(recorded) => self.recorded.insert(rows, recorded),
                Err(error) => {
                    self.give_up(rows, &error);
                    return None;
                }
            };
        }
        self.recorded.get_mut(&rows)
    }

    fn record(&mut self, gpu: usize, step: &Step<'_>) -> Result<Recorded> {
        let Step { decoder, cache, .. } = *step;
        let inputs = step.inputs()?.f_to_device(decoder.device())?;
        let (tokens, places) = (inputs.f_select(0, 0)?, inputs.f_select(0, 1)?);
        // A table made during the recording would be lost with it.
        decoder.rope.reach(cache.room())?;
        let compute = || -> Result<Tensor> {
            let rope = decoder.rope.rows(&places, cache.room())?;
            decoder.step(&tokens, &rope, &StepPlan::ragged(&places, cache)?, cache)
        };
        let mut logits = None;
        let work = || {
            logits = Some(compute().map_err(|error| TchError::Torch(error.to_string()))?);
            Ok(())
        };
        if self.memory.is_none() {
            self.memory = Some(Memory::new(gpu)?);
        }
        let sibling = self.memory.as_ref().map(|memory| &memory.graph);
        let graph = Graph::record(gpu, sibling, work)?;
        Ok(Recorded {
            graph,
            inputs,
            logits: logits.ok_or_else(|| TchError::Torch("nothing was recorded".into()))?,
            _rope: decoder.rope.shallow_clone(),
        })
    }

    fn give_up(&mut self, rows: usize, error: &ModelError) {
        if error.is_out_of_memory() {
            self.short = true;
            tracing::debug!(%error, rows, "memory is short for a CUDA graph");
        } else {
            self.off = true;
            self.clear();
            tracing::warn!(%error, rows, "decode steps cannot be recorded as CUDA graphs; they run without");
        }
    }
}

impl Recorded {
    fn replay(&mut self, step: &Step<'_>) -> Result<Tensor> {
        self.inputs.f_copy_(&step.inputs()?)?;
        self.graph.replay()?;
        Ok(self.logits.f_narrow(0, 0, step.ids.len() as i64)?)
    }
}

/// A step of rows that share no prompt.
struct Step<'a> {
    decoder: &'a Decoder,
    ids: &'a [i64],
    lengths: &'a [i64],
    cache: &'a KvCache,
}

impl Step<'_> {
    /// The rows of its graph: few numbers, none of them half empty, and no more than the cache has.
    fn rows(&self) -> usize {
        grown(self.ids.len(), Device::Cuda(0)).min(self.cache.rows())
    }

    fn inputs(&self) -> Result<Tensor> {
        inputs(self.rows(), self.ids, self.lengths)
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
    fn graphs_of_256_slots_have_883_rows() {
        assert_eq!([1, 8, 16, 256].map(recorded_rows), [1, 15, 43, 883]);
    }

    #[test]
    fn rows_without_a_token_are_at_place_0() {
        let made = inputs(4, &[7, 8, 9], &[30, 31, 32]).unwrap();
        assert_eq!((made.size(), made.kind()), (vec![2, 4], Kind::Int64));
        let numbers = Vec::<i64>::try_from(made.view([-1])).unwrap();
        assert_eq!(numbers, [7, 8, 9, 0, 30, 31, 32, 0]);
    }
}
