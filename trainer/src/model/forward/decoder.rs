//! The decoder: embedding, layers, final norm, head. It computes whole rows for training and
//! prefill. `model::cache` computes single tokens with a cache.

use tch::{Device, Kind, Tensor};

use super::binder::{Binder, Bound, Leaf};
use super::head::Head;
use super::kernel_layer::norm_by_kernels;
use super::layer::{Layer, rms_norm};
use super::parts::Parts;
use super::rope_table::{RopeRows, RopeTable};
use super::row_batch::{FamilyHeads, RowBatch, Stretches};
use super::trunk::Fetch;
use crate::loss::head::HeadAdapter;
use crate::model::error::Result;
use crate::model::shape::ModelShape;

/// A model bound to a buffer of weights. Its tensors are views, so changing the buffer changes the
/// model.
#[derive(Debug)]
pub struct Decoder {
    pub(in crate::model) shape: ModelShape,
    pub(in crate::model) embedding: Tensor,
    pub(in crate::model) layers: Vec<Layer>,
    pub(in crate::model) norm: Tensor,
    pub(in crate::model) head: Head,
    pub(in crate::model) rope: RopeTable,
    pub(super) fetch: Option<Fetch>,
}

impl Decoder {
    /// Binds a model to weights, for inference. Call its methods without gradients
    /// (`tch::no_grad_guard`).
    ///
    /// # Errors
    /// [`crate::model::ModelError::Shape`] when the weights do not have this shape.
    pub fn new<'a>(shape: &ModelShape, weights: impl Into<Parts<'a>>) -> Result<Self> {
        let parts = weights.into();
        let rope = RopeTable::new(shape, parts.base.device(), parts.base.kind())?;
        Ok(Self::of(shape, rope, Binder::inference(parts).bind_all(shape)?))
    }

    /// Binds a model to weights, for training. Results carry gradients to the returned leaves,
    /// which share the storage of the buffer and are in its order. With an adapter, the leaves
    /// belong to the adapter's buffer, and the base is frozen. After a step that changes the buffer
    /// in place (under no_grad), call [`Self::follow`] and continue with the same decoder.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Shape`] when the weights do not have this shape.
    pub fn trainable<'a>(shape: &ModelShape, weights: impl Into<Parts<'a>>) -> Result<(Self, Vec<Leaf>)> {
        let parts = weights.into();
        let rope = RopeTable::new(shape, parts.base.device(), parts.base.kind())?;
        let mut binder = Binder::training(parts);
        let decoder = Self::of(shape, rope, binder.bind_all(shape)?);
        Ok((decoder, binder.into_leaves()))
    }

    /// Binds the same model to other weights of the same shape, device and kind; cheap. Two
    /// decoders over one frozen base share one f32 copy of its head.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Shape`] when the weights do not have this shape.
    pub fn rebound<'a>(&self, weights: impl Into<Parts<'a>>) -> Result<Self> {
        let bound = Binder::again(weights.into(), &self.head).bind_all(&self.shape)?;
        Ok(Self::of(&self.shape, self.rope.shallow_clone(), bound))
    }

    fn of(shape: &ModelShape, rope: RopeTable, bound: Bound) -> Self {
        Self {
            shape: shape.clone(),
            embedding: bound.embedding,
            layers: bound.layers,
            norm: bound.norm,
            head: bound.head,
            rope,
            fetch: None,
        }
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    #[must_use]
    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// The kind of the weights, of attention and of the cache.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.embedding.kind()
    }

    /// The head's matrix, `[vocab, hidden]`, without an adapter's change. It is f32, or bf16 if no
    /// f32 copy is needed: on a GPU that multiplies with f32 sums, and in an engine's order. It is
    /// the embedding when tied.
    pub fn head_weight(&self) -> &Tensor {
        self.head.matrix()
    }

    /// The adapter's change to the head, in f32.
    pub(crate) fn head_adapter(&self) -> Option<HeadAdapter<'_>> {
        let delta = self.head.delta()?;
        let part = delta.parts.first()?;
        Some(HeadAdapter {
            a: &part.a,
            b: &part.b,
            scale: delta.scale,
        })
    }

    /// Updates copies that are derived from the weights. Call it after the weights change.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Torch`].
    pub fn follow(&mut self) -> Result<()> {
        self.head.follow()
    }

    /// Last hidden states after the final norm, packed, in f32: `[batch.tokens(), hidden]`.
    ///
    /// # Errors
    /// [`crate::model::ModelError::Torch`].
    pub fn hidden(&self, batch: &RowBatch) -> Result<Tensor> {
        let states = self.run(batch, |_, _| Ok(()))?;
        Ok(rms_norm(&states, &self.norm, self.shape.rms_eps)?.f_to_kind(Kind::Float)?)
    }

    /// Hidden states before the final norm, packed. `keep` receives the padded keys and values of
    /// each layer's families, `[rows, kv_heads, width, head_dim]`.
    pub(in crate::model) fn run(
        &self,
        batch: &RowBatch,
        mut keep: impl FnMut(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let rope = self.rope.rows(&batch.positions, batch.longest)?;
        let mut x = Tensor::f_embedding(&self.embedding, &batch.ids, -1, false, false)?;
        for (index, layer) in self.layers.iter().enumerate() {
            self.fetch(index);
            x = self.layer(layer, batch, &rope, &x, &mut keep)?;
        }
        Ok(x)
    }

    /// Computes a layer over a batch in which each token sees its row up to itself.
    pub(in crate::model) fn layer(
        &self,
        layer: &Layer,
        batch: &RowBatch,
        rope: &RopeRows,
        x: &Tensor,
        keep: &mut impl FnMut(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        layer.forward(&self.shape, x, rope, |heads| {
            let families = batch.split(&heads)?;
            let attended = families
                .each()
                .map(|own| self.causal(&families, own, &batch.families[own], keep));
            let attended = attended.collect::<Result<Vec<_>>>()?;
            match attended.as_slice() {
                [alone] => Ok(alone.shallow_clone()),
                several => Ok(Tensor::f_cat(several, 0)?),
            }
        })
    }

    /// Causal attention of a family's tokens within their rows, and over the shared beginning.
    fn causal(
        &self,
        heads: &FamilyHeads,
        own: usize,
        family: &Stretches,
        keep: &mut impl FnMut(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let (count, dim) = (self.shape.heads as i64, self.shape.head_dim as i64);
        let (rows, width) = (family.rows as i64, family.width as i64);
        let by_row = |packed: &Tensor| -> Result<Tensor> {
            let padded = match &family.padding {
                Some(padding) => packed.f_index_select(0, &padding.to_padded)?,
                None => packed.shallow_clone(),
            };
            let count = padded.size()[1];
            Ok(padded.f_view([rows, width, count, dim])?.f_transpose(1, 2)?)
        };
        let (q, k, v) = (by_row(&heads.q[own])?, by_row(&heads.k[own])?, by_row(&heads.v[own])?);
        keep(&k, &v)?;
        let out = match &family.behind {
            None => {
                let grouped = self.shape.group() > 1;
                Tensor::f_scaled_dot_product_attention(&q, &k, &v, None::<&Tensor>, 0.0, width > 1, None, grouped)?
            }
            Some(behind) => {
                let (k, v) = (behind.before(&heads.k, &k)?, behind.before(&heads.v, &v)?);
                // Queries of one key head are placed like queries of one row: on CUDA, no
                // memory-efficient kernel takes both a mask and groups.
                let folded = q.f_reshape([rows, self.shape.kv_heads as i64, -1, dim])?;
                let mask = behind.mask.as_ref();
                Tensor::f_scaled_dot_product_attention(&folded, &k, &v, mask, 0.0, false, None, false)?
                    .f_reshape([rows, count, width, dim])?
            }
        };
        let flat = out.f_transpose(1, 2)?.f_reshape([rows * width, count * dim])?;
        Ok(match &family.padding {
            Some(padding) => flat.f_index_select(0, &padding.to_packed)?,
            None => flat,
        })
    }

    /// Logits, `[n, vocab]` in f32, of hidden states `[n, hidden]` from [`Self::hidden`].
    ///
    /// # Errors
    /// [`crate::model::ModelError::Torch`].
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.head.forward(hidden)
    }

    /// Logits, `[n, vocab]` in f32, of states `[n, hidden]` before the final norm.
    pub(in crate::model) fn next_logits(&self, states: &Tensor) -> Result<Tensor> {
        let normed = if self.head.is_in_order() {
            norm_by_kernels(states, &self.norm, self.shape.rms_eps)?
        } else {
            rms_norm(states, &self.norm, self.shape.rms_eps)?
        };
        self.logits(&normed.f_to_kind(Kind::Float)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::shape::tiny;
    use crate::model::weights::{Init, Weights};

    fn model(shape: &ModelShape) -> (Weights, Decoder) {
        let weights = Weights::random(
            shape,
            Init {
                embedding_std: 1.0,
                matrix_std: 0.2,
            },
            3,
        )
        .unwrap();
        let decoder = Decoder::new(shape, &weights).unwrap();
        (weights, decoder)
    }

    fn hidden_of(decoder: &Decoder, rows: &[&[u32]]) -> Vec<Tensor> {
        let batch = RowBatch::new(decoder.shape(), rows, Device::Cpu).unwrap();
        let hidden = decoder.hidden(&batch).unwrap();
        assert_eq!(hidden.size(), [batch.tokens() as i64, decoder.shape().hidden as i64]);
        (0..batch.rows())
            .map(|r| hidden.narrow(0, batch.place(r, 0) as i64, batch.len_of(r) as i64))
            .collect()
    }

    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn ragged_rows_equal_rows_alone_and_no_token_sees_its_future() {
        let _guard = tch::no_grad_guard();
        let (_, decoder) = model(&tiny());
        let rows: [&[u32]; 3] = [&[3, 9, 22, 7, 5], &[3, 9], &[31]];
        let together = hidden_of(&decoder, &rows);
        for (row, joint) in rows.iter().zip(&together) {
            let alone = hidden_of(&decoder, &[row]).remove(0);
            assert!(distance(&alone, joint) < 1e-5);
        }
        let start = together[0].narrow(0, 0, 2);
        assert!(
            distance(&start, &together[1]) < 1e-5,
            "a row's beginning does not depend on what follows"
        );
        let other = hidden_of(&decoder, &[&[9, 3]]).remove(0);
        assert!(distance(&other, &together[1]) > 1e-2, "order matters");
    }

    #[test]
    fn leaves_cover_the_buffer_and_gather_its_gradient() {
        let shape = tiny();
        let (weights, plain) = model(&shape);
        let (decoder, leaves) = Decoder::trainable(&shape, &weights).unwrap();
        let mut next = 0;
        for leaf in &leaves {
            assert_eq!(leaf.offset, next);
            next += leaf.numel;
        }
        assert_eq!(next, weights.layout().numel());
        let batch = RowBatch::new(&shape, &[vec![3u32, 9, 22], vec![5]], Device::Cpu).unwrap();
        let loss = |decoder: &Decoder| {
            decoder
                .logits(&decoder.hidden(&batch).unwrap())
                .unwrap()
                .square()
                .sum(Kind::Float)
        };
        loss(&decoder).backward();
        // A directional derivative, by central differences along the gradient.
        let gradient = Tensor::cat(
            &leaves
                .iter()
                .map(|leaf| leaf.tensor.grad().view([-1]))
                .collect::<Vec<_>>(),
            0,
        );
        let norm = gradient.norm().double_value(&[]);
        let _guard = tch::no_grad_guard();
        let mut flat = weights.flat().shallow_clone();
        let step = 1e-3 / norm;
        let mut at = |amount: f64| {
            let _ = flat.g_add_(&(&gradient * amount));
            loss(&plain).double_value(&[])
        };
        let (up, down) = (at(step), at(-2.0 * step));
        let slope = (up - down) / (2.0 * step * norm);
        assert!((slope / norm - 1.0).abs() < 1e-2, "slope {slope}, norm {norm}");
    }

    /// Turns of two conversations about one prompt, and an unrelated row. States and gradients
    /// equal those of separate rows.
    #[test]
    fn shared_beginnings_give_the_same_states_and_gradients() {
        let shape = tiny();
        let (weights, _) = model(&shape);
        let (decoder, leaves) = Decoder::trainable(&shape, &weights).unwrap();
        let head = weights.layout().get("lm_head.weight").unwrap().offset;
        let stretch = |seed: u32, count: u32| {
            (0..count)
                .map(|i| (seed * 7 + i * 5 + i * i) % 40)
                .collect::<Vec<u32>>()
        };
        let prompt = stretch(1, 30);
        let turn = [prompt.clone(), stretch(2, 20)].concat();
        let rows = [
            [prompt.clone(), stretch(3, 9)].concat(),
            turn.clone(),
            [turn.clone(), stretch(4, 17)].concat(),
            stretch(5, 12),
            [turn, stretch(6, 1)].concat(),
            [prompt, stretch(7, 5)].concat(),
        ];
        let apart = RowBatch::new(&shape, &rows, Device::Cpu).unwrap();
        let once = RowBatch::sharing(&shape, &rows, Device::Cpu, Kind::Float).unwrap();
        assert_eq!(apart.tokens() - once.tokens(), 4 * 30 + 2 * 20);
        let run = |batch: &RowBatch| {
            let places = |r: usize| (0..rows[r].len()).map(move |i| batch.place(r, i) as i64);
            let places: Vec<i64> = (0..rows.len()).flat_map(places).collect();
            let states = decoder
                .hidden(batch)
                .unwrap()
                .index_select(0, &Tensor::from_slice(&places));
            // Every state counts, each with its own weight.
            let weights = Tensor::arange(states.numel() as i64, (Kind::Float, Device::Cpu))
                .sin()
                .view_as(&states);
            let scalar = (&states * weights).sum(Kind::Float);
            let trunk = leaves.iter().filter(|leaf| leaf.offset != head);
            let leaves: Vec<&Tensor> = trunk.map(|leaf| &leaf.tensor).collect();
            (states.detach(), Tensor::run_backward(&[scalar], &leaves, false, false))
        };
        let ((states, gradients), (expected, wanted)) = (run(&once), run(&apart));
        assert!(distance(&states, &expected) < 1e-5);
        for (gradient, wanted) in gradients.iter().zip(&wanted) {
            let norm = wanted.norm().double_value(&[]);
            assert!((gradient - wanted).norm().double_value(&[]) < 1e-5 * norm, "of {norm}");
        }
    }

    #[test]
    fn a_tied_head_is_the_embedding() {
        let shape = ModelShape { tied: true, ..tiny() };
        let (weights, decoder) = model(&shape);
        assert_eq!(
            decoder.head_weight().data_ptr(),
            weights.view("model.embed_tokens.weight").unwrap().data_ptr()
        );
    }
}
