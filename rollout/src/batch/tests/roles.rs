//! Two agents that play roles of the same conversations. Each has figures and batches of its own.

use super::*;

#[test]
fn staleness_is_reported_by_role() {
    let mut config = config(1);
    config.max_staleness = 2;
    let doctor = [spanned(turn("doctor", &[5, 6]), &[1, 2]), turn("doctor", &[8])];
    let patient = [turn("patient", &[7]), spanned(turn("patient", &[9]), &[1])];
    let samples = |member: u16, reward: f32| {
        let at = usize::from(member);
        [("doctor", &doctor[at]), ("patient", &patient[at])]
            .map(|(role, turn)| sample(member, role, reward, std::slice::from_ref(turn)))
    };
    let group = bundle(0, [samples(0, 1.0), samples(1, 0.0)].concat());
    let stats = formed(&[group], &context(&config)).stats;
    let of = |found: &Staleness| (found.mean.get(), found.max, found.histogram.clone());
    assert_eq!(of(&stats.by_role["doctor"].staleness), (Some(1.0), 2, vec![1, 0, 1]));
    assert_eq!(of(&stats.by_role["patient"].staleness), (Some(0.5), 1, vec![1, 1]));
    assert_eq!(of(&stats.staleness), (Some(0.75), 2, vec![2, 1, 1]));
}

/// Returns four groups of two conversations, as seen by the agent of one role.
fn side(role: &str) -> Vec<Bundle> {
    let group = |order: u64| {
        let one = |member: u16| {
            let ids = [10 * order as u32 + u32::from(member) + 20, 9];
            sample(member, role, f32::from(member), &[turn(role, &ids)])
        };
        bundle(order, (0..2).map(one).collect())
    };
    (0..4).map(group).collect()
}

/// Returns the batches of `batch_groups` groups each that a side's groups make, and the number of
/// groups left.
fn cadence(role: &str, batch_groups: usize) -> (Vec<Batch>, usize) {
    let config = config(batch_groups);
    let (mut left, mut made) = (side(role), Vec::new());
    while let Formed::Batch(batch) = form(&left, &context(&config)) {
        left.retain(|bundle| !batch.groups.contains(&bundle.group));
        made.push(*batch);
    }
    (made, left.len())
}

#[test]
fn one_role_may_train_four_times_while_the_other_trains_once() {
    let (doctor, doctors_left) = cadence("doctor", 4);
    let (patient, patients_left) = cadence("patient", 1);
    assert_eq!((doctor.len(), patient.len()), (1, 4));
    assert_eq!((doctors_left, patients_left), (0, 0));
    let tokens = |made: &[Batch]| made.iter().map(|batch| batch.stats.trained_tokens).collect::<Vec<_>>();
    assert_eq!((tokens(&doctor), tokens(&patient)), (vec![16], vec![4; 4]));
    // Every sample of either side appears once, in the order in which the groups were admitted.
    let all: Vec<(GroupId, u16)> = (0..4u8)
        .flat_map(|order| (0..2).map(move |member| (GroupId([order; 16]), member)))
        .collect();
    for made in [&doctor, &patient] {
        assert!(made.iter().all(|batch| !batch.stats.short));
        let verdicts = made.iter().flat_map(|batch| &batch.verdicts);
        let trained: Vec<(GroupId, u16)> = verdicts
            .filter(|verdict| verdict.outcome.is_ok())
            .map(|verdict| (verdict.group, verdict.member))
            .collect();
        assert_eq!(trained, all);
    }
    // Groups that do not fill a batch wait for more.
    let (three, left) = cadence("patient", 3);
    assert_eq!((three.len(), left), (1, 1));
}
