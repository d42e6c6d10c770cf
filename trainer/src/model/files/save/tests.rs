use super::super::load::has_weights;
use super::*;
use crate::model::shape::tiny;
use crate::model::weights::Init;
use safetensors::SafeTensors;
use serde_json::Value;
use tch::Device;

const INIT: Init = Init {
    embedding_std: 1.0,
    matrix_std: 0.2,
};

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn tensors_go_into_files_in_their_order_up_to_the_size() {
    let ends = |sizes: &[u64], most| -> Vec<(usize, usize)> {
        let shards = plan(sizes, most);
        shards.iter().map(|shard| (shard.start, shard.end)).collect()
    };
    assert_eq!(ends(&[], 10), []);
    assert_eq!(ends(&[4, 6], 10), [(0, 2)]);
    assert_eq!(ends(&[4, 7, 3, 1], 10), [(0, 1), (1, 3), (3, 4)]);
    // A tensor that is too large gets its own file.
    assert_eq!(ends(&[1, 99, 1, 1], 10), [(0, 1), (1, 2), (2, 4)]);
    assert_eq!(ends(&[5, 5], 0), [(0, 1), (1, 2)]);
    assert_eq!(ends(&[u64::MAX, u64::MAX], u64::MAX), [(0, 1), (1, 2)]);
}

#[test]
fn shards_are_read_back_and_name_every_parameter_once() {
    let folder = tempfile::tempdir().unwrap();
    for tied in [false, true] {
        let shape = ModelShape { tied, ..tiny() };
        let weights = Weights::random(&shape, INIT, 9).unwrap();
        // The embedding has 40 x 32 values, 5120 bytes; other tensors are smaller.
        let most = 6000;
        let names = weights.save_as(&shape, folder.path(), Kind::Float, most).unwrap();
        let (shards, count) = (&names[1..names.len() - 1], names.len() - 2);
        assert!(count > 2, "{names:?}");
        assert_eq!((names[0].as_str(), names[names.len() - 1].as_str()), (CONFIG, SHARDS));
        assert_eq!(shards[0], format!("model-00001-of-{count:05}.safetensors"));
        let mut written = names.clone();
        written.sort();
        assert_eq!(files(folder.path()), written, "of the model before nothing is left");
        let index: Value = serde_json::from_str(&fs::read_to_string(folder.path().join(SHARDS)).unwrap()).unwrap();
        assert_eq!(index["metadata"]["total_size"], json!(4 * weights.layout().numel()));
        let map = index["weight_map"].as_object().unwrap();
        assert_eq!(map.len(), weights.params().len());
        for shard in shards {
            let bytes = fs::read(folder.path().join(shard)).unwrap();
            let parsed = SafeTensors::deserialize(&bytes).unwrap();
            assert!(parsed.names().iter().all(|name| map[*name] == json!(shard)));
            let held: usize = parsed.tensors().iter().map(|(_, tensor)| tensor.data().len()).sum();
            assert!(held <= most as usize || parsed.len() == 1, "{shard}: {held}");
        }
        assert!(has_weights(folder.path()));
        assert_eq!(ModelShape::load(folder.path()).unwrap(), shape);
        let loaded = Weights::load(&shape, folder.path()).unwrap();
        assert_eq!(loaded.digest().unwrap(), weights.digest().unwrap());
    }
    // A missing shard is an error.
    fs::remove_file(folder.path().join(&files(folder.path())[1])).unwrap();
    assert!(Weights::load(&ModelShape { tied: true, ..tiny() }, folder.path()).is_err());
}

#[test]
fn one_file_takes_the_place_of_shards_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        Weights::random(&tiny(), INIT, 1).unwrap(),
        Weights::random(&tiny(), INIT, 2).unwrap(),
    );
    let digest = || Weights::load(&tiny(), folder.path()).unwrap().digest().unwrap();
    first.save_as(&tiny(), folder.path(), Kind::Float, 6000).unwrap();
    second.save(&tiny(), folder.path()).unwrap();
    assert_eq!(files(folder.path()), [CONFIG, WEIGHTS]);
    assert_eq!(
        digest(),
        second.digest().unwrap(),
        "one file counts before the index of the first"
    );
    first.save_as(&tiny(), folder.path(), Kind::Float, 6000).unwrap();
    assert_eq!(digest(), first.digest().unwrap());
    assert!(!folder.path().join(WEIGHTS).exists());
}

/// Otherwise a reader would combine the old file with the new configuration.
#[test]
fn no_file_of_an_earlier_save_is_there_when_the_index_appears() {
    let folder = tempfile::tempdir().unwrap();
    let weights = Weights::random(&tiny(), INIT, 1).unwrap();
    weights.save(&tiny(), folder.path()).unwrap();
    // A folder in the place of the index makes its write fail, after the earlier writes.
    fs::create_dir_all(folder.path().join(SHARDS).join("x")).unwrap();
    assert!(weights.save_as(&tiny(), folder.path(), Kind::Float, 6000).is_err());
    assert!(files(folder.path()).iter().any(|name| name.starts_with("model-0")));
    assert!(!folder.path().join(WEIGHTS).exists());
}

#[test]
fn values_are_converted_like_a_whole_copy_and_read_as_any_type() {
    let folder = tempfile::tempdir().unwrap();
    let weights = Weights::random(&tiny(), INIT, 3).unwrap();
    let rounded = weights.copied(Device::Cpu, Kind::BFloat16).unwrap();
    for most in [SHARD_BYTES, 3000] {
        weights.save_as(&tiny(), folder.path(), Kind::BFloat16, most).unwrap();
        let config = fs::read_to_string(folder.path().join(CONFIG)).unwrap();
        assert!(config.contains("bfloat16"));
        let narrow = Weights::load_as(&tiny(), folder.path(), Device::Cpu, configs::Dtype::Bf16).unwrap();
        assert_eq!(narrow.kind(), Kind::BFloat16);
        assert_eq!(narrow.digest().unwrap(), rounded.digest().unwrap());
    }
    // From f32 on disk to bf16 in memory: rounded once, to the same values.
    weights.save(&tiny(), folder.path()).unwrap();
    let narrow = Weights::load_as(&tiny(), folder.path(), Device::Cpu, configs::Dtype::Bf16).unwrap();
    assert_eq!(narrow.digest().unwrap(), rounded.digest().unwrap());
}
