//! Numbers of a transcript: JSON cannot hold values that are not finite, so they are null there.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A number, NaN for null.
#[derive(Deserialize)]
#[serde(transparent)]
struct Figure(#[serde(deserialize_with = "number")] f64);

/// Reads a number, NaN for null.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Reads numbers by name.
pub(crate) fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    Ok(plain(BTreeMap::deserialize(from)?))
}

/// Reads numbers by two names.
pub(crate) fn by_two_names<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, BTreeMap<String, f64>>, D::Error> {
    let found: BTreeMap<String, BTreeMap<String, Figure>> = BTreeMap::deserialize(from)?;
    Ok(found
        .into_iter()
        .map(|(name, figures)| (name, plain(figures)))
        .collect())
}

fn plain(figures: BTreeMap<String, Figure>) -> BTreeMap<String, f64> {
    figures.into_iter().map(|(name, Figure(value))| (name, value)).collect()
}
