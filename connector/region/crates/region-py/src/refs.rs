//! References to objects: 16 bytes each, valid in every process of the host, and as cheap to send as bytes.
//!
//! domain u32, header u32, generation u64, little-endian. A reference that is out of date is a miss.

use crate::buffers::Export;
use hymcache_region::core::Place;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const REF_BYTES: usize = 16;

/// Appends one reference.
pub(crate) fn push(out: &mut Vec<u8>, place: Place) {
    out.extend(place.domain.to_le_bytes());
    out.extend(place.header.to_le_bytes());
    out.extend(place.generation.to_le_bytes());
}

/// References from a packed buffer.
pub(crate) fn parse(object: &Bound<'_, PyAny>) -> PyResult<Vec<Place>> {
    let bytes = Export::new("refs", object)?.to_vec();
    if !bytes.len().is_multiple_of(REF_BYTES) {
        return Err(PyValueError::new_err(format!(
            "refs: expected a multiple of {REF_BYTES} bytes, found {}",
            bytes.len()
        )));
    }
    let field = |row: &[u8], at: usize| {
        let mut wide = [0; 4];
        wide.copy_from_slice(&row[at..at + 4]);
        u32::from_le_bytes(wide)
    };
    let places = bytes.chunks_exact(REF_BYTES).map(|row| Place {
        domain: field(row, 0),
        header: field(row, 4),
        generation: u64::from(field(row, 8)) | u64::from(field(row, 12)) << 32,
    });
    Ok(places.collect())
}
