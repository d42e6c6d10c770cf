//! `generator:arithmetic`: problems like `37+48=`, split into train and held-out ones by a hash of
//! the problem.

use broker::protocol::task::{Prompt, Task};
use serde_json::{Map, Value};

use crate::random::Random;
use crate::tasks::{Pool, Split, TasksError};

/// The most problems of one pool; they are listed in memory, 4 bytes each.
const LARGEST: u64 = 1 << 22;

/// `left op right`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArithmeticProblem {
    pub left: i64,
    pub op: char,
    pub right: i64,
}

impl ArithmeticProblem {
    #[must_use]
    pub fn answer(self) -> i64 {
        match self.op {
            '-' => self.left - self.right,
            '*' => self.left * self.right,
            _ => self.left + self.right,
        }
    }

    /// Returns the answer without the carry out of the units (in a difference: without the borrow).
    /// It is the right answer where there is no carry, and for products.
    #[must_use]
    pub fn slipped(self) -> i64 {
        let (left, right) = (self.left % 10, self.right % 10);
        match self.op {
            '+' if left + right > 9 => self.answer() - 10,
            '-' if left < right => self.answer() + 10,
            _ => self.answer(),
        }
    }

    /// `37+48=`
    #[must_use]
    pub fn text(self) -> String {
        format!("{}{}{}=", self.left, self.op, self.right)
    }

    #[must_use]
    pub fn task(self) -> Task {
        let (prompt, label) = (Prompt::Text(self.text()), Value::from(self.answer()));
        Task {
            id: None,
            workflow: None,
            prompt,
            label,
            metadata: Map::new(),
            tools: None,
        }
    }

    /// Returns a uniform number in `[0, 1)`, equal for `a+b` and `b+a`, so that a train problem
    /// never reveals a held-out one.
    fn place(self) -> f64 {
        let (low, high) = match self.op {
            '-' => (self.left, self.right),
            _ => (self.left.min(self.right), self.left.max(self.right)),
        };
        let hash = blake3::derive_key("dyad arithmetic split v1", format!("{low}{}{high}", self.op).as_bytes());
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&hash[..8]);
        (u64::from_le_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// All problems of one split.
pub struct Arithmetic {
    min: i64,
    operands: u64,
    ops: Vec<char>,
    items: Vec<u32>,
}

impl Arithmetic {
    /// Makes the pool. Params: `min` (10) and `max` (99) of the operands, `ops` (["+"]; also "-"
    /// and "*"), `held_out` (0.2, the share of the problems that only evaluations see), `split`
    /// ("train" or "held-out", if not the given one). The error is (key, message).
    pub fn new(params: &toml::Table, split: Split) -> Result<Self, (String, String)> {
        let settings = Settings::read(params, split)?;
        let operands = (settings.max - settings.min + 1) as u64;
        let space = operands
            .saturating_mul(operands)
            .saturating_mul(settings.ops.len() as u64);
        if space > LARGEST {
            let message = format!("{space} problems are too many (limit {LARGEST}): lower max or raise min");
            return Err(("max".into(), message));
        }
        let mut pool = Self {
            min: settings.min,
            operands,
            ops: settings.ops,
            items: Vec::new(),
        };
        let is_held_out = |item: &u32| pool.at(u64::from(*item)).place() < settings.held_out;
        let wanted = settings.split == Split::HeldOut;
        // In a separate random order, so that the first few are a fair sample of all.
        let order = Random::new("dyad arithmetic order v1", 0, &[]).permutation(space as usize);
        pool.items = order.into_iter().filter(|item| is_held_out(item) == wanted).collect();
        if pool.items.is_empty() {
            return Err(("held_out".into(), "leaves no problem in one of the two parts".into()));
        }
        Ok(pool)
    }

    fn at(&self, item: u64) -> ArithmeticProblem {
        let (pair, op) = (item / self.ops.len() as u64, item as usize % self.ops.len());
        let (left, right) = ((pair / self.operands) as i64, (pair % self.operands) as i64);
        ArithmeticProblem {
            left: self.min + left,
            op: self.ops[op],
            right: self.min + right,
        }
    }

    /// Returns the problem at `item`; the count wraps around.
    #[must_use]
    pub fn problem(&self, item: u64) -> ArithmeticProblem {
        self.at(u64::from(self.items[(item % self.items.len() as u64) as usize]))
    }

    /// Returns the number of problems of this split.
    #[must_use]
    pub fn problems(&self) -> u64 {
        self.items.len() as u64
    }
}

struct Settings {
    min: i64,
    max: i64,
    ops: Vec<char>,
    held_out: f64,
    split: Split,
}

impl Settings {
    fn read(params: &toml::Table, split: Split) -> Result<Self, (String, String)> {
        let mut settings = Self {
            min: 10,
            max: 99,
            ops: vec!['+'],
            held_out: 0.2,
            split,
        };
        for (key, value) in params {
            settings.set(key, value).ok_or_else(|| (key.clone(), Self::help(key)))?;
        }
        if settings.max < settings.min {
            return Err(("max".into(), "is below min".into()));
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &toml::Value) -> Option<()> {
        let operand = || value.as_integer().filter(|n| (0..=1_000_000).contains(n));
        match key {
            "min" => self.min = operand()?,
            "max" => self.max = operand()?,
            "held_out" => self.held_out = value.as_float().filter(|part| (0.0..1.0).contains(part))?,
            "split" => {
                self.split = match value.as_str()? {
                    "train" => Split::Train,
                    "held-out" => Split::HeldOut,
                    _ => return None,
                }
            }
            "ops" => {
                let known = |op: &toml::Value| {
                    ['+', '-', '*']
                        .into_iter()
                        .find(|c| op.as_str() == Some(&c.to_string()))
                };
                self.ops = value.as_array()?.iter().map(known).collect::<Option<Vec<_>>>()?;
                self.ops.sort_unstable();
                self.ops.dedup();
                (!self.ops.is_empty()).then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    fn help(key: &str) -> String {
        match key {
            "min" | "max" => "write a whole number from 0 to 1000000",
            "held_out" => "write a part such as 0.2",
            "split" => "write \"train\" or \"held-out\"",
            "ops" => "write a list of \"+\", \"-\" and \"*\"",
            _ => "there is no such setting; known are: min, max, ops, held_out, split, seed",
        }
        .to_owned()
    }
}

impl Pool for Arithmetic {
    fn len(&self) -> u64 {
        self.problems()
    }

    fn name(&self) -> &'static str {
        "arithmetic"
    }

    fn task(&mut self, item: u64) -> Result<Task, TasksError> {
        Ok(self.problem(item).task())
    }
}
