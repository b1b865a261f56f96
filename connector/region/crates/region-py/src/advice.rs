//! Rings as Python sees them: rows of plain values, and cursors as bytes.

use crate::refs;
use hymcache_region::core::Place;
use hymcache_region::hint::request_number;
use hymcache_region::news::Cause;
use hymcache_region::region::Live;
use hymcache_region::ring::Cursor;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

const CURSOR_BYTES: usize = 16;

/// Rows, and the cursor to go on from.
pub(crate) type Rows<'py> = (Bound<'py, PyList>, Bound<'py, PyBytes>);

/// One cursor per domain from what an earlier call returned; `None` = the oldest entries that are there.
fn cursors(live: &Live, bytes: Option<&[u8]>) -> PyResult<Vec<Cursor>> {
    let domains = live.core().layout.geometry.domains as usize;
    let Some(bytes) = bytes else {
        return Ok(vec![Cursor::default(); domains]);
    };
    if bytes.len() != CURSOR_BYTES * domains {
        return Err(PyValueError::new_err(format!(
            "cursor: expected the {} bytes that an earlier call returned, or None, found {}",
            CURSOR_BYTES * domains,
            bytes.len()
        )));
    }
    let word = |row: &[u8]| {
        let mut wide = [0; 8];
        wide.copy_from_slice(row);
        u64::from_le_bytes(wide)
    };
    let rows = bytes.chunks_exact(CURSOR_BYTES);
    Ok(rows
        .map(|row| Cursor {
            next: word(&row[..8]),
            gap_ms: word(&row[8..]),
        })
        .collect())
}

fn pack<'py>(py: Python<'py>, cursors: &[Cursor]) -> Bound<'py, PyBytes> {
    let words = cursors.iter().flat_map(|one| [one.next, one.gap_ms]);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    PyBytes::new(py, &bytes)
}

fn reference<'py>(py: Python<'py>, live: &Live, place: Place) -> Bound<'py, PyBytes> {
    let mut out = Vec::with_capacity(16);
    refs::push(&mut out, place, live.core().identity.epoch);
    PyBytes::new(py, &out)
}

/// The number of a request that is named by an int, text or bytes.
pub(crate) fn request(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if object.is_instance_of::<PyInt>() {
        return object.extract().map_err(|_| {
            PyValueError::new_err("request_id: expected an int from 0 to 2^64-1, text or bytes")
        });
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(request_number(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(request_number(bytes.as_bytes()));
    }
    Err(PyTypeError::new_err(format!(
        "request_id: expected an int, text or bytes, found {}",
        object.get_type()
    )))
}

/// Rows (domain, sequence, request, digest or None, reference or None, deadline, issued, priority, units).
pub(crate) fn hints<'py>(
    py: Python<'py>,
    live: &Live,
    cursor: Option<&[u8]>,
    limit: usize,
) -> PyResult<Rows<'py>> {
    let mut cursors = cursors(live, cursor)?;
    let mut found = Vec::new();
    live.hints(&mut cursors, limit, |domain, sequence, hint| {
        found.push((domain, sequence, *hint));
    });
    let rows = PyList::empty(py);
    for (domain, sequence, hint) in found {
        let place = live.core().place_of(&hint);
        let row: Bound<'_, PyTuple> = (
            domain,
            sequence,
            hint.terms.request,
            hint.object.map(|object| PyBytes::new(py, &object.bytes())),
            place.map(|place| reference(py, live, place)),
            hint.terms.deadline_ms,
            hint.issued_ms,
            hint.terms.priority,
            hint.terms.units,
        )
            .into_pyobject(py)?;
        rows.append(row)?;
    }
    Ok((rows, pack(py, &cursors)))
}

/// Rows (domain, sequence, digest, reference, namespace, bytes, cause).
pub(crate) fn evicted<'py>(
    py: Python<'py>,
    live: &Live,
    cursor: Option<&[u8]>,
    limit: usize,
) -> PyResult<Rows<'py>> {
    let mut cursors = cursors(live, cursor)?;
    let mut found = Vec::new();
    live.evicted(&mut cursors, limit, |sequence, news| {
        found.push((sequence, *news));
    });
    let rows = PyList::empty(py);
    for (sequence, news) in found {
        let cause = match news.cause {
            Cause::Evicted => "evicted",
            Cause::Dropped => "dropped",
        };
        let row: Bound<'_, PyTuple> = (
            news.place.domain,
            sequence,
            PyBytes::new(py, &news.key.bytes()),
            reference(py, live, news.place),
            news.namespace,
            news.bytes,
            cause,
        )
            .into_pyobject(py)?;
        rows.append(row)?;
    }
    Ok((rows, pack(py, &cursors)))
}
