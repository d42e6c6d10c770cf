//! The closed list of everything that can happen to a coordinator.

use actix::{Message, Recipient};
use broker::bus::Delivery;
use broker::ids::{GroupId, TurnKey};
use broker::protocol::control::{Beat, Command};
use broker::protocol::reserve::ReserveAnswerFrame;
use broker::protocol::turn::{ResultFrame, TurnResult};
use broker::store::{Claim, Committed, Lease, StoreError};
use tokio::sync::oneshot;

use crate::turn::tasks::Candidate;

/// The address of a coordinator.
pub type Mailbox = Recipient<Input>;

/// Everything that can happen to a coordinator.
#[derive(Message)]
#[rtype(result = "()")]
pub enum Input {
    Task(Candidate),
    Answers(ReserveAnswerFrame, Delivery),
    Claimed(GroupId, Result<Claim, StoreError>),
    /// Results, with the delivery that brought them if a message did.
    Results(ResultFrame, Option<Delivery>),
    /// The answer of a program.
    Answered(Box<TurnResult>),
    Committed(Vec<CommitDone>),
    /// The bundles are confirmed, or the group is no longer ours.
    Closed(GroupId, Result<(), StoreError>),
    /// These groups' leases no longer stand.
    Lost(Vec<GroupId>),
    Beat(Box<Beat>),
    Command(Command),
    /// Messages in the queues of tasks, as far as known.
    Depth(Option<u64>),
    /// Give everything up and report when that is done.
    Stop(oneshot::Sender<()>),
    /// A message went to the dead letters.
    Refused,
    Nothing,
}

/// The end of one group's part of one commit.
pub struct CommitDone {
    pub group: GroupId,
    /// The lease of the commit. Results of another lease are not applied here.
    pub lease: Option<Lease>,
    pub results: Vec<(TurnKey, TurnResult)>,
    pub outcome: Result<Vec<Committed>, StoreError>,
}
