//! Checks that an engine process reads the same model folder as its agent.
//!
//! Fetched weights are compared by their digest. This check covers the other properties that an
//! answer depends on: rotary base, epsilon of the norms, context, tokens and stop tokens.

use std::collections::BTreeMap;

use broker::ids::Digest;
use rollout::text::TextCodec;
use trainer::model::ModelShape;

/// Properties by name that an engine's answers depend on.
pub(crate) type Facts = BTreeMap<String, String>;

/// Returns the properties of a model and its tokenizer.
pub(crate) fn facts(shape: &ModelShape, text: &TextCodec) -> Facts {
    let mut facts = shape.settings();
    facts.insert("stop ids".into(), format!("{:?}", text.stop_ids()));
    facts.insert("tokens".into(), tokens(text));
    // Stop texts do not apply inside a reasoning that the template began.
    facts.insert(
        "the beginning of an answer".into(),
        format!("{:?}", text.answers_begin_with()),
    );
    facts
}

/// Returns a digest of every token's bytes, and of the control tokens.
fn tokens(text: &TextCodec) -> String {
    let mut all = Vec::new();
    for id in 0..u32::try_from(text.vocab_size()).unwrap_or(u32::MAX) {
        let bytes = text.bytes(id);
        let length = bytes.as_ref().map_or(u64::MAX, |bytes| bytes.len() as u64);
        all.extend_from_slice(&length.to_le_bytes());
        all.push(u8::from(text.is_control(id)));
        all.extend(bytes.unwrap_or_default());
    }
    Digest::of(&all).to_string()
}

/// Returns the first property in which an engine differs from its agent, as text.
pub(crate) fn difference(engine: &Facts, agent: &Facts) -> Option<String> {
    let none = "nothing".to_owned();
    let names = engine.keys().chain(agent.keys());
    let both = |name| [engine, agent].map(|facts| facts.get(name).unwrap_or(&none));
    let (name, [ours, theirs]) = names
        .map(|name| (name, both(name)))
        .find(|(_, [ours, theirs])| ours != theirs)?;
    Some(format!(
        "this engine's model folder differs from its agent's: {name} is {ours} here and {theirs} there; start it with the agent's model folder"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_with_both_values() {
        let facts = |pairs: &[(&str, &str)]| -> Facts {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let ours = facts(&[("rms_norm_eps", "1e-6"), ("rope_theta", "10000.0")]);
        assert_eq!(difference(&ours, &ours), None);
        let other = facts(&[("rms_norm_eps", "1e-6"), ("rope_theta", "500000.0")]);
        let reason = difference(&ours, &other).unwrap();
        assert!(
            reason.contains("rope_theta is 10000.0 here and 500000.0 there"),
            "{reason}"
        );
        let more = facts(&[
            ("mlp_bias", "true"),
            ("rms_norm_eps", "1e-6"),
            ("rope_theta", "10000.0"),
        ]);
        assert!(difference(&ours, &more).unwrap().contains("mlp_bias is nothing here"));
        assert!(
            difference(&more, &ours)
                .unwrap()
                .contains("mlp_bias is true here and nothing there")
        );
    }
}
