//! What a forked child must not keep: the parent's locks and the belief that it is attached.
//!
//! The mapping itself is not inherited (`MADV_DONTFORK`). An open file description is, and with it its locks, so the
//! child closes the descriptors that hold them at once.

use crate::os::sigbus;
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const FDS_MAX: usize = 256;
const NONE: RawFd = -1;

static FORKS: AtomicU64 = AtomicU64::new(0);
static FDS: [AtomicI32; FDS_MAX] = [const { AtomicI32::new(NONE) }; FDS_MAX];
static HANDLER: Once = Once::new();

/// How many forks lie between this process and the one that started; compared, never interpreted.
#[inline]
pub fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Runs in the child, between fork and the first of its code: async-signal-safe calls only.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    sigbus::forget_all();
    for slot in &FDS {
        let fd = slot.swap(NONE, Ordering::Relaxed);
        if fd != NONE {
            // SAFETY: the descriptor was registered by its owner, which forgets it once it sees the fork count.
            unsafe { libc::close(fd) };
        }
    }
}

/// Counts forks from now on.
pub fn watch() {
    HANDLER.call_once(|| {
        // SAFETY: the handler only touches atomics and closes descriptors.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Has `fd` closed in every forked child. False when too many are registered.
pub fn close_in_child(fd: RawFd) -> bool {
    watch();
    FDS.iter().any(|slot| {
        slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    })
}

/// Forgets `fd`, which its owner is about to close.
pub fn forget(fd: RawFd) {
    for slot in &FDS {
        if slot
            .compare_exchange(fd, NONE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
}
