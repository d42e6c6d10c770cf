//! `dyad conversation ID`: shows a conversation and its rewards.

use clap::Args;

use super::render::conversation::render;
use super::select::RunArg;
use crate::base::fault::Usage;
use crate::run_folder::logs::{find_conversation, printable};

/// Conversations shown at most when the start of an id means many.
const MOST: usize = 20;

/// Show a conversation with its rewards
#[derive(Debug, Args)]
pub struct ConversationArgs {
    /// `<group>/<member>`, or the start of it
    pub id: String,
    /// As stored, one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub run: RunArg,
}

pub fn run(args: &ConversationArgs) -> anyhow::Result<()> {
    let folder = args.run.folder()?;
    let found = find_conversation(&folder.path().join("transcripts"), &args.id)?;
    if found.is_empty() {
        return Err(Usage::new(format!("run {} has no transcript of {:?}", folder.run(), args.id))
            .hint("ids stand in transcripts/*.jsonl; run.transcripts decides which are written; an open conversation has none yet")
            .into());
    }
    for transcript in found.iter().take(MOST) {
        if args.json {
            println!("{}", printable(&serde_json::to_string(transcript)?));
        } else {
            println!("{}", render(transcript));
        }
    }
    if found.len() > MOST {
        eprintln!("... and {} more begin so", found.len() - MOST);
    }
    Ok(())
}
