//! Files that are replaced as a whole: after a crash the old or the new content is there, and a
//! reader never sees half of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Rights of a file that holds a secret: for its owner alone.
const PRIVATE: u32 = 0o600;
/// Rights of other files, less those that the process's mask takes away.
const COMMON: u32 = 0o666;

/// Replaces the content of a file.
///
/// # Errors
/// Errors of the disk. The file then has its old content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(bytes))
}

/// Replaces the content of a file that only its owner may read.
///
/// # Errors
/// The same as for [`replace`].
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, PRIVATE, |file| file.write_all(bytes))
}

/// Replaces the content of a file with what `content` writes.
///
/// # Errors
/// The same as for [`replace`], and an error of `content`.
pub fn replace_with(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write(path, COMMON, content)
}

/// Makes names in the folder of a file durable.
///
/// # Errors
/// Errors of the disk.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Writes another file next to it, syncs that, renames it, and syncs the folder.
fn write(path: &Path, rights: u32, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let aside = aside(path);
    let put = || -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(rights)
            .open(&aside)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        content(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&aside, path)?;
        sync_folder_of(path)
    };
    put().inspect_err(|_| {
        // A leftover file is harmless.
        let _ = fs::remove_file(&aside);
    })
}

/// Returns a path that no other process or thread writes to.
fn aside(path: &Path) -> PathBuf {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let mut aside = path.as_os_str().to_owned();
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    aside.push(format!(".tmp-{}-{number}", std::process::id()));
    aside.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn failed_write_keeps_the_old_content_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, b"old").unwrap();
        let broken = replace_with(&path, |file| {
            file.write_all(&[7; 3 << 20])?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(broken.unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["state.json"]);
        assert!(replace(&folder.path().join("none/state.json"), b"x").is_err());
    }

    #[test]
    fn private_file_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let rights = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, b"x").unwrap();
        assert_ne!(rights(), 0o600);
        replace_private(&path, b"y").unwrap();
        assert_eq!(rights(), 0o600);
    }

    /// Several processes and threads write the same file: each with a file of its own.
    #[test]
    fn reader_sees_whole_contents_of_many_writers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"").unwrap();
        std::thread::scope(|scope| {
            for sign in [b'a', b'b', b'c'] {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        replace(path, &[sign; 1 << 16]).unwrap();
                    }
                });
            }
            for _ in 0..200 {
                let seen = fs::read(&path).unwrap();
                let is_whole = seen.is_empty() || seen.len() == 1 << 16;
                assert!(
                    is_whole && seen.windows(2).all(|pair| pair[0] == pair[1]),
                    "{}",
                    seen.len()
                );
            }
        });
        assert_eq!(names(folder.path()), ["state"]);
    }

    #[test]
    fn folder_of_a_bare_name_is_the_working_directory() {
        sync_folder_of(Path::new("Cargo.toml")).unwrap();
    }
}
