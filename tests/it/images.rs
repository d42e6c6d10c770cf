//! Messages with images, from tasks over queues and prompts to a server that sees.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tests::program::{Program, metrics};
use tests::trace::successes;

use crate::recipes::nothing_lost;

/// The server of the recipe, ended with the test.
struct Server(Child);

impl Server {
    fn start() -> (Self, String) {
        let program = Program::root().join("configs/programs/vision_server.py");
        let mut child = Command::new("python3")
            .arg(program)
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        (Self(child), url.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recipe with another server.
fn config(folder: &Path, url: &str) -> String {
    std::fs::create_dir_all(folder).unwrap();
    let text = std::fs::read_to_string(Program::root().join("configs/image-turns.toml")).unwrap();
    let changed = text.replace("http://127.0.0.1:8200", url);
    assert_ne!(text, changed);
    let file = folder.join("image-turns.toml");
    std::fs::write(&file, changed).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn pictures_reach_the_one_who_sees_and_the_other_learns_from_what_is_said() {
    let (_server, url) = Server::start();
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let runs = program.runs();
    let config = config(&runs, &url);
    program.succeed(&["up", &config, "--folder", runs.to_str().unwrap()]);
    let folder = program.run_folder();
    let named: Vec<f64> = metrics(&folder, "eval")
        .iter()
        .map(|line| line["first"].as_f64().unwrap())
        .collect();
    assert!(named.len() >= 2 && named.iter().all(|part| *part == 1.0), "{named:?}");
    let found = successes(&folder);
    let (first, last) = (found.first().unwrap().1, found.last().unwrap().1);
    assert!(last > 0.9 && last > first + 0.3, "{found:?}");
    nothing_lost(&folder, "a");
}

/// As `make recipes` does it: the server stands beside the run, and is gone after it.
#[test]
fn the_table_of_recipes_brings_the_server() {
    let program = Program::new(env!("CARGO_BIN_EXE_dyad-under-test"));
    let runs = program.runs();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let file = config(&runs, &format!("http://{free}"));
    std::os::unix::fs::symlink(Program::root().join("configs/programs"), runs.join("programs")).unwrap();
    let base = runs.join("base");
    let printed = program.succeed(&["recipes", &file, "--steps", "2", "--folder", base.to_str().unwrap()]);
    assert!(printed.contains("image-turns: ok"), "{printed}");
    assert!(std::net::TcpStream::connect(free).is_err(), "the server is still there");
}
