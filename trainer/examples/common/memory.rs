//! Memory of this process, as reported by Linux.

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

/// Resets the peak, `VmHWM`.
pub(crate) fn begin_peak() -> Result<()> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

/// Runs this program with `arguments` in a separate process and returns the two numbers that it
/// prints.
#[allow(dead_code, reason = "train_work measures itself")]
pub(crate) fn apart(arguments: &[&str]) -> Result<(f64, f64)> {
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(arguments)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(second)) => Ok((first?, second?)),
        _ => Err(format!("{arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
