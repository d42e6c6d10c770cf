use std::sync::mpsc::channel;

use broker::ids::WeightVersion;
use broker::protocol::engine::StateId;
use configs::Dtype;
use proptest::prelude::*;
use tch::{Device, Kind};

mod memory;

use super::*;
use crate::model::{Init, Layout, ParamSource, Weights, kind_of, test_shape};
use crate::weights::{SinkError, WeightSink};
use std::sync::Arc;

fn version(step: u64) -> WeightVersion {
    WeightVersion { lineage: 1, step }
}

fn form(dtype: Dtype, elements: usize) -> Form {
    Form {
        dtype,
        elements,
        model: [7; 32],
    }
}

fn state(dtype: Dtype, step: u64, bytes: Vec<u8>) -> State {
    let width = form(dtype, 1).width();
    State::new(form(dtype, bytes.len() / width), version(step), bytes).unwrap()
}

/// The whole as one message, packed if that pays.
fn full(state: &State) -> Vec<u8> {
    joined(&super::full(state, true))
}

fn joined(parts: &[Part]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.as_ref().to_vec()).collect()
}

/// Applies messages to a state that the test goes on holding.
fn apply(form: &Form, held: Option<&State>, messages: &[u8]) -> Result<State, TransferError> {
    super::apply(form, held.cloned(), messages.to_vec())
}

/// A model before and after a change: all bit patterns including NaNs; nothing, something or
/// everything changed.
fn pair() -> impl Strategy<Value = (State, State)> {
    let dtype = prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)];
    let change = prop_oneof![Just(0u8), Just(3), Just(40), Just(255)];
    (dtype, change, prop::collection::vec(any::<[u8; 9]>(), 0..400)).prop_map(|(dtype, change, elements)| {
        let width = form(dtype, 1).width();
        let old: Vec<u8> = elements.iter().flat_map(|e| e[..width].to_vec()).collect();
        let changed = |e: &[u8; 9]| {
            if e[8] <= change && change > 0 {
                e[4..4 + width].to_vec()
            } else {
                e[..width].to_vec()
            }
        };
        let new = elements.iter().flat_map(changed).collect();
        (state(dtype, 1, old), state(dtype, 2, new))
    })
}

proptest! {
    #[test]
    fn whole_and_delta_lead_to_the_very_bits((old, new) in pair()) {
        let whole = full(&new);
        prop_assert!(whole.len() <= largest(new.form()));
        prop_assert_eq!(&apply(new.form(), None, &whole).unwrap(), &new);
        prop_assert_eq!(&apply(new.form(), Some(&old), &whole).unwrap(), &new);
        let plain = joined(&super::full(&new, false));
        prop_assert_eq!(plain.len(), new.bytes().len() + super::header::LENGTH);
        prop_assert_eq!(&apply(new.form(), Some(&old), &plain).unwrap(), &new);
        if let Some(delta) = delta(&old, &new) {
            prop_assert!(delta.len() <= largest(new.form()));
            prop_assert_eq!(&apply(new.form(), Some(&old), &delta).unwrap(), &new);
        }
    }

    /// Whatever damages the bytes on the way, the result is the exact state or an error.
    #[test]
    fn damage_is_found(
        (old, new) in pair(),
        way in 0..3,
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<bool>(),
    ) {
        let message = match way {
            0 => Some(full(&new)),
            1 => Some(joined(&super::full(&new, false))),
            _ => delta(&old, &new),
        };
        if let Some(mut message) = message {
            let at = at.index(message.len());
            if cut { message.truncate(at) } else { message[at] ^= flip }
            let taken = apply(new.form(), Some(&old), &message);
            if let Ok(taken) = taken {
                prop_assert_eq!(&taken, &new, "values, version and all");
            }
        }
    }
}

/// bf16 values distributed as in weights, and the same values after a step that changes few of
/// them.
fn step_of(values: usize, every: usize) -> (State, State) {
    let old: Vec<u8> = (0..values)
        .flat_map(|i| (0x3c00u16 + (i * 7919 % 900) as u16).to_le_bytes())
        .collect();
    let mut new = old.clone();
    for i in (0..values).step_by(every) {
        new[2 * i] ^= 1;
    }
    (state(Dtype::Bf16, 1, old), state(Dtype::Bf16, 2, new))
}

#[test]
fn a_small_step_is_a_small_message() {
    let (old, new) = step_of(100_000, 50);
    let delta = delta(&old, &new).unwrap();
    assert!(delta.len() < 3 * 2000, "{} bytes for 2000 changes", delta.len());
    let (same, again) = (state(Dtype::Bf16, 1, new.bytes().to_vec()), new);
    assert!(super::delta(&same, &again).unwrap().len() < 200, "nothing has changed");
}

#[test]
fn what_does_not_fit_is_refused_by_its_reason() {
    let (old, new) = step_of(1000, 50);
    let message = delta(&old, &new).unwrap();
    let base = |held: Option<&State>| matches!(apply(new.form(), held, &message), Err(TransferError::Base { .. }));
    assert!(base(None) && base(Some(&new)), "it begins at another version");
    let mut other = old.form().to_owned();
    other.model = [8; 32];
    assert!(matches!(
        apply(&other, Some(&old), &message),
        Err(TransferError::Form { .. })
    ));
    let forged = State::new(*old.form(), version(1), new.bytes().to_vec()).unwrap();
    assert!(
        matches!(
            apply(new.form(), Some(&forged), &message),
            Err(TransferError::Digest { .. })
        ),
        "another base under the same version"
    );
    assert!(matches!(apply(new.form(), None, &[]), Err(TransferError::Short { .. })));
    assert!(matches!(
        apply(new.form(), None, &[0; 200]),
        Err(TransferError::Foreign(_))
    ));
    let mut long = message.clone();
    long[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(
        matches!(apply(new.form(), Some(&old), &long), Err(TransferError::Damaged { .. })),
        "nothing is allocated for what it claims"
    );
}

/// This many states, each with one more element changed.
fn history(steps: u64) -> Vec<State> {
    let mut bytes = vec![0x11; 4000];
    (1..=steps)
        .map(|step| {
            bytes[2 * step as usize] ^= 3;
            state(Dtype::Bf16, step, bytes.clone())
        })
        .collect()
}

fn fetched(shelf: &Shelf, held: Option<&State>) -> (State, bool) {
    let Offer::Messages { parts, delta, .. } = shelf.offer(held.map(State::id), true) else {
        panic!("there is something newer");
    };
    (apply(&form(Dtype::Bf16, 2000), held, &joined(&parts)).unwrap(), delta)
}

#[test]
fn recent_receivers_get_deltas_and_older_ones_the_whole() {
    let (shelf, states) = (Shelf::default(), history(20));
    assert_eq!(shelf.offer(None, true), Offer::Nothing);
    for state in &states {
        assert!(shelf.put(state.clone()));
    }
    let newest = states.last().unwrap();
    assert_eq!(shelf.offer(Some(newest.id()), true), Offer::Same(newest.version()));
    assert_eq!(fetched(&shelf, None), (newest.clone(), false));
    assert_eq!(
        fetched(&shelf, Some(&states[0])),
        (newest.clone(), false),
        "too far behind"
    );
    for held in &states[12..19] {
        assert_eq!(fetched(&shelf, Some(held)), (newest.clone(), true));
    }
    assert!(!shelf.put(states[4].clone()), "late ones are ignored");
    assert!(!shelf.put(newest.clone()), "and repeated ones");
    assert_eq!(fetched(&shelf, Some(&states[18])), (newest.clone(), true));
}

/// A repaired ledger gives a version a second time.
#[test]
fn other_weights_of_the_same_version_get_the_whole() {
    let (shelf, states) = (Shelf::default(), history(3));
    states.iter().for_each(|state| assert!(shelf.put(state.clone())));
    let newest = &states[2];
    for (held, step) in [(&states[0], 3), (&states[2], 2), (&states[2], 9)] {
        let other = State::new(*held.form(), version(step), held.bytes().to_vec()).unwrap();
        assert!(!shelf.knows(other.id()));
        assert_eq!(fetched(&shelf, Some(&other)), (newest.clone(), false));
    }
    assert!(states.iter().all(|state| shelf.knows(state.id())));
    assert_eq!(shelf.offer_counts(), OfferCounts { whole: 3, deltas: 0 });
}

#[test]
fn a_message_under_another_name_is_refused() {
    let (old, new) = step_of(1000, 50);
    for (message, at) in [(full(&new), 20), (delta(&old, &new).unwrap(), 24)] {
        let mut message = message;
        message[at] ^= 1;
        let taken = apply(new.form(), Some(&old), &message);
        assert!(matches!(taken, Err(TransferError::Digest { .. })), "{taken:?}");
    }
}

fn weights() -> Weights {
    let init = Init {
        embedding_std: 1.0,
        matrix_std: 0.2,
    };
    Weights::random(&test_shape(), init, 1).unwrap()
}

fn bytes_of(weights: &Weights, dtype: Dtype) -> Vec<u8> {
    weights
        .bytes(&(0..weights.layout().numel() as i64), kind_of(dtype))
        .unwrap()
}

#[test]
fn a_sink_copies_before_it_returns_and_announces_in_order() {
    let (weights, shelf) = (weights(), Arc::new(Shelf::default()));
    let form = Form::of(weights.layout(), Dtype::Bf16, None);
    let (tell, announced) = channel();
    let announce = Box::new(move |id: StateId| tell.send(id.version).unwrap());
    let mut sink = ShelfSink::start("test", form, shelf.clone(), announce).unwrap();
    let expected = bytes_of(&weights, Dtype::Bf16);
    sink.publish(&weights, version(1)).unwrap();
    // The next step begins at once.
    let _ = weights.flat().shallow_clone().fill_(0.5);
    assert_eq!(announced.recv().unwrap(), version(1));
    let Offer::Messages { parts, .. } = shelf.offer(None, true) else {
        panic!("it is there")
    };
    let first = apply(&form, None, &joined(&parts)).unwrap();
    assert_eq!(first.bytes(), expected);
    for step in [2, 2] {
        sink.publish(&weights, version(step)).unwrap();
        assert_eq!(announced.recv().unwrap(), version(2), "again if it is published again");
    }
    assert!(matches!(
        sink.publish(&weights, version(1)),
        Err(SinkError::Stale { .. })
    ));
    assert_eq!(shelf.newest().unwrap().version, version(2));
}

#[test]
fn bytes_are_weights_again() {
    let weights = weights();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let bytes = bytes_of(&weights, dtype);
        let again = Weights::from_bytes(weights.layout().clone(), dtype, &bytes).unwrap();
        let served = weights.copied_to(Device::Cpu, dtype).unwrap();
        assert_eq!(again.digest().unwrap(), served.digest().unwrap());
        assert!(Weights::from_bytes(weights.layout().clone(), dtype, &bytes[1..]).is_err());
    }
    assert_eq!(weights.kind(), Kind::Float);
}

#[test]
fn models_of_other_parameters_or_base_have_another_form() {
    let layout = Layout::of(&test_shape());
    let wider = Layout::of(&crate::model::ModelShape {
        vocab: test_shape().vocab + 1,
        ..test_shape()
    });
    let of = |layout: &Layout, base: Option<&[u8]>| Form::of(layout, Dtype::F32, base.map(blake3::hash)).model;
    let all = [
        of(&layout, None),
        of(&wider, None),
        of(&layout, Some(b"x")),
        of(&layout, Some(b"y")),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|other| other != one));
    }
}
