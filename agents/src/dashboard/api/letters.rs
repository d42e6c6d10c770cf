//! Dead letters, a page at a time. A look takes all of them off the queue for a moment, so looks
//! are rare.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::dashboard::answer::ApiError;
use crate::dashboard::command_answers::CommandAnswers;
use crate::dashboard::letter_page::{LetterPage, Letters, LettersQuery};
use crate::run_folder::RunFolder;

/// The time for which an answer is repeated.
const KEPT: Duration = Duration::from_secs(5);

/// The last answer of each run. The lock makes looks wait for each other.
#[derive(Default)]
pub(crate) struct Cache(Mutex<HashMap<PathBuf, (Instant, LettersQuery, Letters)>>);

impl Cache {
    pub(crate) async fn read(
        &self,
        commands: &dyn CommandAnswers,
        folder: &RunFolder,
        query: LettersQuery,
    ) -> Result<Letters, ApiError> {
        let mut known = self.0.lock().await;
        known.retain(|_, (at, _, _)| at.elapsed() < KEPT);
        if let Some((_, asked, letters)) = known.get(folder.path())
            && *asked == query
        {
            return Ok(letters.clone());
        }
        let mut page = LetterPage::new(&query)?;
        let looked = commands.letters(folder, &mut page).await;
        let letters = page.finish(looked.map_err(|error| format!("{error:#}")))?;
        known.insert(folder.path().to_owned(), (Instant::now(), query, letters.clone()));
        Ok(letters)
    }

    /// Looks again at the next request: the letters have changed.
    pub(crate) async fn forget(&self, run: &Path) {
        self.0.lock().await.remove(run);
    }
}
