//! Agents of known shapes, and the bytes of their parts.

use std::path::Path;

use configs::{RunConfig, Shard};

use super::by_device::by_device_of;
use super::*;

/// Qwen3-8B's shape.
fn eight_billion() -> ModelShape {
    qwen3(4096, 12288)
}

fn qwen3(hidden: usize, intermediate: usize) -> ModelShape {
    let model = serde_json::json!({
        "layers": 36, "hidden": hidden, "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate": intermediate,
        "max_context": 40960, "tokenizer": "bytes"
    });
    ModelShape::from_random(&serde_json::from_value(model).unwrap(), 151_936, &[]).unwrap()
}

/// The rest is for kept prefixes, and gaps between the tensors.
const OF_80_GB: u64 = 72 << 30;

#[test]
fn recipes_for_gpus_fit_on_gpus_of_80_gb() {
    let shape = |model: &ModelConfig| {
        let ModelConfig::Path(path) = model else { return None };
        let name = path.to_str().unwrap();
        let four = || ModelShape {
            tied: true,
            ..qwen3(2560, 9728)
        };
        Some(match name.rsplit_once('-').unwrap().1 {
            "8B" => eight_billion(),
            "4B" => four(),
            _ => ModelShape {
                layers: 28,
                ..qwen3(1024, 3072)
            },
        })
    };
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let (mut seen, mut bounded) = (0, 0);
    for entry in std::fs::read_dir(configs).unwrap() {
        let path = entry.unwrap().path();
        let is_recipe = path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml");
        if !is_recipe {
            continue;
        }
        let config = RunConfig::load(&path).unwrap();
        for (device, needs) in by_device_of(&config, Processes::Each, None, shape) {
            if device != DeviceName::Cpu {
                let all = needs.least() + needs.passing();
                assert!(
                    all <= OF_80_GB,
                    "{}: {device} needs {}: {needs:#?}",
                    path.display(),
                    amount(all)
                );
                seen += 1;
            }
        }
        for (name, agent) in config.agents.iter().filter(|(_, agent)| is_large(agent)) {
            let cache = agent.engine.cache_mib;
            assert!(cache > 0, "{}: agents.{name}.engine.cache_mib", path.display());
            bounded += 1;
        }
    }
    assert!(seen > 40 && bounded > 15, "{seen} devices, {bounded} agents");
}

/// Returns true for an agent that serves a model of 8B on GPUs itself.
fn is_large(agent: &AgentConfig) -> bool {
    let ModelConfig::Path(path) = &agent.model else {
        return false;
    };
    let is_own = matches!(agent.engine.kind, EngineKind::Embedded | EngineKind::Dyad);
    path.to_string_lossy().ends_with("-8B") && is_own && agent.device != DeviceName::Cpu
}

#[test]
fn engines_of_their_own_count_where_they_run() {
    let config = |devices: &str| {
        let text = include_str!("../../../../configs/two-lora.toml");
        let urls = r#"kind = "dyad", urls = ["http://127.0.0.1:8101", "http://gpu2:8101"]"#;
        let listen = r#"weights_listen = "10.0.0.1:8100""#;
        let engine = format!("[agents.b]\ndtype = \"bf16\"\nengine = {{ {urls}, {listen}{devices} }}");
        RunConfig::parse(&text.replace("[agents.b]", &engine), Path::new("x.toml")).unwrap()
    };
    let engines = |devices: &str, place| {
        let shape = |_: &ModelConfig| Some(eight_billion());
        let all = by_device_of(&config(devices), Processes::Each, None, shape);
        let engines = all.get(&place).into_iter().flat_map(|needs| &needs.agents);
        let bases: Vec<u64> = engines
            .filter(|(_, memory)| memory.is_engine)
            .map(|(_, memory)| memory.base)
            .collect();
        bases
    };
    let base = 2 * Layout::of(&eight_billion()).numel() as u64;
    // The second engine is on another host. On a CPU an engine keeps a reordered copy.
    assert_eq!(engines("", DeviceName::Cpu), [2 * base]);
    let devices = r#", devices = ["cuda:3", "cuda:0"]"#;
    assert_eq!(engines(devices, DeviceName::Cuda(3)), [base]);
    assert!(engines(devices, DeviceName::Cpu).is_empty() && engines(devices, DeviceName::Cuda(0)).is_empty());
}

#[test]
fn processes_that_hand_weights_over_take_host_memory() {
    let shape = |_: &ModelConfig| Some(eight_billion());
    let own = 2 * Layout::of(&eight_billion()).numel() as u64;
    let hosted = |agent: &str| {
        let text = include_str!("../../../../configs/solve-rewrite-select-8b.toml");
        let text = text.replace("kind = \"dyad\", urls = [\"http://127.0.0.1:8101\"]", agent);
        let config = RunConfig::parse(&text, Path::new("x.toml")).unwrap();
        let all = by_device_of(&config, Processes::Each, None, shape)
            .remove(&DeviceName::Cpu)
            .unwrap();
        let parts: Vec<(bool, usize, u64)> = all
            .hosted
            .iter()
            .map(|one| (one.is_engine, one.rank, one.bytes))
            .collect();
        assert_eq!(
            all.least(),
            parts.iter().map(|part| part.2).sum::<u64>(),
            "all of it may be missing"
        );
        parts
    };
    // Both ranks have half of the masters and moments here.
    let state = 3 << 34;
    let near = hosted("kind = \"dyad\", urls = [\"http://127.0.0.1:8101\"]");
    let handing = footprint::of_trained(own);
    assert_eq!(
        near,
        [(false, 0, state + handing), (false, 1, state), (true, 0, 2 * own)]
    );
    let far = "kind = \"dyad\", weights_listen = \"10.0.0.1:8100\", urls = [\"http://gpu2:8101\"]";
    let packed = footprint::of_packed(own);
    assert_eq!(hosted(far), [(false, 0, state + handing + packed), (false, 1, state)]);
}

#[test]
fn agents_of_one_process_share_what_cuda_takes() {
    let shape = |_: &ModelConfig| Some(eight_billion());
    let text = include_str!("../../../../configs/two-lora.toml");
    let text = text.replace("[defaults.agent]", "[defaults.agent]\ndevice = \"cuda:0\"");
    let config = RunConfig::parse(&text, Path::new("x.toml")).unwrap();
    let contexts = |processes| {
        let all = by_device_of(&config, processes, None, shape)
            .remove(&DeviceName::Cuda(0))
            .unwrap();
        all.agents
            .iter()
            .map(|(_, memory)| memory.context >> 20)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (contexts(Processes::One), contexts(Processes::Each)),
        (vec![512, 0], vec![512; 2])
    );
}

#[test]
fn logits_of_recorded_steps_and_draws_count() {
    let shape = eight_billion();
    let with =
        |device: &str| Memory::of(&agent(&format!("device = \"{device}\"\nengine.slots = 16")), &shape, 1).logits;
    let word = shape.vocab as u64;
    assert_eq!(with("cpu"), 16 * 12 * word);
    assert_eq!(with("cuda:0\"\ndtype = \"bf16"), (16 * 12 + 43 * 4) * word);
    assert_eq!(with("cuda:0"), (16 * 12 + 16 * 4) * word, "f32 steps are not recorded");
}

fn agent(change: &str) -> AgentConfig {
    let text = include_str!("../../../../configs/two-lora.toml");
    let text = text.replace("[agents.b]", &format!("[agents.b]\n{change}"));
    let config = RunConfig::parse(&text, Path::new("x.toml")).unwrap();
    config.agents.last_key_value().unwrap().1.clone()
}

#[test]
fn full_training_in_bf16_takes_the_bytes_of_its_parts() {
    let mut agent = agent("dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.checkpoint_activations = true");
    agent.lora = None;
    let shape = eight_billion();
    let own = Layout::of(&shape).numel() as u64;
    let memory = Memory::of(&agent, &shape, 1);
    assert!((8_190_000_000..8_200_000_000).contains(&own), "{own}");
    // Master 4, gradient 4, moments 8; 2 each for a copy to train with and two to serve with.
    assert_eq!(memory.least(), 22 * own);
    let gib = memory.activations >> 30;
    assert!((6..=10).contains(&gib), "{gib} GiB for 16,384 tokens");
    agent.train.checkpoint_activations = false;
    let kept = Memory::of(&agent, &shape, 1);
    assert_eq!(kept.gradient, 6 * own);
    assert!(kept.activations > 5 * memory.activations);
}

#[test]
fn adapter_adds_little_to_its_base() {
    let shape = eight_billion();
    let memory = Memory::of(&agent("dtype = \"bf16\"\ndevice = \"cuda:0\""), &shape, 1);
    assert_eq!(memory.base, 2 * Layout::of(&shape).numel() as u64);
    assert!(memory.least() - memory.base < memory.base / 5, "{memory:?}");
}

#[test]
fn ranks_split_the_moments_and_hold_no_engine() {
    let ranks = "dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.devices = [\"cuda:0\", \"cuda:1\"]";
    let mut agent = agent(&format!("{ranks}\ntrain.shard = \"optimizer\""));
    agent.lora = None;
    let shape = eight_billion();
    let own = Layout::of(&shape).numel() as u64;
    let (first, second) = (Memory::of(&agent, &shape, 2), Memory::of_rank(&agent, &shape, 1, 2));
    assert_eq!((first.optimizer, second.optimizer), (4 * own, 4 * own));
    assert_eq!(first.weights - second.weights, 4 * own, "the engine's copies");
    assert_eq!((second.masters, second.row, second.rank), (2 * own, 0, 1));
    // Two copies of 2 bytes to serve, one to train with, the gradient, and half of 12 bytes.
    agent.train.checkpoint_activations = true;
    assert_eq!(Memory::of(&agent, &shape, 2).least(), (4 + 2 + 4 + 6) * own);
    let launched = Memory::of(&agent, &shape, 4);
    assert_eq!(launched.least(), (4 + 2 + 4 + 3) * own, "two hosts of two devices");
    agent.train.shard = Shard::Gradient;
    let split = Memory::of_rank(&agent, &shape, 1, 2);
    let open = split.gradient - 2 * own;
    // Embedding, head and one of 36 layers in f32.
    let matrices = 2 * 4 * (shape.vocab * shape.hidden) as u64;
    assert!((matrices..matrices + own / 8).contains(&open), "{open}");
    agent.train.shard = Shard::Full;
    let full = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!((full.gradient, full.optimizer), (split.gradient, 4 * own));
    assert_eq!(
        split.weights - full.weights,
        own - open / 2,
        "half of them, and the open parts"
    );
    let first = Memory::of(&agent, &shape, 2);
    assert_eq!((first.host, full.host), (0, 0), "no rank collects the model");
    agent.train.kl.coef = 0.1;
    let with_reference = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!(with_reference.weights, 2 * full.weights, "the reference is split too");
    agent.train.kl.coef = 0.0;
    agent.train.shard = Shard::None;
    assert_eq!(Memory::of_rank(&agent, &shape, 1, 2).optimizer, 8 * own);
}

#[test]
fn offload_moves_12_bytes_to_the_host() {
    let ranks = "dtype = \"bf16\"\ndevice = \"cuda:0\"\ntrain.checkpoint_activations = true";
    let mut agent = agent(&format!("{ranks}\ntrain.offload = \"optimizer\""));
    agent.lora = None;
    let shape = eight_billion();
    let own = Layout::of(&shape).numel() as u64;
    let memory = Memory::of(&agent, &shape, 1);
    // On the device, 10 bytes a parameter: two bf16 copies to serve and one to train with, and the
    // gradient in f32. On the host, three buffers of 30.5 GiB, each rounded up to 32.
    assert_eq!((memory.least(), memory.host), (10 * own, 3 << 35));
    agent.train.devices = vec![DeviceName::Cuda(0), DeviceName::Cuda(1)];
    agent.train.shard = Shard::Optimizer;
    let memory = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!((memory.least(), memory.host), (6 * own, 3 << 34));
    let split = Memory::of_rank(&agent, &shape, 1, 4);
    assert_eq!(split.host, 3 << 33, "no rank reads more than it holds");
    agent.train.shard = Shard::Full;
    assert_eq!(
        Memory::of(&agent, &shape, 2).host,
        3 << 34,
        "no rank collects the model"
    );
    agent.train.shard = Shard::Optimizer;
    agent.dtype = Dtype::F32;
    let memory = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!((memory.least(), memory.host), (8 * own, 3 << 34));
    agent.device = DeviceName::Cpu;
    let memory = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!(memory.host, 6 * own, "only memory that a GPU reads is rounded up");
}

#[test]
fn frozen_agent_needs_no_trainer() {
    let memory = Memory::of(&agent("train.enabled = false"), &eight_billion(), 1);
    assert_eq!((memory.masters, memory.optimizer, memory.activations), (0, 0, 0));
    assert!(memory.base > 0 && memory.row > 0);
    let mut served = agent("train.enabled = false");
    served.engine.kind = EngineKind::Vllm;
    assert_eq!(Memory::of(&served, &eight_billion(), 1), Memory::default());
}

#[test]
fn bounded_cache_takes_its_bytes_and_no_more() {
    let shape = eight_billion();
    let settings = "dtype = \"bf16\"\ndevice = \"cuda:0\"";
    let free = Memory::of(&agent(settings), &shape, 1);
    assert_eq!(free.rows, free.row * agent(settings).engine.slots as u64);
    let mut bounded = agent(&format!("{settings}\nengine.cache_mib = 9000"));
    let memory = Memory::of(&bounded, &shape, 1);
    assert_eq!((memory.cache, memory.row, memory.rows), (9000 << 20, 0, 0));
    assert_eq!(memory.least() - free.least(), 9000 << 20);
    bounded.engine.replicas = 2;
    assert_eq!(Memory::of(&bounded, &shape, 1).cache, 18_000 << 20);
}
