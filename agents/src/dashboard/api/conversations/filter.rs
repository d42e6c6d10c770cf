//! Which conversations a request wants.

use std::collections::BTreeMap;

use broker::ids::GroupId;

use super::{Kind, Query, seat};
use crate::dashboard::answer::ApiError;
use crate::ledger::{Inspector, PlacedVerdict};
use crate::run_folder::RunFolder;
use crate::run_folder::logs::{RewardBound, Transcript};

/// The filters of a request.
pub(super) struct Filter {
    text: String,
    role: Option<String>,
    agent: Option<String>,
    reward: Option<RewardBound>,
    success: Option<RewardBound>,
    step: Option<RewardBound>,
    eval: Option<bool>,
    status: Option<String>,
    verdict: Option<Verdict>,
}

impl Filter {
    pub(super) fn of(query: &Query, folder: &RunFolder) -> Result<Self, ApiError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let verdict = given(&query.verdict).map(|wanted| Verdict::open(wanted, folder, given(&query.agent)));
        Ok(Self {
            text: given(&query.q).unwrap_or_default().to_lowercase(),
            role: given(&query.role),
            agent: given(&query.agent),
            reward: bound("reward", given(&query.reward))?,
            success: bound("success", given(&query.success).map(or_equal))?,
            step: bound("step", given(&query.step).map(or_equal))?,
            eval: query.kind.map(|kind| kind == Kind::Eval),
            status: given(&query.status),
            verdict: verdict.transpose()?,
        })
    }

    /// Returns true if ledgers are read for each group.
    pub(super) fn reads_ledgers(&self) -> bool {
        self.verdict.is_some()
    }

    pub(super) fn wants(&mut self, transcript: &Transcript) -> Result<bool, ApiError> {
        let success = transcript.metrics.get("success").copied();
        let is_in = |bound: Option<RewardBound>, value: Option<f64>| {
            bound.is_none_or(|bound| value.is_some_and(|value| bound.holds(value)))
        };
        let wanted = self.eval.is_none_or(|eval| transcript.eval == eval)
            && self.status.as_ref().is_none_or(|status| transcript.status == *status)
            && is_in(self.step, Some(transcript.step as f64))
            && is_in(self.success, success)
            && self.has_seat(transcript)
            && self.has_text(transcript);
        match &mut self.verdict {
            Some(verdict) if wanted => verdict.is_of(transcript, self.role.as_deref()),
            _ => Ok(wanted),
        }
    }

    /// Returns true if one seat has the role, the agent and the reward.
    fn has_seat(&self, transcript: &Transcript) -> bool {
        let is_role = |seat: &str| {
            let role = seat.split('/').next();
            self.role.as_deref().is_none_or(|wanted| role == Some(wanted))
        };
        let plays = |agent: &str| self.agent.as_deref().is_none_or(|wanted| agent == wanted);
        let mut turns = transcript.turns.iter();
        if self.role.is_none() && self.reward.is_none() {
            return self.agent.is_none() || turns.any(|turn| plays(&turn.agent));
        }
        let agents: BTreeMap<String, &str> = match self.agent {
            Some(_) => turns.map(|turn| (seat(turn), turn.agent.as_str())).collect(),
            None => BTreeMap::new(),
        };
        let earns = |parts: &BTreeMap<String, f64>| {
            let total = parts.get("total");
            self.reward
                .is_none_or(|bound| total.is_some_and(|total| bound.holds(*total)))
        };
        let mut rewards = transcript.rewards.iter();
        rewards
            .any(|(seat, parts)| is_role(seat) && earns(parts) && plays(agents.get(seat).copied().unwrap_or_default()))
    }

    fn has_text(&self, transcript: &Transcript) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.text);
        self.text.is_empty()
            || transcript.conversation.starts_with(&self.text)
            || has(&transcript.task)
            || transcript.turns.iter().any(|turn| has(&turn.text))
    }
}

fn bound(name: &str, text: Option<String>) -> Result<Option<RewardBound>, ApiError> {
    let parsed = text.map(|text| text.parse::<RewardBound>());
    parsed
        .transpose()
        .map_err(|why| ApiError::wrong(format!("{name}: {why}")))
}

/// Lets a number alone mean that number.
fn or_equal(text: String) -> String {
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        format!("={text}")
    } else {
        text
    }
}

/// A wanted verdict, and the ledgers that have it.
struct Verdict {
    wanted: String,
    ledgers: Vec<Inspector>,
    /// The group that was read last: members of a group stand near each other.
    read: Option<(GroupId, Vec<PlacedVerdict>)>,
}

impl Verdict {
    /// Opens the ledgers on this machine, or only that of `agent`.
    fn open(wanted: String, folder: &RunFolder, agent: Option<String>) -> Result<Self, ApiError> {
        let config = folder.config()?;
        let names = config.participants().into_iter();
        let named = names.filter(|name| agent.as_ref().is_none_or(|agent| name.as_str() == agent));
        let found: Result<Vec<_>, _> = named.map(|name| Inspector::find(&folder.ledger(&name))).collect();
        let found = found.map_err(anyhow::Error::from)?;
        Ok(Self {
            wanted,
            ledgers: found.into_iter().flatten().collect(),
            read: None,
        })
    }

    /// Returns true if a sample of the conversation has the verdict.
    fn is_of(&mut self, transcript: &Transcript, role: Option<&str>) -> Result<bool, ApiError> {
        let parts = transcript.conversation.split_once('/');
        let id = parts.and_then(|(group, member)| Some((GroupId::from_hex(group)?, member.parse::<u16>().ok()?)));
        let Some((group, member)) = id.filter(|_| !transcript.eval) else {
            return Ok(false);
        };
        let is_wanted = |verdict: &PlacedVerdict| match (self.wanted.as_str(), verdict.reason.as_deref()) {
            ("trained", reason) => reason.is_none(),
            ("discarded", reason) => reason.is_some(),
            (wanted, reason) => reason == Some(wanted),
        };
        if self.read.as_ref().is_none_or(|(known, _)| *known != group) {
            let read = self.ledgers.iter().map(|ledger| ledger.verdicts(group));
            let verdicts: Result<Vec<_>, _> = read.collect();
            self.read = Some((group, verdicts.map_err(anyhow::Error::from)?.concat()));
        }
        let mut verdicts = self.read.iter().flat_map(|(_, verdicts)| verdicts);
        Ok(verdicts.any(|verdict| {
            verdict.member == member && role.is_none_or(|role| verdict.role == role) && is_wanted(verdict)
        }))
    }
}
