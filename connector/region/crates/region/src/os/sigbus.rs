//! A hole in the medium (a truncated file, an unplugged device, a bad page) must be a miss, not the end of the engine.
//!
//! The kernel answers an access to a hole with SIGBUS. The handler puts zero pages over it and marks the mapping lost:
//! the access goes on, what it read fails its checks, nothing is published any more. Only calls that are safe in a
//! handler are made. Faults elsewhere go to the handler that was there before.
//!
//! A SIGBUS that was sent (`si_code <= 0`) while the old disposition is the default is ignored: a debugging handler that
//! was installed later re-raises the signal after its traceback, and the fault itself then comes back to us.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const MAPPINGS_MAX: usize = 128;

struct Entry {
    start: AtomicUsize,
    len: AtomicUsize,
    /// What is put over a hole: a whole page of the medium, as part of one cannot be replaced.
    hole: AtomicUsize,
    lost: AtomicBool,
}

static ENTRIES: [Entry; MAPPINGS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        hole: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];
/// Entries from here on were never taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static OLD: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches one mapping until dropped.
pub struct Guard(usize);

impl Guard {
    /// True once a hole was met.
    #[inline]
    pub fn is_lost(&self) -> bool {
        ENTRIES[self.0].lost.load(Ordering::Relaxed)
    }

    /// Says that one was met.
    pub fn lose(&self) {
        ENTRIES[self.0].lost.store(true, Ordering::Relaxed);
    }

    /// Stops watching; the entry itself stays taken until the guard is dropped.
    pub fn release(&self) {
        ENTRIES[self.0].len.store(0, Ordering::Release);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
        ENTRIES[self.0].start.store(0, Ordering::Release);
    }
}

/// Watches `start..start + len`, whose pages have up to `hole` bytes; `None` when too many mappings are watched.
pub fn guard(start: usize, len: usize, hole: usize) -> Option<Guard> {
    install();
    ENTRIES.iter().enumerate().find_map(|(index, entry)| {
        // The start claims the entry; the handler believes it once the length is there.
        entry
            .start
            .compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        entry.lost.store(false, Ordering::Relaxed);
        entry.hole.store(hole, Ordering::Relaxed);
        TAKEN.fetch_max(index + 1, Ordering::Relaxed);
        entry.len.store(len, Ordering::Release);
        Some(Guard(index))
    })
}

/// Forgets every mapping, as a forked child has none of them: what it maps later may lie at their addresses. The entries
/// stay taken until their guards are dropped. For the child's fork handler: only atomics are touched.
pub(crate) fn forget_all() {
    for entry in &ENTRIES {
        entry.len.store(0, Ordering::Release);
    }
}

fn install() {
    OLD.get_or_init(|| {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros is a valid sigaction; the handler has the three-argument form that SA_SIGINFO asks for, and
        // the old action is stored before any mapping is watched, hence before the handler needs it.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                on_sigbus;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGBUS, &raw const action, old.as_mut_ptr());
            old.assume_init()
        }
    });
}

/// Lets SIGBUS through in this thread: a thread that masks it would be killed at a hole. At every entry, as a thread may
/// mask it at any time between two; a system call of some 0.1 to 0.2 us.
#[inline]
pub fn unblock() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is initialised by sigemptyset before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// True when any of these bytes lies in a region that this process has mapped.
pub fn overlaps(address: usize, len: usize) -> bool {
    let taken = TAKEN.load(Ordering::Relaxed);
    let end = address.saturating_add(len);
    ENTRIES[..taken].iter().any(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        let len = entry.len.load(Ordering::Acquire);
        address < start.saturating_add(len) && start < end
    })
}

/// The entry of the mapping that `address` lies in.
fn watched(address: usize) -> Option<(&'static Entry, usize, usize)> {
    ENTRIES.iter().find_map(|entry| {
        let (start, len) = (
            entry.start.load(Ordering::Acquire),
            entry.len.load(Ordering::Acquire),
        );
        (address.wrapping_sub(start) < len).then_some((entry, start, len))
    })
}

unsafe extern "C" fn on_sigbus(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives a valid info to a handler with SA_SIGINFO, and an address with a fault.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code > 0
        && let Some((entry, start, len)) = watched(address)
    {
        entry.lost.store(true, Ordering::Relaxed);
        let hole = entry.hole.load(Ordering::Relaxed); // the length's Acquire came first
        let first = address - address % hole;
        let end = (first + hole).min((start + len).next_multiple_of(4096));
        // SAFETY: replaces pages of a mapping that we made (its start is aligned to `hole`) and whose medium has none
        // there; addresses into it stay valid. mmap is a bare system call.
        let covered = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(first),
                end - first,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if covered != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: the arguments are the kernel's, passed on.
    unsafe { chain(signal, code, info, context) }
}

/// Does what would have happened without us.
unsafe fn chain(signal: i32, code: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(old) = OLD.get() else { return };
    match old.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL if code <= 0 => {}
        libc::SIG_DFL => {
            // SAFETY: the default action again; the faulting instruction runs again and meets it.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if old.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed it with SA_SIGINFO gave a function of three arguments.
            unsafe {
                let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
        handler => {
            // SAFETY: whoever installed it without SA_SIGINFO gave a function of one argument.
            unsafe {
                let handler: unsafe extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
