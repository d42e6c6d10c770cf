//! `dyad conversation ID`: shows a conversation and its rewards.

use clap::Args;

use super::render::conversation::render;
use super::select::RunArg;
use crate::base::fault::Usage;
use crate::run_folder::logs::{find_conversation, printable};

/// Largest number of conversations shown when several ids match.
const MOST: usize = 20;

/// Show a conversation and its rewards
#[derive(Debug, Args)]
pub struct ConversationArgs {
    /// `<group>/<member>`, or the beginning of it
    pub id: String,
    /// Print the stored JSON, one object per line
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
            .hint("the ids are in transcripts/*.jsonl; run.transcripts selects which conversations are written; an open one has no transcript yet")
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
        eprintln!("... and {} more match", found.len() - MOST);
    }
    Ok(())
}
