//! `Namespace`: what an engine asks the region for.

use crate::advice;
use crate::arguments::{Handle, Int, maybe_detached, plain};
use crate::buffers::{Held, Use};
use crate::keys::{Keys, digest};
use crate::refs;
use crate::view::View;
use hymcache_region::core::Place;
use hymcache_region::digest::Digest;
use hymcache_region::hint::Terms;
use hymcache_region::lent::Lent;
use hymcache_region::read::Units;
use hymcache_region::region::{self, Live};
use hymcache_region::stats::Refusal;
use hymcache_region::write::{SECTIONS_MAX, Shape};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// From this many packed keys on a lookup releases the interpreter lock.
const RELEASE_KEYS: usize = 4096;

/// Statuses of `reserve`, one byte per key; named in Python.
const FULL: u8 = 0;
const NEW: u8 = 1;
const EXISTS: u8 = 2;
const PENDING: u8 = 3;

/// Objects under the keys of one fingerprint. Keys are 1 to 120 bytes.
///
/// Where several keys are taken: a sequence of bytes-like objects, or one buffer of packed keys and their `width`.
/// Buffers are any objects with the buffer protocol, contiguous, of any format. Nothing here raises because of what is
/// in the region.
#[pyclass(frozen, module = "hymcache.region")]
pub(crate) struct Namespace {
    handle: Arc<Handle>,
    inner: region::Namespace,
}

impl Namespace {
    pub(crate) fn new(handle: Arc<Handle>, live: &Live, fingerprint: [u8; 32]) -> Self {
        Self {
            handle,
            inner: region::Namespace::new(live, fingerprint),
        }
    }

    fn shape(&self, live: &Live, units: u64, unit_bytes: u64, sections: u32) -> PyResult<Shape> {
        let units = u16::try_from(units)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| {
                PyValueError::new_err(format!("units: expected 1 to 65535, found {units}"))
            })?;
        let unit_bytes = u32::try_from(unit_bytes)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "buffers: expected units of 1 to 2^32-1 bytes, found {unit_bytes}"
                ))
            })?;
        let sections = u8::try_from(sections)
            .ok()
            .filter(|&n| n > 0 && u32::from(n) <= SECTIONS_MAX)
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "sections: expected 1 to {SECTIONS_MAX}, found {sections}"
                ))
            })?;
        Ok(Shape {
            units,
            unit_bytes,
            sections,
            namespace: self.inner.number(live),
        })
    }

    /// Length of the run of hits, each given to `visit`.
    fn run(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        width: Option<Int<usize>>,
        mut visit: impl FnMut(Place) + Send,
    ) -> PyResult<usize> {
        let live = self.handle.live()?;
        let keys = Keys::new(keys, plain(width, "width")?)?;
        let count = keys.len();
        if let Keys::Packed(packed, width) = &keys
            && count >= RELEASE_KEYS
        {
            // The table is copied: the interpreter may move it once its lock is released.
            let (table, width) = (packed.to_vec(), *width);
            let key = |i| {
                table
                    .chunks_exact(width)
                    .nth(i)
                    .map(|key| self.inner.digest(key))
            };
            return Ok(py.detach(|| live.lookup(count, key, visit)));
        }
        let mut failure = None;
        let run = live.lookup(
            count,
            |i| match keys.digest(&self.inner, i) {
                Ok(digest) => Some(digest),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            },
            &mut visit,
        );
        failure.map_or(Ok(run), Err)
    }
}

#[pymethods]
impl Namespace {
    /// Length of the leading run of keys that are in the region. A hint: the verified read decides.
    ///
    /// What is found counts as used, the head of the run most recently. Stops at the first key that is missing.
    #[pyo3(signature = (keys, width=None))]
    fn lookup(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        width: Option<Int<usize>>,
    ) -> PyResult<usize> {
        self.run(py, keys, width, |_| ())
    }

    /// One byte per key: 1 = in the region. Counts as no use.
    #[pyo3(signature = (keys, width=None))]
    fn contains<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        width: Option<Int<usize>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let live = self.handle.live()?;
        let digests = Keys::new(keys, plain(width, "width")?)?.digests(&self.inner)?;
        let mut found = Vec::with_capacity(digests.len());
        live.contains(&digests, |hit| found.push(u8::from(hit)));
        Ok(PyBytes::new(py, &found))
    }

    /// Store the bytes of `buffers`, in order, under `key`. False = not stored, the reason is in `stats()`.
    /// Views are no source: the put may reuse their memory.
    ///
    /// `units` equal parts (default 1; one per block for `pages.blocks`) can be read and verified alone. The
    /// interpreter lock is released from 256 KiB on. Never waits, never evicts what it does not need to.
    #[pyo3(signature = (key, buffers, *, units=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffers: &Bound<'_, PyAny>,
        units: Option<Int<u64>>,
    ) -> PyResult<bool> {
        let live = self.handle.live()?;
        let digest = digest(&self.inner, key)?;
        let held = Held::new(buffers, Use::Source)?;
        let buffers = held.buffers();
        let units = match (plain(units, "units")?, held.units()) {
            (Some(n), Some(blocks)) if n != blocks as u64 => {
                return Err(PyValueError::new_err(format!(
                    "units: expected {blocks}, one per block, found {n}"
                )));
            }
            (_, Some(blocks)) => blocks as u64,
            (units, None) => units.unwrap_or(1),
        };
        let bytes = buffers.len();
        if units == 0 || !bytes.is_multiple_of(units) {
            return Err(PyValueError::new_err(format!(
                "units: expected a divisor of the {bytes} bytes given, found {units}"
            )));
        }
        let shape = self.shape(&live, units, bytes / units, 1)?;
        Ok(maybe_detached(py, bytes, || live.put(&digest, shape, buffers)).is_ok())
    }

    /// Copy units `first .. first + count` (default: to the end, or one per block) into `buffers`, verified.
    ///
    /// Returns the bytes copied; 0 = a miss, the reason is in `stats()` and the buffers are undefined.
    #[pyo3(signature = (key, buffers, *, first=Int::of(0), count=None))]
    fn get_into(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffers: &Bound<'_, PyAny>,
        first: Int<u32>,
        count: Option<Int<u32>>,
    ) -> PyResult<u64> {
        let live = self.handle.live()?;
        let digest = digest(&self.inner, key)?;
        let held = Held::new(buffers, Use::Destination)?;
        let buffers = held.buffers();
        let count = match (plain(count, "count")?, held.units()) {
            (Some(n), Some(blocks)) if n as usize != blocks => {
                return Err(PyValueError::new_err(format!(
                    "count: expected {blocks}, one per block, found {n}"
                )));
            }
            (_, Some(blocks)) => Some(blocks as u32),
            (count, None) => count,
        };
        let units = Units {
            section: 0,
            first: first.named("first")?,
            count,
        };
        let bytes = maybe_detached(py, buffers.len(), || live.get(&digest, units, buffers));
        Ok(bytes.unwrap_or(0))
    }

    /// The object under `key` where it lies, without a copy; None = a miss, the reason is in `stats()`.
    ///
    /// Its checksums are not looked at: `View.still_valid()` afterwards, or `View.verify()`.
    fn view(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<View>> {
        let live = self.handle.live()?;
        let digest = digest(&self.inner, key)?;
        Ok(Lent::new(&live, &digest).map(View::new))
    }

    /// Retire objects of the own domain: lookups miss from now on. Returns how many.
    #[pyo3(signature = (keys, width=None))]
    fn evict(&self, keys: &Bound<'_, PyAny>, width: Option<Int<usize>>) -> PyResult<usize> {
        let live = self.handle.live()?;
        let digests = Keys::new(keys, plain(width, "width")?)?.digests(&self.inner)?;
        Ok(live.evict(&digests))
    }

    /// Tell whoever stages data that a request will read these objects, in this order, before `deadline_ms`.
    ///
    /// `request_id` (an int below 2^64, text or bytes) names the request in `withdraw`; `deadline_ms` is wall-clock time
    /// in milliseconds since 1970. Higher `priority` (0 to 255) goes first; `units` = how many of each are wanted, from
    /// the first on (0 = all). Advice: returns how many hints are on their way, fewer when a ring came round meanwhile,
    /// 0 from a read-only process.
    #[pyo3(signature = (keys, *, request_id, deadline_ms, priority=Int::of(0), units=Int::of(0), width=None))]
    fn prefetch(
        &self,
        keys: &Bound<'_, PyAny>,
        request_id: &Bound<'_, PyAny>,
        deadline_ms: Int<u64>,
        priority: Int<u8>,
        units: Int<u32>,
        width: Option<Int<usize>>,
    ) -> PyResult<usize> {
        let live = self.handle.live()?;
        let request = advice::request(request_id)?;
        let deadline_ms = deadline_ms.named("deadline_ms")?;
        if deadline_ms >= 1 << 48 {
            return Err(PyValueError::new_err(format!(
                "deadline_ms: expected milliseconds since 1970, found {deadline_ms}"
            )));
        }
        let digests = Keys::new(keys, plain(width, "width")?)?.digests(&self.inner)?;
        let terms = Terms {
            request,
            deadline_ms,
            priority: priority.named("priority")?,
            units: units.named("units")?,
        };
        Ok(live.prefetch(&digests, terms))
    }

    /// Tell that a request will read nothing more. Advice, which may be lost: hints end at their deadline anyway.
    fn withdraw(&self, request_id: &Bound<'_, PyAny>) -> PyResult<()> {
        let live = self.handle.live()?;
        live.withdraw(advice::request(request_id)?);
        Ok(())
    }

    /// The 20 bytes per key by which `Region.hints` and `Region.evicted` name objects.
    #[pyo3(signature = (keys, width=None))]
    fn digests<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        width: Option<Int<usize>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let digests = Keys::new(keys, plain(width, "width")?)?.digests(&self.inner)?;
        let bytes: Vec<u8> = digests.iter().flat_map(Digest::bytes).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    /// As `lookup`, with a reference of 16 bytes per hit: valid in every process of this host, until the next format.
    #[pyo3(signature = (keys, width=None))]
    fn find<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        width: Option<Int<usize>>,
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let epoch = self.handle.live()?.core().identity.epoch;
        let mut out = Vec::new();
        let run = self.run(py, keys, width, |place| {
            refs::push(&mut out, place, epoch);
        })?;
        Ok((run, PyBytes::new(py, &out)))
    }

    /// Reserve room for objects of `units` times `unit_bytes` per section; (references, one `ReserveStatus` each).
    /// `unit_bytes` is by default a block of the pages that are registered with this region, all of one size.
    ///
    /// All or nothing: when one is FULL, none is reserved. Only NEW references mean anything: write, then commit or
    /// abort them.
    #[pyo3(signature = (keys, units, *, unit_bytes=None, sections=Int::of(1), width=None))]
    fn reserve<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'_, PyAny>,
        units: Int<u64>,
        unit_bytes: Option<Int<u64>>,
        sections: Int<u32>,
        width: Option<Int<usize>>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let live = self.handle.live()?;
        let digests = Keys::new(keys, plain(width, "width")?)?.digests(&self.inner)?;
        let unit_bytes = match plain(unit_bytes, "unit_bytes")? {
            Some(bytes) => bytes,
            None => self.handle.block_bytes()?,
        };
        let (units, sections) = (units.named("units")?, sections.named("sections")?);
        let shape = self.shape(&live, units, unit_bytes, sections)?;
        let (mut places, mut statuses) = (Vec::new(), Vec::new());
        for digest in &digests {
            let (place, status) = match live.reserve(digest, shape) {
                Ok(place) => (place, NEW),
                Err(Refusal::Exists) => (refs::NOWHERE, EXISTS),
                Err(Refusal::Pending) => (refs::NOWHERE, PENDING),
                Err(_) => (refs::NOWHERE, FULL),
            };
            places.push(place);
            statuses.push(status);
            if status == FULL {
                break;
            }
        }
        if statuses.last() == Some(&FULL) {
            places
                .iter()
                .filter(|&&place| place != refs::NOWHERE)
                .for_each(|&place| live.abort(place));
            places = vec![refs::NOWHERE; digests.len()];
            statuses = vec![FULL; digests.len()];
        }
        let mut out = Vec::with_capacity(16 * places.len());
        for &place in &places {
            refs::push(&mut out, place, live.core().identity.epoch);
        }
        Ok((PyBytes::new(py, &out), PyBytes::new(py, &statuses)))
    }
}
