//! Which file the processes of a domain lock, where the medium is a device, which has no locks of its own.
//!
//! Processes that lock two files take one another for dead. So the domain names the file: who attaches with another one
//! is refused as long as anybody shows that it lives, and who finds another name than its own was taken for dead.

use crate::error::{ErrorKind, RegionError, Result};
use crate::layout::Layout;
use crate::mapped::Mapped;
use crate::memory::Memory;
use crate::os::lock::Locks;
use crate::sweep::{SILENCE_MS, slot};
use crate::words::ProcessWord;
use std::time::{Duration, Instant};

/// The word that names the lock file `name`: a checksum of it above its low half, so that damage is no name.
fn word<M: Memory>(mem: &M, layout: &Layout, domain: u32, name: u32) -> u64 {
    let mut bytes = layout.lock_file(domain).to_le_bytes().to_vec();
    bytes.extend(name.to_le_bytes());
    u64::from(mem.crc(0, &bytes)) << 32 | u64::from(name)
}

/// The lock file that the processes of a domain's host use, as far as the word can be read.
pub(crate) fn load<M: Memory>(mem: &M, layout: &Layout, domain: u32) -> Option<u32> {
    let found = mem.load(layout.lock_file(domain));
    let name = found as u32;
    (word(mem, layout, domain, name) == found).then_some(name)
}

/// Sees to it that all processes of the domain lock the same file: each would take those of another file for dead. One
/// file may follow another only when nobody shows that it lives. A process that stands still shows nothing, as one that
/// died.
pub(crate) fn share(
    mapped: &Mapped,
    layout: &Layout,
    locks: &Locks,
    domain: u32,
    is_same_boot: bool,
    name: &str,
) -> Result<()> {
    let Some(mine) = locks.lock_file() else {
        return Ok(());
    };
    let at = layout.lock_file(domain);
    let found = mapped.load(at);
    let known = load(mapped, layout, domain);
    if known == Some(mine) {
        return Ok(());
    }
    let is_used = is_same_boot && known.is_some() && is_shown(mapped, layout, domain);
    let named = word(mapped, layout, domain, mine);
    if is_used || mapped.cas(at, found, named).is_err() {
        return Err(RegionError::new(
            ErrorKind::Busy,
            format!(
                "{name}: expected the lock file that the live processes of domain {domain} use, found {}; name one \
                 lock_file or HYMCACHE_LOCK_FILE for all users of this host, or end those processes",
                locks.name()
            ),
        ));
    }
    Ok(())
}

/// True when a process of the domain shows that it lives, or one enters, within the time after which it counts as silent.
fn is_shown(mapped: &Mapped, layout: &Layout, domain: u32) -> bool {
    let slots = || -> Vec<(u64, u64)> {
        (0..layout.geometry.processes)
            .map(|process| layout.process(domain, process))
            .map(|at| {
                (
                    mapped.load(at + slot::WORD),
                    mapped.load(at + slot::SEEN_MS),
                )
            })
            .filter(|&(word, _)| ProcessWord(word).is_live())
            .collect()
    };
    let (before, start) = (slots(), Instant::now());
    while start.elapsed() < Duration::from_millis(SILENCE_MS) {
        if slots() != before {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{AttachOptions, attach_to};
    use crate::format::{FormatOptions, format};
    use crate::os::file::{Medium, Target};
    use crate::region::Live;
    use crate::words::Life;
    use std::fs::File;
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::path::PathBuf;
    use std::sync::Arc;

    const BYTES: u64 = 8 << 20;
    /// The janitor looks ten times a second.
    const NOTICED: Duration = Duration::from_secs(5);

    /// A memory file with a region, taken for a device: locks are asked of another file.
    struct Device {
        file: File,
        folder: PathBuf,
    }

    impl Device {
        fn new(name: &str) -> Self {
            // SAFETY: a name without zeros inside; the result is checked.
            let fd = unsafe { libc::memfd_create(c"device".as_ptr(), libc::MFD_CLOEXEC) };
            assert!(fd >= 0, "no memory file");
            // SAFETY: the descriptor was just made, and is nobody else's.
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len(BYTES).expect("room");
            let options = FormatOptions {
                chunk_bytes: 64 << 10,
                domains: 1,
                ..FormatOptions::default()
            };
            format(&Target::Fd(fd), &options).expect("a new region");
            let folder =
                std::env::temp_dir().join(format!("hymcache-{name}-{}", std::process::id()));
            std::fs::create_dir(&folder).expect("a new folder");
            Self { file, folder }
        }

        fn lock_file(&self, name: &str) -> PathBuf {
            self.folder.join(name)
        }

        fn attach(&self, lock_file: &str) -> Result<Arc<Live>> {
            let medium = Medium {
                is_device: true,
                ..Medium::open(&Target::Fd(self.file.as_raw_fd()), true)?
            };
            let options = AttachOptions {
                lock_file: Some(self.lock_file(lock_file)),
                ..AttachOptions::default()
            };
            attach_to(medium, &options)
        }
    }

    impl Drop for Device {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn slot_of(live: &Live) -> u32 {
        live.core()
            .own
            .as_ref()
            .expect("attached for writing")
            .process
    }

    #[test]
    fn a_process_that_locks_another_file_is_refused_by_name() {
        let device = Device::new("other");
        let first = device.attach("one").expect("attach");
        let refused = device.attach("two").err().expect("the first one lives");
        assert_eq!(refused.kind, ErrorKind::Busy);
        let other = device.lock_file("two").display().to_string();
        assert!(refused.message.contains(&other) && refused.message.contains("HYMCACHE_LOCK_FILE"));
        let second = device.attach("one").expect("the same file");
        assert_eq!((slot_of(&first), slot_of(&second)), (0, 1));
        assert!(first.is_intact() && second.is_intact());
        first.end();
        second.end();
    }

    #[test]
    fn two_processes_that_begin_at_once_with_two_lock_files_do_not_both_stay() {
        for _ in 0..4 {
            let device = Device::new("at-once");
            let begin = |lock_file| device.attach(lock_file);
            let both = std::thread::scope(|scope| {
                let both = ["one", "two"].map(|lock_file| scope.spawn(move || begin(lock_file)));
                both.map(|thread| thread.join().expect("no panic"))
            });
            let stayed: Vec<_> = both.into_iter().flatten().collect();
            assert_eq!(stayed.len(), 1, "each takes the other for dead");
            stayed.into_iter().for_each(Live::end);
        }
    }

    #[test]
    fn a_new_lock_file_is_taken_when_nobody_shows_that_it_lives() {
        let device = Device::new("new");
        let first = device.attach("one").expect("attach");
        let (core, at) = (first.core(), first.core().layout.process(0, 5) + slot::WORD);
        core.mem.store(at, ProcessWord::new(Life::Live, 1).0); // of a process that was killed
        first.end();
        let second = device.attach("two").expect("nobody lives");
        assert_eq!(second.core().processes(0), 1, "the dead one is still there");
        second.end();
    }

    #[test]
    fn a_damaged_name_of_the_lock_file_keeps_nobody_out_and_ends_nobody() {
        let device = Device::new("damaged");
        let first = device.attach("one").expect("attach");
        let (mem, at) = (&first.core().mem, first.core().layout.lock_file(0));
        mem.store(at, mem.load(at) ^ 1);
        std::thread::sleep(Duration::from_millis(300)); // a few looks of the janitor
        assert!(first.is_intact());
        let second = device.attach("one").expect("the same file");
        assert_eq!(slot_of(&second), 1);
        first.end();
        second.end();
    }

    #[test]
    fn a_process_that_was_taken_for_dead_notices_and_stores_nothing_more() {
        let device = Device::new("taken");
        let first = device.attach("one").expect("attach");
        let (mem, layout) = (&first.core().mem, &first.core().layout);
        mem.store(layout.lock_file(0), word(mem, layout, 0, 7));
        let start = Instant::now();
        while first.is_intact() {
            assert!(start.elapsed() < NOTICED, "it goes on under others' feet");
            std::thread::sleep(Duration::from_millis(5));
        }
        first.end();
    }
}
