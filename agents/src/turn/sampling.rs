//! The sampling settings of one turn.

use broker::protocol::turn::Sampling;
use configs::{RoleSampling, SamplingConfig};

/// Returns the sampling of a turn: the role's settings where it has some, else the agent's. The
/// least of all limits counts.
pub fn sampling(
    agent: SamplingConfig,
    role: Option<&RoleSampling>,
    limit: Option<u32>,
    mut stop: Vec<String>,
    greedy: bool,
) -> Sampling {
    let temperature = role.and_then(|role| role.temperature).unwrap_or(agent.temperature);
    let limits = [limit, role.and_then(|role| role.max_new_tokens)];
    let contexts = [agent.max_context, role.and_then(|role| role.max_context)];
    for text in role.into_iter().flat_map(|role| &role.stop) {
        if !stop.contains(text) {
            stop.push(text.clone());
        }
    }
    Sampling {
        temperature: if greedy { 0.0 } else { temperature },
        top_p: agent.top_p,
        top_k: agent.top_k,
        min_p: agent.min_p,
        max_new_tokens: limits.into_iter().flatten().fold(agent.max_new_tokens, u32::min),
        max_context: contexts.into_iter().flatten().filter(|cap| *cap > 0).min(),
        stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_own_sampling_within_its_agents() {
        let agent = SamplingConfig {
            temperature: 1.0,
            max_new_tokens: 100,
            ..SamplingConfig::default()
        };
        let role = RoleSampling {
            temperature: Some(0.5),
            max_new_tokens: Some(50),
            max_context: Some(150),
            stop: vec!["END".into(), "\n".into()],
        };
        let stop = || vec!["END".to_owned()];
        let own = sampling(agent, Some(&role), Some(80), stop(), false);
        assert_eq!((own.temperature, own.max_new_tokens), (0.5, 50));
        assert_eq!(own.max_context, Some(150));
        assert_eq!(own.stop, ["END", "\n"]);
        assert_eq!(sampling(agent, Some(&role), Some(8), stop(), true).max_new_tokens, 8);
        assert_eq!(sampling(agent, Some(&role), None, stop(), true).temperature, 0.0);
        let plain = sampling(agent, None, None, stop(), false);
        assert_eq!(
            (plain.temperature, plain.max_new_tokens, plain.max_context, plain.stop),
            (1.0, 100, None, stop())
        );
        let capped = SamplingConfig {
            max_context: Some(120),
            ..agent
        };
        assert_eq!(sampling(capped, None, None, stop(), false).max_context, Some(120));
        let taken_back = SamplingConfig {
            max_context: Some(0),
            ..agent
        };
        assert_eq!(sampling(taken_back, None, None, stop(), false).max_context, None);
        let own = sampling(taken_back, Some(&role), None, stop(), false);
        assert_eq!(own.max_context, Some(150));
    }
}
