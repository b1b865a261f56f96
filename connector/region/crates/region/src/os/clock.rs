//! The time of day, coarse: a few nanoseconds per call, a few milliseconds of resolution.

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid clock and a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}
