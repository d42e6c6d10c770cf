//! Dead letters. A read takes all of them off the queue for a moment, so reads are rare.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::dashboard::command_answers::CommandAnswers;
use crate::dashboard::runs::now_ms;
use crate::run_folder::RunFolder;

/// The time for which an answer is repeated.
const KEPT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Letters {
    letters: Vec<Value>,
    /// Why the queue cannot be read.
    offline: Option<String>,
    at_ms: u64,
}

/// The last answer of each run. The lock makes reads wait for each other.
#[derive(Default)]
pub(crate) struct Cache(Mutex<HashMap<PathBuf, (Instant, Letters)>>);

impl Cache {
    pub(crate) async fn read(&self, commands: &dyn CommandAnswers, folder: &RunFolder) -> Letters {
        let mut known = self.0.lock().await;
        if let Some((at, letters)) = known.get(folder.path())
            && at.elapsed() < KEPT
        {
            return letters.clone();
        }
        let (letters, offline) = match commands.letters(folder).await {
            Ok(letters) => (letters, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        };
        let letters = Letters {
            letters,
            offline,
            at_ms: now_ms(),
        };
        known.insert(folder.path().to_owned(), (Instant::now(), letters.clone()));
        letters
    }

    /// Reads the letters again at the next request: they have changed.
    pub(crate) async fn forget(&self, run: &Path) {
        self.0.lock().await.remove(run);
    }
}
