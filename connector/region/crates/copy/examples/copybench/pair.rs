//! Two threads that copy one object together.

use crate::contest::copy_object;
use crate::work::{Direction, Object};
use hymcache_copy::kernel::CopyFn;
use hymcache_copy::{Piece, crc_combine, share};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Spins before giving up the CPU: a hand-over is shorter than waking a thread, a busy machine longer.
const SPINS: u32 = 20_000;

struct Job {
    copy: CopyFn,
    direction: Direction,
    half: Object,
}

// SAFETY: a job's pointers lie in mappings that outlive the benchmark, and only one thread works on its half.
unsafe impl Send for Job {}

#[derive(Default)]
struct Shared {
    job: Mutex<Option<Job>>,
    asked: AtomicU64,
    answered: AtomicU64,
    crc: AtomicU64,
    over: AtomicBool,
}

/// The second thread, waiting for halves.
pub(crate) struct Pair {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        Self {
            shared,
            thread: Some(std::thread::spawn(move || serve(&theirs))),
        }
    }

    /// Copies the second half elsewhere, the first half here, and joins the CRCs.
    pub(crate) fn copy(&self, copy: CopyFn, object: &Object, direction: Direction) -> u32 {
        let [first, second] = [0, 1].map(|index| half(object, index));
        let second_bytes = second.bytes() as u64;
        *self
            .shared
            .job
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Job {
            copy,
            direction,
            half: second,
        });
        let turn = self.shared.asked.fetch_add(1, Ordering::Release) + 1;
        let crc = copy_object(copy, &first, direction);
        wait_until(|| self.shared.answered.load(Ordering::Acquire) == turn);
        crc_combine(
            crc,
            self.shared.crc.load(Ordering::Relaxed) as u32,
            second_bytes,
        )
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Half of an object: of its pieces where it has several, of its bytes where it has one.
fn half(object: &Object, index: usize) -> Object {
    let pieces = if let [piece] = object.pieces[..] {
        let range = share(piece.len, index, 2);
        let (dst, src) = (
            piece.dst.wrapping_add(range.start),
            piece.src.wrapping_add(range.start),
        );
        vec![Piece {
            dst,
            src,
            len: range.len(),
        }]
    } else {
        let (first, second) = object.pieces.split_at(object.pieces.len() / 2);
        [first, second][index].to_vec()
    };
    Object { pieces, crc: 0 }
}

fn serve(shared: &Shared) {
    let mut served = 0;
    loop {
        let over = || shared.over.load(Ordering::Acquire);
        wait_until(|| shared.asked.load(Ordering::Acquire) > served || over());
        if over() {
            return;
        }
        served += 1;
        let job = shared
            .job
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(job) = job {
            let crc = copy_object(job.copy, &job.half, job.direction);
            shared.crc.store(u64::from(crc), Ordering::Relaxed);
        }
        shared.answered.store(served, Ordering::Release);
    }
}

fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        spins += 1;
        if spins % SPINS == 0 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}
