#!/usr/bin/env python3
"""Tests the tests: takes one guard away at a time and expects its test to fail.

    tests/mutants.py               every guard, one build of the whole workspace
    tests/mutants.py bus. store.   guards with these prefixes, a build of their packages only
    tests/mutants.py --find        only finds every guard and its test; builds nothing

The product code holds no switch. The script copies the tracked files to target/mutants/tree
and edits the guards there, so that DYAD_MUTANT=NAME takes one away at run time. It exits with 1
if a guard is not found exactly once, if its test does not exist, or if the test passes without
the guard.
"""

import json
import os
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "target/mutants/tree"
# Programs that tests start are placed here, away from those of the product.
PROGRAMS = ROOT / "target/mutants/build"

# name    the value of DYAD_MUTANT
# crate   the code is searched for in CRATE/src
# code    the guard; white space does not count, so that rustfmt may wrap it
# becomes the same code, with OFF where the guard is taken away
# test    package, target and test; the test may be the end of a longer path
Guard = namedtuple("Guard", "name crate code becomes test")
GUARDS = [
    Guard(
        "run.over", "agents",
        "if begun && self.peers.alive().is_empty() {",
        "if begun && self.peers.alive().is_empty() && !OFF {",
        "agents lib a_coordinator_notices_a_run_that_ended_without_it",
    ),
    Guard(
        "ledger.dedupe", "agents",
        "if row.state != schema::RESERVED {",
        "if row.state != schema::RESERVED && !OFF {",
        "agents lib a_group_closes_once_when_all_its_parts_are_there",
    ),
    Guard(
        "ledger.whole", "agents",
        "if earlier.len() + 1 < usize::from(bundle.parts) {",
        "if earlier.len() + 1 < usize::from(bundle.parts) && !OFF {",
        "agents lib crash::an_uncommitted_transaction_leaves_no_trace",
    ),
    Guard(
        "ledger.fence", "agents",
        "Some(newest) if newest.id == lineage => Ok(newest),",
        "Some(newest) if newest.id == lineage || OFF => Ok(newest),",
        "agents lib effect::each_sample_takes_effect_once_along_a_lineage",
    ),
    Guard(
        "ledger.decided", "agents",
        'if repeated || statement.exists(key).doing("read")? {',
        'if (repeated || statement.exists(key).doing("read")?) && !OFF {',
        "agents lib effect::each_sample_takes_effect_once_along_a_lineage",
    ),
    Guard(
        "ledger.owner", "agents",
        "if newest == self.opening {",
        "if newest == self.opening || OFF {",
        "agents lib contract::a_fenced_owner_writes_nothing",
    ),
    Guard(
        "store.fence", "broker",
        'let lease = include_str!("redis/held.lua");',
        'let lease = if OFF { "local function held(key) return redis.call(\'EXISTS\', key) == 1 end\\n" }'
        ' else { include_str!("redis/held.lua") };',
        "broker store redis::a_zombie_cannot_write",
    ),
    Guard(
        "store.set-once", "broker",
        'commit: held(include_str!("redis/commit.lua")),',
        'commit: held(&include_str!("redis/commit.lua").replace("if not first then\\n    new[field]",'
        ' if OFF { "if true then\\n    new[field]" } else { "if not first then\\n    new[field]" })),',
        "broker store redis::a_record_is_committed_once",
    ),
    Guard(
        "bus.mandatory", "broker",
        "mandatory: true,",
        "mandatory: !OFF,",
        "broker bus_contract rabbitmq::unroutable_messages_are_refused",
    ),
    Guard(
        "codec.leftover", "broker",
        "if used == body.len() {",
        "if used == body.len() || OFF {",
        "broker wire fuzz::every_truncation_and_every_addition_is_refused",
    ),
    Guard(
        "checkpoint.order", "trainer",
        "self.point_at(&name)?;",
        "if OFF { self.retain(&target)?; } self.point_at(&name)?;",
        "trainer lib a_crash_at_any_act_leaves_a_loadable_checkpoint",
    ),
    Guard(
        "task.custody", "agents",
        'broker::fail::point("task.taken");',
        'let mut candidate = candidate; if OFF && let Some(early) = candidate.delivery.take() '
        '{ tokio::spawn(async move { early.acker.ack().await }); } broker::fail::point("task.taken");',
        "tests it faults::processes::a_task_outlives_the_coordinator_that_took_it",
    ),
    Guard(
        "task.seal", "agents",
        "let Some(key) = env.seal.as_ref() else {",
        "let Some(key) = env.seal.as_ref().filter(|_| !OFF) else {",
        "tests it users::a_run_passes_with_a_user_for_each_process",
    ),
    Guard(
        "visit.way", "agents",
        "let is_out = |id: &RequestId|",
        "if OFF { return Ok(()); } let is_out = |id: &RequestId|",
        "agents lib weights_do_not_wait_for_a_visitor",
    ),
    Guard(
        "visit.leave", "agents",
        "if self.open.remove(&id).is_none() {",
        "if OFF || self.open.remove(&id).is_none() {",
        "agents lib a_visitor_that_leaves_is_forgotten_and_leaves_no_work",
    ),
    Guard(
        "engine.token", "agents",
        "Some((_, token)) => (!token.is_shown(",
        "Some((_, token)) if !OFF => (!token.is_shown(",
        "agents lib a_client_without_a_token_gets_neither_weights_nor_work",
    ),
    Guard(
        "http.token", "agents",
        "if let Some(token) = front.token.as_ref() {",
        "if let Some(token) = front.token.as_ref().filter(|_| !OFF) {",
        "agents lib a_front_with_a_token_answers_nothing_without_it",
    ),
]


def pattern(code):
    """Returns a regular expression for the code, whatever the white space between its tokens."""
    return re.compile(r"(?<!\w)" + r"\s*".join(map(re.escape, re.findall(r"\w+|\S", code))))


def edited(texts):
    """Returns the files that hold guards, edited, and a list of guards not found exactly once."""
    problems = []
    for guard in GUARDS:
        found = [
            (path, match)
            for path, text in texts.items()
            if path.startswith(f"{guard.crate}/src/")
            for match in pattern(guard.code).finditer(text)
        ]
        if len(found) != 1:
            places = "".join(f"\n    {path}" for path, _ in found)
            problems.append(f"{guard.name}: found {len(found)} times in {guard.crate}/src: {guard.code}{places}")
            continue
        path, match = found[0]
        switch = f'(std::env::var("DYAD_MUTANT").as_deref() == Ok("{guard.name}"))'
        becomes = re.sub(r"\bOFF\b", lambda _: switch, guard.becomes)
        texts[path] = texts[path][: match.start()] + becomes + texts[path][match.end() :]
    return problems


def missing_tests(tracked):
    """Returns a list of the guards with a test that its package does not name."""
    problems = []
    for guard in GUARDS:
        package, _, test = guard.test.split()
        name = re.compile(rf"\b{test.split('::')[-1]}\b")
        paths = [path for path in tracked if path.startswith(f"{package}/") and path.endswith(".rs")]
        if not any(name.search((ROOT / path).read_text()) for path in paths if (ROOT / path).is_file()):
            problems.append(f"{guard.name}: no test in {package} is called {test}")
    return problems


def make_tree(texts, tracked):
    """Writes the tree, leaving equal files as they are, so that a second build is short."""
    # Without .cargo: cargo then finds the repository's own and uses the same compiler flags.
    wanted = {path for path in tracked if not path.startswith(".cargo/") and (ROOT / path).is_file()}
    # Another version: cargo would take these crates for the repository's own, which share the
    # build folder.
    manifest = (ROOT / "Cargo.toml").read_text()
    texts["Cargo.toml"] = re.sub(r'(?m)^version = "(\d+\.\d+\.\d+)"$', r'version = "\1-mutants"', manifest, count=1)
    for path in wanted:
        data = texts[path].encode() if path in texts else (ROOT / path).read_bytes()
        copy = TREE / path
        if not copy.is_file() or copy.read_bytes() != data:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
            copy.chmod((ROOT / path).stat().st_mode)
    for copy in TREE.rglob("*"):
        if copy.is_file() and str(copy.relative_to(TREE)) not in wanted:
            copy.unlink()


def build(guards, everything):
    """Builds the tests and returns a map from package and target to the executable."""
    places = {tuple(guard.test.split()[:2]) for guard in guards}
    packages = sorted({package for package, _ in places})
    targets = sorted({target for _, target in places})
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", "--target-dir", str(PROGRAMS)]
    # All packages, as in `make test`: its dependencies have the same features and are reused.
    command += ["--workspace"] if everything else [f"--package={package}" for package in packages] + ["--all-features"]
    command += ["--lib" if target == "lib" else f"--test={target}" for target in targets]
    # Dependencies are shared with the repository's own builds.
    shared = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    output = subprocess.run(
        command, cwd=TREE, stdout=subprocess.PIPE, text=True, env={**os.environ, "CARGO_BUILD_BUILD_DIR": str(shared)}
    )
    if output.returncode != 0:
        sys.exit("mutants: the tree with switches for guards does not build")
    built = {}
    for message in map(json.loads, output.stdout.splitlines()):
        if message.get("executable") and message.get("profile", {}).get("test"):
            package = Path(message["manifest_path"]).parent.name
            target = "lib" if "lib" in message["target"]["kind"] else message["target"]["name"]
            built[package, target] = message["executable"]
    return built


def outcome(executable, package, arguments, mutant=None):
    """Runs a test executable as cargo does and returns its output."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    environment.pop("DYAD_MUTANT", None)
    if mutant:
        environment["DYAD_MUTANT"] = mutant
    return subprocess.run(
        [executable, *arguments],
        cwd=TREE / package,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment,
        text=True,
        errors="replace",
    ).stdout


def verdict(guard, built):
    """Returns an empty string if the test notices that the guard is away, else the problem."""
    package, target, test = guard.test.split()
    executable = built[package, target]
    listed = outcome(executable, package, ["--list"]).splitlines()
    names = [line.removesuffix(": test") for line in listed if line.endswith(": test")]
    names = [name for name in names if name == test or name.endswith(f"::{test}")]
    if len(names) != 1:
        return f"{len(names)} tests in {package} {target} are called {test}"
    text = outcome(executable, package, ["--exact", names[0]])
    if "1 passed; 0 failed" not in text:
        return f"{names[0]} fails with the guard in place:\n{text}"
    text = outcome(executable, package, ["--exact", names[0]], guard.name)
    if "0 passed; 1 failed" not in text:
        return f"{names[0]} does not fail without the guard:\n{text}"
    return ""


def main():
    prefixes = [argument for argument in sys.argv[1:] if argument != "--find"]
    guards = [guard for guard in GUARDS if not prefixes or guard.name.startswith(tuple(prefixes))]
    if not guards:
        sys.exit(f"mutants: no guard begins with {' or '.join(prefixes)}")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    tracked = tracked.stdout.splitlines()
    sources = [path for path in tracked if re.match(r"\w+/src/.*\.rs$", path) and (ROOT / path).is_file()]
    texts = {path: (ROOT / path).read_text() for path in sources}
    problems = edited(texts) + missing_tests(tracked)
    if problems:
        sys.exit("\n".join([*problems, "mutants: correct the table in tests/mutants.py, or bring the guard back"]))
    print(f"mutants: found {len(GUARDS)} guards and their tests in the code", flush=True)
    if "--find" in sys.argv:
        return
    make_tree(texts, tracked)
    built = build(guards, not prefixes)
    unnoticed = 0
    for guard in guards:
        problem = verdict(guard, built)
        unnoticed += bool(problem)
        print(f"{guard.name}: {'MISSED: ' + problem if problem else 'caught by ' + guard.test}", flush=True)
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
