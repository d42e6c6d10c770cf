//! Agents of known shapes, and the bytes of their parts.

use std::path::Path;

use configs::{RunConfig, Shard};

use super::*;

/// Qwen3-8B's shape.
fn eight_billion() -> ModelShape {
    let model = r#"{"layers": 36, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate": 12288,
        "max_context": 40960, "tokenizer": "bytes"}"#;
    ModelShape::from_random(&serde_json::from_str(model).unwrap(), 151_936, &[]).unwrap()
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
    // Master 4, gradient 4, moments 8, a copy to train with and a copy to serve with of 2 each.
    assert_eq!(memory.least(), 20 * own);
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
    assert_eq!(first.weights - second.weights, 2 * own, "the engine's copy");
    assert_eq!((second.masters, second.row, second.rank), (2 * own, 0, 1));
    // Copies of 2 bytes to serve and to train with, the gradient, and half of 12 bytes.
    agent.train.checkpoint_activations = true;
    assert_eq!(Memory::of(&agent, &shape, 2).least(), (2 + 2 + 4 + 6) * own);
    let launched = Memory::of(&agent, &shape, 4);
    assert_eq!(launched.least(), (2 + 2 + 4 + 3) * own, "two hosts of two devices");
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
    assert_eq!((first.host, full.host), (2 * own, 0), "collected to be published");
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
    // On the device, 8 bytes a parameter: two bf16 copies, to serve and to train, and the gradient
    // in f32. On the host, three buffers of 30.5 GiB, each rounded up to 32.
    assert_eq!((memory.least(), memory.host), (8 * own, 3 << 35));
    agent.train.devices = vec![DeviceName::Cuda(0), DeviceName::Cuda(1)];
    agent.train.shard = Shard::Optimizer;
    let memory = Memory::of_rank(&agent, &shape, 1, 2);
    assert_eq!((memory.least(), memory.host), (6 * own, 3 << 34));
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
