//! `dyad schema`: JSON Schemas of users' files and messages.

pub mod types;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::render::table::{Align, Table};
use crate::base::fault::Usage;

/// Print a JSON Schema: task, configuration, or a program's messages
///
/// The schemas (draft 2020-12) are generated from the types that read the data. The same files are
/// in configs/schema/.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Name of the schema; without it all names are listed
    pub name: Option<String>,
    /// Write all schemas to this folder, as NAME.json
    #[arg(long, value_name = "FOLDER", conflicts_with = "name")]
    pub out: Option<PathBuf>,
}

pub fn run(args: &SchemaArgs) -> anyhow::Result<()> {
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for one in &types::ALL {
            let path = folder.join(format!("{}.json", one.name));
            std::fs::write(&path, one.text()).with_context(|| format!("writing {}", path.display()))?;
        }
        println!("wrote {} schemas to {}", types::ALL.len(), folder.display());
        return Ok(());
    }
    let Some(name) = &args.name else {
        let mut table = Table::new(&[("schema", Align::Left), ("describes", Align::Left)]);
        for one in &types::ALL {
            table.row(vec![one.name.into(), one.about.into()]);
        }
        print!("{table}");
        return Ok(());
    };
    let names: Vec<&str> = types::ALL.iter().map(|one| one.name).collect();
    let one = types::find(name).ok_or_else(|| {
        Usage::new(format!("no schema is named {name:?}")).hint(format!("the names are: {}", names.join(", ")))
    })?;
    print!("{}", one.text());
    Ok(())
}
