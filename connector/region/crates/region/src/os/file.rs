//! The medium behind a region: a file, a memfd or a device node, always through an open file description of our own.
//!
//! A descriptor that came over a socket shares its description with the sender, and with it the sender's locks. So a
//! descriptor is opened again through `/proc/self/fd`, which gives a new description of the same file. A device takes no
//! locks, and a pod that was handed one has no right to open its node: such a descriptor is duplicated.

use crate::error::{ErrorKind, RegionError, Result};
use std::fs::{File, FileType, OpenOptions};
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// What the protection of a file's pages is changed by.
const FILE_PAGE_BYTES: u64 = 4096;
/// Highest alignment of a device. Through one of 1 GiB, Linux 6.12 was seen to show other memory than the device's.
const DEVICE_ALIGN_MAX: u64 = 2 << 20;

/// A pipe is no region, and opening one waits for its other end.
const OPEN_FLAGS: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK;

/// Where a region lies.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file or device node.
    Path(PathBuf),
    /// An open descriptor, which stays the caller's.
    Fd(RawFd),
}

impl Target {
    fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Fd(fd) => PathBuf::from(format!("/proc/self/fd/{fd}")),
        }
    }

    /// How messages call it.
    pub fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Fd(fd) => format!("region descriptor {fd}"),
        }
    }
}

/// An opened medium.
pub struct Medium {
    /// Our own open file description.
    pub file: File,
    /// Bytes of the medium.
    pub bytes: u64,
    /// True for a device node, whose size and locks are not the file's.
    pub is_device: bool,
    /// How messages call it.
    pub name: String,
    /// True for a file that was made for this.
    pub is_new: bool,
    /// Mappings begin and end, and change their protection, at multiples of this: the alignment of a device.
    pub page_bytes: u64,
}

impl Medium {
    /// Opens an existing medium.
    ///
    /// # Errors
    /// It does not exist, may not be opened, or is neither a file nor a character device.
    pub fn open(target: &Target, write: bool) -> Result<Self> {
        if let Some(device) = handed_device(target) {
            return Self::of(device, target.name());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(OPEN_FLAGS)
            .open(target.path())
            .map_err(|error| cannot_open(target, write, &error))?;
        Self::of(file, target.name())
    }

    /// Opens a medium to format it, creating a file of `size` bytes where there is none.
    ///
    /// # Errors
    /// As [`Medium::open`], or the file cannot be created.
    pub fn open_or_create(target: &Target, size: Option<u64>) -> Result<Self> {
        let Target::Path(path) = target else {
            return Self::open(target, true);
        };
        if size.is_none() || path.exists() {
            return Self::open(target, true);
        }
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(OPEN_FLAGS)
            .mode(0o660)
            .open(path)
            .map_err(|error| RegionError::io(format!("{}: cannot create", target.name()), &error))
            .and_then(|file| Self::of(file, target.name()))
            .map(|medium| Self {
                is_new: true,
                ..medium
            })
    }

    fn of(file: File, name: String) -> Result<Self> {
        let found = file
            .metadata()
            .map_err(|error| RegionError::io(&name, &error))?;
        let kind = found.file_type();
        let is_device = kind.is_char_device();
        let (bytes, page_bytes) = if is_device {
            device_shape(&name, found.st_rdev())?
        } else if kind.is_file() {
            (found.len(), FILE_PAGE_BYTES)
        } else {
            return Err(RegionError::new(
                ErrorKind::Foreign,
                format!(
                    "{name}: expected a file or a device-dax node, found {}; check the path",
                    name_of(kind)
                ),
            ));
        };
        Ok(Self {
            file,
            bytes,
            is_device,
            name,
            is_new: false,
            page_bytes,
        })
    }

    /// Makes sure that a file has `bytes` bytes and pages for all of them, so that no later store can fail.
    ///
    /// # Errors
    /// The file system has no room.
    pub fn allocate(&mut self, bytes: u64) -> Result<()> {
        if self.is_device {
            return Ok(());
        }
        let full = |error: std::io::Error| {
            RegionError::io(
                format!("{}: cannot allocate {bytes} bytes", self.name),
                &error,
            )
        };
        if self.bytes < bytes {
            self.file.set_len(bytes).map_err(full)?;
            self.bytes = bytes;
        }
        if self.is_allocated() {
            return Ok(());
        }
        // SAFETY: a valid descriptor; the call changes no byte of the file.
        let code = unsafe { libc::posix_fallocate(self.file.as_raw_fd(), 0, bytes.cast_signed()) };
        if code == 0 {
            return Ok(());
        }
        Err(full(std::io::Error::from_raw_os_error(code)))
    }

    /// True when the medium has a page for every byte: populating a mapping then costs nobody memory.
    pub fn is_allocated(&self) -> bool {
        self.is_device
            || self
                .file
                .metadata()
                .is_ok_and(|found| found.st_blocks() * 512 >= self.bytes)
    }
}

/// What neither a file nor a character device is.
fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_block_device() => "a block device",
        _ => "something else",
    }
}

fn cannot_open(target: &Target, write: bool, error: &std::io::Error) -> RegionError {
    let advice = match error.raw_os_error() {
        Some(libc::ENOENT) => "check the path, or format it with a size to create it",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) if write => {
            "attach read-only, or get write permission"
        }
        Some(libc::ENXIO) => "check the path; a socket is named unix:PATH",
        _ => "check the path and its permissions",
    };
    let message = format!("{}: cannot open ({error}); {advice}", target.name());
    RegionError::new(ErrorKind::Io, message)
}

/// A descriptor of a device, duplicated.
fn handed_device(target: &Target) -> Option<File> {
    let Target::Fd(fd) = target else { return None };
    // SAFETY: takes any number; one that is no descriptor is refused.
    let copy = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return None; // opening it says why
    }
    // SAFETY: just made, so nobody else's.
    let file = unsafe { File::from_raw_fd(copy) };
    let kind = file.metadata().ok()?.file_type();
    kind.is_char_device().then_some(file)
}

/// Bytes and alignment of a device-dax instance: the kernel tells in sysfs, the node itself has neither.
fn device_shape(name: &str, device: u64) -> Result<(u64, u64)> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let folder = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
    let number = |file| {
        let text = std::fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let is_dax = std::fs::canonicalize(folder.join("subsystem"))
        .is_ok_and(|subsystem| subsystem.ends_with("dax"));
    match (number("size"), number("align")) {
        (Some(_), Some(align)) if is_dax && align > DEVICE_ALIGN_MAX => Err(RegionError::new(
            ErrorKind::Io,
            format!(
                "{name}: expected a device with an alignment of at most {DEVICE_ALIGN_MAX} bytes, found {align}; \
                 give it one (daxctl reconfigure-device --align)"
            ),
        )),
        (Some(bytes), Some(align)) if is_dax && align.is_power_of_two() => Ok((bytes, align)),
        _ => Err(RegionError::new(
            ErrorKind::Foreign,
            format!(
                "{name}: expected a device-dax node, found a character device that {} does not describe as one; check the path",
                folder.display()
            ),
        )),
    }
}
