//! The clock and the boot that deadlines are counted in. Linux only; elsewhere deadlines fall back on
//! the monotonic clock and every start counts as a new boot.

use crate::domain::refusal::{Code, Refusal};

/// Nanoseconds since boot, suspension included (CLOCK_BOOTTIME, clock_gettime(2)).
///
/// # Errors
/// `host` when the clock cannot be read.
pub fn boottime_ns() -> Result<u64, Refusal> {
    use nix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::CLOCK_MONOTONIC;
    let now = clock_gettime(id).map_err(|e| {
        Refusal::new(Code::Host, format!("the boot clock cannot be read: {e}"), "check the kernel")
    })?;
    let (secs, nanos) = (u64::try_from(now.tv_sec()), u64::try_from(now.tv_nsec()));
    Ok(secs.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0)))
}

/// Identifies the current boot (`/proc/sys/kernel/random/boot_id`, random(4)).
///
/// # Errors
/// `host` when procfs does not tell it.
pub fn boot_id() -> Result<String, Refusal> {
    if cfg!(target_os = "linux") {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read_to_string(PATH)
            .map_err(|e| Refusal::new(Code::Host, format!("{PATH} cannot be read: {e}"), "mount /proc"))?;
        Ok(text.trim().to_owned())
    } else {
        Ok(uuid::Uuid::now_v7().to_string())
    }
}
