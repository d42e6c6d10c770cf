//! The pack for GPU hosts, made and run without a GPU. Parts that need torch for Python are left
//! out.

use std::path::Path;
use std::process::Command;

use tests::program::Program;

use crate::wheel::{libtorch, succeed};

#[test]
#[ignore = "three minutes: a pack, two runs of signal, and all losses on two ranks"]
fn gpu_pack_runs_on_a_cpu() {
    let home = tempfile::tempdir().unwrap();
    let (packed, results) = (home.path().join("packed"), home.path().join("results"));
    let programs = Path::new(crate::DYAD).parent().unwrap();
    let mut make = Command::new("bash");
    make.arg(Program::root().join("trainer/bench/pack/make.sh"));
    succeed(make.args([programs, &packed]).env("DEVICE", "cpu"));
    let parts = ["doctor", "opens", "signal-cpu", "signal", "same-seed", "two-gpus"];
    let mut there = Command::new("bash");
    there.arg(packed.join("there.sh")).arg(&results).args(parts);
    // Its parts are tests of other programs, which this test's settings would change.
    there.env_remove("DYAD_BROKER").env_remove("DYAD_STATE");
    let table = succeed(there.env("DEVICE", "cpu").env("LIBTORCH", libtorch()));
    for part in parts {
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("{part} ")))
            .unwrap();
        let code = line.split_whitespace().nth(1);
        let log = std::fs::read_to_string(results.join(format!("{part}.log"))).unwrap();
        assert_eq!(code, Some("0"), "{line}\n{log}");
    }
    assert!(table.contains("| 2 | full none"), "{table}");
}

/// A renamed test would otherwise pass without running.
#[test]
fn test_that_the_pack_does_not_have_fails() {
    let pack = tempfile::tempdir().unwrap();
    std::fs::create_dir(pack.path().join("bin")).unwrap();
    let tests = std::env::current_exe().unwrap();
    std::os::unix::fs::symlink(tests, pack.path().join("bin/trainer-tests")).unwrap();
    let there = Program::root().join("trainer/bench/pack/there.sh");
    let script = r#"source <(sed -n '/^one-test()/,/^}/p' "$1"); pack=$2; one-test 60 no::such::test"#;
    let mut bash = Command::new("bash");
    let ran = bash
        .args(["-c", script, "bash"])
        .arg(there)
        .arg(pack.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("no::such::test was not run"), "{said}");
}
