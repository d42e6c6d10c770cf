//! Crash marks: the groups a process was working on when it died, and the groups set aside for it.
//!
//! Groups that are worked on are marked in a file. A process that finds marks there at its start
//! knows what its predecessor was working on when it died. A single group gains a strike. One of
//! many becomes a suspect, and a suspect of two deaths is worked on alone from then on. Three
//! strikes exclude that group, and none of its neighbours.
//!
//! Marks are written, not synced. They survive the death of the process, which is all that a strike
//! is about, and cost a few microseconds. A power cut costs at most a strike.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use broker::atomic_file;
use broker::ids::GroupId;
use serde::{Deserialize, Serialize};

use crate::base::locking::lock_soon;
use crate::run_folder::RunFolder;

/// The number of strikes that excludes a group.
pub const OUT: u32 = 3;
/// The number of deaths among other groups after which a group is worked on alone. Not the first:
/// most deaths have no guilty group, and work alone takes longer.
const SUSPECT: u32 = 2;
/// Size in bytes above which the file of marks is written again from the start.
const LONG: u64 = 1 << 20;
const BEGIN: u8 = b'+';
const END: u8 = b'-';
const RECORD: usize = 17;

/// The way a group is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Together with other groups.
    Free,
    /// With no other group at the same time.
    Alone,
    /// Excluded.
    Out,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// Deaths while other groups were worked on too.
    deaths: u32,
    /// Deaths while only this group was worked on.
    strikes: u32,
}

/// The strikes of one process and its predecessors.
#[derive(Debug)]
pub struct Strikes {
    path: PathBuf,
    /// Locked for life: two processes of one name have separate files.
    marks: File,
    _held: Held,
    written: u64,
    working: BTreeSet<GroupId>,
    records: BTreeMap<GroupId, Record>,
}

impl Strikes {
    /// Takes over from the earlier process of this name, and counts the groups it died with.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn open(folder: &RunFolder, process: &str) -> io::Result<Self> {
        let root = folder.path().join("strikes");
        fs::create_dir_all(&root)?;
        let (path, mut marks, held) = own(&root, process)?;
        let mut bytes = Vec::new();
        marks.read_to_end(&mut bytes)?;
        let died_with = fold(&bytes);
        let mut strikes = Self {
            records: read_records(&path)?,
            path,
            marks,
            _held: held,
            written: 0,
            working: BTreeSet::new(),
        };
        for group in &died_with {
            let record = strikes.records.entry(*group).or_default();
            if died_with.len() == 1 {
                record.strikes += 1;
                tracing::warn!(%group, strikes = record.strikes, "the process died while only this group was worked on");
            } else {
                record.deaths += 1;
            }
        }
        strikes.save()?;
        strikes.rewrite()?;
        Ok(strikes)
    }

    #[must_use]
    pub fn isolation(&self, group: &GroupId) -> Isolation {
        match self.records.get(group) {
            Some(record) if record.strikes >= OUT => Isolation::Out,
            Some(record) if record.strikes > 0 || record.deaths >= SUSPECT => Isolation::Alone,
            _ => Isolation::Free,
        }
    }

    /// Marks these groups as worked on; groups already marked are skipped.
    pub fn begin(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        let new: Vec<GroupId> = groups.into_iter().filter(|group| self.working.insert(*group)).collect();
        self.mark(BEGIN, &new);
    }

    /// Marks the work on these groups as ended without a death, in one write for all of them. A
    /// group that was alone is no longer a suspect. Its strikes stay, since a fatal turn may come
    /// later.
    pub fn end(&mut self, groups: impl IntoIterator<Item = GroupId>) {
        let alone = self.working.len() == 1;
        let done: Vec<GroupId> = groups.into_iter().filter(|group| self.working.remove(group)).collect();
        self.mark(END, &done);
        if let (true, [group]) = (alone, done.as_slice())
            && let Some(record) = self.records.get_mut(group)
            && std::mem::take(&mut record.deaths) > 0
        {
            self.save_or_complain();
        }
    }

    /// Removes every record of a finished group.
    pub fn forget(&mut self, group: &GroupId) {
        self.end([*group]);
        if self.records.remove(group).is_some() {
            self.save_or_complain();
        }
    }

    /// Ends all work because of a stop request: no group is blamed.
    pub fn clear(&mut self) {
        let all: Vec<GroupId> = self.working.iter().copied().collect();
        self.end(all);
    }

    fn mark(&mut self, what: u8, groups: &[GroupId]) {
        if groups.is_empty() {
            return;
        }
        let bytes: Vec<u8> = groups
            .iter()
            .flat_map(|group| std::iter::once(what).chain(group.0))
            .collect();
        let written = self.marks.write_all(&bytes);
        self.written += bytes.len() as u64;
        let done = written.and_then(|()| if self.written > LONG { self.rewrite() } else { Ok(()) });
        if let Err(error) = done {
            tracing::warn!(%error, path = %self.path.display(), "the groups being worked on cannot be marked");
        }
    }

    /// Writes the file again from the start with the groups being worked on. A death in between
    /// loses marks, and with them at most a strike.
    fn rewrite(&mut self) -> io::Result<()> {
        self.marks.set_len(0)?;
        self.marks.seek(SeekFrom::Start(0))?;
        self.written = 0;
        let all: Vec<GroupId> = self.working.iter().copied().collect();
        let bytes: Vec<u8> = all
            .iter()
            .flat_map(|group| std::iter::once(BEGIN).chain(group.0))
            .collect();
        self.marks.write_all(&bytes)
    }

    fn save_or_complain(&self) {
        if let Err(error) = self.save() {
            tracing::warn!(%error, path = %self.path.display(), "strikes cannot be written");
        }
    }

    fn save(&self) -> io::Result<()> {
        atomic_file::replace(&self.path, &serde_json::to_vec(&self.records)?)
    }
}

/// Returns the paths of records that [`Strikes`] of this process hold. Waiting for their locks is
/// useless: only this process frees them.
fn held() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of [`held`].
#[derive(Debug)]
struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        held().remove(&self.0);
    }
}

/// Returns the first files of this name that no [`Strikes`] holds: the path of the records, the
/// open marks, and the entry in [`held`].
fn own(root: &Path, process: &str) -> io::Result<(PathBuf, File, Held)> {
    for number in 1.. {
        let name = if number == 1 {
            process.to_owned()
        } else {
            format!("{process}.{number}")
        };
        let path = root.join(format!("{name}.json"));
        if held().contains(&path) {
            continue;
        }
        let marks = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(root.join(format!("{name}.marks")))?;
        match lock_soon(&marks) {
            Ok(()) => {
                held().insert(path.clone());
                return Ok((path.clone(), marks, Held(path)));
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    unreachable!("the loop returns")
}

fn read_records(path: &Path) -> io::Result<BTreeMap<GroupId, Record>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        // An unreadable file was cut by a power cut: start with no records.
        read => Ok(serde_json::from_slice(&read?).unwrap_or_default()),
    }
}

/// Returns the groups begun and not ended; an incomplete last record is ignored.
fn fold(bytes: &[u8]) -> BTreeSet<GroupId> {
    let mut working = BTreeSet::new();
    for record in bytes.chunks_exact(RECORD) {
        let Some((what, id)) = record.split_first() else {
            continue;
        };
        let Ok(id) = <[u8; 16]>::try_from(id) else { continue };
        match *what {
            BEGIN => working.insert(GroupId(id)),
            _ => working.remove(&GroupId(id)),
        };
    }
    working
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_folder::tests::config_in;

    fn folder(base: &tempfile::TempDir) -> RunFolder {
        RunFolder::create(base.path(), &config_in(base.path()), None).unwrap()
    }

    fn group(n: u8) -> GroupId {
        GroupId([n; 16])
    }

    /// Simulates a process that works on these groups and dies: nothing is ended, and its lock
    /// ends.
    fn die_with(folder: &RunFolder, groups: &[u8]) {
        let mut strikes = Strikes::open(folder, "a").unwrap();
        strikes.begin(groups.iter().map(|n| group(*n)));
    }

    #[test]
    fn three_deaths_alone_exclude_a_group() {
        let base = tempfile::tempdir().unwrap();
        let folder = folder(&base);
        for strikes in 0..OUT {
            let standing = Strikes::open(&folder, "a").unwrap().isolation(&group(1));
            assert_eq!(
                standing,
                if strikes == 0 {
                    Isolation::Free
                } else {
                    Isolation::Alone
                }
            );
            die_with(&folder, &[1]);
        }
        let mut strikes = Strikes::open(&folder, "a").unwrap();
        assert_eq!(strikes.isolation(&group(1)), Isolation::Out);
        strikes.forget(&group(1));
        assert_eq!(
            Strikes::open(&folder, "a").unwrap().isolation(&group(1)),
            Isolation::Free
        );
    }

    #[test]
    fn suspects_are_cleared_one_by_one() {
        let base = tempfile::tempdir().unwrap();
        let folder = folder(&base);
        die_with(&folder, &[1, 2]);
        assert_eq!(
            Strikes::open(&folder, "a").unwrap().isolation(&group(1)),
            Isolation::Free,
            "one death raises no suspicion"
        );
        die_with(&folder, &[1, 2]);
        let mut strikes = Strikes::open(&folder, "a").unwrap();
        assert_eq!(strikes.isolation(&group(1)), Isolation::Alone);
        strikes.begin([group(1)]);
        strikes.end([group(1)]);
        assert_eq!(strikes.isolation(&group(1)), Isolation::Free);
        assert_eq!(strikes.isolation(&group(2)), Isolation::Alone);
    }

    #[test]
    fn a_clean_stop_blames_no_group() {
        let base = tempfile::tempdir().unwrap();
        let folder = folder(&base);
        for _ in 0..OUT {
            let mut strikes = Strikes::open(&folder, "a").unwrap();
            strikes.begin([group(1)]);
            strikes.clear();
        }
        assert_eq!(
            Strikes::open(&folder, "a").unwrap().isolation(&group(1)),
            Isolation::Free
        );
    }

    #[test]
    fn marks_stay_bounded_and_processes_share_none() {
        let base = tempfile::tempdir().unwrap();
        let folder = folder(&base);
        let mut first = Strikes::open(&folder, "a").unwrap();
        let second = Strikes::open(&folder, "a").unwrap();
        assert_ne!(first.path, second.path);
        first.begin([group(9)]);
        for _ in 0..2 * LONG / RECORD as u64 {
            first.begin([group(1)]);
            first.end([group(1)]);
        }
        assert!(first.marks.metadata().unwrap().len() <= LONG + RECORD as u64);
        drop(first);
        assert_eq!(
            Strikes::open(&folder, "a").unwrap().records[&group(9)].strikes,
            1,
            "the open mark is kept"
        );
    }
}
