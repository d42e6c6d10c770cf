//! The GPUs of this machine, as nvidia-smi lists them and as CUDA counts them.

use std::process::Command;

/// A GPU that nvidia-smi lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Gpu {
    /// Name, memory and driver, for people.
    pub line: String,
    pub memory: Option<u64>,
    /// Main version of the driver.
    pub driver: Option<u32>,
    /// Its name in `CUDA_VISIBLE_DEVICES`: `GPU-` and hexadecimal digits.
    pub uuid: String,
}

/// Returns the GPUs that nvidia-smi lists, or `None` without a working nvidia-smi.
pub(in crate::cli) fn listed() -> Option<Vec<Gpu>> {
    let listed = Command::new("nvidia-smi")
        .args([
            "--query-gpu=name,memory.total,driver_version,uuid",
            "--format=csv,noheader",
        ])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&listed.stdout);
    listed.status.success().then(|| read(&text))
}

fn read(text: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let field = |index| line.split(',').nth(index).map_or("", str::trim);
        let memory = field(1).strip_suffix("MiB");
        Gpu {
            line: [field(0), field(1), field(2)].join(", "),
            memory: memory
                .and_then(|mib| mib.trim().parse::<u64>().ok())
                .map(|mib| mib << 20),
            driver: field(2).split('.').next().and_then(|main| main.parse().ok()),
            uuid: field(3).to_owned(),
        }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(gpu).collect()
}

/// Returns the memory of `cuda:INDEX` in bytes.
pub(super) fn memory(index: usize) -> Option<u64> {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let visible = visible.map(|visible| visible.to_string_lossy().into_owned());
    let in_order = std::env::var_os("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    of_index(&listed()?, index, visible.as_deref(), in_order)
}

/// Returns the memory of the GPU that is `index`-th among those that `visible` names. `in_order` is
/// true if CUDA counts GPUs as nvidia-smi does.
fn of_index(gpus: &[Gpu], index: usize, visible: Option<&str>, in_order: bool) -> Option<u64> {
    let of_number = |number: usize| match in_order {
        true => gpus.get(number)?.memory,
        // CUDA may have another one in this place, so the largest counts.
        false => gpus
            .iter()
            .map(|gpu| gpu.memory)
            .max()
            .flatten()
            .filter(|_| number < gpus.len()),
    };
    let Some(visible) = visible else {
        return of_number(index);
    };
    let name = visible.split(',').map(str::trim).nth(index)?;
    if let Ok(number) = name.parse() {
        return of_number(number);
    }
    // The beginning of the name is enough if it is unique. Parts of GPUs (`MIG-...`) stay unknown.
    let mut named = gpus
        .iter()
        .filter(|gpu| name.starts_with("GPU-") && gpu.uuid.starts_with(name));
    let gpu = named.next()?;
    named.next().is_none().then_some(gpu.memory).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "NVIDIA H100 80GB HBM3, 81559 MiB, 580.65.06, GPU-8932f937-d72c-4106-c12f-20bd9faed9f6\n\
                        NVIDIA L4, 23034 MiB, 580.65.06, GPU-89aa0b1c-0000-4106-c12f-20bd9faed9f6\n";

    #[test]
    fn memory_of_each_gpu_is_read() {
        let gpus = read(&format!("{LIST}NVIDIA GB10, [N/A], 580.95.05, GPU-1\n"));
        assert_eq!(gpus[0].memory, Some(81_559 << 20));
        assert_eq!((gpus.len(), gpus[2].memory), (3, None));
        assert_eq!(gpus[0].driver.zip(gpus[2].driver), Some((580, 580)));
        assert_eq!(gpus[2].line, "NVIDIA GB10, [N/A], 580.95.05");
    }

    #[test]
    fn visible_gpus_have_the_memory_of_those_they_name() {
        let gpus = read(LIST);
        let (large, small) = (Some(81_559 << 20), Some(23_034 << 20));
        for (visible, index, found) in [
            ("1,0", 0, small),
            ("1,0", 1, large),
            (" 1 ", 0, small),
            ("1", 1, None),
            ("2", 0, None),
            ("", 0, None),
            ("-1", 0, None),
            ("GPU-89aa0b1c-0000-4106-c12f-20bd9faed9f6,GPU-8932", 0, small),
            ("GPU-89aa0b1c-0000-4106-c12f-20bd9faed9f6,GPU-8932", 1, large),
            ("GPU-89", 0, None),
            ("GPU-", 0, None),
            ("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", 0, None),
        ] {
            assert_eq!(
                of_index(&gpus, index, Some(visible), true),
                found,
                "{visible:?}, cuda:{index}"
            );
        }
    }

    #[test]
    fn largest_gpu_counts_where_the_order_is_unknown() {
        let gpus = read(LIST);
        let large = Some(81_559 << 20);
        for (visible, index, in_order, found) in [
            (None, 0, false, large),
            (None, 1, false, large),
            (Some("1"), 0, false, large),
            (Some("GPU-89aa"), 0, false, Some(23_034 << 20)),
            (None, 1, true, Some(23_034 << 20)),
            (Some("2"), 0, false, None),
        ] {
            assert_eq!(
                of_index(&gpus, index, visible, in_order),
                found,
                "{visible:?}, cuda:{index}"
            );
        }
    }
}
