//! What a forked child must not keep: the parent's locks and the belief that it is attached.
//!
//! The mapping itself is not inherited (`MADV_DONTFORK`). An open file description is, and with it its locks, so the
//! child closes the descriptors that hold them at once. It knows them by their registration, so nobody forks between
//! the opening of such a file and its registration.
//!
//! What is left: a fork that began before the first [`watch`], and children that are made without the handlers of
//! `pthread_atfork` (`_Fork`, a bare `clone`) and never execute another program, which would close the descriptors. Such
//! a child that outlives its parent keeps the parent's slot alive until it ends.

use crate::os::sigbus;
use std::cell::UnsafeCell;
use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const FDS_MAX: usize = 256;
const NONE: RawFd = -1;

static FORKS: AtomicU64 = AtomicU64::new(0);
static FDS: [AtomicI32; FDS_MAX] = [const { AtomicI32::new(NONE) }; FDS_MAX];
static HANDLER: Once = Once::new();

/// Held by whoever opens and registers a file, and by whoever forks. One of libc, as a fork takes it in one function and
/// gives it back in another, and in the child.
struct Gate(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: used by the calls for mutexes alone.
unsafe impl Sync for Gate {}

static GATE: Gate = Gate(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

unsafe extern "C" fn close_gate() {
    // SAFETY: a mutex that was initialised and never moves.
    unsafe { libc::pthread_mutex_lock(GATE.0.get()) };
}

unsafe extern "C" fn open_gate() {
    // SAFETY: as above, and this thread holds it.
    unsafe { libc::pthread_mutex_unlock(GATE.0.get()) };
}

/// The gate, closed until dropped.
struct Closed;

impl Closed {
    fn new() -> Self {
        // SAFETY: no thread closes it twice.
        unsafe { close_gate() };
        Self
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        // SAFETY: closed by `new`.
        unsafe { open_gate() };
    }
}

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
    // SAFETY: closed before the fork, by this thread.
    unsafe { open_gate() };
}

/// Counts forks that begin from now on.
pub fn watch() {
    HANDLER.call_once(|| {
        // SAFETY: the handlers only touch a mutex and atomics, and close descriptors.
        unsafe { libc::pthread_atfork(Some(close_gate), Some(open_gate), Some(in_child)) };
    });
}

/// Opens a file that every forked child closes. `None` when too many are open.
///
/// # Errors
/// What `open` fails with.
pub fn closed_in_child<E>(open: impl FnOnce() -> Result<File, E>) -> Result<Option<File>, E> {
    watch();
    let _closed = Closed::new();
    let file = open()?;
    let is_registered = FDS.iter().any(|slot| {
        slot.compare_exchange(NONE, file.as_raw_fd(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    });
    Ok(is_registered.then_some(file))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// How long the opening takes: enough for a fork to get in between, if nothing keeps it.
    const OPENING: Duration = Duration::from_millis(100);

    /// Whether `fd` is open in a child that is forked now.
    fn is_open_in_a_child(fd: RawFd) -> bool {
        // SAFETY: the child calls what may be called after a fork, and ends.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(libc::fcntl(fd, libc::F_GETFD) >= 0)),
                child => child,
            }
        };
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(ended == child && libc::WIFEXITED(status), "no child");
        libc::WEXITSTATUS(status) != 0
    }

    #[test]
    fn a_file_that_is_being_opened_during_a_fork_is_not_left_open_in_the_child() {
        let (opened, is_open) = mpsc::channel();
        let other = std::thread::spawn(move || {
            closed_in_child(|| {
                let file = File::open("/proc/self/exe")?;
                opened
                    .send(file.as_raw_fd())
                    .expect("the other thread waits");
                std::thread::sleep(OPENING);
                Ok::<_, std::io::Error>(file)
            })
        });
        let fd = is_open.recv().expect("the file is being opened");
        assert!(
            !is_open_in_a_child(fd),
            "the child would hold its parent's locks"
        );
        let file = other.join().expect("no panic").expect("a file");
        forget(file.expect("room for one more").as_raw_fd());
    }
}
