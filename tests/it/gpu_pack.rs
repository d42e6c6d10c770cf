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
