//! References to objects: 16 bytes each, valid in every process of the host, and as cheap to send as bytes.
//!
//! domain u32, header u32, generation 48 bits, epoch low 16 bits, little-endian. A reference that is out of date is a
//! miss. The epoch is there because generations begin anew with every format: without it a reference from before would
//! name somebody else's object afterwards.

use crate::buffers::Export;
use hymcache_region::core::Place;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

const REF_BYTES: usize = 16;
const GENERATION_BITS: u32 = 48;

/// What stands for no object: a miss wherever it is used.
pub(crate) const NOWHERE: Place = Place {
    domain: u32::MAX,
    header: u32::MAX,
    generation: 0,
};

/// Appends one reference to an object of a region of this epoch.
pub(crate) fn push(out: &mut Vec<u8>, place: Place, epoch: u64) {
    out.extend(place.domain.to_le_bytes());
    out.extend(place.header.to_le_bytes());
    out.extend((place.generation | epoch << GENERATION_BITS).to_le_bytes());
}

/// References from a packed buffer; those of another epoch than this one lead nowhere.
pub(crate) fn parse(object: &Bound<'_, PyAny>, epoch: u64) -> PyResult<Vec<Place>> {
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
    let place = |row: &[u8]| {
        let word = u64::from(field(row, 8)) | u64::from(field(row, 12)) << 32;
        if word >> GENERATION_BITS != epoch & 0xFFFF {
            return NOWHERE;
        }
        Place {
            domain: field(row, 0),
            header: field(row, 4),
            generation: word & ((1 << GENERATION_BITS) - 1),
        }
    };
    Ok(bytes.chunks_exact(REF_BYTES).map(place).collect())
}
