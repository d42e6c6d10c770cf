//! Ranks that wait for others in common work notice their progress, and its absence.

use std::path::Path;

use super::checkpoints::save;
use super::held::{SHORT, rank};
use super::*;
use crate::collective::CollectiveError;
use crate::collective::tests::Started;
use crate::train::ranks::Ranks;
use crate::train::tests::TrainCommand;
use crate::train::{TrainError, TrainerClient};

const STEP: Duration = Duration::from_millis(100);

fn ranks(member: &Member) -> Ranks {
    Ranks::new(Box::new(member.join("group", SHORT)))
}

/// The watch of rank 0 sees the steps of rank 1, and would end a rank 0 without marks.
#[test]
fn rank_that_waits_marks_the_progress_of_others() {
    const NAME: &str = "train::tests::ranks::progress::rank_that_waits_marks_the_progress_of_others";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 2);
    };
    let ranks = ranks(&member);
    let steps = 5 * SHORT.div_duration_f32(STEP) as u32;
    let ((), met) = ranks.together(Duration::ZERO, || {
        for _ in 0..steps * member.rank as u32 {
            std::thread::sleep(STEP);
            ranks.pulse().mark();
        }
    });
    met.unwrap();
    let marks = ranks.pulse().look().marks;
    assert!(marks > 2, "{marks} marks on rank {}", member.rank);
}

/// Rank 0 hangs: the marks that ranks 1 and 2 make for each other must not hide it.
#[test]
fn rank_without_progress_ends_the_group() {
    const NAME: &str = "train::tests::ranks::progress::rank_without_progress_ends_the_group";
    let Some(member) = Member::here() else {
        return in_ranks(NAME, 3);
    };
    let ranks = ranks(&member);
    let noticed = member.folder.join("noticed");
    let ((), met) = ranks.together(Duration::ZERO, || {
        // Ends in any case: a group that does not notice it then succeeds, and the test fails.
        for _ in 0..300 {
            if member.rank > 0 || noticed.exists() {
                return;
            }
            std::thread::sleep(STEP);
        }
    });
    std::fs::write(&noticed, "").unwrap();
    let error = met.unwrap_err();
    assert!(matches!(error, CollectiveError::Stuck { rank: 0, .. }), "{error}");
}

fn load(trainer: &mut Trainer, root: &Path) -> TrainError {
    let path = root.display().to_string();
    trainer.execute(TrainCommand::LoadState { seq: 1, path }).unwrap_err()
}

#[test]
fn hung_disk_of_a_rank_ends_a_load() {
    const NAME: &str = "train::tests::ranks::progress::hung_disk_of_a_rank_ends_a_load";
    let Some(member) = Member::here() else {
        let folder = tempfile::tempdir().unwrap();
        return Started::armed(NAME, 2, folder.path(), "parameter.read/1=hang").succeeds(0);
    };
    tch::set_num_threads(1);
    let mut trainer = rank(&member, options(true));
    if member.rank == 1 {
        return trainer.serve().unwrap();
    }
    let root = member.folder.join("checkpoints");
    save(&mut trainer, 0, &root);
    let error = load(&mut trainer, &root);
    let stuck = matches!(error, TrainError::Ended(CollectiveError::Stuck { rank: 1, .. }));
    assert!(stuck, "{error}");
}

/// The group of a rank alone would give it an order that does not decode.
#[test]
fn rank_that_lost_its_group_waits_for_no_order() {
    let mut trainer = alone(Trains::Whole, options(false));
    trainer.ranks.end(CollectiveError::Stuck {
        rank: 1,
        world_size: 2,
        waited: SHORT,
    });
    let error = trainer.serve().unwrap_err();
    assert!(matches!(error, TrainError::Ended(_)), "{error}");
}
