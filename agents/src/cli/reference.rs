//! The reference of commands, `COMMANDS.md`, generated from the command line's types.

use super::help::GUIDE;
use clap::{Arg, Command, CommandFactory};

use super::Cli;

const HEAD: &str = "# Commands

`dyad COMMAND --help` explains each option. Generated from the types; do not edit. Left out below:
`--run`, `--runs`, `--broker` and `--state`, which choose a run and its servers.
";

/// Options of many commands, which the page names once.
const SHARED: [&str; 4] = ["run", "runs", "broker", "state"];

/// Returns the page as Markdown, in the groups of `dyad --help`.
fn page() -> String {
    let cli = Cli::command();
    let (groups, _) = GUIDE.split_once("\n\nFor developers").unwrap_or((GUIDE, ""));
    let mut page = HEAD.to_owned();
    for line in groups.lines() {
        if let Some(entries) = line.strip_prefix("  ") {
            let names = entries.split("  ").next().unwrap_or_default();
            names.split(", ").for_each(|name| page += &row(&cli, name));
        } else if let Some(group) = line.strip_suffix(':') {
            page += &format!("\n## {group}\n\n| command | does | options |\n|---|---|---|\n");
        }
    }
    page
}

/// Returns the row of a command that the help names like `tasks dead` or `logs AGENT`.
fn row(cli: &Command, name: &str) -> String {
    let words: Vec<&str> = name.split(' ').filter(|word| word.to_lowercase() == **word).collect();
    let find = |command: &Command, word: &&str| command.find_subcommand(word).cloned();
    let found = words.iter().try_fold(cli.clone(), |command, word| find(&command, word));
    let command = found.unwrap_or_else(|| panic!("the help names no command {name}"));
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let mut call = format!("dyad {}", words.join(" "));
    for place in command.get_positionals().filter(shown) {
        let value = value_of(place).replace(['<', '>'], "");
        call += &if place.is_required_set() {
            format!(" {value}")
        } else {
            format!(" [{value}]")
        };
    }
    let own = |arg: &&Arg| arg.get_long().is_some_and(|long| !SHARED.contains(&long));
    let options: Vec<String> = command
        .get_arguments()
        .filter(|arg| !arg.is_positional())
        .filter(own)
        .filter(shown)
        .map(option)
        .collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    format!("| `{call}` | {about} | {} |\n", options.join(", "))
}

fn option(arg: &Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    if arg.is_require_equals_set() {
        format!("`--{long}[={}]`", value_of(arg))
    } else if arg.get_action().takes_values() {
        format!("`--{long} {}`", value_of(arg))
    } else {
        format!("`--{long}`")
    }
}

fn value_of(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// After an intended change, `DYAD_GOLDEN=write cargo test -p agents commands_page` writes the
/// page.
#[test]
fn commands_page_is_that_of_the_types() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("COMMANDS.md");
    if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "COMMANDS.md is stale: run DYAD_GOLDEN=write cargo test -p agents commands_page"
    );
}
