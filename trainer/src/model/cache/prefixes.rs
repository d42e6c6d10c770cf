//! Prompts that several rows share. Their keys and values are stored once, and all rows attend over
//! them together.
//!
//! Attention over a prompt and over a row's own tokens are two softmaxes that merge exactly. With
//! outputs `o1, o2` and log-sum-exps `l1, l2`, the whole is `w o1 + (1 - w) o2`,
//! `w = sigmoid(l1 - l2)` (the merge of FlashAttention, Dao et al., arXiv:2205.14135; for shared
//! prefixes Juravsky et al., "Hydragen", arXiv:2402.05099). The queries of all rows of a group are
//! placed like several queries of one row, so that a step reads the prompt once instead of once per
//! row.

use tch::{Device, Tensor};

use super::attention::Way;
use super::row_kv::{Prefilled, RowKv};
use crate::model::error::{ModelError, Result};
use crate::model::forward::to_device;

/// The number of saved tokens from which a GPU shares a prompt. At 4 KiB per token and layer, this
/// saves 64 MiB of memory, and of reads in each step, in each layer.
const SPARED: usize = 16 << 10;

/// Keys and values of shared prompts, each as long as its rows need it.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    slots: Vec<Option<Prefix>>,
}

#[derive(Debug)]
struct Prefix {
    /// Per layer: keys, values, `[1, kv_heads, length, head_dim]`.
    layers: Vec<[Tensor; 2]>,
    users: usize,
}

/// The slot and length of a row's shared prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    slot: usize,
    pub(crate) length: usize,
}

impl Prefixes {
    /// Keeps the first `length` tokens of prompt `index` of a prefill for `users` rows.
    pub(crate) fn keep(&mut self, from: &Prefilled, index: usize, length: usize, users: usize) -> Result<Shared> {
        let take = |source: &Tensor| -> Result<Tensor> {
            let part = source.f_narrow(0, index as i64, 1)?.f_narrow(2, 0, length as i64)?;
            Ok(part.f_contiguous()?)
        };
        let layers = from
            .iter()
            .map(|[k, v]| Ok([take(k)?, take(v)?]))
            .collect::<Result<_>>()?;
        Ok(self.place(layers, length, users))
    }

    /// Keeps a separately computed prompt for `users` rows.
    pub(crate) fn adopt(&mut self, from: &RowKv, users: usize) -> Result<Shared> {
        let whole = |all: &Tensor| -> Result<Tensor> { Ok(all.f_contiguous()?) };
        let layers = from
            .layers()?
            .iter()
            .map(|[k, v]| Ok([whole(k)?, whole(v)?]))
            .collect::<Result<_>>()?;
        Ok(self.place(layers, from.filled(), users))
    }

    fn place(&mut self, layers: Vec<[Tensor; 2]>, length: usize, users: usize) -> Shared {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Prefix { layers, users });
        Shared { slot, length }
    }

    /// Records that one row no longer needs the prompt.
    pub(crate) fn release(&mut self, shared: Shared) {
        let slot = &mut self.slots[shared.slot];
        if let Some(prefix) = slot {
            prefix.users -= 1;
            if prefix.users == 0 {
                *slot = None;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Keys and values of a shared prompt, `[1, kv_heads, length, head_dim]`.
    pub(in crate::model) fn layer(&self, shared: Shared, layer: usize) -> Result<&[Tensor; 2]> {
        self.in_slot(shared.slot, layer)
    }

    fn in_slot(&self, slot: usize, layer: usize) -> Result<&[Tensor; 2]> {
        let prefix = self.slots.get(slot).and_then(Option::as_ref);
        prefix
            .and_then(|prefix| prefix.layers.get(layer))
            .ok_or_else(|| ModelError::shape("a shared prompt was released already"))
    }

    /// Returns true if sharing is worth its extra calls in every layer. A CPU hardly notices these
    /// calls. A GPU reads many copies of a short prompt in the same time, so it shares only if the
    /// copies would take much of its memory.
    pub(crate) fn pay(members: usize, length: usize, device: Device) -> bool {
        let spared = members.saturating_sub(1).saturating_mul(length);
        let enough = match device {
            Device::Cpu => length >= 48,
            _ => spared >= SPARED,
        };
        members >= 4 && enough
    }
}

/// The prompts that the rows of a step share.
#[derive(Debug)]
pub(super) struct SharedPlan {
    way: Way,
    groups: Vec<Group>,
    /// The sharing rows, group by group. `None` if these are all rows in their order.
    order: Option<Tensor>,
}

#[derive(Debug)]
struct Group {
    slot: usize,
    members: i64,
}

impl SharedPlan {
    /// Plans a step. Returns `None` if no row shares a prompt.
    pub(in crate::model) fn new(rows: &[Option<Shared>], device: Device, way: Way) -> Result<Option<Self>> {
        let slot = |row: &i64| rows[*row as usize].map(|shared| shared.slot);
        let mut order: Vec<i64> = (0..rows.len() as i64).filter(|row| slot(row).is_some()).collect();
        if order.is_empty() {
            return Ok(None);
        }
        order.sort_by_key(slot);
        let mut groups: Vec<Group> = Vec::new();
        for slot in order.iter().filter_map(slot) {
            match groups.last_mut() {
                Some(group) if group.slot == slot => group.members += 1,
                _ => groups.push(Group { slot, members: 1 }),
            }
        }
        let in_order = order.len() == rows.len() && order.is_sorted();
        Ok(Some(Self {
            way,
            groups,
            order: if in_order {
                None
            } else {
                Some(to_device(&order, device)?)
            },
        }))
    }

    /// Adds the prompts to attention over the rows' own tokens. `q` and `own` are
    /// `[rows, kv_heads, group, head_dim]`, `own_lse` is `[rows, kv_heads, group]`.
    pub(in crate::model) fn merge(
        &self,
        prefixes: &Prefixes,
        layer: usize,
        q: &Tensor,
        own: Tensor,
        own_lse: &Tensor,
    ) -> Result<Tensor> {
        let pick = |all: &Tensor| match &self.order {
            Some(order) => all.f_index_select(0, order),
            None => Ok(all.shallow_clone()),
        };
        let q = pick(q)?;
        let (_, heads, group, dim) = q.size4()?;
        let (mut outs, mut sums, mut start) = (Vec::new(), Vec::new(), 0);
        for Group { slot, members } in &self.groups {
            let [keys, values] = prefixes.in_slot(*slot, layer)?;
            let together =
                q.f_narrow(0, start, *members)?
                    .f_transpose(0, 1)?
                    .f_reshape([1, heads, members * group, dim])?;
            let (out, lse) = self.way.attend(&together, keys, values, None)?;
            outs.push(out.f_reshape([heads, *members, group, dim])?.f_transpose(0, 1)?);
            sums.push(lse.f_reshape([heads, *members, group])?.f_transpose(0, 1)?);
            start += members;
        }
        let (out, lse) = (Tensor::f_cat(&outs, 0)?, Tensor::f_cat(&sums, 0)?);
        let weight = lse.f_sub(&pick(own_lse)?)?.f_sigmoid()?.f_unsqueeze(-1)?;
        let merged = pick(&own)?.f_lerp_tensor(&out, &weight.f_to_kind(out.kind())?)?;
        match &self.order {
            Some(order) => Ok(own.f_index_copy(0, order, &merged)?),
            None => Ok(merged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn values(size: &[i64], salt: f64) -> Tensor {
        let count: i64 = size.iter().product();
        ((Tensor::arange(count, (Kind::Float, Device::Cpu)) * 0.73 + salt).sin() * 1.7).view(size)
    }

    #[test]
    fn merged_attention_is_attention_over_both() {
        // Rows 1, 2, 4 share one prompt, row 0 has another, row 3 none. Then all rows share one
        // prompt, in order.
        let mut kept = Prefixes::default();
        let mut prompt = |length: i64, salt: f64| {
            let layer = [values(&[1, 2, length, 4], salt), values(&[1, 2, length, 4], salt + 0.5)];
            Some(kept.keep(&vec![layer], 0, length as usize, 5).unwrap())
        };
        let (one, other) = (prompt(7, 0.1), prompt(3, 0.2));
        let layouts = [vec![other, one, one, None, one], vec![one; 5]];
        for (rows, way) in layouts
            .iter()
            .flat_map(|rows| [(rows, Way::Kernels), (rows, Way::Plain)])
        {
            let plan = SharedPlan::new(rows, Device::Cpu, way).unwrap().unwrap();
            let (q, k, v) = (
                values(&[5, 2, 3, 4], 0.3),
                values(&[5, 2, 6, 4], 0.4),
                values(&[5, 2, 6, 4], 0.6),
            );
            let (own, lse) = way.attend(&q, &k, &v, None).unwrap();
            let got = plan.merge(&kept, 0, &q, own, &lse).unwrap();
            for (row, shared) in rows.iter().enumerate() {
                let of = |t: &Tensor| t.narrow(0, row as i64, 1);
                let (keys, values) = match shared {
                    Some(shared) => {
                        let [pk, pv] = kept.layer(*shared, 0).unwrap();
                        (Tensor::cat(&[pk, &of(&k)], 2), Tensor::cat(&[pv, &of(&v)], 2))
                    }
                    None => (of(&k), of(&v)),
                };
                let weights = (of(&q).matmul(&keys.transpose(-1, -2)) / 2.0).softmax(-1, Kind::Float);
                let gap = (weights.matmul(&values) - of(&got)).abs().max().double_value(&[]);
                assert!(gap < 2e-6, "{way:?}, row {row}: {gap}");
            }
        }
        let none = SharedPlan::new(&[None, None], Device::Cpu, Way::Kernels);
        assert!(none.unwrap().is_none());
    }

    #[test]
    fn a_gpu_shares_long_prompts_of_many() {
        let cpu = |members, length| Prefixes::pay(members, length, Device::Cpu);
        assert!(cpu(4, 48) && !cpu(3, 9999) && !cpu(64, 47));
        let gpu = |members, length| Prefixes::pay(members, length, Device::Cuda(0));
        assert!(gpu(16, 1093) && !gpu(16, 1092) && gpu(4, 5462) && !gpu(3, 1 << 20) && !gpu(0, 1));
    }

    #[test]
    fn a_prompt_goes_with_its_last_row() {
        let mut kept = Prefixes::default();
        let mut keep = |users| {
            kept.keep(
                &vec![[values(&[1, 2, 5, 4], 0.1), values(&[1, 2, 5, 4], 0.2)]],
                0,
                4,
                users,
            )
        };
        let (first, second) = (keep(2).unwrap(), keep(1).unwrap());
        assert_ne!(first.slot, second.slot);
        kept.release(first);
        assert!(kept.layer(first, 0).is_ok());
        kept.release(first);
        assert!(kept.layer(first, 0).is_err() && kept.layer(second, 0).is_ok());
    }
}
