//! Threads of one process share its locks and its reservations: what is proof for one of them, or its own, is another's too.

use hymcache_copy::bare::Bare;
use hymcache_region::attach::{AttachOptions, attach};
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::Place;
use hymcache_region::format::{FormatOptions, format};
use hymcache_region::memory::Memory as _;
use hymcache_region::os::file::Target;
use hymcache_region::region::{Live, Namespace};
use hymcache_region::words::{ChunkWord, Life, ProcessWord};
use hymcache_region::write::Shape;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// Sparse, with headers enough that a sweep takes a while.
const BYTES: u64 = 2 << 30;
const CHUNK_BYTES: u64 = 64 << 10;
const DEAD: u32 = 7;
const ROUNDS: usize = 100;

fn memory_file() -> OwnedFd {
    // SAFETY: a name without zeros inside; the result is checked.
    let fd = unsafe { libc::memfd_create(c"threads".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "no memory file");
    // SAFETY: the descriptor was just made, and is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no pointers.
    let code = unsafe { libc::ftruncate(fd.as_raw_fd(), BYTES.cast_signed()) };
    assert_eq!(code, 0);
    fd
}

fn attached(file: &OwnedFd) -> Arc<Live> {
    let target = Target::Fd(file.as_raw_fd());
    let options = FormatOptions {
        chunk_bytes: CHUNK_BYTES,
        domains: 1,
        ..FormatOptions::default()
    };
    format(&target, &options).expect("a new region");
    attach(&target, &AttachOptions::default()).expect("its first user")
}

#[test]
fn a_dead_process_is_swept_by_one_thread_alone() {
    let file = memory_file();
    let live = attached(&file);
    let slot = live.core().layout.process(0, DEAD);
    let both = Barrier::new(2);
    let sweep = || {
        both.wait();
        live.sweep()
    };
    for round in 0..ROUNDS {
        live.core()
            .mem
            .store(slot, ProcessWord::new(Life::Live, round as u64).0);
        let swept = thread::scope(|scope| {
            let other = scope.spawn(sweep);
            sweep() + other.join().expect("no panic")
        });
        assert!(
            swept <= 1,
            "round {round}: while one thread swept, the other's lock was taken or given back"
        );
    }
    live.end();
}

/// What the copy below gives up while it runs, as another thread may.
static GIVEN_UP: Mutex<Option<(Arc<Live>, Place)>> = Mutex::new(None);

/// # Safety
/// None is needed: it copies nothing.
unsafe fn give_up(_: *mut u8, _: *const u8, _: usize) {
    let (live, place) = GIVEN_UP.lock().expect("no panic").take().expect("once");
    live.abort(place);
    let holder = held(&live, place);
    assert!(holder, "the chunk is free while bytes are copied into it");
}

fn held(live: &Live, place: Place) -> bool {
    let layout = &live.core().layout;
    let words = (0..layout.geometry.domain_chunks).map(|local| layout.chunk_word(0, local));
    let held = ChunkWord::held(place.header, place.generation);
    words
        .map(|at| live.core().mem.load(at))
        .any(|word| word == held.0)
}

#[test]
fn a_bare_copy_keeps_the_chunks_of_a_reservation_that_another_thread_gives_up() {
    let file = memory_file();
    let live = attached(&file);
    let namespace = Namespace::new(&live, [1; 32]);
    let mut bytes = vec![[0_u64; 8]; 64];
    let address = bytes.as_mut_ptr().cast::<u8>();
    let skip = address.align_offset(64);
    let shape = Shape {
        units: 1,
        unit_bytes: 2048,
        sections: 1,
        namespace: 0,
    };
    let place = live
        .reserve(&namespace.digest(b"key"), shape)
        .expect("there is room");
    let window = live.window(place).expect("reserved");
    *GIVEN_UP.lock().expect("no panic") = Some((Arc::clone(&live), place));
    let copy = Bare {
        name: "give up",
        copy: give_up,
    };
    // SAFETY: the vector outlives the call, and holds as much behind the first line.
    let piece = [unsafe { Piece::new(address.wrapping_add(skip), 2048) }];
    live.bare(&window, &copy, Buffers::List(&piece), true);
    live.core()
        .sweep_orphans(live.core().own.as_ref().expect("attached for writing"));
    assert!(!held(&live, place), "the chunk is lost");
    live.end();
}
