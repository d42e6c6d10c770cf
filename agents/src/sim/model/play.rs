//! A coordinator's view of the turns that it has received: the real [`GroupRun`], assembled and
//! decided by the real code.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use broker::ids::{Attempt, Digest, GroupId, RunId, TurnKey, WeightVersion};
use broker::protocol::bundle::BundleContent;
use broker::protocol::failure::Failure;
use broker::protocol::task::Task;
use broker::protocol::turn::{Finish, Generation, LogProbs, VersionSpan};
use broker::{AgentName, RoleName};
use bytes::Bytes;
use configs::RunConfig;
use rollout::group::{GroupHead, GroupRun, Rules, RunSpec, assemble};

use crate::coordinator::closing::outcome::Ended;

/// One conversation of two turns: a speaks, then b.
const CONFIG: &str = r#"
    [run]
    name = "model"
    mode = "async"
    train_steps = 1
    [tasks]
    source = "queue"
    [workflow]
    kind = "signal"
    group_size = 2
    retries = 1
    roles = { speaker = "a", listener = "b" }
    [defaults.agent.model.random]
    layers = 1
    hidden = 16
    heads = 2
    tokenizer = "bytes"
    [agents.a]
    [agents.b]
"#;
const TASK: &str = "task";

/// The outcome of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Received {
    /// A turn and its answer; the answer differs with the life of the agent that sampled it.
    Turn(u8, u8),
    /// The turn failed as often as it may. The failure is not the machinery's, which would make the
    /// task a dead letter.
    Failed(u8),
    /// An earlier owner has decided that these conversations are given up.
    GivenUp(Vec<(u16, Failure)>),
}

/// The state of a group after the received turns.
pub(super) struct GroupView {
    /// The turn that the group waits for; agent a's turn is the first.
    pub wanted: Option<u8>,
    pub end: Option<GroupEnd>,
}

/// The outcome of the group.
pub(super) struct GroupEnd {
    pub outcome: Bytes,
    /// For each agent's bundle: its digest, and true if it has samples.
    pub bundles: Vec<(Digest, bool)>,
}

pub(super) struct Play {
    spec: RunSpec,
    rules: Rules,
    views: RefCell<HashMap<Vec<Received>, Rc<GroupView>>>,
}

pub(super) fn group() -> GroupId {
    GroupId::new(&RunId::new("model").unwrap(), TASK)
}

fn key(turn: u8) -> TurnKey {
    let role = ["speaker", "listener"][usize::from(turn)];
    TurnKey {
        member: 0,
        role: RoleName::new(role).unwrap(),
        seat: 0,
        turn: 0,
    }
}

fn generation(answer: u8) -> Generation {
    let version = WeightVersion::default();
    Generation {
        kept: 0,
        prompt_ids: vec![1],
        output_ids: vec![u32::from(answer)],
        logprobs: vec![-1.0],
        logprobs_of: LogProbs::Sampled,
        spans: vec![VersionSpan {
            version,
            start: 0,
            end: 1,
        }],
        oldest_kv: version,
        temperature: 1.0,
        finish: Finish::Length,
        text: format!("s{answer}"),
    }
}

impl Play {
    pub(super) fn new() -> Self {
        let mut config = RunConfig::parse(CONFIG, Path::new("model.toml")).unwrap();
        // Smaller than a checked configuration allows: more conversations would only repeat the
        // same.
        config.workflow.group_size = 1;
        let workflow = rollout::workflows::build(&config.workflow, &config.graders, &config.tools).unwrap();
        let training: BTreeSet<AgentName> = config.agents.keys().cloned().collect();
        let rules = Rules::new(&config.workflow, &workflow.roles(), training);
        let task = br#"{"id": "task", "prompt": "o1", "label": "o1"}"#;
        let spec = RunSpec {
            workflow,
            task: Arc::new(Task::parse(task, 1000).unwrap()),
            task_id: TASK.into(),
            run_seed: 0,
            group_size: 1,
            retries: 1,
            min_valid: rules.min_valid,
        };
        Self {
            spec,
            rules,
            views: RefCell::default(),
        }
    }

    /// A pure function, computed once for each list.
    pub(super) fn view(&self, received: &[Received]) -> Rc<GroupView> {
        if let Some(view) = self.views.borrow().get(received) {
            return view.clone();
        }
        let view = Rc::new(self.look(received));
        self.views.borrow_mut().insert(received.to_vec(), view.clone());
        view
    }

    /// Returns true if these are the bundles of one outcome of any coordinator.
    pub(super) fn is_one_outcome(&self, a: Digest, b: Digest) -> bool {
        let both = |end: &GroupEnd| end.bundles[0].0 == a && end.bundles[1].0 == b;
        self.views
            .borrow()
            .values()
            .any(|view| view.end.as_ref().is_some_and(both))
    }

    fn look(&self, received: &[Received]) -> GroupView {
        let run = self.run(received);
        let wanted = run.wanted();
        let wanted = wanted.first().map(|one| u8::from(one.key == key(1)));
        let end = run.is_done().then(|| self.end(run));
        GroupView { wanted, end }
    }

    fn run(&self, received: &[Received]) -> GroupRun {
        let mut run = GroupRun::new(self.spec.clone());
        for one in received {
            match one {
                Received::Turn(turn, answer) => run.on_result(key(*turn), generation(*answer)).unwrap(),
                Received::GivenUp(failed) => run.give_up_all(failed.clone()),
                Received::Failed(turn) => {
                    let over = run.on_failure(&key(*turn), &Failure::context("70 tokens"), true);
                    assert_eq!(over, Some(true));
                }
            }
        }
        run
    }

    fn end(&self, run: GroupRun) -> GroupEnd {
        // The attempt is part of no digest.
        let head = GroupHead {
            group: group(),
            attempt: Attempt([0; 16]),
            task: TASK.into(),
            order: 0,
        };
        let members = run.finish();
        let assembled = assemble(&head, &self.rules, &members);
        let bundle = |bundle: &broker::protocol::bundle::Bundle| {
            let samples = matches!(bundle.content, BundleContent::Samples(_));
            (bundle.digest, samples)
        };
        GroupEnd {
            outcome: Ended::of(&members, None).outcome(&assembled),
            bundles: assembled.bundles.values().map(bundle).collect(),
        }
    }
}
