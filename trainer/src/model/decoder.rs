//! The decoder: embedding, layers, final norm, head. Full rows for training and prefill; single tokens against a cache in
//! [`super::cached`].

use tch::{Device, Kind, Tensor};

use super::batch::RowBatch;
use super::error::Result;
use super::layer::{Heads, Layer, linear, rms_norm};
use super::rope::RopeTable;
use super::shape::ModelShape;
use super::weights::Weights;

/// A model bound to a buffer of weights: its tensors are views, so a change of the buffer changes the model.
#[derive(Debug)]
pub struct Decoder {
    pub(super) shape: ModelShape,
    pub(super) embedding: Tensor,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: Tensor,
    head: Tensor,
    pub(super) rope: RopeTable,
}

/// A stretch of the flat buffer that takes part in autograd as one tensor. All leaves together cover the buffer once.
#[derive(Debug)]
pub struct Leaf {
    /// Shares the buffer's storage; its `.grad` is where backward adds up.
    pub tensor: Tensor,
    /// In elements, from the beginning of the buffer.
    pub offset: usize,
    pub numel: usize,
}

/// Makes the model's tensors, as plain views or as leaves of autograd.
struct Binder<'a> {
    weights: &'a Weights,
    leaves: Option<Vec<Leaf>>,
}

impl Binder<'_> {
    fn one(&mut self, name: &str) -> Result<Tensor> {
        let view = self.weights.view(name)?;
        self.bind(name, view)
    }

    fn fused(&mut self, first: &str, last: &str) -> Result<Tensor> {
        let view = self.weights.fused(first, last)?;
        self.bind(first, view)
    }

    fn bind(&mut self, first: &str, view: Tensor) -> Result<Tensor> {
        let Some(leaves) = &mut self.leaves else {
            return Ok(view);
        };
        let offset = self.weights.layout().get(first)?.offset;
        let tensor = view.f_detach()?.f_set_requires_grad(true)?;
        leaves.push(Leaf {
            tensor: tensor.shallow_clone(),
            offset,
            numel: tensor.numel(),
        });
        Ok(tensor)
    }

    fn layer(&mut self, index: usize) -> Result<Layer> {
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        Ok(Layer {
            input_norm: self.one(&name("input_layernorm"))?,
            qkv: self.fused(&name("self_attn.q_proj"), &name("self_attn.v_proj"))?,
            q_norm: self.one(&name("self_attn.q_norm"))?,
            k_norm: self.one(&name("self_attn.k_norm"))?,
            output: self.one(&name("self_attn.o_proj"))?,
            mlp_norm: self.one(&name("post_attention_layernorm"))?,
            gate_up: self.fused(&name("mlp.gate_proj"), &name("mlp.up_proj"))?,
            down: self.one(&name("mlp.down_proj"))?,
        })
    }

    fn decoder(&mut self, shape: &ModelShape, rope: RopeTable) -> Result<Decoder> {
        let embedding = self.one("model.embed_tokens.weight")?;
        let layers = (0..shape.layers).map(|i| self.layer(i)).collect::<Result<Vec<_>>>()?;
        let norm = self.one("model.norm.weight")?;
        let head = if shape.tied {
            embedding.shallow_clone()
        } else {
            self.one("lm_head.weight")?
        };
        Ok(Decoder {
            shape: shape.clone(),
            embedding,
            layers,
            norm,
            head,
            rope,
        })
    }
}

impl Decoder {
    /// Binds a model to weights, for inference. Call its methods without gradients (`tch::no_grad_guard`).
    ///
    /// # Errors
    /// [`super::ModelError::Shape`] when the weights are not of this shape.
    pub fn new(shape: &ModelShape, weights: &Weights) -> Result<Self> {
        let rope = RopeTable::new(shape, weights.device(), weights.kind())?;
        Binder { weights, leaves: None }.decoder(shape, rope)
    }

    /// Binds a model to weights, for training: results carry gradients to the returned leaves, which share the storage of
    /// the buffer and come in its order. After a step that changes the buffer in place (under no_grad), the same decoder
    /// goes on.
    ///
    /// # Errors
    /// [`super::ModelError::Shape`] when the weights are not of this shape.
    pub fn trainable(shape: &ModelShape, weights: &Weights) -> Result<(Self, Vec<Leaf>)> {
        let rope = RopeTable::new(shape, weights.device(), weights.kind())?;
        let mut binder = Binder {
            weights,
            leaves: Some(Vec::new()),
        };
        let decoder = binder.decoder(shape, rope)?;
        Ok((decoder, binder.leaves.unwrap_or_default()))
    }

    /// The same model bound to other weights of the same shape, device and kind; cheap.
    ///
    /// # Errors
    /// [`super::ModelError::Shape`] when the weights are not of this shape.
    pub fn rebound(&self, weights: &Weights) -> Result<Self> {
        Binder { weights, leaves: None }.decoder(&self.shape, self.rope.shallow_clone())
    }

    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    #[must_use]
    pub fn device(&self) -> Device {
        self.embedding.device()
    }

    /// The head's matrix, `[vocab, hidden]`: the embedding when tied.
    pub fn head_weight(&self) -> &Tensor {
        &self.head
    }

    /// Last hidden states after the final norm, packed: `[batch.tokens(), hidden]`.
    ///
    /// # Errors
    /// [`super::ModelError::Torch`].
    pub fn hidden(&self, batch: &RowBatch) -> Result<Tensor> {
        let states = self.run(batch, |_, _, _| Ok(()))?;
        rms_norm(&states, &self.norm, self.shape.rms_eps)
    }

    /// Hidden states before the final norm, packed; gives `keep` each layer's padded keys and values,
    /// `[rows, kv_heads, width, head_dim]`.
    pub(super) fn run(
        &self,
        batch: &RowBatch,
        mut keep: impl FnMut(usize, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let rope = self.rope.rows(&batch.positions)?;
        let mut x = Tensor::f_embedding(&self.embedding, &batch.ids, -1, false, false)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&self.shape, &x, &rope, |heads| {
                let (attended, k, v) = self.causal(&heads, batch)?;
                keep(index, &k, &v)?;
                Ok(attended)
            })?;
        }
        Ok(x)
    }

    /// Causal attention within each row; also the padded keys and values.
    fn causal(&self, heads: &Heads, batch: &RowBatch) -> Result<(Tensor, Tensor, Tensor)> {
        let dim = self.shape.head_dim as i64;
        let (rows, width) = (batch.rows as i64, batch.width as i64);
        let by_row = |packed: &Tensor| -> Result<Tensor> {
            let padded = match &batch.padding {
                Some(padding) => packed.f_index_select(0, &padding.to_padded)?,
                None => packed.shallow_clone(),
            };
            let count = padded.size()[1];
            Ok(padded.f_view([rows, width, count, dim])?.f_transpose(1, 2)?)
        };
        let (q, k, v) = (by_row(&heads.q)?, by_row(&heads.k)?, by_row(&heads.v)?);
        let grouped = self.shape.group() > 1;
        let out = Tensor::f_scaled_dot_product_attention(&q, &k, &v, None::<Tensor>, 0.0, width > 1, None, grouped)?;
        let flat = out
            .f_transpose(1, 2)?
            .f_reshape([rows * width, self.shape.heads as i64 * dim])?;
        let packed = match &batch.padding {
            Some(padding) => flat.f_index_select(0, &padding.to_packed)?,
            None => flat,
        };
        Ok((packed, k, v))
    }

    /// Logits in f32, `[n, vocab]`, of hidden states `[n, hidden]` as [`Self::hidden`] gives them.
    ///
    /// # Errors
    /// [`super::ModelError::Torch`].
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        Ok(linear(hidden, &self.head)?.f_to_kind(Kind::Float)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::tests::tiny;
    use super::super::weights::Init;
    use super::*;

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
            .map(|r| hidden.narrow(0, batch.start(r) as i64, batch.len_of(r) as i64))
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
