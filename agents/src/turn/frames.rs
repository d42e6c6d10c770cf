//! Groups turn requests into frames: by agent, sorted, with shared prompts, below the frame size.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use broker::AgentName;
use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::turn::{Sampling, TurnFrame, TurnPrompt, TurnRequest, Wave};

/// Content size (256 KiB) above which a frame is closed, so that no single message blocks a
/// channel.
const FRAME_BYTES: usize = 256 << 10;

/// One generation to request.
#[derive(Debug, Clone)]
pub struct OutgoingTurn {
    pub agent: AgentName,
    pub group: GroupId,
    pub attempt: Attempt,
    /// Admission order of the task: the first part of the sort key.
    pub task_order: u64,
    pub key: TurnKey,
    pub prompt: TurnPrompt,
    pub sampling: Sampling,
    pub seed: u64,
    /// True if the agent records the answer's tokens.
    pub is_recorded: bool,
}

impl OutgoingTurn {
    #[must_use]
    pub fn request(&self) -> RequestId {
        RequestId::new(self.group, self.attempt, &self.key)
    }

    fn sort_key(&self) -> (u64, GroupId, TurnKey) {
        (self.task_order, self.group, self.key.clone())
    }
}

/// Returns the frames of each agent. With `wave`, every frame of an agent carries that wave's id
/// and the agent's total.
#[must_use]
pub fn build(mut wanted: Vec<OutgoingTurn>, reply_to: &str, wave: Option<u64>) -> Vec<(AgentName, TurnFrame)> {
    wanted.sort_by_cached_key(OutgoingTurn::sort_key);
    let mut by_agent: BTreeMap<AgentName, Vec<OutgoingTurn>> = BTreeMap::new();
    for one in wanted {
        by_agent.entry(one.agent.clone()).or_default().push(one);
    }
    let mut frames = Vec::new();
    for (agent, list) in by_agent {
        let wave = wave.map(|id| Wave {
            id,
            total: u32::try_from(list.len()).unwrap_or(u32::MAX),
        });
        let mut open = FrameBuilder::new(reply_to, wave);
        for (order, one) in list.into_iter().enumerate() {
            if open.bytes > FRAME_BYTES {
                frames.push((
                    agent.clone(),
                    std::mem::replace(&mut open, FrameBuilder::new(reply_to, wave)).frame,
                ));
            }
            open.push(one, order as u64);
        }
        frames.push((agent, open.frame));
    }
    frames
}

/// Splits a frame into frames with one request each. Used for a frame above the bus's limit, so
/// that a request that is too large travels alone.
#[must_use]
pub fn singles(frame: &TurnFrame) -> Vec<TurnFrame> {
    let single = |request: &TurnRequest| {
        let prompt = frame.prompts.get(request.prompt as usize)?.clone();
        let sampling = frame.samplings.get(request.sampling as usize)?.clone();
        Some(TurnFrame {
            reply_to: frame.reply_to.clone(),
            wave: frame.wave,
            prompts: vec![prompt],
            samplings: vec![sampling],
            requests: vec![TurnRequest {
                prompt: 0,
                sampling: 0,
                ..request.clone()
            }],
        })
    };
    frame.requests.iter().filter_map(single).collect()
}

struct FrameBuilder {
    frame: TurnFrame,
    /// Indices of the frame's prompts by [`FrameBuilder::mark`].
    marked: HashMap<u64, Vec<u32>>,
    hasher: RandomState,
    bytes: usize,
}

impl FrameBuilder {
    fn new(reply_to: &str, wave: Option<Wave>) -> Self {
        let frame = TurnFrame {
            reply_to: reply_to.to_owned(),
            wave,
            prompts: Vec::new(),
            samplings: Vec::new(),
            requests: Vec::new(),
        };
        Self {
            frame,
            marked: HashMap::new(),
            hasher: RandomState::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, one: OutgoingTurn, order: u64) {
        let request = one.request();
        let prompt = self.prompt(one.prompt);
        let sampling = self.sampling(one.sampling);
        self.bytes += 128;
        self.frame.requests.push(TurnRequest {
            request,
            group: one.group,
            attempt: one.attempt,
            member: one.key.member,
            role: one.key.role.as_str().to_owned(),
            seat: one.key.seat,
            turn: one.key.turn,
            prompt,
            sampling,
            seed: one.seed,
            order,
            is_recorded: one.is_recorded,
        });
    }

    fn prompt(&mut self, prompt: TurnPrompt) -> u32 {
        let mark = self.mark(&prompt);
        let alike = self.marked.entry(mark).or_default();
        if let Some(index) = alike.iter().find(|at| self.frame.prompts[**at as usize] == prompt) {
            return *index;
        }
        let index = self.frame.prompts.len() as u32;
        alike.push(index);
        self.bytes += 4 * prompt.held.len() + prompt.messages.iter().map(|m| m.bytes() + 16).sum::<usize>();
        self.frame.prompts.push(prompt);
        index
    }

    /// Returns a hash that equal prompts share and different prompts seldom share. Reads only the
    /// end of a long list of held ids, where conversations differ.
    fn mark(&self, prompt: &TurnPrompt) -> u64 {
        const LOOKED_AT: usize = 64;
        let held = &prompt.held;
        let end = &held[held.len().saturating_sub(LOOKED_AT)..];
        self.hasher.hash_one((held.len(), end, &prompt.messages))
    }

    fn sampling(&mut self, sampling: Sampling) -> u32 {
        if let Some(index) = self.frame.samplings.iter().position(|s| *s == sampling) {
            return index as u32;
        }
        self.frame.samplings.push(sampling);
        self.frame.samplings.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::RoleName;
    use broker::protocol::turn::Message;

    fn wanted(agent: &str, task: u64, member: u16, prompt: &str) -> OutgoingTurn {
        OutgoingTurn {
            agent: AgentName::new(agent).unwrap(),
            group: GroupId([task as u8; 16]),
            attempt: Attempt([7; 16]),
            task_order: task,
            key: TurnKey {
                member,
                role: RoleName::new("r").unwrap(),
                seat: 0,
                turn: 0,
            },
            prompt: TurnPrompt {
                held: vec![],
                sampled: 0,
                messages: vec![Message::user(prompt)],
            },
            sampling: crate::testing::sampling(1),
            seed: 1,
            is_recorded: false,
        }
    }

    #[test]
    fn requests_are_ordered_by_task_and_member() {
        let a = build(
            vec![wanted("a", 2, 0, "y"), wanted("a", 1, 1, "x"), wanted("a", 1, 0, "x")],
            "c",
            Some(5),
        );
        let b = build(
            vec![wanted("a", 1, 0, "x"), wanted("a", 2, 0, "y"), wanted("a", 1, 1, "x")],
            "c",
            Some(5),
        );
        assert_eq!(a, b);
        let frame = &a[0].1;
        assert_eq!(frame.wave, Some(Wave { id: 5, total: 3 }));
        assert_eq!(frame.prompts.len(), 2, "one prompt for the two seats that share it");
        assert_eq!(
            frame.requests.iter().map(|r| (r.member, r.order)).collect::<Vec<_>>(),
            [(0, 0), (1, 1), (0, 2)]
        );
    }

    #[test]
    fn a_frame_taken_apart_asks_for_the_same() {
        let list = vec![wanted("a", 1, 0, "x"), wanted("a", 1, 1, "x"), wanted("a", 2, 0, "y")];
        let (_, frame) = build(list, "c", Some(5)).remove(0);
        let singles = singles(&frame);
        assert_eq!(singles.len(), 3);
        for (single, request) in singles.iter().zip(&frame.requests) {
            assert_eq!((&single.reply_to, single.wave), (&frame.reply_to, frame.wave));
            assert_eq!(single.prompts, [frame.prompts[request.prompt as usize].clone()]);
            assert_eq!(single.samplings, [frame.samplings[request.sampling as usize].clone()]);
            let alone = TurnRequest {
                prompt: 0,
                sampling: 0,
                ..request.clone()
            };
            assert_eq!(single.requests, [alone]);
        }
    }

    #[test]
    fn frames_stay_small_and_lose_nothing() {
        let big = "x".repeat(100 << 10);
        let list: Vec<OutgoingTurn> = (0..9).map(|i| wanted("a", i, 0, &format!("{big}{i}"))).collect();
        let frames = build(list, "c", None);
        assert!(frames.len() > 1);
        assert_eq!(frames.iter().map(|(_, f)| f.requests.len()).sum::<usize>(), 9);
        for (_, frame) in &frames {
            assert!(broker::codec::encode(frame).len() < FRAME_BYTES + (110 << 10));
        }
    }
}
