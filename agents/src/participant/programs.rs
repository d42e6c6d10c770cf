//! Checks that the programs of a configuration can be started on this machine.

use std::os::unix::fs::PermissionsExt;

use broker::local::process::find_binary;
use configs::{PROCESS, Problem, RunConfig, SuiteConfig};

use super::worker::interpreter;

/// The problems with the programs of the workflow, graders and tools: a missing file or
/// interpreter, or a file that is no executable.
pub fn check_programs(config: &RunConfig) -> Vec<Problem> {
    // Only `dyad eval` plays the other suites.
    let programs = programs(config, |suite| suite.every.is_some_and(|every| every > 0)).into_iter();
    let problem = |(path, file): (String, &str)| {
        let message = cannot_start(file)?;
        Some(Problem { path, message })
    };
    programs.filter_map(problem).collect()
}

/// Returns the key and file of each program of the workflow, graders, suites and tools; suites are
/// filtered by `wanted`.
pub fn programs(config: &RunConfig, wanted: impl Fn(&SuiteConfig) -> bool) -> Vec<(String, &str)> {
    let workflow = std::iter::once(("workflow.kind".to_owned(), config.workflow.kind.as_str()));
    let graders = config.graders.iter();
    let graders = graders.map(|(name, grader)| (format!("graders.{name}.kind"), grader.kind.as_str()));
    let suites = config.eval.suites.iter().filter(|(_, suite)| wanted(suite));
    let suites =
        suites.filter_map(|(name, suite)| Some((format!("eval.suites.{name}.grader"), suite.grader.as_deref()?)));
    let tools = config.tools.iter();
    let tools = tools.map(|(name, tool)| (format!("tools.{name}.kind"), tool.kind.as_str()));
    let all = workflow.chain(graders).chain(suites).chain(tools);
    all.filter_map(|(key, kind)| Some((key, kind.strip_prefix(PROCESS)?)))
        .collect()
}

fn cannot_start(file: &str) -> Option<String> {
    let Ok(found) = std::fs::metadata(file) else {
        return Some(format!(
            "there is no file {file:?}: paths count from the working directory"
        ));
    };
    if let Some(program) = interpreter(file) {
        let missing = find_binary(&[], program).is_none();
        return missing.then(|| {
            format!("{file} needs {program}, which is not on PATH here: install it (in a container, extend the image)")
        });
    }
    (found.permissions().mode() & 0o111 == 0)
        .then(|| format!("{file} is not executable: `chmod +x {file}`, or end its name in .py or .sh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_without_the_right_to_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grader");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let mut config = crate::run_folder::tests::config_in(folder.path());
        config.graders.insert(
            "own".into(),
            configs::GraderConfig::of(&format!("process:{}", file.display())),
        );
        let [problem] = &check_programs(&config)[..] else {
            panic!("one program")
        };
        assert_eq!(problem.path, "graders.own.kind");
        assert!(
            problem.message.contains("is not executable: `chmod +x "),
            "{}",
            problem.message
        );
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_programs(&config).is_empty());
    }

    #[test]
    fn script_needs_no_right_to_run_but_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grader.sh");
        let file = file.to_str().unwrap();
        assert!(cannot_start(file).unwrap().starts_with("there is no file"));
        std::fs::write(file, "exit 0\n").unwrap();
        assert_eq!(cannot_start(file), None);
    }
}
