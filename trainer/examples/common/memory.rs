//! Memory of this process, as Linux tells it.

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A line of `/proc/self/status`, in MiB.
pub(crate) fn memory(line: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let found = status
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    let kib: f64 = found
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("no such line")?
        .parse()?;
    Ok(kib / 1024.0)
}

/// The peak, `VmHWM`, begins anew.
pub(crate) fn begin_peak() -> Result<()> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}
