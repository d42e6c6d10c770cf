//! Ranks that are connected by c10d: by Gloo over TCP, and by NCCL for tensors on GPUs.
//!
//! Gloo reports a lost rank as an error of the operation. With NCCL an operation returns once it is
//! in the GPU's queue. A thread of c10d watches it there, and aborts the process if a rank is lost
//! or the timeout expires.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use broker::fail::point_of;
use tch::{Device, TchError, Tensor};

use super::error::{CollectiveError, Operation};
use super::{Collective, Patience, gather_bytes};
use crate::shim::group;
use crate::shim::interface::Interface;

/// The longest wait for a root that computes nothing, in timeouts of the group. The root's own
/// watch ends it after 5/4 of a timeout without progress, and it may make progress without a
/// message.
const IDLE: u32 = 3;

/// NCCL's variable for the network interfaces that it may use.
const INTERFACE: &str = "NCCL_SOCKET_IFNAME";

/// The store where the ranks of a group meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// A file on a disk that all ranks share. c10d creates it.
    File(PathBuf),
    /// A server without a password: its address must be private. The rank that is `here` is the
    /// server and listens on this address only.
    Server { address: SocketAddr, here: bool },
}

/// The place where the ranks of a group meet.
#[derive(Debug, Clone)]
pub struct Meeting {
    pub store: Store,
    /// Names the group. Ranks of an earlier start have another name and cannot join.
    pub name: String,
    /// The address that this rank listens on for the others. Gloo's and NCCL's connections are
    /// neither authenticated nor encrypted: it must be private.
    pub address: String,
    pub rank: usize,
    pub world_size: usize,
    /// The time in which all ranks must have come.
    pub start: Duration,
    /// The time that an operation waits for other ranks.
    pub timeout: Duration,
    /// The GPU of tensors that go through NCCL. Without one, all tensors go through host memory.
    pub gpu: Option<usize>,
}

/// A member of a c10d group.
pub struct C10d {
    group: group::Group,
    rank: usize,
    world_size: usize,
    timeout: Duration,
    gpu: Option<usize>,
}

impl C10d {
    /// Waits for the other ranks.
    ///
    /// # Errors
    /// [`CollectiveError::Join`], and [`CollectiveError::Ways`] if ranks differ in
    /// [`Meeting::gpu`].
    pub fn join(meeting: &Meeting) -> Result<Self, CollectiveError> {
        let (rank, world_size, timeout) = (meeting.rank, meeting.world_size, meeting.timeout);
        let begun = Instant::now();
        let failed = |reason: String| CollectiveError::Join {
            rank,
            world_size,
            waited: begun.elapsed(),
            reason,
        };
        let mut joined = Self {
            group: join_by_host(meeting).map_err(failed)?,
            rank,
            world_size,
            timeout,
            gpu: None,
        };
        joined.check_ways(meeting.gpu.is_some())?;
        if let Some(index) = meeting.gpu {
            let gpu = group::Gpu {
                index,
                interface: interface(&meeting.address).map_err(failed)?,
                rank,
                world_size,
                timeout,
            };
            joined.group.add_gpu(&gpu).map_err(failed)?;
            joined.gpu = Some(index);
        }
        Ok(joined)
    }

    /// Rejects a group in which only some ranks would use NCCL.
    fn check_ways(&self, by_nccl: bool) -> Result<(), CollectiveError> {
        let ways = gather_bytes(self, vec![u8::from(by_nccl)])?;
        let (nccl, host): (Vec<usize>, Vec<usize>) = (0..self.world_size).partition(|rank| ways[*rank] == [1]);
        if nccl.is_empty() || host.is_empty() {
            return Ok(());
        }
        // A rank that left at once might cut the others off from the last message.
        let _ = self.barrier();
        Err(CollectiveError::Ways { nccl, host })
    }

    /// Returns true if the group takes the tensor where it is.
    fn takes(&self, tensor: &Tensor) -> bool {
        let here = match tensor.device() {
            Device::Cpu => true,
            Device::Cuda(index) => self.gpu == Some(index),
            _ => false,
        };
        here && tensor.is_contiguous()
    }

    fn run(
        &self,
        operation: Operation,
        out: Option<&mut Tensor>,
        input: Option<&Tensor>,
        root: usize,
        patience: Patience,
    ) -> Result<(), CollectiveError> {
        let timeout = match patience {
            Patience::Step => self.timeout,
            Patience::Idle => self.timeout * IDLE,
        };
        let (rank, world_size) = (self.rank, self.world_size);
        point_of("exchange.begun", &format_args!("{operation:?}.{rank}"));
        let begun = Instant::now();
        let done = self.group.run(operation, out, input, root, timeout);
        let waited = begun.elapsed();
        point_of("exchange.done", &format_args!("{operation:?}.{rank}"));
        done.map_err(|reason| {
            if waited >= timeout {
                CollectiveError::TimedOut {
                    operation,
                    rank,
                    world_size,
                    waited,
                    reason,
                }
            } else {
                CollectiveError::Peer {
                    operation,
                    rank,
                    world_size,
                    reason,
                }
            }
        })
    }

    /// Calls `run` with a tensor in host memory, which becomes the value of `out`.
    fn staged(
        &self,
        operation: Operation,
        out: &mut Tensor,
        run: impl FnOnce(&mut Tensor) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        if self.takes(out) {
            return run(out);
        }
        let mut host = out.f_to_device(Device::Cpu).and_then(|host| host.f_contiguous());
        let host = host.as_mut().map_err(|error| self.call(operation, error))?;
        run(host)?;
        out.f_copy_(host).map_err(|error| self.call(operation, &error))
    }

    /// The tensor where `out` of the same operation is: on the GPU of the group, or in host memory.
    fn input(&self, operation: Operation, input: &Tensor, out: &Tensor) -> Result<Tensor, CollectiveError> {
        let device = if self.takes(out) { out.device() } else { Device::Cpu };
        let moved = input.f_to_device(device).and_then(|moved| moved.f_contiguous());
        moved.map_err(|error| self.call(operation, &error))
    }

    /// Rejects sizes that would make ranks wait for each other in vain.
    fn check_parts(&self, operation: Operation, whole: &Tensor, part: &Tensor) -> Result<(), CollectiveError> {
        let (found, wanted) = (whole.numel(), part.numel() * self.world_size);
        if found == wanted && whole.kind() == part.kind() {
            return Ok(());
        }
        let reason = format!(
            "{found} elements of {:?} are not {} parts of {} of {:?}",
            whole.kind(),
            self.world_size,
            part.numel(),
            part.kind()
        );
        Err(self.call(operation, &TchError::Torch(reason)))
    }

    fn call(&self, operation: Operation, error: &TchError) -> CollectiveError {
        CollectiveError::of_call(self, operation, error)
    }
}

/// Returns the network interface of `address`, in the syntax of `NCCL_SOCKET_IFNAME`. NCCL must not
/// choose another, which may be public.
fn interface(address: &str) -> Result<String, String> {
    if std::env::var_os(INTERFACE).is_some() {
        // The user's choice.
        return Ok(String::new());
    }
    let failed = |reason: &dyn std::fmt::Display| format!("finding the network interface of {address}: {reason}");
    let parsed: IpAddr = address.parse().map_err(|error| failed(&error))?;
    let all = Interface::all().map_err(|error| failed(&error))?;
    let found = Interface::of(parsed, &all).ok_or_else(|| failed(&"none has it; name one in NCCL_SOCKET_IFNAME"))?;
    Ok(format!("={}", found.name))
}

/// Meets the other ranks, for tensors in host memory.
fn join_by_host(meeting: &Meeting) -> Result<group::Group, String> {
    let host;
    let store = match &meeting.store {
        Store::File(file) => group::Store::File(file),
        Store::Server { address, here } => {
            host = address.ip().to_string();
            let listen = || TcpListener::bind(address).map_err(|error| format!("listening on {address}: {error}"));
            let listener = if *here { Some(listen()?) } else { None };
            let port = address.port();
            group::Store::Server {
                host: &host,
                port,
                listener,
            }
        }
    };
    group::Group::join(group::Meeting {
        store,
        prefix: &meeting.name,
        address: &meeting.address,
        rank: meeting.rank,
        world_size: meeting.world_size,
        start: meeting.start,
        timeout: meeting.timeout,
    })
}

impl Collective for C10d {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world_size
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn all_reduce(&self, sum: &mut Tensor) -> Result<(), CollectiveError> {
        let operation = Operation::AllReduce;
        self.staged(operation, sum, |sum| {
            self.run(operation, Some(sum), None, 0, Patience::Step)
        })
    }

    fn reduce_scatter(&self, part: &mut Tensor, whole: &Tensor) -> Result<(), CollectiveError> {
        let operation = Operation::ReduceScatter;
        self.check_parts(operation, whole, part)?;
        let whole = self.input(operation, whole, part)?;
        self.staged(operation, part, |part| {
            self.run(operation, Some(part), Some(&whole), 0, Patience::Step)
        })
    }

    fn all_gather(&self, whole: &mut Tensor, part: &Tensor) -> Result<(), CollectiveError> {
        let operation = Operation::AllGather;
        self.check_parts(operation, whole, part)?;
        let part = self.input(operation, part, whole)?;
        self.staged(operation, whole, |whole| {
            self.run(operation, Some(whole), Some(&part), 0, Patience::Step)
        })
    }

    fn broadcast(&self, value: &mut Tensor, root: usize, patience: Patience) -> Result<(), CollectiveError> {
        let operation = Operation::Broadcast;
        self.staged(operation, value, |value| {
            self.run(operation, Some(value), None, root, patience)
        })
    }

    fn barrier(&self) -> Result<(), CollectiveError> {
        self.run(Operation::Barrier, None, None, 0, Patience::Step)
    }
}
