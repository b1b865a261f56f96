//! Arguments and errors that every class shares.

use hymcache_region::error::{self, ErrorKind};
use hymcache_region::os::file::Target;
use hymcache_region::region::Live;
use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pyo3::create_exception!(
    hymcache.region,
    RegionError,
    PyException,
    "A region cannot be formatted or attached, or was closed. `kind` is a stable word for the cause."
);

/// The exception for an error of the core: `ValueError` for a bad argument, else `RegionError` with its kind.
pub(crate) fn exception(py: Python<'_>, error: &error::RegionError) -> PyErr {
    if error.kind == ErrorKind::Invalid {
        return PyValueError::new_err(error.message.clone());
    }
    let exception = RegionError::new_err(error.message.clone());
    match exception.value(py).setattr("kind", error.kind.as_str()) {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}

/// An integer argument. One that does not fit is a `ValueError`, as every other value that cannot be; Python's own
/// conversion raises `OverflowError`. It is raised where the argument gets its name: an exception from here is named
/// in a note alone.
pub(crate) struct Int<T>(Result<T, String>);

impl<T> Int<T> {
    /// A default.
    pub(crate) const fn of(number: T) -> Self {
        Self(Ok(number))
    }

    /// The number of the argument of this name.
    pub(crate) fn named(self, name: &str) -> PyResult<T> {
        (self.0).map_err(|wrong| PyValueError::new_err(format!("{name}: {wrong}")))
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr> + Highest> FromPyObject<'a, 'py> for Int<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.extract() {
            Ok(number) => Ok(Self(Ok(number))),
            Err(error) if PyErr::is_instance_of::<PyOverflowError>(&error, object.py()) => {
                Ok(Self(Err(format!(
                    "expected an integer from 0 to {}, found {}",
                    T::HIGHEST,
                    object.to_owned()
                ))))
            }
            Err(error) => Err(error),
        }
    }
}

/// The number of an argument that may be left out.
pub(crate) fn plain<T>(number: Option<Int<T>>, name: &str) -> PyResult<Option<T>> {
    number.map(|number| number.named(name)).transpose()
}

/// The highest number of an unsigned type.
pub(crate) trait Highest {
    const HIGHEST: u64;
}

impl Highest for u8 {
    const HIGHEST: u64 = Self::MAX as u64;
}
impl Highest for u32 {
    const HIGHEST: u64 = Self::MAX as u64;
}
impl Highest for u64 {
    const HIGHEST: u64 = Self::MAX;
}
impl Highest for usize {
    const HIGHEST: u64 = Self::MAX as u64;
}

/// A path or a descriptor.
pub(crate) fn target(object: &Bound<'_, PyAny>) -> PyResult<Target> {
    if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        return object.extract().map(Target::Fd).map_err(|_| {
            PyValueError::new_err(format!(
                "target: no file descriptor has the number {object}"
            ))
        });
    }
    object.extract::<PathBuf>().map(Target::Path).map_err(|_| {
        PyTypeError::new_err(format!(
            "target: expected a path or a file descriptor, found {}",
            object.get_type()
        ))
    })
}

/// A region that several Python objects share until it is closed.
#[derive(Default)]
pub(crate) struct Handle {
    live: Mutex<Option<Arc<Live>>>,
    /// Sizes of the blocks of all pages that were registered: none, one, or `SEVERAL`.
    block_bytes: OnceLock<AtomicU64>,
}

const SEVERAL: u64 = u64::MAX;

impl Handle {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self {
            live: Mutex::new(Some(live)),
            ..Self::default()
        }
    }

    /// Remembers what a block of pages has.
    pub(crate) fn register(&self, bytes: u64) {
        let all = self.block_bytes.get_or_init(|| AtomicU64::new(bytes));
        if all.load(Ordering::Relaxed) != bytes {
            all.store(SEVERAL, Ordering::Relaxed);
        }
    }

    /// What a block has in all pages that were registered.
    pub(crate) fn block_bytes(&self) -> PyResult<u64> {
        let found = match self
            .block_bytes
            .get()
            .map(|all| all.load(Ordering::Relaxed))
        {
            Some(SEVERAL) => "several",
            Some(bytes) => return Ok(bytes),
            None => "none",
        };
        Err(PyTypeError::new_err(format!(
            "unit_bytes: expected it, or pages with blocks of one size in this region, found {found}; pass unit_bytes"
        )))
    }

    /// The region, for the length of one call.
    pub(crate) fn live(&self) -> PyResult<Arc<Live>> {
        // Unlocked again before an exception is made: that may let go of the interpreter lock for a moment, and whoever gets
        // it may want this one.
        let live = (self.live.lock().unwrap_or_else(PoisonError::into_inner)).clone();
        live.ok_or_else(|| {
            Python::attach(|py| {
                let message = "region: expected an attached one, found it closed; attach again";
                exception(py, &error::RegionError::new(ErrorKind::Closed, message))
            })
        })
    }

    /// Lets go; calls under way in other threads end first.
    pub(crate) fn close(&self) -> Option<Arc<Live>> {
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Bytes from which on a call releases the interpreter lock. Taking it back beside a busy thread costs up to its
/// switch interval of 5 ms: worth it for a copy of that order, not for a short one.
pub(crate) const RELEASE_BYTES: u64 = 256 << 10;

/// Runs `work` without the interpreter lock when it moves many bytes.
pub(crate) fn maybe_detached<T: Send>(
    py: Python<'_>,
    bytes: u64,
    work: impl FnOnce() -> T + Send,
) -> T {
    if bytes < RELEASE_BYTES {
        work()
    } else {
        py.detach(work)
    }
}
