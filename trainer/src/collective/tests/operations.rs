//! Each operation gives what its definition says, at two and three ranks.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tch::{Device, Kind, Tensor};

use super::{Member, in_ranks};
use crate::collective::{
    Alone, C10d, Collective, CollectiveError, Meeting, Patience, Store, broadcast_bytes, gather_bytes,
};
use crate::device::{of_tests, open_own};

const N: i64 = 1000;

/// Values with a sum that depends on the order of additions, in host memory.
fn host_values(rank: usize, count: i64) -> Tensor {
    ((Tensor::arange(count, (Kind::Float, Device::Cpu)) + 1.0) * (0.1 + rank as f64)).sin()
}

/// The same on the device of the tests.
fn values(rank: usize, count: i64) -> Tensor {
    host_values(rank, count).to_device(of_tests())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.to_device(Device::Cpu)).unwrap()
}

fn operations(group: &C10d) {
    let (rank, ranks) = (group.rank(), group.world_size());
    let whole = N * ranks as i64;

    let mut sum = values(rank, whole);
    group.all_reduce(&mut sum).unwrap();
    let exact: Tensor = (0..ranks).map(|rank| values(rank, whole).to_kind(Kind::Double)).sum();
    assert!((&sum - exact).abs().max().double_value(&[]) < 1e-6);

    let mut part = Tensor::zeros([N], (Kind::Float, of_tests()));
    group.reduce_scatter(&mut part, &values(rank, whole)).unwrap();
    let own = sum.narrow(0, N * rank as i64, N);
    assert_eq!(numbers(&part), numbers(&own), "the bits of all_reduce");

    let in_place = values(rank, whole);
    let mut part = in_place.narrow(0, N * rank as i64, N);
    group.reduce_scatter(&mut part, &in_place).unwrap();
    assert_eq!(numbers(&part), numbers(&own), "into a part of its own input");

    for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
        let parts: Vec<Tensor> = (0..ranks).map(|rank| values(rank, N).to_kind(kind)).collect();
        let mut gathered = Tensor::zeros([whole], (kind, of_tests()));
        gathered.narrow(0, N * rank as i64, N).copy_(&parts[rank]);
        let part = gathered.narrow(0, N * rank as i64, N);
        group.all_gather(&mut gathered, &part).unwrap();
        assert!(
            gathered.equal(&Tensor::cat(&parts, 0)),
            "{kind:?}, from a part of its own output"
        );
    }

    let mut value = values(rank, N);
    group.broadcast(&mut value, 1, Patience::Step).unwrap();
    assert!(value.equal(&values(1, N)));
    let mut value = host_values(rank, N);
    group.broadcast(&mut value, 1, Patience::Idle).unwrap();
    assert!(value.equal(&host_values(1, N)));
    group.barrier().unwrap();
}

fn messages(group: &C10d) {
    let (rank, ranks) = (group.rank(), group.world_size());
    let message = |rank: usize| vec![rank as u8 + 7; rank * 300];
    let gathered = gather_bytes(group, message(rank)).unwrap();
    assert_eq!(gathered, (0..ranks).map(message).collect::<Vec<_>>());
    for length in [0, 1, 5000] {
        let mine = if rank == 0 { vec![9; length] } else { vec![1] };
        assert_eq!(
            broadcast_bytes(group, mine, 0, Patience::Step).unwrap(),
            vec![9; length]
        );
    }
}

fn wrong_sizes(group: &C10d) {
    let short = Tensor::zeros([N], (Kind::Float, Device::Cpu));
    let error = group
        .all_gather(&mut short.shallow_clone(), &short)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("all_gather on rank") && error.contains("not begun"),
        "{error}"
    );
}

/// Runs the operations in a group of this many ranks.
fn as_defined(test: &str, ranks: usize) {
    let Some(member) = Member::here() else {
        return in_ranks(test, ranks);
    };
    let group = member.join("group", Duration::from_secs(60));
    operations(&group);
    messages(&group);
    wrong_sizes(&group);
}

#[test]
fn operations_of_two_ranks_give_what_their_definitions_say() {
    as_defined(
        "collective::tests::operations::operations_of_two_ranks_give_what_their_definitions_say",
        2,
    );
}

#[test]
fn operations_of_three_ranks_give_what_their_definitions_say() {
    as_defined(
        "collective::tests::operations::operations_of_three_ranks_give_what_their_definitions_say",
        3,
    );
}

/// Needs `DYAD_TEST_DEVICE=cuda:0`. NCCL has no two ranks on one GPU, so the group has one rank.
#[test]
fn nccl_takes_tensors_of_a_gpu() {
    let gpu = match of_tests() {
        Device::Cuda(index) => index,
        _ => return,
    };
    open_own().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let member = Member {
        rank: 0,
        ranks: 1,
        folder: folder.path().into(),
    };
    let meeting = Meeting {
        gpu: Some(gpu),
        ..member.meeting("nccl", Duration::from_secs(60))
    };
    let group = C10d::join(&meeting).unwrap();
    let there = |kind| values(0, N).to_device(Device::Cuda(gpu)).to_kind(kind);
    for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
        let (mut sum, mut part, mut whole) = (there(kind), there(kind).zeros_like(), there(kind).zeros_like());
        group.all_reduce(&mut sum).unwrap();
        group.reduce_scatter(&mut part, &there(kind)).unwrap();
        group.all_gather(&mut whole, &part).unwrap();
        group.broadcast(&mut whole, 0, Patience::Step).unwrap();
        group.barrier().unwrap();
        for found in [sum, part, whole] {
            assert_eq!(found.device(), Device::Cuda(gpu));
            assert!(found.equal(&there(kind)), "{kind:?}");
        }
    }
    messages(&group);
}

/// Only some hosts have DYAD_NCCL=0. The ranks differ before any of them uses a GPU.
#[test]
fn ranks_with_different_ways_for_tensors_refuse_each_other() {
    const NAME: &str = "collective::tests::operations::ranks_with_different_ways_for_tensors_refuse_each_other";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 3);
    };
    let meeting = Meeting {
        gpu: (member.rank != 1).then_some(0),
        ..member.meeting("group", Duration::from_secs(60))
    };
    let error = C10d::join(&meeting).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, CollectiveError::Ways { .. }), "{text}");
    for part in [
        "ranks [0, 2]",
        "through NCCL",
        "ranks [1] through host memory",
        "DYAD_NCCL=0",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Both ranks meet at a server that one of them is.
#[test]
fn ranks_meet_at_a_server_that_listens_on_its_own_address() {
    const NAME: &str = "collective::tests::operations::ranks_meet_at_a_server_that_listens_on_its_own_address";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 2);
    };
    let place = member.folder.join("address");
    let address: SocketAddr = if member.rank == 0 {
        // Nothing else takes a port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(place.with_extension("new"), free.to_string()).unwrap();
        std::fs::rename(place.with_extension("new"), &place).unwrap();
        free
    } else {
        while !place.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::read_to_string(&place).unwrap().parse().unwrap()
    };
    let mut meeting = member.meeting("group", Duration::from_secs(60));
    let here = member.rank == 0;
    meeting.store = Store::Server { address, here };
    let group = C10d::join(&meeting).unwrap();
    if here {
        let everywhere = TcpListener::bind(("127.0.0.2", address.port()));
        assert!(
            everywhere.is_ok(),
            "another address of this host is free: {everywhere:?}"
        );
    }
    operations(&group);
    group.barrier().unwrap();
}

#[test]
fn one_rank_alone_keeps_its_numbers() {
    let (whole, mut out) = (values(0, N), Tensor::zeros([N], (Kind::Float, Device::Cpu)));
    Alone.all_reduce(&mut whole.shallow_clone()).unwrap();
    Alone.reduce_scatter(&mut out, &whole).unwrap();
    assert!(out.equal(&values(0, N)));
    Alone.all_gather(&mut whole.shallow_clone(), &(out * 2.0)).unwrap();
    assert!(whole.equal(&(values(0, N) * 2.0)));
    assert_eq!(gather_bytes(&Alone, vec![4, 5]).unwrap(), [vec![4, 5]]);
    assert_eq!(broadcast_bytes(&Alone, vec![6], 0, Patience::Idle).unwrap(), [6]);
}
