//! Copies without a checksum between a caller's buffers and a reserved object: what benchmarks compare with.

use crate::arguments::{Handle, maybe_detached};
use crate::buffers::{Held, Use};
use crate::refs;
use hymcache_copy::bare;
use hymcache_region::window;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Names of the copies without a checksum that this CPU can run; the C library's `memcpy` is first.
#[pyfunction]
pub(crate) fn bare_copies() -> Vec<&'static str> {
    bare::copies().iter().map(|copy| copy.name).collect()
}

/// Raw bytes of a reserved object; see `hymcache.region.bare`.
#[pyclass(frozen, module = "hymcache.region.bare")]
pub(crate) struct Window {
    handle: Arc<Handle>,
    bytes: window::Window,
    copies: Vec<bare::Bare>,
}

impl Window {
    pub(crate) fn new(handle: Arc<Handle>, reference: &Bound<'_, PyAny>) -> PyResult<Self> {
        let live = handle.live()?;
        let places = refs::parse(reference, live.core().identity.epoch)?;
        let window = match places[..] {
            [place] => live.window(place),
            _ => None,
        };
        let bytes = window.ok_or_else(|| {
            PyValueError::new_err(
                "reference: expected one object of one unit that this process has reserved, found another",
            )
        })?;
        let copies = bare::copies();
        Ok(Self {
            handle,
            bytes,
            copies,
        })
    }

    fn copy(
        &self,
        py: Python<'_>,
        name: &str,
        buffers: &Bound<'_, PyAny>,
        into_region: bool,
    ) -> PyResult<()> {
        let copy = self
            .copies
            .iter()
            .find(|copy| copy.name == name)
            .ok_or_else(|| PyValueError::new_err(format!("name: this CPU has no copy {name:?}")))?;
        let purpose = if into_region {
            Use::Source
        } else {
            Use::Destination
        };
        let held = Held::new(buffers, purpose)?;
        let live = self.handle.live()?;
        let bytes = self.bytes.bytes();
        let buffers = held.buffers();
        let done = maybe_detached(py, bytes, || {
            live.bare(&self.bytes, copy, buffers, into_region)
        });
        if done {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "buffers: expected {bytes} bytes in pieces that are multiples of 256 at multiples of 64, and a reservation that \
             stands; found something else"
        )))
    }
}

#[pymethods]
impl Window {
    /// Copy buffers into the region by the named bare copy.
    fn copy_in(&self, py: Python<'_>, name: &str, buffers: &Bound<'_, PyAny>) -> PyResult<()> {
        self.copy(py, name, buffers, true)
    }

    /// Copy out of the region into buffers.
    fn copy_out(&self, py: Python<'_>, name: &str, buffers: &Bound<'_, PyAny>) -> PyResult<()> {
        self.copy(py, name, buffers, false)
    }
}
