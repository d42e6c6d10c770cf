//! Writes `report.html`: one page that shows how a run went. Self-contained: no network, light and
//! dark.

pub mod audit;
mod chart;
pub(crate) mod data;
mod error;
mod html;
mod page;
pub mod repair;
mod samples;
pub mod task_accounts;

use std::path::PathBuf;

pub use data::Improvement;
pub use error::ReportError;

use crate::run_folder::RunFolder;

/// The change of each agent's reward and of each evaluated figure.
pub fn improvements(folder: &RunFolder) -> Result<Vec<Improvement>, ReportError> {
    Ok(data::read(folder)?.improvements())
}

/// The number of trained tokens, over all agents.
pub fn trained_tokens(folder: &RunFolder) -> Result<f64, ReportError> {
    let data = data::read(folder)?;
    Ok(data.train.keys().map(|agent| data.total(agent, "tokens/trained")).sum())
}

/// Writes the page into the run's folder and returns its path. The run may still be going on.
pub fn write(folder: &RunFolder) -> Result<PathBuf, ReportError> {
    let facts = page::PageFacts {
        info: folder.info()?,
        config: folder.config()?,
        data: data::read(folder)?,
        samples: samples::read(folder)?,
        audit: audit::audit(folder, None)?,
    };
    let path = folder.report();
    std::fs::write(&path, page::render(&facts)).map_err(|source| ReportError::Io {
        doing: "write",
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::logs::{Transcript, TranscriptTurn, Transcripts};
    use crate::run_folder::metrics::{Metrics, MetricsWriter};
    use crate::run_folder::tests::config_in;

    /// A run of 60 steps that learned, with markup in the conversations.
    fn run(base: &std::path::Path) -> RunFolder {
        let folder = RunFolder::create(base, &config_in(base), None).unwrap();
        for name in ["a", "b"] {
            let agent = broker::AgentName::new(name).unwrap();
            let writer = MetricsWriter::open(&folder.metrics(name), None).unwrap();
            for step in 1..=60u64 {
                let reward = 1.0 - (-(step as f64) / 20.0).exp();
                let kl = if name == "a" {
                    "loss/reference_kl"
                } else {
                    "advantage/kl"
                };
                let line = Metrics::train(&agent, step)
                    .with("reward/mean", reward)
                    .with("loss", 0.3 - 0.2 * reward)
                    .with("optim/grad_norm", 1.0 / step as f64)
                    .with("staleness/mean", 0.5)
                    .with("advantage/zero_share", 0.25)
                    .with(kl, 0.01 * reward)
                    .with("mismatch/behaviour_kl", 1e-4)
                    .with("mismatch/on_policy_gap", 1e-6)
                    .with("time/train_s", 0.1)
                    .with("tokens", 256)
                    .with("time/elapsed_s", step as f64 * 0.25);
                writer.write(line);
            }
            writer.flush();
        }
        let writer = MetricsWriter::open(&folder.metrics("coordinator-x"), None).unwrap();
        for step in [0u64, 30, 60] {
            writer.write(Metrics::eval(step).with("success", step as f64 / 60.0));
            let line = Metrics::new("coordinator", step)
                .with("conversations", step * 256)
                .with("turns", step * 512);
            writer.write(line.with("time/elapsed_s", step as f64 / 4.0 + 0.1));
        }
        writer.flush();
        let transcripts = Transcripts::open(&folder.transcripts("coordinator-x")).unwrap();
        for (step, text) in [(0, "<script>alert(1)</script>"), (60, "s7")] {
            transcripts.write(&Transcript {
                conversation: format!("ab{step:02}/0"),
                task: format!("eval/{step}/o3"),
                prompt: "o3".into(),
                turns: vec![TranscriptTurn {
                    role: "speaker".into(),
                    agent: "a".into(),
                    text: text.into(),
                    tokens: 1,
                    ..TranscriptTurn::default()
                }],
                rewards: [("speaker".to_owned(), [("total".to_owned(), 1.0)].into())].into(),
                status: "completed".into(),
                step,
                eval: true,
                ..Transcript::default()
            });
        }
        transcripts.flush();
        folder
    }

    #[test]
    fn the_page_has_curves_conversations_and_no_links() {
        let base = tempfile::tempdir().unwrap();
        let folder = run(base.path());
        let path = write(&folder).unwrap();
        if let Some(kept) = std::env::var_os("DYAD_KEEP_REPORT") {
            std::fs::copy(&path, kept).unwrap();
        }
        let html = std::fs::read_to_string(path).unwrap();
        for part in [
            "Reward",
            "Evaluation",
            "Staleness",
            "Conversations per second",
            "Groups without an advantage",
            "KL to the reference",
            "Mismatch: KL to the weights that sampled",
            "a equal weights",
            "a waits",
            "dyad conversation ab60/0",
            "<polyline",
            "signal-game",
            "max_staleness",
        ] {
            assert!(html.contains(part), "{part} is missing");
        }
        let (_, kl) = html.split_once("KL to the reference").unwrap();
        let (kl, _) = kl.split_once("</figure>").unwrap();
        assert_eq!(kl.matches("class=\"key ").count(), 2, "in the loss and in the rewards");
        assert!(
            html.contains("&lt;script&gt;alert(1)"),
            "a conversation's text is escaped"
        );
        assert!(!html.contains("<script>alert"));
        for foreign in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(foreign), "{foreign}: the page must need no network");
        }
    }

    #[test]
    fn a_run_without_a_batch_has_a_page() {
        let base = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(base.path(), &config_in(base.path()), None).unwrap();
        let html = std::fs::read_to_string(write(&folder).unwrap()).unwrap();
        assert!(html.contains("No batch was trained yet"), "it says so");
    }
}
