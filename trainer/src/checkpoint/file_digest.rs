//! Digests of files, computed while they are written or read.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use blake3::Hasher;

use super::manifest::FileEntry;

/// The bytes that are hashed at once: enough for several threads.
const BLOCK: usize = 1 << 22;

/// A file and the hasher of what was written to it.
struct HashedFile {
    file: File,
    hasher: Hasher,
    bytes: u64,
}

impl Write for HashedFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hasher.update_rayon(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file and syncs it.
pub(super) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<FileEntry> {
    let file = HashedFile {
        file: File::create(path)?,
        hasher: Hasher::new(),
        bytes: 0,
    };
    let mut file = BufWriter::with_capacity(BLOCK, file);
    content(&mut file)?;
    let written = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    written.file.sync_all()?;
    Ok(entry(&written.hasher, written.bytes))
}

/// Reads a file whole. Calls `read` for each block.
pub(super) fn of(path: &Path, read: &dyn Fn()) -> io::Result<FileEntry> {
    let mut file = File::open(path)?;
    let (mut hasher, mut bytes) = (Hasher::new(), 0);
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(entry(&hasher, bytes)),
            Ok(length) => {
                hasher.update_rayon(&block[..length]);
                bytes += length as u64;
                read();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn entry(hasher: &Hasher, bytes: u64) -> FileEntry {
    FileEntry {
        bytes,
        blake3: hasher.finalize().to_hex().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_digest_when_written_and_when_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        // Pieces below and above the size of a block, and an empty file.
        for pieces in [&[][..], &[1], &[3, BLOCK, 5], &[2 * BLOCK + 7, BLOCK - 1]] {
            let content: Vec<u8> = (0..pieces.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
            let mut rest = content.as_slice();
            let written = write(&path, |out| {
                pieces.iter().try_for_each(|length| {
                    let (piece, after) = rest.split_at(*length);
                    rest = after;
                    out.write_all(piece)
                })
            });
            let expected = FileEntry {
                bytes: content.len() as u64,
                blake3: blake3::hash(&content).to_hex().to_string(),
            };
            assert_eq!(written.unwrap(), expected);
            assert_eq!(of(&path, &|| {}).unwrap(), expected);
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }
}
