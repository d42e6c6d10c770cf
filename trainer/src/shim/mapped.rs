//! Maps files into memory, so that libtorch reads them without a copy in between.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};
use tch::{Device, Kind, TchError, Tensor};

/// A file mapped for reading. If another process truncates the file, this process is killed, as
/// with every mapped file. Model files are replaced by renaming, which is harmless.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is private to this process and read only. The type's documentation covers
        // files that change.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Copies the values at `start` (in bytes), of `kind`, to all of `target`, converting their
    /// kind.
    ///
    /// # Errors
    /// The file ends before the values do, or libtorch fails.
    pub(crate) fn copy_into(&self, start: usize, kind: Kind, target: &mut Tensor) -> Result<(), TchError> {
        let shape = target.size();
        let length = target.numel() * kind.elt_size_in_bytes();
        let bytes = start
            .checked_add(length)
            .and_then(|end| self.map.get(start..end))
            .ok_or_else(|| TchError::Torch("the file ends before its tensor".into()))?;
        if !(bytes.as_ptr() as usize).is_multiple_of(kind.elt_size_in_bytes()) {
            // Files that mix kinds may have tensors that are not aligned.
            return target.f_copy_(&Tensor::f_from_data_size(bytes, &shape, kind)?);
        }
        // SAFETY: `bytes` holds exactly as many values as `shape` needs, aligned for their kind. It
        // outlives the tensor, which is read once and dropped here.
        let source = unsafe { Tensor::f_from_blob(bytes.as_ptr(), &shape, &[], kind, Device::Cpu)? };
        target.f_copy_(&source)
    }

    /// Releases the memory of `length` bytes from `start`, because a copy exists elsewhere. A later
    /// read loads them from the file again. A system without this call keeps them.
    pub(crate) fn release(&mut self, start: usize, length: usize) {
        if start.saturating_add(length) > self.map.len() {
            return;
        }
        // SAFETY: the map is of a file and read only, so a dropped page is loaded again with the
        // same bytes. `&mut self` excludes borrows.
        let _ = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, start, length)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_at_any_place_and_never_beyond_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        let mut bytes = vec![7u8, 7];
        bytes.extend([1.5f32, -2.0, 3.25].iter().flat_map(|x| x.to_le_bytes()));
        for odd in [0, 1] {
            std::fs::write(&path, &bytes[odd..]).unwrap();
            let mut file = MappedFile::open(&path).unwrap();
            assert_eq!(file.bytes().len(), bytes.len() - odd);
            let mut target = Tensor::zeros([3], (Kind::Double, Device::Cpu));
            file.copy_into(2 - odd, Kind::Float, &mut target).unwrap();
            assert_eq!(Vec::<f64>::try_from(&target).unwrap(), [1.5, -2.0, 3.25]);
            assert!(file.copy_into(4, Kind::Float, &mut target).is_err());
            for (start, length) in [(2 - odd, 12), (0, 1), (9, 1 << 20), (usize::MAX, 2)] {
                file.release(start, length);
            }
            assert_eq!(file.bytes(), &bytes[odd..], "released pages are read again");
        }
    }
}
