//! Conversations: pages of summaries, one with its ledgers' verdicts, and the members of a group.

mod filter;

use std::collections::BTreeMap;

use broker::ids::GroupId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::filter::Filter;
use super::custody::{self, Custody};
use crate::dashboard::answer::ApiError;
use crate::dashboard::offsets::Offsets;
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{Newest, Oldest, RecordedTurn, Transcript, TranscriptTurn, find_conversation, tokens_of};

/// The most summaries of an answer.
const MOST: usize = 200;
/// Bytes of transcripts that one answer reads; the next one goes on from there.
const READ: u64 = 24 << 20;
/// The same where ledgers are read for each group.
const READ_WITH_LEDGERS: u64 = 4 << 20;
/// Characters of a turn in a summary.
const SHOWN: usize = 200;

/// The filters, order and page of a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Query {
    #[schemars(range(max = 1_000_000))]
    limit: Option<usize>,
    #[schemars(regex(pattern = r"^([^@,]+@[0-9]{1,15}(,[^@,]+@[0-9]{1,15})*)?$"))]
    cursor: Option<String>,
    /// Text in a task or a turn.
    q: Option<String>,
    role: Option<String>,
    /// A bound such as `>0.5`.
    #[schemars(regex(pattern = r"^((>=|<=|>|<|=)-?[0-9]{1,9}(\.[0-9]{1,9})?)?$"))]
    reward: Option<String>,
    /// Only seats of this agent.
    agent: Option<String>,
    /// A bound of the workflow's `success`, or a number.
    #[schemars(regex(pattern = r"^((>=|<=|>|<|=)?-?[0-9]{1,9}(\.[0-9]{1,9})?)?$"))]
    success: Option<String>,
    /// A bound of the lead agent's step, or a number.
    #[schemars(regex(pattern = r"^((>=|<=|>|<|=)?[0-9]{1,15})?$"))]
    step: Option<String>,
    kind: Option<Kind>,
    status: Option<String>,
    /// `trained`, `discarded`, or the reason why a sample was discarded.
    verdict: Option<String>,
    sort: Option<Sort>,
}

/// The order of conversations.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Newest,
    Oldest,
}

/// Conversations of training or of evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Train,
    Eval,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page {
    conversations: Vec<Summary>,
    /// The cursor of the next page; `None` if everything was read.
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Summary {
    conversation: String,
    task: String,
    step: u64,
    status: String,
    eval: bool,
    turns: usize,
    /// The reward of each seat.
    rewards: BTreeMap<String, Option<f64>>,
    /// The agent of each seat.
    agents: BTreeMap<String, String>,
    /// The beginning of the last turn.
    last: String,
}

/// Conversations in the order that a request wants.
enum Ordered {
    Newest(Newest),
    Oldest(Oldest),
}

impl Ordered {
    fn open(folder: &RunFolder, query: &Query) -> Result<Self, ApiError> {
        let cursor = query.cursor.as_deref().map(Offsets::parse).transpose()?;
        let (files, offsets) = (folder.files("transcripts")?, cursor.as_ref().map(|cursor| &cursor.0));
        Ok(match query.sort.unwrap_or_default() {
            Sort::Newest => Self::Newest(Newest::open(files, offsets)?),
            Sort::Oldest => Self::Oldest(Oldest::after(files, offsets)?),
        })
    }

    fn next(&mut self) -> std::io::Result<Option<Transcript>> {
        match self {
            Self::Newest(newest) => newest.next_transcript(),
            Self::Oldest(oldest) => Ok(oldest.next_transcript()?.map(|(_, transcript)| transcript)),
        }
    }

    fn unread(&self) -> u64 {
        match self {
            Self::Newest(newest) => newest.unread(),
            Self::Oldest(oldest) => oldest.unread(),
        }
    }

    fn rest(&self) -> BTreeMap<String, u64> {
        match self {
            Self::Newest(newest) => newest.rest(),
            Self::Oldest(oldest) => oldest.rest(),
        }
    }
}

/// Returns a page of conversations.
pub(crate) fn page(folder: &RunFolder, query: &Query) -> Result<Page, ApiError> {
    let mut filter = Filter::of(query, folder)?;
    let limit = query.limit.unwrap_or(50).clamp(1, MOST);
    let most = if filter.reads_ledgers() {
        READ_WITH_LEDGERS
    } else {
        READ
    };
    let mut all = Ordered::open(folder, query)?;
    let begun = all.unread();
    let mut found = Vec::new();
    let mut is_over = false;
    while found.len() < limit {
        let Some(transcript) = all.next()? else {
            is_over = true;
            break;
        };
        if filter.wants(&transcript)? {
            found.push(summary(transcript));
        }
        if begun.saturating_sub(all.unread()) > most {
            break;
        }
    }
    let next = (!is_over).then(|| Offsets(all.rest()).to_string());
    Ok(Page {
        conversations: found,
        next,
    })
}

fn seat(turn: &TranscriptTurn) -> String {
    match turn.seat {
        0 => turn.role.clone(),
        seat => format!("{}/{seat}", turn.role),
    }
}

/// Returns the reward of each seat; a value that is not finite is `None`.
fn totals(transcript: &Transcript) -> BTreeMap<String, Option<f64>> {
    let total = |(seat, parts): (&String, &BTreeMap<String, f64>)| {
        let total = parts.get("total").copied().filter(|total| total.is_finite());
        (seat.clone(), total)
    };
    transcript.rewards.iter().map(total).collect()
}

/// Returns the entry of a conversation in a list.
pub(crate) fn summary(transcript: Transcript) -> Summary {
    let last = transcript
        .turns
        .last()
        .map(|turn| turn.text.chars().take(SHOWN).collect());
    Summary {
        rewards: totals(&transcript),
        agents: transcript
            .turns
            .iter()
            .map(|turn| (seat(turn), turn.agent.clone()))
            .collect(),
        turns: transcript.turns.len(),
        last: last.unwrap_or_default(),
        conversation: transcript.conversation,
        task: transcript.task,
        step: transcript.step,
        status: transcript.status,
        eval: transcript.eval,
    }
}

/// One conversation, as `dyad conversation --json` prints it, with the verdicts on its samples.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Whole {
    transcript: Transcript,
    custody: Custody,
    /// The members of its group that are written.
    members: Vec<Member>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Member {
    member: u16,
    status: String,
    rewards: BTreeMap<String, Option<f64>>,
}

/// The members of a group that are written, with the verdicts on all of its samples.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Group {
    group: String,
    task: String,
    members: Vec<Transcript>,
    custody: Custody,
}

pub(crate) fn one(folder: &RunFolder, group: &str, member: &str) -> Result<Whole, ApiError> {
    let missing =
        || ApiError::missing("this conversation is not written: it has not ended, or run.transcripts leaves it out");
    let member: u16 = member.parse().map_err(|_| missing())?;
    let (group, members) = members(folder, group)?;
    let rewards = |(member, transcript): &(u16, Transcript)| Member {
        member: *member,
        status: transcript.status.clone(),
        rewards: totals(transcript),
    };
    let shown = members.iter().map(rewards).collect();
    let mut found = members.into_iter().filter(|(number, _)| *number == member);
    let (_, transcript) = found.next().ok_or_else(missing)?;
    Ok(Whole {
        transcript,
        custody: custody::read(folder, group)?,
        members: shown,
    })
}

/// The recorded tokens of a conversation's turns.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tokens {
    tokens: Vec<RecordedTurn>,
}

pub(crate) fn tokens(folder: &RunFolder, group: &str, member: &str) -> Result<Tokens, ApiError> {
    let missing = || ApiError::missing("the id is none of a conversation: write GROUP/NUMBER");
    let group = GroupId::from_hex(group).ok_or_else(missing)?;
    let member: u16 = member.parse().map_err(|_| missing())?;
    let mut files = folder.files("tokens")?;
    // In this order `a.old.jsonl` comes before `a.jsonl`: the newest record of a turn counts.
    files.reverse();
    let tokens = tokens_of(&files, &format!("{group}/{member}"))?;
    Ok(Tokens { tokens })
}

pub(crate) fn group(folder: &RunFolder, group: &str) -> Result<Group, ApiError> {
    let (id, members) = members(folder, group)?;
    let Some((_, first)) = members.first() else {
        return Err(ApiError::missing(
            "no conversation of this group is written: none has ended, or run.transcripts leaves them out",
        ));
    };
    Ok(Group {
        group: id.to_string(),
        task: first.task.clone(),
        custody: custody::read(folder, id)?,
        members: members.into_iter().map(|(_, transcript)| transcript).collect(),
    })
}

/// Returns the written members of a group by number. One that was written twice counts once.
fn members(folder: &RunFolder, group: &str) -> Result<(GroupId, Vec<(u16, Transcript)>), ApiError> {
    let id = GroupId::from_hex(group).ok_or_else(|| ApiError::missing("a group is 32 hexadecimal digits"))?;
    let found = find_conversation(&folder.path().join("transcripts"), &format!("{id}/"))?;
    let numbered = found.into_iter().filter_map(|transcript| {
        let (_, member) = transcript.conversation.split_once('/')?;
        Some((member.parse().ok()?, transcript))
    });
    let numbered: BTreeMap<u16, Transcript> = numbered.collect();
    Ok((id, numbered.into_iter().collect()))
}

#[cfg(test)]
mod tests;
