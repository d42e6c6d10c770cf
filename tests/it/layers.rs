//! The layers of each crate: a folder names only those before it, and files import in no wide
//! circle.

use tests::imports::{self, Graph, Module};
use tests::program::Program;

/// Crate -> its folders and single files; each may name those before it.
const LAYERS: [(&str, &[&str]); 5] = [
    (
        "configs",
        &[
            "units",
            "names",
            "past",
            "http",
            "loss",
            "metrics",
            "alarms",
            "train",
            "engine",
            "agent",
            "problem",
            "tasks",
            "tools",
            "shaping",
            "workflow",
            "kinds",
            "suites",
            "eval",
            "run",
            "check",
            "load",
            "reference",
            "notes",
        ],
    ),
    (
        "broker",
        &[
            "atomic_file",
            "clock",
            "tls",
            "ids",
            "topology",
            "fail",
            "codec",
            "seal",
            "protocol",
            "bus",
            "local",
            "store",
            "users",
        ],
    ),
    (
        "rollout",
        &[
            "advantage",
            "shuffle",
            "batch",
            "byte_order_mark",
            "credit",
            "credit_operator",
            "reasoning",
            "grade",
            "judge",
            "shaping",
            "random",
            "workflow",
            "sample",
            "group",
            "hub_cache",
            "own",
            "router",
            "staleness",
            "tasks",
            "text",
            "workflows",
        ],
    ),
    (
        "trainer",
        &[
            "shim",
            "collective",
            "ordered",
            "rng",
            "linear",
            "bf16_product",
            "loss",
            "model",
            "optim",
            "checkpoint",
            "device",
            "weights",
            "pulse",
            "sampling",
            "engine",
            "schedule",
            "train",
            "transfer",
        ],
    ),
    (
        "agents",
        &[
            "base",
            "run_folder",
            "observe",
            "ledger",
            "turn",
            "policy",
            "engine",
            "stats",
            "traces",
            "http",
            "participant",
            "report",
            "agent",
            "eval",
            "coordinator",
            "dashboard",
            "cli",
        ],
    ),
];

/// The largest circle of files; more files in a circle are read as one file.
const WIDEST_CIRCLE: usize = 4;

fn graph(name: &str) -> Graph {
    imports::read(&Program::root().join(name).join("src"))
}

fn path(module: &Module) -> String {
    module.join("::")
}

#[test]
fn folders_name_only_those_before_them() {
    for (name, layers) in LAYERS {
        let graph = graph(name);
        let place = |module: &Module| layers.iter().position(|layer| *layer == module[0]);
        for module in graph.files.keys().filter(|module| !module.is_empty()) {
            assert!(
                place(module).is_some(),
                "{name}: {} has no layer yet; add it to LAYERS",
                module[0]
            );
        }
        for import in &graph.imports {
            assert!(
                place(&import.to) <= place(&import.from),
                "{name}: {} names {} (as {}), and its layer comes later",
                path(&import.from),
                path(&import.to),
                import.name
            );
        }
    }
}

#[test]
fn files_import_in_no_wide_circle() {
    for (name, _) in LAYERS {
        let graph = graph(name);
        for circle in graph.circles() {
            let names: Vec<String> = circle.iter().map(path).collect();
            assert!(
                circle.len() <= WIDEST_CIRCLE,
                "{name}: {} files import each other: {}",
                circle.len(),
                names.join(", ")
            );
            assert!(
                graph.in_one_folder(&circle),
                "{name}: files of different folders import each other: {}",
                names.join(", ")
            );
        }
    }
}
