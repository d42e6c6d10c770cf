//! One trainer of several ranks, each a process of its own.

mod checkpoints;
mod held;
mod kills;
mod memory;
mod moved;
mod parity;
mod progress;
mod published;
mod reference;
mod together;

use std::time::Duration;

use configs::{Dtype, Shard};

use crate::collective::tests::{Member, in_ranks};
use crate::device::of_tests;
use crate::model::{Module, Weights};
use crate::train::tests::parity_lora::{INIT, lora};
use crate::train::tests::{defaults, shape};
use crate::train::{Trainer, TrainerOptions};

/// Small enough that each batch has several micro-batches.
const BUDGET: usize = 13;

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The kind of weights that a test trains.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trains {
    Whole,
    Adapter,
}

const BOTH: [Trains; 2] = [Trains::Whole, Trains::Adapter];

fn options(sharded: bool) -> TrainerOptions {
    TrainerOptions {
        micro_batch_tokens: BUDGET,
        shard: if sharded { Shard::Optimizer } else { Shard::None },
        ..defaults()
    }
}

/// Splits the gradient too.
fn by_gradient() -> TrainerOptions {
    TrainerOptions {
        shard: Shard::Gradient,
        checkpoint_activations: true,
        ..options(true)
    }
}

/// Splits the weights too.
fn fully() -> TrainerOptions {
    TrainerOptions {
        shard: Shard::Full,
        ..by_gradient()
    }
}

fn weights(trains: Trains, dtype: Dtype) -> (Option<Weights>, Weights) {
    let whole = Weights::random(&shape(false), INIT, 1).unwrap();
    match trains {
        Trains::Whole => (None, whole),
        Trains::Adapter => {
            let adapter = Weights::adapter(&shape(false), &lora(&Module::ALL), 5).unwrap();
            // B begins at 0, where A has no gradient.
            let _ = adapter.flat().shallow_clone().g_add_(&(adapter.flat().cos() * 0.05));
            (Some(whole.copied_to(of_tests(), dtype).unwrap()), adapter)
        }
    }
}

/// The trainer of one rank alone.
fn alone(trains: Trains, options: TrainerOptions) -> Trainer {
    match weights(trains, options.dtype) {
        (Some(base), adapter) => Trainer::with_base(shape(false), base, adapter, options).unwrap(),
        (None, whole) => Trainer::new(shape(false), whole, options).unwrap(),
    }
}

/// This process's rank of a trainer. The name is that of its group.
fn rank_of(member: &Member, name: &str, trains: Trains, options: TrainerOptions) -> Trainer {
    let group = Box::new(member.join(name, TIMEOUT));
    let (base, weights) = weights(trains, options.dtype);
    Trainer::in_group(group, shape(false), base, weights, options).unwrap()
}

/// Gives rank 0's trainer to `drive`, and lets the other ranks serve it meanwhile.
fn drive(member: &Member, trainer: &mut Trainer, drive: impl FnOnce(&mut Trainer)) {
    if member.rank > 0 {
        return trainer.serve().unwrap();
    }
    drive(trainer);
    trainer.end().unwrap();
}
