//! Reports on a region.

use crate::arguments::Handle;
use hymcache_region::core::Place;
use hymcache_region::inspect::ChunkUse;
use hymcache_region::region::Live;
use hymcache_region::stats::Event;
use hymcache_region::words::State;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// (header, generation, state, damage, namespace, units, bytes, chunks, seconds from format to commit)
pub(crate) type Row = (
    u32,
    u64,
    &'static str,
    Option<&'static str>,
    u16,
    u64,
    u64,
    u64,
    u32,
);

fn state_name(state: State) -> &'static str {
    match state {
        State::Free => "unknown",
        State::Writing => "writing",
        State::Valid => "valid",
        State::Retired => "retired",
        State::Leaving => "leaving",
    }
}

/// The region, if it has that domain and its mapping still stands.
fn live(handle: &Handle, domain: u32) -> PyResult<Arc<Live>> {
    let live = handle.live()?;
    let domains = live.core().layout.geometry.domains;
    if domain < domains {
        return Ok(live);
    }
    Err(PyValueError::new_err(format!(
        "domain: expected 0 to {}, found {domain}",
        domains - 1
    )))
}

/// See `Region.objects`.
pub(crate) fn objects(
    py: Python<'_>,
    handle: &Handle,
    domain: u32,
    first: u32,
    count: u32,
) -> PyResult<(u32, Vec<Row>)> {
    let live = live(handle, domain)?;
    let mut rows = Vec::new();
    let next = py.detach(|| {
        live.inspect(0, |core| {
            core.objects(domain, first, count, |seen| {
                rows.push((
                    seen.place.header,
                    seen.place.generation,
                    state_name(seen.state),
                    seen.damage.map(|miss| Event::from(miss).name()),
                    seen.namespace,
                    seen.units,
                    seen.bytes,
                    seen.chunks,
                    seen.stored_seconds,
                ));
            })
        })
    });
    Ok((next, rows))
}

/// See `Region.verify`.
pub(crate) fn verify(
    py: Python<'_>,
    handle: &Handle,
    domain: u32,
    header: u32,
    generation: u64,
) -> PyResult<(u64, Option<&'static str>)> {
    let live = live(handle, domain)?;
    let place = Place {
        domain,
        header,
        generation,
    };
    Ok(match py.detach(|| live.verify(place)) {
        Ok(bytes) => (bytes, None),
        Err(miss) => (0, Some(Event::from(miss).name())),
    })
}

/// See `Region.chunk_use`.
pub(crate) fn chunk_use<'py>(
    py: Python<'py>,
    handle: &Handle,
    domain: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let live = live(handle, domain)?;
    let chunks = py.detach(|| live.inspect(ChunkUse::default(), |core| core.chunk_use(domain)));
    let dict = PyDict::new(py);
    dict.set_item("free", chunks.free)?;
    dict.set_item("writing", chunks.writing)?;
    dict.set_item("valid", chunks.valid)?;
    dict.set_item("retired", chunks.retired)?;
    dict.set_item("leaving", chunks.leaving)?;
    dict.set_item("orphaned", chunks.orphaned)?;
    Ok(dict)
}

/// See `Region.activity`.
pub(crate) fn activity<'py>(
    py: Python<'py>,
    handle: &Handle,
    domain: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let live = live(handle, domain)?;
    let (claims, uses) = py.detach(|| live.inspect((0, 0), |core| core.activity(domain)));
    let dict = PyDict::new(py);
    dict.set_item("claims", claims)?;
    dict.set_item("uses", uses)?;
    Ok(dict)
}

/// See `Region.namespaces`.
pub(crate) fn namespaces<'py>(
    py: Python<'py>,
    handle: &Handle,
    domain: u32,
) -> PyResult<Vec<(u16, Bound<'py, PyBytes>)>> {
    let found = live(handle, domain)?.inspect(Vec::new(), |core| core.namespaces(domain));
    Ok(found
        .into_iter()
        .map(|(number, fingerprint)| (number, PyBytes::new(py, &fingerprint)))
        .collect())
}
