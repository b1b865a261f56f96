//! Two threads that copy one object together.

use crate::contest::copy_object;
use crate::work::{Direction, Object};
use hymcache_copy::kernel::CopyFn;
use hymcache_copy::{Piece, crc_combine, share};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

struct Job {
    copy: CopyFn,
    direction: Direction,
    half: Object,
}

// SAFETY: a job's pointers lie in mappings that outlive the benchmark, and only one thread works on its half.
unsafe impl Send for Job {}

/// The second thread; it sleeps between halves, as one that spins would take its CPU from what is compared with it.
pub(crate) struct Pair {
    jobs: Option<Sender<Job>>,
    crcs: Receiver<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let (jobs, waiting) = channel::<Job>();
        let (done, crcs) = channel();
        let serve = move || {
            for job in waiting {
                // The other side is gone only when the benchmark has failed.
                let _gone = done.send(copy_object(job.copy, &job.half, job.direction));
            }
        };
        Self {
            jobs: Some(jobs),
            crcs,
            thread: Some(std::thread::spawn(serve)),
        }
    }

    /// Copies the second half over there, the first half here, and joins the CRCs.
    pub(crate) fn copy(&self, copy: CopyFn, object: &Object, direction: Direction) -> Option<u32> {
        let [first, half] = [0, 1].map(|index| half(object, index));
        let half_bytes = half.bytes() as u64;
        self.jobs
            .as_ref()?
            .send(Job {
                copy,
                direction,
                half,
            })
            .ok()?;
        let crc = copy_object(copy, &first, direction);
        Some(crc_combine(crc, self.crcs.recv().ok()?, half_bytes))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.jobs = None;
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
