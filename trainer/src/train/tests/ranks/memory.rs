//! The memory that a rank takes when it begins.

use super::*;
use crate::collective::Collective;
use crate::model::ModelShape;

/// Returns a shape with 59 MB of layers, and little else.
fn large() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 512,
        head_dim: 64,
        intermediate: 2048,
        ..shape(false)
    }
}

/// Returns megabytes of this process, by their name in `/proc/self/status`.
fn megabytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() >> 10
}

/// Each of two ranks holds half of the masters, moments and weights: 112 MB. Its half of the
/// gradient and one layer's gradient, 42 MB, must reuse the memory of the whole weights that it
/// read.
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
    // Waits for the other rank: one that ends at once would be lost before the other meets it.
    member.join("end", TIMEOUT).barrier().unwrap();
}
