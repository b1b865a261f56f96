//! Arguments and errors that every class shares.

use hymcache_region::error::{self, ErrorKind};
use hymcache_region::os::file::Target;
use hymcache_region::region::Live;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
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

/// A path or a descriptor.
pub(crate) fn target(object: &Bound<'_, PyAny>) -> PyResult<Target> {
    if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() {
        return Ok(Target::Fd(object.extract()?));
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
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.clone().ok_or_else(|| {
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
