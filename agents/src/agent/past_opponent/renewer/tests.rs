//! Checkpoints that appear and disappear, and the weights that are served.

use std::sync::mpsc;

use broker::AgentName;
use configs::RandomModel;
use tempfile::TempDir;
use trainer::model::ParamSource;
use trainer::weights::SinkError;

use super::*;
use crate::policy;
use crate::turn::past::tests::past;

/// Records what was published.
struct Caught(mpsc::Sender<(WeightVersion, String)>);

impl WeightSink for Caught {
    fn publish(&mut self, weights: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        self.0.send((version, digest(weights))).unwrap();
        Ok(())
    }
}

fn digest(weights: &dyn ParamSource) -> String {
    weights.digest_as(weights.kind()).unwrap().to_string()
}

struct Bench {
    home: TempDir,
    renewer: Renewer,
    caught: mpsc::Receiver<(WeightVersion, String)>,
}

impl Bench {
    fn new(strict: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (send, caught) = mpsc::channel();
        let shape = ModelShape::load(&model(&home, 0)).unwrap();
        let renewer = Renewer {
            past: past("p", 0),
            from: home.path().join("checkpoints"),
            pool: home.path().join("past"),
            shape,
            adapter: false,
            strict,
            sinks: vec![Box::new(Caught(send))],
            served: None,
        };
        Self { home, renewer, caught }
    }

    /// Writes the other agent's checkpoint of this step, and removes the one before.
    fn save(&self, step: u64) {
        let model = model(&self.home, step);
        let saved = CheckpointStore::new(&self.renewer.from, 1).save(step, |folder| {
            for name in ["config.json", "model.safetensors"] {
                let content = std::fs::read(model.join(name)).unwrap();
                folder.add(name, |out| out.write_all(&content))?;
            }
            Ok("digest".into())
        });
        saved.unwrap();
    }

    /// Replaces the contents of a kept model; the checkpoint that it was linked to stays unchanged.
    fn damage(&self, step: u64) {
        let file = self.renewer.kept(step).join("model.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }

    fn weights(&self, step: u64) -> String {
        digest(&Weights::load(&self.renewer.shape, &model(&self.home, step)).unwrap())
    }

    fn pool(&self) -> Vec<u64> {
        let mut steps = kept(&self.renewer.pool);
        steps.sort_unstable();
        steps
    }
}

/// The model of a step: random weights with the step as seed.
fn model(home: &TempDir, step: u64) -> PathBuf {
    let text = "layers = 1\nhidden = 8\nheads = 2\nmax_context = 16\ntokenizer = { words = [\"a\"] }";
    let random: RandomModel = toml::from_str(text).unwrap();
    let (folder, name) = (home.path().join(format!("model-{step}")), AgentName::new("a").unwrap());
    policy::make(&random, &folder, &name, step, &name).unwrap();
    folder
}

#[test]
fn drawn_weights_are_served_though_their_checkpoint_is_gone() {
    let mut bench = Bench::new(true);
    assert!(!bench.renewer.renew(None).unwrap(), "there is no checkpoint");
    bench.save(0);
    assert!(bench.renewer.renew(None).unwrap());
    let first = WeightVersion { lineage: 1, step: 0 };
    assert_eq!(bench.caught.recv().unwrap(), (first, bench.weights(0)));
    let mut drawn = Vec::new();
    for renewal in 1..=6 {
        let step = renewal * 10;
        assert!(bench.renewer.is_due(step) && !bench.renewer.is_due(step - 1));
        assert!(
            !bench.renewer.renew(Some(step)).unwrap(),
            "step {step} is not written yet"
        );
        bench.save(step);
        assert!(bench.renewer.renew(Some(step)).unwrap());
        let (version, weights) = bench.caught.recv().unwrap();
        assert_eq!(version, bench.renewer.past.expected(step));
        assert_eq!(weights, bench.weights(version.step), "{version:?}");
        let pool: Vec<u64> = (renewal.saturating_sub(2)..=renewal).map(|kept| kept * 10).collect();
        assert_eq!(bench.pool(), pool, "the newest three, at renewal {renewal}");
        drawn.push(step - version.step);
    }
    assert!(drawn.iter().any(|age| *age > 0), "never the past: {drawn:?}");
    assert!(
        !bench.renewer.is_due(69) && !bench.renewer.is_due(40),
        "nothing falls back"
    );
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let mut bench = Bench::new(true);
    for step in [0, 10, 20, 30] {
        bench.save(step);
        assert!(bench.renewer.renew(Some(step)).unwrap());
    }
    let before = bench.caught.try_iter().last().unwrap();
    bench.renewer.served = None;
    // The checkpoints hold fewer steps than the pool: the other agent trains lost steps again.
    std::fs::remove_dir_all(&bench.renewer.from).unwrap();
    bench.save(10);
    assert!(bench.renewer.renew(None).unwrap());
    assert_eq!(bench.caught.recv().unwrap(), before);
}

#[test]
fn missing_weights_fail_in_rounds_and_are_skipped_otherwise() {
    let mut bench = Bench::new(true);
    // A renewal that draws a step other than the newest.
    let renewal = (1..)
        .find(|renewal| bench.renewer.past.drawn(*renewal) != renewal * 10)
        .unwrap();
    bench.save(renewal * 10);
    let error = bench.renewer.renew(Some(renewal * 10)).unwrap_err().to_string();
    assert!(error.contains("is gone") && error.contains("of agent a"), "{error}");
    bench.renewer.strict = false;
    assert!(bench.renewer.renew(Some(renewal * 10)).unwrap());
    let (version, weights) = bench.caught.recv().unwrap();
    assert_eq!(version, bench.renewer.past.version(renewal, renewal * 10));
    assert_eq!(weights, bench.weights(renewal * 10));
}

#[test]
fn checkpoints_removed_before_copying_are_skipped() {
    let mut bench = Bench::new(false);
    for step in [0, 10, 20, 25] {
        bench.save(step);
        if step == 0 {
            assert!(bench.renewer.renew(None).unwrap());
        }
    }
    assert!(bench.renewer.renew(Some(25)).unwrap());
    assert_eq!(bench.pool(), [0, 25]);
    // Only the first of steps 0, 10 and 20 exists, whichever is drawn.
    let (version, weights) = bench.caught.try_iter().last().unwrap();
    assert_eq!(version, WeightVersion { lineage: 3, step: 0 });
    assert_eq!(weights, bench.weights(0));
}

#[test]
fn a_damaged_model_is_copied_again_from_its_checkpoint() {
    let mut bench = Bench::new(true);
    bench.save(0);
    assert!(bench.renewer.renew(None).unwrap());
    bench.damage(0);
    // The state after a restart.
    bench.renewer.served = None;
    assert!(bench.renewer.renew(None).unwrap());
    let served: Vec<_> = bench.caught.try_iter().collect();
    let first = (WeightVersion { lineage: 1, step: 0 }, bench.weights(0));
    assert_eq!(served, [first.clone(), first]);
}

#[test]
fn a_damaged_model_without_checkpoint_fails_only_in_rounds() {
    let mut bench = Bench::new(true);
    // A renewal that draws the step before the newest, which has an earlier step in the pool.
    let renewal = (2..)
        .find(|renewal| bench.renewer.past.drawn(*renewal) == (renewal - 1) * 10)
        .unwrap();
    for before in 0..renewal {
        bench.save(before * 10);
        assert!(bench.renewer.renew(Some(before * 10)).unwrap());
    }
    bench.damage((renewal - 1) * 10);
    bench.save(renewal * 10);
    let error = bench.renewer.renew(Some(renewal * 10)).unwrap_err().to_string();
    assert!(
        error.contains("damaged") && error.contains("begin a new run"),
        "{error}"
    );
    bench.renewer.strict = false;
    assert!(bench.renewer.renew(Some(renewal * 10)).unwrap());
    let (version, weights) = bench.caught.try_iter().last().unwrap();
    let taken = (renewal - 2) * 10;
    assert_eq!(version, bench.renewer.past.version(renewal, taken));
    assert_eq!(weights, bench.weights(taken));
}

#[test]
fn a_damaged_checkpoint_is_not_kept() {
    let mut bench = Bench::new(false);
    bench.save(0);
    let file = bench.renewer.from.join("step-0/model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = format!("{:#}", bench.renewer.renew(None).unwrap_err());
    assert!(error.contains("keeping") && error.contains("damaged"), "{error}");
    assert!(bench.pool().is_empty());
}
