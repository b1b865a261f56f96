//! Memory as the product meets it: a region that several processes could map, and an engine's private pages.

use std::ffi::CString;
use std::io::{Error, Result};

/// A mapping that is unmapped on drop.
pub(crate) struct Memory {
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    /// A shared, populated mapping of a fresh memfd: what a region is on a machine without CXL.
    pub(crate) fn region(bytes: usize) -> Result<Self> {
        let name = CString::new("copybench-region")?;
        // SAFETY: plain system calls; the descriptor is closed once mapped.
        unsafe {
            let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(Error::last_os_error());
            }
            let grown = libc::ftruncate(fd, bytes.cast_signed() as libc::off_t);
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            let memory = if grown == 0 {
                Self::map(bytes, flags, fd)
            } else {
                Err(Error::last_os_error())
            };
            libc::close(fd);
            memory
        }
    }

    /// Private memory in huge pages where the kernel grants them: an engine's KV cache.
    pub(crate) fn engine(bytes: usize) -> Result<Self> {
        // SAFETY: advice about and first touch of our own fresh mapping.
        unsafe {
            let memory = Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
            libc::madvise(memory.start.cast(), bytes, libc::MADV_HUGEPAGE);
            memory.start.write_bytes(0, bytes);
            Ok(memory)
        }
    }

    unsafe fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            Err(Error::last_os_error())
        } else {
            Ok(Self {
                start: start.cast(),
                bytes,
            })
        }
    }

    /// Address of a byte.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes);
        self.start.wrapping_add(offset)
    }

    /// Fills everything with bytes that differ from line to line and from call to call.
    pub(crate) fn fill(&self, seed: u64) {
        let mut state = seed | 1;
        for offset in (0..self.bytes).step_by(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // SAFETY: mappings are page-aligned and whole pages.
            #[expect(clippy::cast_ptr_alignment, reason = "pages")]
            unsafe {
                self.start
                    .add(offset)
                    .cast::<u64>()
                    .write(state ^ (state >> 29));
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// CPU time of this process, seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills our own struct.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    std::time::Duration::new(
        time.tv_sec.cast_unsigned(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
    .as_secs_f64()
}
