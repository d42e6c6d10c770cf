//! A rank that is killed or stopped ends its group. Started again from the last checkpoint, the
//! ranks reach the weights of an undisturbed run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use broker::ids::WeightVersion;

use super::*;
use crate::collective::tests::Started;
use crate::train::tests::{OPTIM, POLICY, TrainCommand, batch};
use crate::train::{TrainError, TrainerClient};

const STEPS: u64 = 5;
/// The ranks wait here for the signal, in the first life of a disturbed run.
const LOST_AT: u64 = 3;
const SHORT: Duration = Duration::from_secs(3);

fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Trains to the end from the newest checkpoint, if there is one. Between two steps it waits for a
/// signal to be sent, if one was announced.
fn run(trainer: &mut Trainer, folder: &Path) -> Result<(), TrainError> {
    let root = folder.join("checkpoints");
    let mut seq = 0;
    let mut next = || {
        seq += 1;
        seq - 1
    };
    if root.exists() {
        let path = root.display().to_string();
        trainer.execute(TrainCommand::LoadState { seq: next(), path })?;
    }
    while trainer.optimizer_steps() < STEPS {
        let step = trainer.optimizer_steps();
        let batch = batch(step as u32);
        trainer.execute(TrainCommand::ForwardBackward {
            seq: next(),
            batch,
            loss: POLICY,
        })?;
        if step == LOST_AT && folder.join("announced").exists() {
            std::fs::write(folder.join("here"), "").unwrap();
            wait_for(&folder.join("sent"));
        }
        trainer.execute(TrainCommand::OptimStep {
            seq: next(),
            params: OPTIM,
        })?;
        let version = WeightVersion {
            lineage: 1,
            step: step + 1,
        };
        trainer.execute(TrainCommand::Publish { seq: next(), version })?;
        let (path, meta) = (root.display().to_string(), String::new());
        trainer.execute(TrainCommand::SaveState {
            seq: next(),
            path,
            meta,
        })?;
    }
    trainer.end()
}

fn as_rank(member: &Member) {
    tch::set_num_threads(1);
    let life = if member.folder.join("sent").exists() {
        "second"
    } else {
        "first"
    };
    let group = Box::new(member.join(life, SHORT));
    let (base, weights) = weights(Trains::Whole, Dtype::F32);
    let mut trainer = Trainer::in_group(group, shape(false), base, weights, options(true)).unwrap();
    let ended = if member.rank > 0 {
        trainer.serve()
    } else {
        run(&mut trainer, &member.folder)
    };
    match ended {
        Ok(()) if member.rank > 0 => {}
        Ok(()) => std::fs::write(member.folder.join("digest"), crate::train::tests::digest(&trainer)).unwrap(),
        Err(TrainError::Ended(_)) => std::fs::write(member.folder.join("ended"), "").unwrap(),
        Err(error) => panic!("{error}"),
    }
}

/// The final weights of a run. One rank gets a signal, if any.
fn weights_after(test: &str, disturbed: Option<(&str, usize)>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if let Some((signal, rank)) = disturbed {
        std::fs::write(folder.join("announced"), "").unwrap();
        let mut ranks = Started::new(test, 2, folder);
        wait_for(&folder.join("here"));
        let id = ranks.ranks[rank].id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        std::fs::write(folder.join("sent"), "").unwrap();
        ranks.succeeds(1 - rank);
        assert!(folder.join("ended").exists(), "the other rank did not notice");
    }
    Started::new(test, 2, folder).succeed();
    std::fs::read_to_string(folder.join("digest")).unwrap()
}

#[test]
fn killed_or_stopped_rank_costs_no_bit() {
    const NAME: &str = "train::tests::ranks::kills::killed_or_stopped_rank_costs_no_bit";
    if let Some(member) = Member::here() {
        return as_rank(&member);
    }
    let undisturbed = weights_after(NAME, None);
    for disturbed in [("-KILL", 1), ("-STOP", 1), ("-KILL", 0), ("-STOP", 0)] {
        assert_eq!(weights_after(NAME, Some(disturbed)), undisturbed, "{disturbed:?}");
    }
}
