//! A bound of a reward, as people write it: `>0.5`.

use std::str::FromStr;

/// Returns true if a reward keeps a bound.
type Comparison = fn(&f64, &f64) -> bool;

/// A bound of a reward.
#[derive(Debug, Clone, Copy)]
pub struct RewardBound {
    compare: Comparison,
    value: f64,
}

impl FromStr for RewardBound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds: [(&str, Comparison); 5] = [
            (">=", f64::ge),
            ("<=", f64::le),
            (">", f64::gt),
            ("<", f64::lt),
            ("=", f64::eq),
        ];
        let text = text.trim();
        let found = kinds
            .into_iter()
            .find_map(|(sign, compare)| Some((compare, text.strip_prefix(sign)?)));
        let (compare, number) = found.ok_or("write >, >=, <, <= or = and a number, for example '>0.5'")?;
        let value = number
            .trim()
            .parse()
            .map_err(|_| format!("{number:?} is not a number"))?;
        Ok(Self { compare, value })
    }
}

impl RewardBound {
    #[must_use]
    pub fn holds(self, reward: f64) -> bool {
        (self.compare)(&reward, &self.value)
    }
}
