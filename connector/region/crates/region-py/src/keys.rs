//! Batches of engine keys: a sequence of bytes-like objects, or one packed buffer and a width.

use crate::buffers::Export;
use hymcache_region::digest::{Digest, KEY_BYTES_MAX};
use hymcache_region::region::Namespace;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence};

/// A batch of keys.
pub(crate) enum Keys<'py> {
    List(Bound<'py, PyList>),
    Sequence(Bound<'py, PySequence>, usize),
    Packed(Export, usize),
}

impl<'py> Keys<'py> {
    pub(crate) fn new(keys: &Bound<'py, PyAny>, width: Option<usize>) -> PyResult<Self> {
        if let Some(width) = width {
            if width == 0 || width > KEY_BYTES_MAX {
                return Err(PyValueError::new_err(format!(
                    "width: expected 1 to {KEY_BYTES_MAX}, found {width}"
                )));
            }
            let packed = Export::new("keys", keys)?;
            if !packed.len().is_multiple_of(width) {
                return Err(PyValueError::new_err(format!(
                    "keys: expected a multiple of width={width} bytes, found {}",
                    packed.len()
                )));
            }
            return Ok(Self::Packed(packed, width));
        }
        if let Ok(list) = keys.cast::<PyList>() {
            return Ok(Self::List(list.clone()));
        }
        match keys.cast::<PySequence>() {
            Ok(sequence) if !keys.is_instance_of::<PyBytes>() => {
                let len = sequence.len()?;
                Ok(Self::Sequence(sequence.clone(), len))
            }
            _ => Err(PyTypeError::new_err(format!(
                "keys: expected a sequence of bytes, or a packed buffer with width=, found {}",
                keys.get_type()
            ))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Sequence(_, len) => *len,
            Self::Packed(packed, width) => packed.len() / width,
        }
    }

    /// Digest of key `index`.
    #[inline]
    pub(crate) fn digest(&self, namespace: &Namespace, index: usize) -> PyResult<Digest> {
        match self {
            Self::List(list) => digest(namespace, &list.get_item(index)?),
            Self::Sequence(sequence, _) => digest(namespace, &sequence.get_item(index)?),
            Self::Packed(packed, width) => packed_digest(namespace, packed, *width, index)
                .ok_or_else(|| PyValueError::new_err("keys: the buffer shrank during the call")),
        }
    }

    /// Every digest.
    pub(crate) fn digests(&self, namespace: &Namespace) -> PyResult<Vec<Digest>> {
        (0..self.len()).map(|i| self.digest(namespace, i)).collect()
    }
}

/// Digest of one key object.
#[inline]
pub(crate) fn digest(namespace: &Namespace, key: &Bound<'_, PyAny>) -> PyResult<Digest> {
    let check = |len: usize| {
        if (1..=KEY_BYTES_MAX).contains(&len) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "key: expected 1 to {KEY_BYTES_MAX} bytes, found {len}"
        )))
    };
    if let Ok(bytes) = key.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        check(bytes.len())?;
        return Ok(namespace.digest(bytes));
    }
    let export = Export::new("key", key).map_err(|_| {
        PyTypeError::new_err(format!("key: expected bytes, found {}", key.get_type()))
    })?;
    check(export.len())?;
    let mut bytes = [0; KEY_BYTES_MAX];
    let bytes = &mut bytes[..export.len()];
    export.copy_to(0, bytes);
    Ok(namespace.digest(bytes))
}

/// Digest of a key in a packed table; `None` past its end.
#[inline]
pub(crate) fn packed_digest(
    namespace: &Namespace,
    packed: &Export,
    width: usize,
    index: usize,
) -> Option<Digest> {
    let mut bytes = [0; KEY_BYTES_MAX];
    let bytes = bytes.get_mut(..width)?;
    packed
        .copy_to(index.checked_mul(width)?, bytes)
        .then(|| namespace.digest(bytes))
}
