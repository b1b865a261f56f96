//! Locks that end with their holder: one byte of the medium per process slot, on an open file description of our own.
//!
//! A lock that is free proves that its last holder is dead, on this host, whatever its PID namespace. The byte's place is
//! that of the slot in the region. The nodes of one device in two containers do not share locks, so a device needs a
//! lock file that every container of the host sees.

use crate::error::{RegionError, Result};
use crate::os::file::Medium;
use crate::os::{fork, host};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Together with others.
    Shared,
    /// Alone.
    Alone,
}

/// Locks of one open file description.
pub struct Locks {
    file: Option<File>,
    forks: u64,
    name: String,
    lock_file: Option<u32>,
}

impl Locks {
    /// Locks on the medium, or on `lock_file` where the medium is a device.
    ///
    /// # Errors
    /// The lock file is missing or cannot be opened; too many regions are attached in this process.
    pub fn open(medium: &Medium, lock_file: Option<&Path>) -> Result<Self> {
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(libc::O_CLOEXEC);
        // A file has its own locks, which whoever gives none takes: two kinds of locks would not see each other.
        let (path, name, failed) = match lock_file.filter(|_| medium.is_device) {
            Some(path) => {
                how.write(true).create(true).truncate(false);
                let name = path.display().to_string();
                (path.to_owned(), name, "cannot open the lock file")
            }
            None if medium.is_device => {
                return Err(RegionError::invalid(format!(
                    "{}: a device needs a lock file that all its users on this host share; name it by lock_file or HYMCACHE_LOCK_FILE",
                    medium.name
                )));
            }
            None => {
                // Not a duplicate, which would share the description, but the same file opened again.
                how.write(writable(&medium.file));
                let path = format!("/proc/self/fd/{}", medium.file.as_raw_fd());
                (path.into(), medium.name.clone(), "cannot open again")
            }
        };
        let file = fork::closed_in_child(|| how.open(path))
            .map_err(|error| RegionError::io(format!("{name}: {failed}"), &error))?
            .ok_or_else(|| {
                RegionError::invalid("too many regions are attached in this process; close some")
            })?;
        let lock_file = if medium.is_device {
            let found = file
                .metadata()
                .map_err(|error| RegionError::io(&name, &error))?;
            Some(host::file_name(found.st_dev(), found.st_ino()))
        } else {
            None
        };
        Ok(Self {
            file: Some(file),
            forks: fork::count(),
            name,
            lock_file,
        })
    }

    /// How messages call the file that holds the locks.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which lock file this is; `None` where the medium has its own locks. While anybody has the file open no other one
    /// of this host is called so (but for one chance in 2^32), also if its path leads to another file by now.
    pub const fn lock_file(&self) -> Option<u32> {
        self.lock_file
    }

    /// Takes a range if nobody else holds it: true when taken.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn try_lock(&self, at: u64, len: u64, hold: Hold) -> Result<bool> {
        let kind = match hold {
            Hold::Shared => libc::F_RDLCK,
            Hold::Alone => libc::F_WRLCK,
        };
        self.set(kind, at, len)
    }

    /// Gives a range back.
    pub fn unlock(&self, at: u64, len: u64) {
        let _ = self.set(libc::F_UNLCK, at, len); // fails for a bad descriptor alone, and then nothing is held
    }

    /// True when another open file description holds any byte of the range.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn is_held_elsewhere(&self, at: u64, len: u64) -> Result<bool> {
        let mut lock = range(libc::F_WRLCK, at, len);
        self.call(libc::F_OFD_GETLK, &mut lock)?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    fn set(&self, kind: i32, at: u64, len: u64) -> Result<bool> {
        let mut lock = range(kind, at, len);
        self.call(libc::F_OFD_SETLK, &mut lock)
    }

    /// False when the lock is somebody else's.
    fn call(&self, command: i32, lock: &mut libc::flock) -> Result<bool> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        // SAFETY: a valid descriptor, and a flock that lives through the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } == 0 {
            return Ok(true);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(RegionError::io(
                format!("{}: cannot lock", self.name),
                &error,
            )),
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if self.forks == fork::count() {
            self.unlock(0, 0); // to the end; a child that is being forked has the description too, and may keep it
        }
        if let Some(file) = self.file.take() {
            if self.forks == fork::count() {
                fork::forget(file.as_raw_fd());
            } else {
                std::mem::forget(file); // closed at the fork; the number may be another file's by now
            }
        }
    }
}

fn range(kind: i32, at: u64, len: u64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: at.cast_signed(),
        l_len: len.cast_signed(),
        l_pid: 0,
    }
}

fn writable(file: &File) -> bool {
    // SAFETY: a valid descriptor.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_ACCMODE == libc::O_RDWR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::file::Target;
    use std::os::fd::FromRawFd as _;

    #[test]
    fn locks_end_with_their_holder_though_a_fork_shared_the_description() {
        // SAFETY: a name without zeros inside; the result is checked.
        let fd = unsafe { libc::memfd_create(c"locks".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "no memory file");
        // SAFETY: the descriptor was just made, and is nobody else's.
        let _file = unsafe { File::from_raw_fd(fd) };
        let medium = Medium::open(&Target::Fd(fd), true).expect("the medium");
        let held = Locks::open(&medium, None).expect("locks");
        assert!(held.try_lock(7, 1, Hold::Alone).expect("locks"));
        let of_a_child = held.file.as_ref().map(File::try_clone);
        drop(held);
        let other = Locks::open(&medium, None).expect("locks");
        assert!(
            other.try_lock(7, 1, Hold::Alone).expect("locks"),
            "held for as long as the child lives"
        );
        drop(of_a_child);
    }
}
