//! Flushes leave bytes as they are, whatever the range; what they do to caches is timed, not believed.

use hymcache_copy::line;

#[test]
fn flushing_any_range_keeps_its_bytes() {
    let mut buffer: Vec<u8> = (0..1024_u32).map(|i| i as u8).collect();
    let expected = buffer.clone();
    for (start, len) in [(0, 0), (0, 1), (63, 2), (5, 300), (64, 64), (0, 1024)] {
        // SAFETY: inside the buffer.
        unsafe {
            line::flush_range(buffer.as_mut_ptr().add(start), len);
            line::writeback_range(buffer.as_ptr().add(start), len);
            line::invalidate_range(buffer.as_ptr().add(start), len);
        }
        line::mfence();
        assert_eq!(buffer, expected);
    }
}

#[test]
fn a_line_is_loaded_as_it_was_stored() {
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut place = Line([0; 64]);
    let words = core::array::from_fn(|i| 0x0102_0304_0506_0708 * (i as u64 + 1));
    // SAFETY: aligned, 64 bytes.
    let back = unsafe {
        line::store_line(place.0.as_mut_ptr(), &words);
        line::load_line(place.0.as_ptr())
    };
    assert_eq!(back, words);
}

/// The last line of an unaligned range is the one a wrong loop forgets: a load of it must miss after the flush.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_flushed_line_is_gone_from_the_caches_and_the_last_line_is_not_forgotten() {
    const LINES: usize = 64;
    let buffer = vec![1_u8; (LINES + 2) * 64];
    let first = buffer.as_ptr().align_offset(64);
    let load_ticks = |flush: &dyn Fn(*const u8)| {
        let mut best = u64::MAX;
        for _ in 0..2000 {
            // SAFETY: the line lies inside the buffer; RDTSC is part of x86-64.
            unsafe {
                let line = buffer.as_ptr().add(first + 64);
                std::hint::black_box(line.read_volatile());
                line::mfence();
                flush(line);
                line::mfence();
                let start = core::arch::x86_64::_rdtsc();
                core::arch::x86_64::_mm_lfence();
                std::hint::black_box(line.read_volatile());
                core::arch::x86_64::_mm_lfence();
                best = best.min(core::arch::x86_64::_rdtsc() - start);
            }
        }
        best
    };
    assert!(line::reaches_memory() && line::flush_kind() != line::Flush::None);
    let cached = load_ticks(&|_| ());
    // SAFETY: one byte past the line's start and one byte before its end, inside the buffer.
    let flushed = load_ticks(&|line| unsafe { line::flush_range(line.sub(1), 2) });
    assert!(
        flushed > cached * 2,
        "cached {cached} ticks, flushed {flushed} ticks"
    );
}
