//! The engine's paged tensors, registered once, and lists of blocks in them.

use crate::arguments::Int;
use crate::buffers::Export;
use hymcache_region::buffers::{Buffers, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use std::ptr;
use std::sync::Arc;

/// Paged tensors of the engine: see `Region.pages`.
#[pyclass(frozen, module = "hymcache.region")]
pub(crate) struct Pages {
    tensors: Arc<[Tensor]>,
}

/// Blocks of paged tensors, a source or destination for `put` and `get_into`.
#[pyclass(frozen, module = "hymcache.region")]
pub(crate) struct Blocks {
    tensors: Arc<[Tensor]>,
    ids: Vec<u64>,
}

#[derive(FromPyObject)]
enum Row {
    Counted((usize, usize, usize, u64)),
    Plain((usize, usize, usize)),
}

impl Pages {
    pub(crate) fn new(rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut tensors = Vec::new();
        for row in rows.try_iter()? {
            let row = row?;
            let parsed = row.extract::<Row>().map_err(|_| {
                PyTypeError::new_err(format!(
                    "pages: expected tuples (address, stride, page_bytes[, pages]) of int >= 0, found {row}"
                ))
            })?;
            let (address, stride, page_bytes, pages) = match parsed {
                Row::Counted(all) => all,
                Row::Plain((address, stride, page_bytes)) => {
                    (address, stride, page_bytes, u64::MAX)
                }
            };
            if address == 0 || page_bytes == 0 || stride < page_bytes || pages == 0 {
                return Err(PyValueError::new_err(format!(
                    "pages: expected address > 0, 0 < page_bytes <= stride and pages > 0, found {row}"
                )));
            }
            // SAFETY: the caller of Region.pages vouches for the addresses, as its documentation says: the engine
            // registers its own tensors and keeps them while it uses the result.
            let tensor = unsafe {
                Tensor::new(
                    ptr::with_exposed_provenance_mut(address),
                    stride,
                    page_bytes,
                    pages,
                )
            };
            if tensor.is_in_region() {
                return Err(PyValueError::new_err(format!(
                    "pages: expected memory of the caller's own, found a region's memory: {row}"
                )));
            }
            tensors.push(tensor);
        }
        if tensors.is_empty() {
            return Err(PyValueError::new_err(
                "pages: expected at least one tensor, found none",
            ));
        }
        Ok(Self {
            tensors: tensors.into(),
        })
    }

    pub(crate) fn select(&self, ids: Vec<u64>) -> PyResult<Blocks> {
        let limit = self.tensors.iter().map(|t| t.pages).min().unwrap_or(0);
        if let Some(id) = ids.iter().find(|&&id| id >= limit) {
            return Err(PyValueError::new_err(format!(
                "ids: expected less than {limit}, found {id}"
            )));
        }
        Ok(Blocks {
            tensors: Arc::clone(&self.tensors),
            ids,
        })
    }
}

#[pymethods]
impl Pages {
    /// For each id in turn, that page of every tensor in turn. A buffer of 32- or 64-bit integers is read natively.
    fn blocks(&self, ids: &Bound<'_, PyAny>) -> PyResult<Blocks> {
        self.select(integers("ids", ids)?)
    }

    /// Bytes of one block over all tensors: one unit.
    #[getter]
    pub(crate) fn block_bytes(&self) -> usize {
        self.tensors.iter().map(Tensor::page_bytes).sum()
    }
}

#[pymethods]
impl Blocks {
    fn __len__(&self) -> usize {
        self.ids.len()
    }

    /// Bytes of all blocks.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.buffers().len()
    }
}

impl Blocks {
    pub(crate) fn buffers(&self) -> Buffers<'_> {
        Buffers::Pages(&self.tensors, &self.ids)
    }

    /// Some of the blocks.
    pub(crate) fn part(&self, first: usize, count: usize) -> Option<Buffers<'_>> {
        let ids = self.ids.get(first..first.checked_add(count)?)?;
        Some(Buffers::Pages(&self.tensors, ids))
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Non-negative integers from a sequence, or from a buffer of 32- or 64-bit integers.
pub(crate) fn integers(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let wrong = |found: String| {
        PyValueError::new_err(format!("{name}: expected integers >= 0, found {found}"))
    };
    if let Ok(list) = object.extract::<Vec<i64>>() {
        return list
            .into_iter()
            .map(|n| u64::try_from(n).map_err(|_| wrong(n.to_string())))
            .collect();
    }
    let export = Export::new(name, object).map_err(|_| {
        PyTypeError::new_err(format!(
            "{name}: expected integers, found {}",
            object.get_type()
        ))
    })?;
    let (format, size) = export.format();
    let signed = match format.trim_start_matches(['@', '=', '<']) {
        "i" | "l" | "q" => true,
        "I" | "L" | "Q" => false,
        other => return Err(wrong(format!("a buffer of format {other:?}"))),
    };
    let number = |bytes: &[u8]| {
        let negative = signed && bytes[size - 1] >> 7 == 1;
        let mut wide = [if negative { 0xFF } else { 0 }; 8];
        wide[..size].copy_from_slice(bytes);
        if negative {
            return Err(wrong(i64::from_le_bytes(wide).to_string()));
        }
        Ok(u64::from_le_bytes(wide))
    };
    export.to_vec().chunks_exact(size).map(number).collect()
}

/// As `integers`, `len` of them; an int alone stands for as many.
pub(crate) fn each_number(name: &str, object: &Bound<'_, PyAny>, len: usize) -> PyResult<Vec<u64>> {
    if object.is_instance_of::<PyInt>() {
        return Ok(vec![object.extract::<Int<u64>>()?.named(name)?; len]);
    }
    integers(name, object)
}
