//! Opens the CUDA half of libtorch at run time.

use std::path::{Path, PathBuf};

use super::error::{DeviceError, LIBRARY_VARIABLE};
use crate::shim;

const LIBRARY: &str = "libtorch_cuda.so";
/// dyad's own library: groups over NCCL, graphs, flash attention and memory (`shim/guarded.hpp`).
const OWN: &str = "libdyad_cuda.so";
/// The number of the interface that this program calls: see `shim/guarded.hpp`.
const INTERFACE: i32 = 2;
/// Libraries in the same folder that libtorch opens by bare name when it needs them: kernels
/// compiled at run time, and solvers. libtorch_cpu looks in its own folder only.
const LAZY: [&str; 2] = ["libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so"];

/// Finds and opens the library for the life of the process.
pub(super) fn open() -> Result<(), DeviceError> {
    open_in(&places(), dlopen, shim::context::turn_off_cudnn_attention)
}

/// Opens the first library that is there by `dlopen`, then turns cuDNN's attention off.
fn open_in(
    places: &[PathBuf],
    dlopen: impl Fn(&Path) -> Result<(), DeviceError>,
    turn_off_cudnn_attention: impl FnOnce() -> bool,
) -> Result<(), DeviceError> {
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let looked: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        let looked = looked.join(", ");
        return Err(DeviceError::NotFound { looked });
    };
    dlopen(path)?;
    for name in LAZY {
        // Without them only what needs them fails, with its own error.
        let _ = dlopen(&path.with_file_name(name));
    }
    if !turn_off_cudnn_attention() {
        tracing::warn!("this libtorch has no switch for cuDNN's attention: set TORCH_CUDNN_SDPA_DEPRIORITIZED=1");
    }
    Ok(())
}

/// Opens dyad's own CUDA library.
pub(super) fn open_own() -> Result<(), DeviceError> {
    let cuda = places().into_iter().find(|path| path.is_file());
    let places = own_places(cuda, std::env::current_exe().ok());
    let name = |path: &PathBuf| path.display().to_string();
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let path = places.first().map(name).unwrap_or_default();
        return Err(DeviceError::NoOwn { path });
    };
    dlopen(path)?;
    if shim::own_interface() == Some(INTERFACE) {
        Ok(())
    } else {
        Err(DeviceError::OldOwn { path: name(path) })
    }
}

/// Returns the paths to look at. The set-up compiles the library to the folder of libtorch_cuda.so;
/// a wheel installs it in the program's folder.
fn own_places(cuda: Option<PathBuf>, program: Option<PathBuf>) -> Vec<PathBuf> {
    let files = [cuda, program].into_iter().flatten();
    files.map(|file| file.with_file_name(OWN)).collect()
}

/// The places to look in: the file named by the environment, the folder of the loaded CPU library
/// (a full libtorch), and the path that the set-up recorded next to that folder.
pub(super) fn places() -> Vec<PathBuf> {
    let named = std::env::var_os(LIBRARY_VARIABLE)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    let mut places: Vec<PathBuf> = named.into_iter().collect();
    if let Some(lib) = loaded_from() {
        places.push(lib.join(LIBRARY));
        if let Some(view) = lib.parent()
            && let Ok(text) = std::fs::read_to_string(view.join("cuda-path"))
        {
            places.push(view.join(text.trim()));
        }
    }
    places
}

/// The folder of the libtorch_cpu.so that this process has mapped.
fn loaded_from() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.ends_with("/libtorch_cpu.so").then_some(path)
    })?;
    Path::new(path).parent().map(Path::to_owned)
}

fn dlopen(path: &Path) -> Result<(), DeviceError> {
    shim::open_globally(path).map_err(|reason| DeviceError::Open {
        path: path.display().to_string(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_running_libtorch_is_found() {
        assert!(tch::get_num_threads() > 0, "keeps libtorch linked");
        let folder = loaded_from().unwrap();
        assert!(folder.join("libtorch_cpu.so").is_file());
        assert_eq!(places().last().map(|path| path.ends_with(LIBRARY)), Some(true));
    }

    #[test]
    fn opening_takes_lazy_libraries_too_and_cudnn_attention_off() {
        let folder = tempfile::tempdir().unwrap();
        let cuda = folder.path().join(LIBRARY);
        let places = ["/none/libtorch_cuda.so".into(), cuda.clone()];
        let calls = std::cell::RefCell::new(Vec::new());
        let open = |fails: &str| {
            let dlopen = |path: &Path| {
                assert_eq!(path.parent(), cuda.parent());
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                calls.borrow_mut().push(name.clone());
                let error = DeviceError::Open {
                    path: name.clone(),
                    reason: "broken".into(),
                };
                if name == fails { Err(error) } else { Ok(()) }
            };
            let switch = || {
                calls.borrow_mut().push("cudnn off".into());
                true
            };
            let opened = open_in(&places, dlopen, switch).is_ok();
            (opened, calls.take())
        };
        assert_eq!(open(""), (false, vec![]), "no file is there");
        std::fs::write(&cuda, "").unwrap();
        let all = [LIBRARY, "libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so", "cudnn off"];
        let all = all.map(str::to_owned).to_vec();
        assert_eq!(open(""), (true, all.clone()));
        assert_eq!(open("libcaffe2_nvrtc.so"), (true, all), "it may be missing");
        assert_eq!(open(LIBRARY), (false, vec![LIBRARY.to_owned()]));
    }

    #[test]
    fn own_library_is_next_to_libtorch_or_to_the_program() {
        let places = own_places(
            Some("/torch/lib/libtorch_cuda.so".into()),
            Some("/dyad/dyad-full".into()),
        );
        let wanted = ["/torch/lib/libdyad_cuda.so", "/dyad/libdyad_cuda.so"];
        assert_eq!(places, wanted.map(PathBuf::from));
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(dlopen(file.path()), Err(DeviceError::Open { .. })));
    }
}
