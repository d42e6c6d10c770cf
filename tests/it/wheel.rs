//! The wheel: packed from this build, installed by pip, and used from a folder of its own.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tests::program::{Program, fail};

/// A Python environment with the wheel in it, and an empty folder to work in.
struct Host {
    home: tempfile::TempDir,
}

impl Host {
    /// Packs the wheel and installs it without its dependency.
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for folder in ["built", "work"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        symlink(crate::LIGHT, at("built/dyad")).unwrap();
        symlink(crate::DYAD, at("built/dyad-full")).unwrap();
        // The set-up compiles this library for GPU hosts only. Here any library
        // stands in for it.
        symlink(libtorch().join("lib/libc10.so"), at("built/libdyad_cuda.so")).unwrap();
        let mut pack = Command::new("python3");
        pack.arg(Program::root().join("agents/wheel.py"));
        pack.args([at("built"), at("wheels")]);
        let wheel = succeed(pack.env("DYAD_LIBTORCH_CUDA", at("built/libtorch_cuda.so")));
        succeed(Command::new("python3").args(["-m", "venv"]).arg(at("venv")));
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"];
        succeed(Command::new(at("venv/bin/python")).args(pip).arg(wheel.trim()));
        Self { home }
    }

    /// Returns the environment's folder of packages.
    fn packages(&self) -> PathBuf {
        let lib = self.home.path().join("venv/lib");
        let python = std::fs::read_dir(lib).unwrap().next().unwrap().unwrap();
        python.path().join("site-packages")
    }

    /// Links the repository's libtorch as the package `torch`, and gives it a version. The real
    /// package has the same libraries.
    fn link_libtorch_as_torch(&self) {
        let torch = self.packages().join("torch");
        std::fs::create_dir(&torch).unwrap();
        symlink(libtorch().join("lib"), torch.join("lib")).unwrap();
        std::fs::write(torch.join("version.py"), "__version__ = '2.11.0'\n").unwrap();
    }

    /// Returns the installed `dyad`, in the folder to work in.
    fn dyad(&self, args: &[&str]) -> Command {
        self.command(&self.home.path().join("venv/bin/dyad"), args)
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.home.path().join("work"));
        for name in ["DYAD_BROKER", "DYAD_STATE", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command
    }
}

pub(super) fn libtorch() -> PathBuf {
    std::env::var_os("LIBTORCH").map_or_else(|| Program::root().join(".libtorch/view"), PathBuf::from)
}

/// Runs to the end and must succeed. Returns standard output.
pub(super) fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn wheel_runs_a_shipped_configuration_with_torch_alone() {
    let host = Host::new();
    // Light commands work before torch is there. Others name the missing package.
    let graded = succeed(&mut host.dyad(&["grade", "--kind", "math", "--label", "5", r"\boxed{5}"]));
    assert!(graded.starts_with("1  1  "), "{graded}");
    assert!(succeed(&mut host.dyad(&["init"])).contains("\nsignal "));
    assert!(fail(2, &mut host.dyad(&["status"])).contains("no run"));
    let refused = fail(2, &mut host.dyad(&["doctor"]));
    assert!(refused.contains("pip install torch==2.11.0"), "{refused}");
    for packed in ["libdyad_cuda.so", "trainer/external/fsdp2.py"] {
        assert!(host.packages().join("dyad").join(packed).is_file(), "{packed}");
    }
    // The loader's own exit code: no path of the build machine leads to a libtorch.
    fail(
        127,
        &mut host.command(&host.packages().join("dyad/dyad-full"), &["--version"]),
    );

    host.link_libtorch_as_torch();
    let doctor = succeed(&mut host.dyad(&["doctor"]));
    assert!(doctor.contains("ok   libtorch"), "{doctor}");
    let run = succeed(&mut host.dyad(&["run", "signal", "--steps", "2"]));
    assert!(run.contains("report.html"), "{run}");
    assert!(fail(2, &mut host.dyad(&["run", "adversarial"])).contains("dyad init adversarial"));
    succeed(&mut host.dyad(&["init", "adversarial"]));
    succeed(&mut host.dyad(&["check", "adversarial.toml", "--quiet"]));
    assert!(fail(2, &mut host.dyad(&["init", "adversarial"])).contains("exists already"));
    // The full program serves usage errors under the name that the user typed.
    let usage = fail(2, &mut host.dyad(&["run"]));
    assert!(usage.contains("Usage: dyad run"), "{usage}");
}
