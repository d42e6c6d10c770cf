//! Reads, at each scrape, what this process uses: from Linux, and from the allocator of GPUs.

use std::fs;

use configs::DeviceName;
use trainer::device::memory_of_gpus;

use super::series::process::ProcessSeries;
use super::table::set_total;

/// Ticks per second of the times in `/proc`: Linux shows them with this unit on every processor.
const TICKS: f64 = 100.0;

/// Sets the series of the process. A value that cannot be read keeps its last one.
pub(super) fn read(series: &ProcessSeries) {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if let Some((cpu, started)) = times(&text("/proc/self/stat")) {
        set_total(&series.cpu.of([]), cpu);
        if let Some(booted) = number_after(&text("/proc/stat"), "btime ") {
            series.started.of([]).set(booted + started);
        }
    }
    if let Some(kib) = number_after(&text("/proc/self/status"), "VmRSS:") {
        series.resident.of([]).set(kib * 1024.0);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        series.descriptors.of([]).set(entries.count() as f64);
    }
    for (gpu, memory) in memory_of_gpus() {
        let device = DeviceName::Cuda(gpu).to_string();
        let kinds = [
            ("allocated", memory.allocated),
            ("reserved", memory.reserved),
            ("total", memory.total),
        ];
        for (kind, bytes) in kinds {
            series.device_memory.of([&device, kind]).set(bytes as f64);
        }
    }
}

/// Returns the processor time and the start after boot, in seconds, from `/proc/self/stat`.
fn times(stat: &str) -> Option<(f64, f64)> {
    // The program's name stands in brackets and may hold spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<f64> = fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(f64::NAN))
        .collect();
    // The third field of the line is the first one here.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(((field(14)? + field(15)?) / TICKS, field(22)? / TICKS))
}

/// Returns the number that follows `name` at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_a_name_with_spaces_and_brackets() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 9 0 12345 1 2";
        assert_eq!(times(stat), Some((3.0, 123.45)));
        assert_eq!(times("17 (a"), None);
    }

    #[test]
    fn numbers_stand_behind_the_names_of_their_lines() {
        assert_eq!(number_after("VmHWM: 9 kB\nVmRSS:\t 12 kB\n", "VmRSS:"), Some(12.0));
        assert_eq!(number_after("VmRSS:\n", "VmRSS:"), None);
    }
}
