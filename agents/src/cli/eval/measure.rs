//! Plays one set of tasks and scores it.

use std::collections::BTreeMap;

use broker::AgentName;
use configs::RunConfig;
use rollout::group::Rules;
use serde::Serialize;

use crate::eval::engines::Seat;
use crate::eval::play::{Manner, Player};
use crate::eval::pool::Pool;
use crate::eval::score::{self, Conversation, Score};
use crate::eval::suites::Set;
use crate::run_folder::RunFolder;

#[derive(Serialize)]
pub struct Measured {
    pub suite: Option<String>,
    pub temperature: f64,
    pub score: Score,
    pub conversations: Vec<Conversation>,
    /// Each task's key, which stays the same when its id changes.
    #[serde(skip)]
    pub keys: BTreeMap<String, String>,
}

/// Name of the verifier's frozen pool as a set.
const POOL: &str = "pool";

/// Returns the frozen pool of the run's own evaluations, if one was chosen.
pub(super) fn pool(config: &RunConfig, home: Option<&RunFolder>) -> anyhow::Result<Option<Pool>> {
    let Some(home) = home else { return Ok(None) };
    Ok(Pool::open(config, &home.pool())?.filter(Pool::is_chosen))
}

pub(super) async fn measure(
    config: &RunConfig,
    set: Set,
    seats: &BTreeMap<AgentName, Seat>,
) -> anyhow::Result<Measured> {
    let rules = Rules::of(&config.workflow, &*set.workflow, Default::default());
    let player = Player::new(config, set.workflow.clone(), seats).of_suite(set.name.clone());
    // The waves are those of a run's evaluations, so that the bits are equal: the tasks of [eval]
    // are one wave, a suite is cut into chunks.
    let greedy = match set.name {
        None => player.play(&set.tasks, Manner::Greedy).await?,
        Some(_) => player.play_in_chunks(&set.tasks, Manner::Greedy).await?,
    };
    let mut conversations = score::conversations(&rules, &*set.workflow, &greedy, true);
    if set.samples > 0 {
        let manner = Manner::Sampled {
            samples: set.samples,
            temperature: set.temperature as f32,
        };
        let sampled = player.play_in_chunks(&set.tasks, manner).await?;
        conversations.extend(score::conversations(&rules, &*set.workflow, &sampled, false));
    }
    Ok(Measured {
        score: score::score(&conversations, usize::from(set.samples)),
        keys: set.keys,
        suite: set.name,
        temperature: set.temperature,
        conversations,
    })
}

/// Measures the verifier on its pool. The figures are the workflow's, without rewards and tokens,
/// as in a run's evaluations.
pub(super) async fn measure_pool(
    config: &RunConfig,
    pool: &Pool,
    seats: &BTreeMap<AgentName, Seat>,
) -> anyhow::Result<Measured> {
    let workflow = pool.workflow();
    let rules = Rules::of(&config.workflow, &*workflow, Default::default());
    let judge = Player::new(config, workflow.clone(), seats);
    let played = judge.play(&pool.tasks(), Manner::Greedy).await?;
    let mut conversations = score::conversations(&rules, &*workflow, &played, true);
    let kept = |name: &String| name != score::TOKENS && !name.contains('/');
    for one in &mut conversations {
        one.figures.retain(|name, _| kept(name));
    }
    Ok(Measured {
        score: score::score(&conversations, 0),
        suite: Some(POOL.into()),
        temperature: 0.0,
        conversations,
        // The pool's tasks are answers; no run trains on them.
        keys: BTreeMap::new(),
    })
}
