//! The memory that a rank takes when it begins.

use super::*;
use crate::collective::Collective;
use crate::model::ModelShape;

/// Layers of 59 MB in all, and nothing else of weight.
fn large() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 512,
        head_dim: 64,
        intermediate: 2048,
        ..shape(false)
    }
}

/// Megabytes of this process, by their name in the kernel's table.
fn megabytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() >> 10
}

/// The state of two ranks: half of the masters, moments and weights, 112 MB. The half of the
/// gradient and a layer's, 42 MB, take the place of the whole weights that each rank has read.
#[test]
fn whole_weights_are_gone_before_the_gradient_is_there() {
    let Some(member) = Member::here() else {
        return in_ranks(
            "train::tests::ranks::memory::whole_weights_are_gone_before_the_gradient_is_there",
            2,
        );
    };
    let weights = Weights::random(&large(), INIT, 1).unwrap();
    let before = megabytes("VmRSS");
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let group = Box::new(member.join("group", TIMEOUT));
    let trainer = Trainer::in_group(group, large(), None, weights, fully()).unwrap();
    let more = megabytes("VmHWM") - before;
    assert!((100..160).contains(&more), "{more} MB");
    drop(trainer);
    // A rank that leaves at once is gone before the other has met it.
    member.join("end", TIMEOUT).barrier().unwrap();
}
