//! One mapping of a whole region: placed for large pages, foreign parts read-only, not inherited by children.

use crate::error::{RegionError, Result};
use crate::os::file::Medium;
use crate::os::{fork, sigbus};
use std::os::fd::AsRawFd as _;
use std::ptr;

/// Alignment of the mapping's address, if the medium asks for no more: the largest page that files are likely to have.
const ALIGN: usize = 2 << 20;

/// A mapping that lives until dropped.
pub struct Mapping {
    base: *mut u8,
    len: u64,
    forks: u64,
    guard: sigbus::Guard,
}

// SAFETY: the mapping is shared memory by nature; all access to it is by atomics and copy kernels.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps all of `medium`, read-only at first.
    ///
    /// # Errors
    /// The kernel refuses, or too many regions are mapped in this process.
    pub fn new(medium: &Medium) -> Result<Self> {
        fork::watch();
        let fail = || {
            RegionError::io(
                format!("{}: cannot map", medium.name),
                &std::io::Error::last_os_error(),
            )
        };
        let len = usize::try_from(medium.bytes)
            .ok()
            .filter(|&len| len > 0)
            .ok_or_else(|| {
                RegionError::invalid(format!("{}: expected bytes, found none", medium.name))
            })?;
        let align = ALIGN.max(medium.page_bytes as usize);
        let reserved = len + align;
        // SAFETY: reserves address space where the kernel likes; nothing is mapped over.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(fail());
        }
        let skew = start.align_offset(align);
        let base = start.cast::<u8>().wrapping_add(skew);
        // SAFETY: base..base + len lies inside the reservation just made, which nobody else knows of.
        let mapped = unsafe {
            libc::mmap(
                base.cast(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                medium.file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = fail();
            // SAFETY: the reservation made above.
            unsafe { libc::munmap(start, reserved) };
            return Err(error);
        }
        let tail = base.wrapping_add(page_up(len));
        let rest = reserved - skew - page_up(len);
        // SAFETY: the two ends of the reservation that the file does not cover; an empty range is refused harmlessly.
        unsafe {
            libc::munmap(start, skew);
            libc::munmap(tail.cast(), rest);
            libc::madvise(base.cast(), len, libc::MADV_DONTFORK);
            libc::madvise(base.cast(), len, libc::MADV_HUGEPAGE);
        }
        let Some(guard) = sigbus::guard(base.addr(), len, align) else {
            // SAFETY: the mapping made above, of which no address was given out.
            unsafe { libc::munmap(base.cast(), len) };
            return Err(RegionError::invalid(
                "too many regions are mapped in this process; close some",
            ));
        };
        Ok(Self {
            base,
            len: medium.bytes,
            forks: fork::count(),
            guard,
        })
    }

    /// First byte.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True without bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// False once a hole was met in the medium, or in a forked child, where nothing is mapped.
    #[inline]
    pub fn is_intact(&self) -> bool {
        !self.guard.is_lost() && self.forks == fork::count()
    }

    /// False in a forked child.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.forks == fork::count()
    }

    /// Declares the region lost in this process: nothing is read or published any more.
    pub fn lose(&self) {
        self.guard.lose();
    }

    /// Lets this process store into a range that begins and ends with pages of the medium.
    ///
    /// # Errors
    /// The range is not inside the mapping, or the kernel refuses (the medium is read-only).
    pub fn allow_stores(&self, at: u64, len: u64) -> Result<()> {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside {
            return Err(RegionError::invalid(format!(
                "no bytes {at}..{at}+{len} in a region of {}",
                self.len
            )));
        }
        let start = self.base.wrapping_add(at as usize);
        // SAFETY: inside the mapping; only its protection changes.
        let code = unsafe {
            libc::mprotect(
                start.cast(),
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if code == 0 {
            return Ok(());
        }
        Err(RegionError::io(
            "cannot map the own domain for writing",
            &std::io::Error::last_os_error(),
        ))
    }

    /// Faults the pages of a range in, so that no request has to. False when the kernel cannot.
    pub fn populate(&self, at: u64, len: u64, write: bool) -> bool {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        let advice = if write {
            libc::MADV_POPULATE_WRITE
        } else {
            libc::MADV_POPULATE_READ
        };
        // SAFETY: inside the mapping; no byte changes.
        inside
            && unsafe {
                libc::madvise(
                    self.base.wrapping_add(at as usize).cast(),
                    len as usize,
                    advice,
                )
            } == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard.release(); // before the addresses can become another mapping's
        if self.is_mapped() {
            // SAFETY: ours since `new`; whoever held an address borrowed this mapping and is gone.
            unsafe { libc::munmap(self.base.cast(), self.len as usize) };
        }
    }
}

fn page_up(len: usize) -> usize {
    // SAFETY: asks for a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    len.next_multiple_of(usize::try_from(page).unwrap_or(4096))
}

/// Size of the pages that a mapping really uses, as the kernel reports it; 4096 where it does not say.
///
/// A medium may offer large pages and the kernel still map small ones (no aligned memory, a policy that forbids them), so
/// this asks for what is there: the page size of the area, or 2 MiB when most of what is resident is mapped by PMDs.
pub fn page_bytes(mapping: &Mapping) -> u64 {
    let Ok(areas) = std::fs::read_to_string("/proc/self/smaps") else {
        return 4096;
    };
    let inside = |line: &str| {
        let (first, _) = line.split_once('-')?;
        let first = usize::from_str_radix(first, 16).ok()?;
        Some(first.wrapping_sub(mapping.base.addr()) < mapping.len as usize)
    };
    let (mut is_ours, mut page, mut resident, mut large) = (false, 4, 0, 0);
    for line in areas.lines() {
        let Some((name, value)) = line.split_once(": ") else {
            is_ours = inside(line).unwrap_or(is_ours); // an area begins, or a field without a value
            continue;
        };
        let kib = value
            .trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .unwrap_or(0);
        match name {
            "KernelPageSize" if is_ours => page = page.max(kib),
            "Rss" if is_ours => resident += kib,
            "ShmemPmdMapped" | "FilePmdMapped" if is_ours => large += kib,
            _ => {}
        }
    }
    if large > 0 && large * 2 >= resident {
        2 << 20
    } else {
        page * 1024
    }
}
