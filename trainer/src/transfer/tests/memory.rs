//! The memory that a transfer takes, compared with its estimate.

use std::sync::mpsc::Receiver;

use super::*;
use crate::collective::tests::{Member, in_ranks, megabytes, reset_peak};
use crate::model::ModelShape;

/// For blocks, zstd and gaps of the allocator.
const SLACK: u64 = 24;

/// Weights with 118 MB in f32, of which 59 MB are transferred in bf16.
fn large() -> (Weights, Form) {
    let shape = ModelShape {
        layers: 8,
        hidden: 512,
        head_dim: 64,
        intermediate: 2048,
        ..test_shape()
    };
    let weights = Weights::zeros(&shape, Device::Cpu, Kind::Float).unwrap();
    let places = tch::Tensor::arange(weights.layout().numel() as i64, (Kind::Float, Device::Cpu));
    weights.flat().shallow_clone().copy_(&places.sin());
    let form = Form::of(weights.layout(), Dtype::Bf16, None);
    (weights, form)
}

/// Changes one element of 20.
fn change(weights: &Weights) {
    let part = weights.flat().size()[0] / 20;
    let _ = weights.flat().narrow(0, 0, part).g_mul_scalar_(1.01);
}

fn mb(bytes: u64) -> u64 {
    bytes >> 20
}

fn sink(form: Form, shelf: &Arc<Shelf>) -> (ShelfSink, Receiver<StateId>) {
    let (tell, announced) = channel();
    let announce = Box::new(move |id: StateId| tell.send(id).unwrap());
    (
        ShelfSink::start("test", form, shelf.clone(), announce).unwrap(),
        announced,
    )
}

#[test]
fn publishing_agent_takes_the_counted_bytes() {
    let Some(_) = Member::here() else {
        return in_ranks("transfer::tests::memory::publishing_agent_takes_the_counted_bytes", 1);
    };
    let ((weights, form), shelf) = (large(), Arc::new(Shelf::default()));
    let bytes = form.bytes() as u64;
    let (mut sink, announced) = sink(form, &shelf);
    let before = reset_peak();
    for step in 1..6 {
        // The trainer does not wait for the announcement of its last weights.
        sink.publish(&weights, version(step)).unwrap();
        change(&weights);
    }
    let ids: Vec<StateId> = announced.iter().take(5).collect();
    let more = megabytes("VmHWM").saturating_sub(before);
    let from_last = shelf.offer(Some(ids[3]), false);
    assert!(
        matches!(from_last, Offer::Messages { delta: true, .. }),
        "deltas count too"
    );
    assert!(more <= mb(footprint::of_trained(bytes)) + SLACK, "{more} MB");
    assert!(more >= mb(2 * bytes), "{more} MB");
    // A whole state on this host is sent from where it is; for another host it is packed once.
    let before = reset_peak();
    let plain = shelf.offer(None, false);
    assert!(megabytes("VmHWM") <= before + 1);
    assert_ne!(plain, shelf.offer(None, true));
    let more = megabytes("VmHWM").saturating_sub(before);
    assert!(more <= mb(footprint::of_packed(bytes)) + SLACK, "{more} MB");
}

/// In each case the message counts, or the state that the result replaces.
#[test]
fn receiver_takes_the_counted_bytes() {
    let Some(_) = Member::here() else {
        return in_ranks("transfer::tests::memory::receiver_takes_the_counted_bytes", 1);
    };
    let (weights, form) = large();
    let (bytes, layout) = (form.bytes() as u64, weights.layout().clone());
    let made = |step| State::new(form, version(step), bytes_of(&weights, Dtype::Bf16)).unwrap();
    let first = made(1);
    change(&weights);
    let second = made(2);
    let (plain, packed) = (joined(&super::super::full(&first, false)), full(&first));
    let changes = delta(&first, &second).unwrap();
    let wanted = (first.id(), second.id());
    drop((first, second, weights));
    let loaded = |held: Option<State>, message: Vec<u8>, counted: u64| {
        let before = reset_peak();
        let state = super::super::apply(&form, held, message).unwrap();
        let made = Weights::from_bytes(layout.clone(), Dtype::Bf16, state.bytes()).unwrap();
        let more = megabytes("VmHWM").saturating_sub(before);
        let all = mb(counted) + more;
        assert!(all <= mb(footprint::of_receiver(bytes)) + SLACK, "{all} MB");
        drop(made);
        state
    };
    let state = loaded(None, plain, bytes);
    let state = loaded(Some(state), changes, bytes);
    assert_eq!(state.id(), wanted.1);
    drop(state);
    let (length, packed) = (packed.len() as u64, packed);
    assert!(length < bytes);
    assert_eq!(loaded(None, packed, length).id(), wanted.0);
}
