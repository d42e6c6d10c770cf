//! `dyad schema`: what users write, as JSON Schema.

pub mod types;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::render::table::{Align, Table};
use crate::base::fault::Usage;

/// Print the JSON Schema of a task, a configuration or a program's questions and answers
///
/// Generated from the types that read them (draft 2020-12). The same lie in configs/schema/.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which one; without it, the names that there are
    pub name: Option<String>,
    /// Write all of them into this folder, as NAME.json
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
        println!("{} schemas are in {}", types::ALL.len(), folder.display());
        return Ok(());
    }
    let Some(name) = &args.name else {
        let mut table = Table::new(&[("schema", Align::Left), ("of", Align::Left)]);
        for one in &types::ALL {
            table.row(vec![one.name.into(), one.about.into()]);
        }
        print!("{table}");
        return Ok(());
    };
    let names: Vec<&str> = types::ALL.iter().map(|one| one.name).collect();
    let one = types::find(name).ok_or_else(|| {
        Usage::new(format!("there is no schema {name:?}")).hint(format!("there are: {}", names.join(", ")))
    })?;
    print!("{}", one.text());
    Ok(())
}
