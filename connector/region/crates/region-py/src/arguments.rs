//! Arguments and errors that every class shares.

use hymcache_region::error::{self, ErrorKind};
use hymcache_region::os::file::Target;
use hymcache_region::region::Live;
use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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
/// conversion raises `OverflowError`. The note that the interpreter shows with it names the argument.
#[derive(Clone, Copy)]
pub(crate) struct Int<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr> + Highest> FromPyObject<'a, 'py> for Int<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Self).map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(object.py()) {
                PyValueError::new_err(format!(
                    "expected an integer from 0 to {}, found {}",
                    T::HIGHEST,
                    object.to_owned()
                ))
            } else {
                error
            }
        })
    }
}

/// The plain integer behind an argument that may be left out.
pub(crate) fn plain<T>(number: Option<Int<T>>) -> Option<T> {
    number.map(|Int(number)| number)
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
pub(crate) struct Handle(Mutex<Option<Arc<Live>>>);

impl Handle {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        Self(Mutex::new(Some(live)))
    }

    /// The region, for the length of one call.
    pub(crate) fn live(&self) -> PyResult<Arc<Live>> {
        // Unlocked again before an exception is made: that may let go of the interpreter lock for a moment, and whoever gets
        // it may want this one.
        let live = (self.0.lock().unwrap_or_else(PoisonError::into_inner)).clone();
        live.ok_or_else(|| {
            Python::attach(|py| {
                let message = "region: expected an attached one, found it closed; attach again";
                exception(py, &error::RegionError::new(ErrorKind::Closed, message))
            })
        })
    }

    /// Lets go; calls under way in other threads end first.
    pub(crate) fn close(&self) -> Option<Arc<Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
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
