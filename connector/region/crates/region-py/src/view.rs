//! `View`: an object where it lies, behind the buffer protocol. The unsafe code here fills Python's buffers.

use crate::arguments::maybe_detached;
use hymcache_region::lent::Lent;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyTuple};
use std::ffi::{c_int, c_void};

/// An object where it lies, without a copy: read-only memory that its owner may reuse at any time.
///
/// Use it, then ask `still_valid()`: True = what was read so far are the object's bytes. `memoryview(view)` (or numpy on
/// it) works where the bytes lie in one piece; `parts` are the pieces in any case. The memory stays mapped while a view,
/// or a buffer made of it, lives, also after `Region.close()`. A forked child must not touch it.
#[pyclass(frozen, module = "hymcache.region")]
pub(crate) struct View {
    inner: Lent,
}

/// One piece of a view.
#[pyclass(frozen, module = "hymcache.region")]
struct Part {
    view: Py<View>,
    index: usize,
}

impl View {
    pub(crate) const fn new(inner: Lent) -> Self {
        Self { inner }
    }
}

/// Hands out read-only memory that `owner` keeps mapped.
///
/// # Safety
/// `view` is what the interpreter passed to a `__getbuffer__`.
unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    (address, len): (*const u8, usize),
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let Ok(len) = ffi::Py_ssize_t::try_from(len) else {
        return Err(PyBufferError::new_err("larger than a buffer can be"));
    };
    let address = address.cast_mut().cast::<c_void>();
    // SAFETY: the range is mapped while the owner lives, and the filled buffer holds a reference to it; read-only.
    let code = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), address, len, 1, flags) };
    if code == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(owner.py()))
    }
}

#[pymethods]
impl View {
    /// Bytes of the object.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn __len__(&self) -> usize {
        self.inner.bytes() as usize
    }

    /// The pieces in which it lies, in order, as read-only memoryviews.
    #[getter]
    fn parts<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let count = slf.get().inner.parts().count();
        let parts = (0..count).map(|index| {
            let view = slf.clone().unbind();
            let part = Bound::new(py, Part { view, index })?;
            PyMemoryView::from(part.as_any())
        });
        PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)
    }

    /// True when all that was read from it so far are the object's bytes, as far as the order of stores goes.
    ///
    /// False once the object was evicted and its memory reused, or the region is lost: forget what was read.
    fn still_valid(&self) -> bool {
        self.inner.is_still()
    }

    /// True when the bytes have the checksums they were stored with, and it is still valid. Reads all of them.
    fn verify(&self, py: Python<'_>) -> bool {
        maybe_detached(py, self.inner.bytes(), || self.inner.is_sound())
    }

    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let mut parts = slf.get().inner.parts();
        match (parts.next(), parts.next()) {
            // SAFETY: passed on.
            (Some(part), None) => unsafe { fill(slf.as_any(), part, view, flags) },
            _ => Err(PyBufferError::new_err(
                "view: expected an object in one piece, found several; use its parts",
            )),
        }
    }
}

#[pymethods]
impl Part {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let part = slf.get();
        let range = part.view.get().inner.parts().nth(part.index);
        let range = range.ok_or_else(|| PyBufferError::new_err("no such part"))?;
        // SAFETY: passed on; the part keeps its view.
        unsafe { fill(slf.as_any(), range, view, flags) }
    }
}
