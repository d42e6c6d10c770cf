//! Checks the API against its OpenAPI document, with schemathesis.

use std::process::Command;

use tests::program::Program;

use super::{Pages, config, id, serve};
use crate::program;

#[test]
#[ignore = "slow: `make test-long`; its client is a large environment"]
fn api_keeps_to_its_document() {
    let program = program();
    let config = config().set("run.token_records", "all");
    let folder = program.play("run", &config.save(&program), &[]);
    let run = id(&folder);
    let running = serve(&program, &run, &["--write"]);
    let pages = Pages::of(&running);
    let listed = pages.json(&format!("/api/runs/{run}/conversations?limit=1"));
    let conversation = listed["conversations"][0]["conversation"].as_str().unwrap().to_owned();
    let (group, member) = conversation.split_once('/').unwrap();
    let real = format!(
        "[parameters]\n\"path.run\" = \"{run}\"\n\"path.group\" = \"{group}\"\n\"path.member\" = \"{member}\"\n\
         \"path.process\" = \"a\"\n"
    );
    let python = std::env::var_os("DYAD_FIELD_PYTHON").unwrap_or_else(|| "tests/.venv-field/bin/python".into());
    let python = Program::root().join(python);
    // A schema cannot say which tasks a workflow takes. Limits that are too large are lowered, not
    // rejected.
    let not_promised = "positive_data_acceptance,negative_data_rejection";
    // Once with the ids of the run, and once with random ones.
    for settings in [real.as_str(), ""] {
        let _ = program.file("schemathesis.toml", settings);
        let output = Command::new(&python)
            .args([
                "-m",
                "schemathesis.cli",
                "run",
                "--checks",
                "all",
                "--max-examples",
                "40",
                "--seed",
                "1",
            ])
            .args([
                "--exclude-checks",
                not_promised,
                "--exclude-path-regex",
                "/stream$",
                "--header",
            ])
            .arg(format!("Authorization: Bearer {}", pages.token))
            .arg(format!("http://{}/api/openapi.json", pages.address))
            .current_dir(program.home())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
