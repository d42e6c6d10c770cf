//! Reads and writes files of several ages and families.

use serde_json::{Value, json};

use super::{ConfigError, parse, write};
use crate::model::error::ModelError;
use crate::model::shape::{Architecture, Biases, ModelShape, Rope, RopeScaling, Yarn, tiny};

fn edited(key: &str, value: Value) -> String {
    let mut config = write(&tiny(), "float32");
    config[key] = value;
    config.to_string()
}

#[test]
fn what_is_written_is_read() {
    let shape = ModelShape {
        eos: vec![1, 3],
        rope: Rope::plain(5e5),
        ..tiny()
    };
    let qwen2 = ModelShape {
        arch: Architecture::Qwen2,
        biases: Biases {
            qkv: true,
            ..Biases::default()
        },
        rope: Rope {
            theta: 1e6,
            scaling: RopeScaling::Yarn(Yarn {
                factor: 4.0,
                original: 32,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 1.25,
                truncate: false,
            }),
        },
        ..tiny()
    };
    let llama = ModelShape {
        arch: Architecture::Llama,
        biases: Biases {
            qkv: true,
            output: true,
            mlp: true,
        },
        rope: Rope {
            theta: 5e5,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original: 32,
            },
        },
        ..tiny()
    };
    for shape in [shape, tiny(), qwen2, llama] {
        assert_eq!(parse(&write(&shape, "float32").to_string()).unwrap(), shape);
    }
}

#[test]
fn old_and_new_rope_keys_are_read() {
    let mut old = write(&tiny(), "float32");
    old.as_object_mut().unwrap().remove("rope_parameters");
    old["rope_theta"] = json!(77.0);
    assert_eq!(parse(&old.to_string()).unwrap().rope.theta, 77.0);
    let mut new = write(&tiny(), "float32");
    new.as_object_mut().unwrap().remove("rope_theta");
    new["rope_parameters"]["rope_theta"] = json!(88.0);
    assert_eq!(parse(&new.to_string()).unwrap().rope.theta, 88.0);
}

#[test]
fn a_rope_scaling_that_says_nothing_hides_no_rope_parameters() {
    let mut config = write(&tiny(), "float32");
    config.as_object_mut().unwrap().remove("rope_theta");
    config["rope_parameters"] =
        json!({"rope_type": "yarn", "rope_theta": 77.0, "factor": 4.0, "original_max_position_embeddings": 16});
    for nothing in [json!({}), json!(null)] {
        config["rope_scaling"] = nothing;
        let rope = parse(&config.to_string()).unwrap().rope;
        assert_eq!(rope.theta, 77.0);
        assert!(
            matches!(rope.scaling, RopeScaling::Yarn(yarn) if yarn.factor == 4.0),
            "{config}"
        );
    }
    config["rope_scaling"] = json!({"type": "yarn", "factor": 2.0});
    let rope = parse(&config.to_string()).unwrap().rope;
    assert!(matches!(rope.scaling, RopeScaling::Yarn(yarn) if yarn.factor == 2.0));
}

#[test]
fn the_yarn_of_long_qwen_files_is_read() {
    let mut old = write(&tiny(), "float32");
    old.as_object_mut().unwrap().remove("rope_parameters");
    old["rope_scaling"] = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32});
    let RopeScaling::Yarn(yarn) = parse(&old.to_string()).unwrap().rope.scaling else {
        panic!()
    };
    assert_eq!((yarn.factor, yarn.original, yarn.truncate), (4.0, 32, true));
    assert!((yarn.attention_factor - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
    for (limit, original, unused) in [
        (32, Some(32), Some((32, 128))),
        (16, Some(32), Some((32, 128))),
        (32, None, Some((32, 128))),
        (64, Some(32), None),
        (128, Some(32), None),
        (32, Some(16), None),
    ] {
        let mut stretched = old.clone();
        stretched["max_position_embeddings"] = json!(limit);
        stretched["rope_scaling"]["original_max_position_embeddings"] = json!(original);
        let shape = parse(&stretched.to_string()).unwrap();
        assert_eq!(
            shape.rope.unused_reach(shape.max_context),
            unused,
            "{limit} of {original:?}"
        );
        let plain = Rope::plain(shape.rope.theta);
        assert_eq!(plain.unused_reach(limit), None);
    }
    old["rope_scaling"] = json!({"rope_type": "llama3", "factor": 4.0});
    assert!(matches!(
        parse(&old.to_string()),
        Err(ConfigError::Model(ModelError::Shape { .. }))
    ));
}

#[test]
fn a_window_counts_where_a_layer_uses_it() {
    let mut config = write(&tiny(), "float32");
    config.as_object_mut().unwrap().remove("layer_types");
    config["use_sliding_window"] = json!(true);
    config["sliding_window"] = json!(16);
    config["max_window_layers"] = json!(2);
    assert!(parse(&config.to_string()).is_ok());
    config["max_window_layers"] = json!(1);
    assert!(parse(&config.to_string()).is_err());
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let cases = [
        ("model_type", json!("gpt2")),
        ("hidden_act", json!("gelu")),
        ("mlp_bias", json!(true)),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("quantization_config", json!({"bits": 4})),
        ("num_experts", json!(8)),
        ("rope_scaling", json!({"type": "linear", "factor": 4.0})),
        ("rope_parameters", json!({"rope_type": "longrope", "rope_theta": 1.0})),
        ("rope_parameters", json!({"full_attention": {"rope_type": "default"}})),
        ("partial_rotary_factor", json!(0.5)),
    ];
    for (key, value) in cases {
        let error = parse(&edited(key, value)).unwrap_err();
        assert!(
            matches!(error, ConfigError::Model(ModelError::Unsupported { .. })),
            "{key}: {error}"
        );
    }
    let Err(ConfigError::Field(reason)) = parse(&edited("hidden_size", json!("x"))) else {
        panic!()
    };
    assert!(reason.starts_with("hidden_size: "), "{reason}");
}

#[test]
fn ids_that_nothing_computes_with_may_be_lists_or_none() {
    for key in ["pad_token_id", "bos_token_id"] {
        for (value, expected) in [
            (json!([2, 3, 1]), Some(2)),
            (json!([]), None),
            (json!(-1), None),
            (json!([-1]), None),
            (json!(null), None),
            (json!(0), Some(0)),
        ] {
            let shape = parse(&edited(key, value.clone())).unwrap();
            let read = if key == "pad_token_id" { shape.pad } else { shape.bos };
            assert_eq!(read, expected, "{key}: {value}");
            assert_eq!(parse(&write(&shape, "float32").to_string()).unwrap(), shape);
        }
        for value in [json!("</s>"), json!([1.5]), json!(4_294_967_296_u64)] {
            let error = parse(&edited(key, value.clone())).unwrap_err().to_string();
            assert!(error.contains(key), "{value}: {error}");
        }
    }
}
