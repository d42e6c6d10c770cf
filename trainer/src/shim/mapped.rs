//! Files mapped into memory, read by libtorch without a copy in between.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};
use tch::{Device, Kind, TchError, Tensor};

/// A file mapped for reading. Another process that cuts it short meanwhile ends this one, as with every mapped file;
/// model files are replaced by renaming, which is harmless.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is private to this process and read only; see the type's own word on files that change.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Copies the values at `start` (in bytes), of `kind`, over all of `target`, converting their kind.
    ///
    /// # Errors
    /// When the file ends before the values do, and what libtorch says.
    pub(crate) fn copy_into(&self, start: usize, kind: Kind, target: &mut Tensor) -> Result<(), TchError> {
        let shape = target.size();
        let length = target.numel() * kind.elt_size_in_bytes();
        let bytes = start
            .checked_add(length)
            .and_then(|end| self.map.get(start..end))
            .ok_or_else(|| TchError::Torch("the file ends before its tensor".into()))?;
        if !(bytes.as_ptr() as usize).is_multiple_of(kind.elt_size_in_bytes()) {
            // Files that mix kinds may put a tensor where the processor would rather not read it.
            return target.f_copy_(&Tensor::f_from_data_size(bytes, &shape, kind)?);
        }
        // SAFETY: `bytes` holds exactly as many values as `shape` says, aligned for their kind, and outlives the tensor,
        // which is read once and dropped here.
        let source = unsafe { Tensor::f_from_blob(bytes.as_ptr(), &shape, &[], kind, Device::Cpu)? };
        target.f_copy_(&source)
    }

    /// Gives the memory of `length` bytes from `start` back: what has been read once needs no place beside its copy. Read again, they
    /// come from the file. A system that does not know of that keeps them.
    pub(crate) fn release(&mut self, start: usize, length: usize) {
        if start.saturating_add(length) > self.map.len() {
            return;
        }
        // SAFETY: the map is of a file, read only and never written, so that a page that is dropped comes back with the same bytes; and
        // nothing borrows it, since this holds it alone.
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
            assert_eq!(file.bytes(), &bytes[odd..], "what was given back is read anew");
        }
    }
}
