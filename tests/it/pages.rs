//! The pages: their budgets, their links, and their commands, which are run as written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tests::program::Program;

/// Words of all pages together.
const WORDS: usize = 27_000;
const WORDS_OF_README: usize = 700;
const BYTES_OF_ARCHITECTURE: usize = 20 * 1024;
const WORDS_OF_A_PARAGRAPH: usize = 80;
const WORDS_OF_A_CELL: usize = 40;

/// A block with this first line is not run; the rest of the line states what it needs.
const NEEDS: &str = "# needs ";
/// A block with this first line is run next to an endless run.
const WHILE: &str = "# while ";

/// Returns every page of the repository, by its path from the root.
fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![Program::root()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let skipped = ["target", "runs", "stones"].contains(&name.as_str()) || name.starts_with('.');
            if path.is_dir() && !skipped {
                open.push(path);
            } else if name.ends_with(".md") {
                let page = path.strip_prefix(Program::root()).unwrap().display().to_string();
                found.push((page, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Returns the lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The number of words: tokens with a letter or a digit. A table's pipes and rules do not count.
fn words(text: &str) -> usize {
    text.split_whitespace()
        .filter(|token| token.contains(char::is_alphanumeric))
        .count()
}

#[test]
fn pages_keep_their_budgets() {
    let pages = pages();
    assert!(pages.len() > 20, "{} pages", pages.len());
    let of = |name: &str| &pages.iter().find(|(page, _)| page == name).unwrap().1;
    let all: usize = pages.iter().map(|(_, text)| words(text)).sum();
    assert!(all <= WORDS, "all pages have {all} words, of {WORDS}");
    assert!(words(of("README.md")) <= WORDS_OF_README);
    assert!(of("ARCHITECTURE.md").len() <= BYTES_OF_ARCHITECTURE);
}

#[test]
fn paragraphs_and_cells_are_short() {
    for (page, text) in pages() {
        let lines: Vec<&str> = prose(&text).collect();
        let is_own =
            |line: &&str| line.is_empty() || line.starts_with(['#', '|', '-', '*', '>']) || line.starts_with("1.");
        let mut paragraph = String::new();
        for line in lines.iter().chain([&""]) {
            if is_own(line) {
                let count = words(&paragraph);
                assert!(count <= WORDS_OF_A_PARAGRAPH, "{page}: {count} words: {paragraph}");
                paragraph.clear();
            }
            if !line.starts_with(['#', '|']) {
                paragraph = format!("{paragraph} {line}");
            }
            for cell in line.strip_prefix('|').into_iter().flat_map(|row| row.split('|')) {
                assert!(
                    words(cell) <= WORDS_OF_A_CELL,
                    "{page}: a cell of {} words: {cell}",
                    words(cell)
                );
            }
        }
    }
}

#[test]
fn links_lead_to_pages_and_headings() {
    let pages = pages();
    let anchors = |text: &str| -> BTreeSet<String> {
        let headings = prose(text).filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
    };
    for (page, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(page).parent().unwrap();
            let target = if file.is_empty() {
                PathBuf::from(page)
            } else {
                normal(&folder.join(file))
            };
            assert!(
                Program::root().join(&target).exists(),
                "{page} links {link}, which is not there"
            );
            if let Some((_, text)) = pages.iter().find(|(page, _)| Path::new(page) == target) {
                let is_there = heading.is_empty() || anchors(text).contains(heading);
                assert!(
                    is_there,
                    "{page} links {link}, and {} has no such heading",
                    target.display()
                );
            }
        }
    }
}

/// Returns the anchor of a heading as repository hosts write it.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// Returns the path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        if part.as_os_str() == ".." {
            path.pop();
        } else {
            path.push(part);
        }
        path
    })
}

/// Returns the shell blocks of a page, in order.
fn blocks(text: &str) -> Vec<String> {
    text.split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Returns the script of a page: its blocks, in one shell, after a short run if the page expects
/// one.
fn script(text: &str, first: &str, endless: &str) -> String {
    let mut script = include_str!("pages.sh").to_owned();
    if !first.is_empty() {
        script += &format!("dyad {first}\n");
    }
    for block in blocks(text) {
        if block.starts_with(NEEDS) {
            continue;
        }
        // tests/docker/prove.sh runs containers.
        let lines = block.lines().filter(|line| !line.starts_with("docker "));
        let block: String = lines.map(|line| format!("{line}\n")).collect();
        if block.starts_with(WHILE) {
            script += &format!("while_runs {endless}\n{block}stop\n");
        } else {
            script += &block;
        }
    }
    script
}

/// Runs the commands of a page in a folder that looks like the root. `endless` is the run of its `#
/// while` blocks, `first` a run that is made before.
fn run(page: &str, first: &str, endless: &str) {
    let home = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(Program::root()).unwrap().flatten() {
        let name = entry.file_name();
        if !["runs", "target", ".git", ".env"].iter().any(|other| name == *other) {
            std::os::unix::fs::symlink(entry.path(), home.path().join(name)).unwrap();
        }
    }
    let text = std::fs::read_to_string(Program::root().join(page)).unwrap();
    std::fs::write(home.path().join("page.sh"), script(&text, first, endless)).unwrap();
    let mut command = Command::new("bash");
    if let Some(python) = std::env::var_os("DYAD_TEST_PYTHON") {
        let folder = Path::new(&python).parent().unwrap().to_owned();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", folder.display()));
    }
    let output = command
        .arg("page.sh")
        .current_dir(home.path())
        .env("DYAD", crate::DYAD)
        .env("OWN_WORKFLOW", env!("CARGO_BIN_EXE_own-workflow"))
        .env_remove("DYAD_BROKER")
        .env_remove("DYAD_STATE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "a command of {page} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Makes one test for each page with commands, so that pages run in parallel.
macro_rules! commands_work {
    ($($(#[$attribute:meta])* $name:ident: $page:literal, $first:literal, $endless:literal;)*) => {
        const WITH_COMMANDS: &[&str] = &[$($page),*];

        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                run($page, $first, $endless);
            }
        )*
    };
}

commands_work! {
    readme_commands_work: "README.md", "", "up configs/signal.toml --mode async";
    #[ignore = "slow: `make test-long`; other tests run the same commands"]
    operating_commands_work: "agents/README.md", "", "up configs/signal.toml --mode async";
    #[ignore = "slow: `make test-long`; other tests run the same commands"]
    engines_commands_work: "agents/ENGINES.md", "", "up engines.toml";
    evaluating_commands_work: "agents/EVALUATING.md", "", "";
    gpu_commands_work: "agents/GPU.md", "", "";
    http_commands_work: "agents/HTTP.md", "", "run mine.toml";
    #[ignore = "slow: `make test-long`; other tests run the same commands"]
    publishing_commands_work: "agents/PUBLISHING.md", "", "up configs/signal.toml --mode async";
    troubleshooting_commands_work: "agents/TROUBLESHOOTING.md", "run configs/signal.toml", "";
    broker_commands_work: "broker/README.md", "", "";
    configuration_commands_work: "configs/README.md", "", "";
    data_commands_work: "configs/DATA.md", "", "";
    #[ignore = "slow: `make test-long`; other tests run the same commands"]
    tutorial_commands_work: "configs/TUTORIAL.md", "", "up configs/guess-number.toml --mode async";
    own_workflow_commands_work: "rollout/OWN-WORKFLOW.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_actor_verifier_commands_work: "configs/recipes/actor-verifier.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_adversarial_commands_work: "configs/recipes/adversarial.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_deep_research_commands_work: "configs/recipes/deep-research.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_doctor_patient_commands_work: "configs/recipes/doctor-patient.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_guess_number_commands_work: "configs/recipes/guess-number.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_image_turns_commands_work: "configs/recipes/image-turns.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_self_reward_commands_work: "configs/recipes/self-reward.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_team_commands_work: "configs/recipes/solve-rewrite-select.md", "", "";
    #[ignore = "slow: `make test-long`; recipes*.rs run the same configurations"]
    recipe_two_lora_commands_work: "configs/recipes/two-lora.md", "", "";
}

#[test]
fn every_page_with_commands_is_run() {
    let pages = pages();
    let with: BTreeSet<&str> = pages
        .iter()
        .filter(|(_, text)| !blocks(text).is_empty())
        .map(|(page, _)| page.as_str())
        .collect();
    assert_eq!(with, WITH_COMMANDS.iter().copied().collect());
}
