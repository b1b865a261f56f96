//! What can go wrong outside the request path: format, attach, arguments. Lookups, gets and puts never fail, they miss.

use std::fmt;

/// Cause of a [`RegionError`]; `as_str` is what Python shows as `RegionError.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An argument is out of range or of the wrong shape: the caller's mistake.
    Invalid,
    /// The target cannot be opened, mapped or locked.
    Io,
    /// The memory is all zeros where a superblock would be: format it first, or wait for whoever does.
    Unformatted,
    /// A format is running, or died half-way: wait, or format again.
    Formatting,
    /// The bytes are something else's: never touched.
    Foreign,
    /// The superblock's checksum does not hold.
    Torn,
    /// Written by a newer version, or with features this one does not know.
    Newer,
    /// Written by an older version that this one does not read.
    Older,
    /// The medium is smaller than its superblock says.
    Truncated,
    /// Another region than the caller named.
    WrongUuid,
    /// Another incarnation of the region than the caller named.
    WrongEpoch,
    /// A format would replace a region that the caller did not name.
    Exists,
    /// Another process formats, or processes are attached.
    Busy,
    /// The domain belongs to another host.
    Owned,
    /// Every process slot of the domain is taken by a live process.
    Crowded,
    /// The region was closed, or the process forked after attaching.
    Closed,
}

impl ErrorKind {
    /// Stable name for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Io => "io",
            Self::Unformatted => "unformatted",
            Self::Formatting => "formatting",
            Self::Foreign => "foreign",
            Self::Torn => "torn",
            Self::Newer => "newer",
            Self::Older => "older",
            Self::Truncated => "truncated",
            Self::WrongUuid => "wrong-uuid",
            Self::WrongEpoch => "wrong-epoch",
            Self::Exists => "exists",
            Self::Busy => "busy",
            Self::Owned => "owned",
            Self::Crowded => "crowded",
            Self::Closed => "closed",
        }
    }
}

/// One sentence that names the object, what was expected, what was found and what to do; and a kind for programs.
#[derive(Clone, Debug)]
pub struct RegionError {
    /// The cause.
    pub kind: ErrorKind,
    /// The sentence.
    pub message: String,
}

impl RegionError {
    /// An error of this kind with this sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The caller's mistake.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The operating system refused; `what` names the step and the object.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("{what}: {error}"))
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RegionError {}

/// Result of everything outside the request path.
pub type Result<T> = std::result::Result<T, RegionError>;
