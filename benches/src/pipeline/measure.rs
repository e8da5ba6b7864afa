//! One process from its start to its end.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a process took.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    /// User and system time. A database server's is not in it.
    pub(crate) cpu: Duration,
    /// The most memory that was resident at once, in bytes.
    pub(crate) peak: u64,
    /// What it printed.
    pub(crate) said: String,
}

impl Sample {
    pub(crate) fn words(&self) -> String {
        format!(
            "{:>6.2} s, {:>6.2} s CPU, {:>5.0} MB",
            self.wall.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.peak as f64 / 1e6
        )
    }
}

/// Runs a command to its end; a failure is an error with what it said.
pub(crate) fn take(mut command: Command) -> Result<Sample, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let fail = |e: std::io::Error| format!("{name}: {e}");
    let out = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    let file = fs::File::create(&out).map_err(fail)?;
    command.stdin(Stdio::null()).stderr(file.try_clone().map_err(fail)?).stdout(file);
    let before = cpu_of_children();
    let began = Instant::now();
    let mut child = command.spawn().map_err(fail)?;
    let (status, peak) = watch(&mut child).map_err(fail)?;
    let wall = began.elapsed();
    let cpu = cpu_of_children().saturating_sub(before);
    let said = fs::read_to_string(&out).unwrap_or_default();
    let _ = fs::remove_file(&out);
    if !status.success() {
        return Err(format!("{name} failed ({status}): {}", said.trim()));
    }
    Ok(Sample { wall, cpu, peak, said })
}

/// Waits for the end and keeps the highest mark of memory that the system tells. It only grows, so
/// the last one counts.
fn watch(child: &mut Child) -> std::io::Result<(std::process::ExitStatus, u64)> {
    let path = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) * 1024);
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CPU time of all children that have ended, in steps of 10 ms.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
