//! Python buffers as pieces of memory. All unsafe code of the binding is here and in `pages`.

use crate::pages::Blocks;
use hymcache_region::buffers::{Buffers, Piece};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// A buffer that its object exports, unmoved until dropped.
///
/// Not `pyo3::buffer::PyUntypedBuffer`, which refuses exporters that leave the strides out, as ctypes arrays do.
pub(crate) struct Export(Box<ffi::Py_buffer>);

impl Export {
    /// Exports a contiguous buffer of any format; `name` is the argument in messages.
    pub(crate) fn new(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::zeroed());
        // SAFETY: a live object, the interpreter lock is held, and the view stays where it is until it is released.
        let code = unsafe {
            ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_FULL_RO)
        };
        if code != 0 {
            let error = PyErr::fetch(object.py());
            return Err(PyTypeError::new_err(format!(
                "{name}: expected an object with the buffer protocol, found {} ({error})",
                object.get_type()
            )));
        }
        // SAFETY: filled by the successful call.
        let export = Self(unsafe { view.assume_init() });
        // SAFETY: a valid view.
        if unsafe { ffi::PyBuffer_IsContiguous(&raw const *export.0, b'C'.cast_signed()) } == 0 {
            return Err(PyValueError::new_err(format!(
                "{name}: expected contiguous memory, found a strided {}; copy it or pass its parts",
                object.get_type()
            )));
        }
        Ok(export)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    /// The items' format in the notation of Python's struct module, and their size.
    pub(crate) fn format(&self) -> (String, usize) {
        let size = self.0.itemsize.unsigned_abs();
        if self.0.format.is_null() {
            return ("B".into(), size);
        }
        // SAFETY: a C string that lives as long as the view.
        let text = unsafe { CStr::from_ptr(self.0.format) };
        (text.to_string_lossy().into_owned(), size)
    }

    /// True when the items are, or hold, references to Python objects, which are no data: overwriting one ends the
    /// interpreter. Names of fields stand between colons.
    fn has_references(&self) -> bool {
        let (format, _) = self.format();
        format.split(':').step_by(2).any(|part| part.contains('O'))
    }

    /// The bytes, copied: for small tables of numbers.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Copies bytes from `at` on; false past the end.
    #[inline]
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) -> bool {
        let inside = at
            .checked_add(to.len())
            .is_some_and(|end| end <= self.len());
        if inside && !to.is_empty() {
            // SAFETY: inside the export; copied at once, so no reference is kept, and what another thread may store
            // meanwhile only changes the values.
            unsafe {
                let from = self.0.buf.cast::<u8>().add(at);
                from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
            }
        }
        inside
    }

    fn piece(&self) -> Piece {
        // SAFETY: the export keeps the memory in place and readable (writable, where it is not read-only) until it is
        // dropped, and Held keeps the export for as long as the piece.
        unsafe { Piece::new(self.0.buf.cast(), self.len()) }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: a view that was filled and not released yet; exports never leave the thread that holds the
        // interpreter lock (the raw pointers inside keep the type from being sent).
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

/// What a buffer is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Source,
    Destination,
}

/// Buffers that stay exported, hence unmoved, while this lives.
pub(crate) enum Held<'py> {
    List {
        pieces: Vec<Piece>,
        #[expect(dead_code, reason = "keeps the memory in place")]
        exports: Vec<Export>,
    },
    Blocks(PyRef<'py, Blocks>),
}

impl<'py> Held<'py> {
    /// One buffer, a list or tuple of them, or `pages.blocks(ids)`.
    pub(crate) fn new(object: &Bound<'py, PyAny>, purpose: Use) -> PyResult<Self> {
        if let Ok(blocks) = object.cast::<Blocks>() {
            return Ok(Self::Blocks(blocks.borrow()));
        }
        let mut pieces = Vec::new();
        let mut exports = Vec::new();
        let mut add = |object: &Bound<'py, PyAny>| {
            let export = Export::new("buffers", object)?;
            if export.has_references() {
                return Err(PyTypeError::new_err(format!(
                    "buffers: expected plain data, found a {} of Python objects",
                    object.get_type()
                )));
            }
            if purpose == Use::Destination && export.0.readonly != 0 {
                return Err(PyTypeError::new_err(format!(
                    "buffers: expected writable memory, found a read-only {}",
                    object.get_type()
                )));
            }
            if export.piece().is_in_region() {
                return Err(PyValueError::new_err(format!(
                    "buffers: expected memory of the caller's own, found a {} of memory in a region, which may be reused \
                     during the call; copy it first",
                    object.get_type()
                )));
            }
            pieces.push(export.piece());
            exports.push(export);
            Ok(())
        };
        if let Ok(list) = object.cast::<PyList>() {
            list.iter().try_for_each(|item| add(&item))?;
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            tuple.iter().try_for_each(|item| add(&item))?;
        } else {
            add(object)?;
        }
        Ok(Self::List { pieces, exports })
    }

    /// As the core sees them.
    pub(crate) fn buffers(&self) -> Buffers<'_> {
        match self {
            Self::List { pieces, .. } => Buffers::List(pieces),
            Self::Blocks(blocks) => blocks.buffers(),
        }
    }

    /// Units these buffers are made for, where they say so themselves.
    pub(crate) fn units(&self) -> Option<usize> {
        match self {
            Self::List { .. } => None,
            Self::Blocks(blocks) => Some(blocks.len()),
        }
    }
}
