//! `Region`: attach, report, and the calls that work on references.

use crate::advice;
use crate::arguments::{Handle, Int, exception, maybe_detached, plain, target};
use crate::bare::Window;
use crate::buffers::Export;
use crate::inspect;
use crate::namespace::Namespace;
use crate::pages::{Pages, each_number, integers};
use crate::refs;
use hymcache_region::attach::{AttachOptions, attach};
use hymcache_region::core::Place;
use hymcache_region::format::FormatOptions;
use hymcache_region::layout::{Counter, Layout};
use hymcache_region::read::Units;
use hymcache_region::region::Live;
use hymcache_region::stats::Event;
use hymcache_region::superblock::{VERSION, parse_uuid, uuid_text};
use hymcache_region::{core, os};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Arc;

fn uuid_argument(py: Python<'_>, text: Option<&str>) -> PyResult<Option<[u8; 16]>> {
    text.map(parse_uuid)
        .transpose()
        .map_err(|error| exception(py, &error))
}

fn hardware(coherence: &str) -> PyResult<bool> {
    match coherence {
        "software" => Ok(false),
        "hardware" => Ok(true),
        other => Err(PyValueError::new_err(format!(
            "coherence: expected \"software\" or \"hardware\", found {other:?}"
        ))),
    }
}

fn describe<'py>(
    py: Python<'py>,
    identity: &core::Identity,
    layout: &Layout,
) -> PyResult<Bound<'py, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("uuid", uuid_text(&identity.uuid))?;
    info.set_item("epoch", identity.epoch)?;
    info.set_item("version", VERSION)?;
    info.set_item("bytes", layout.geometry.bytes)?;
    info.set_item("chunk_bytes", layout.geometry.chunk_bytes)?;
    info.set_item("chunks", layout.chunks)?;
    info.set_item("domains", layout.geometry.domains)?;
    info.set_item(
        "objects",
        u64::from(layout.headers()) * u64::from(layout.geometry.domains),
    )?;
    info.set_item("metadata_bytes", layout.pool_at)?;
    info.set_item(
        "coherence",
        if identity.software {
            "software"
        } else {
            "hardware"
        },
    )?;
    info.set_item("formatted_at", identity.formatted_seconds)?;
    Ok(info)
}

/// Formats a region: see the stub.
#[pyfunction]
#[pyo3(signature = (target, *, size=None, chunk_bytes=Int::of(2 << 20), domains=Int::of(1), coherence="software", uuid=None, objects=None,
                    replaces=None, epoch=None, lock_file=None, clear=false))]
#[expect(clippy::too_many_arguments, reason = "the keywords of the Python call")]
pub(crate) fn format<'py>(
    py: Python<'py>,
    target: &Bound<'_, PyAny>,
    size: Option<Int<u64>>,
    chunk_bytes: Int<u64>,
    domains: Int<u32>,
    coherence: &str,
    uuid: Option<&str>,
    objects: Option<Int<u64>>,
    replaces: Option<Int<u64>>,
    epoch: Option<Int<u64>>,
    lock_file: Option<PathBuf>,
    clear: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let target = crate::arguments::target(target)?;
    let options = FormatOptions {
        size: plain(size, "size")?,
        chunk_bytes: chunk_bytes.named("chunk_bytes")?,
        domains: domains.named("domains")?,
        hardware: hardware(coherence)?,
        uuid: uuid_argument(py, uuid)?,
        objects: plain(objects, "objects")?,
        replaces: plain(replaces, "replaces")?,
        epoch: plain(epoch, "epoch")?,
        lock_file,
        clear,
    };
    let result = py.detach(|| hymcache_region::format::format(&target, &options));
    let (superblock, layout) = result.map_err(|error| exception(py, &error))?;
    describe(py, &superblock.identity, &layout)
}

/// Use `hymcache.region.Region`.
#[pyclass(frozen, subclass, module = "hymcache.region")]
pub(crate) struct Region {
    handle: Arc<Handle>,
}

#[pymethods]
impl Region {
    #[new]
    #[pyo3(signature = (target, *, domain=Int::of(0), read_only=false, uuid=None, epoch=None, host=None, lock_file=None,
                        populate=true, copy_threads=Int::of(1)))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of the Python call")]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        domain: Int<u32>,
        read_only: bool,
        uuid: Option<&str>,
        epoch: Option<Int<u64>>,
        host: Option<String>,
        lock_file: Option<PathBuf>,
        populate: bool,
        copy_threads: Int<u8>,
    ) -> PyResult<Self> {
        let target = self::target(target)?;
        let copy_threads = copy_threads.named("copy_threads")?;
        if !(1..=2).contains(&copy_threads) {
            return Err(PyValueError::new_err(format!(
                "copy_threads: expected 1 or 2, found {copy_threads}"
            )));
        }
        let options = AttachOptions {
            domain: domain.named("domain")?,
            read_only,
            uuid: uuid_argument(py, uuid)?,
            epoch: plain(epoch, "epoch")?,
            host,
            lock_file,
            populate,
            copy_threads,
        };
        let live = py.detach(|| attach(&target, &options));
        Ok(Self {
            handle: Arc::new(Handle::new(live.map_err(|error| exception(py, &error))?)),
        })
    }

    /// Let go of the region. Idempotent.
    fn close(&self, py: Python<'_>) {
        let live = self.handle.close();
        py.detach(|| live.map(Live::end));
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.live().is_err()
    }

    /// What the region is and how this process holds it, as a dictionary.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.handle.live()?;
        let core = live.core();
        let info = describe(py, &core.identity, &core.layout)?;
        info.set_item("domain", core.own.as_ref().map(|own| own.domain))?;
        info.set_item("process_slot", core.own.as_ref().map(|own| own.process))?;
        info.set_item("lost", !live.is_intact())?;
        info.set_item("kernel", core.mem.choice().describe())?;
        info.set_item("page_bytes", os::map::page_bytes(core.mem.mapping()))?;
        let (bytes, is_populating) = live.populated();
        info.set_item("populated_bytes", bytes)?;
        info.set_item("populating", is_populating)?;
        Ok(info)
    }

    /// Counters of this process since it attached: lookups, gets, puts, misses and refusals by reason, evictions,
    /// what was reclaimed from dead processes. One number per domain have: `hits_by_domain`, `free_chunks`, `processes`
    /// (slots taken), `host_hits` and `host_misses` (keys that lookups of all processes of its host found or did not
    /// find, to within 0.1 s).
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let live = self.handle.live()?;
        let core = live.core();
        let stats = PyDict::new(py);
        for (name, value) in core.stats.events() {
            stats.set_item(name, value)?;
        }
        let strays = core.stats.get(Event::OutOfBounds) + core.mem.strays();
        stats.set_item("out_of_bounds", strays)?;
        let domains = core.layout.geometry.domains;
        stats.set_item("hits_by_domain", core.stats.hits_by_domain(domains))?;
        let free = |domain| {
            let count = if core.mem.mapping().is_mapped() {
                core.free_chunks(domain).count()
            } else {
                0
            };
            count.clamp(0, core.layout.geometry.domain_chunks.into())
        };
        stats.set_item("free_chunks", (0..domains).map(free).collect::<Vec<_>>())?;
        let tallies = |counter| {
            let tally = move |domain| core.tallied(domain, counter);
            (0..domains).map(tally).collect::<Vec<_>>()
        };
        stats.set_item("host_hits", tallies(Counter::Hits))?;
        stats.set_item("host_misses", tallies(Counter::Misses))?;
        let processes = (0..domains).map(|domain| core.processes(domain));
        stats.set_item("processes", processes.collect::<Vec<_>>())?;
        Ok(stats)
    }

    /// Keys that belong to one fingerprint: 32 bytes that differ whenever the meaning of KV bytes does.
    fn namespace(&self, fingerprint: &Bound<'_, PyAny>) -> PyResult<Namespace> {
        let live = self.handle.live()?;
        let fingerprint = Export::new("fingerprint", fingerprint)?.to_vec();
        let bytes = <[u8; 32]>::try_from(fingerprint.as_slice()).map_err(|_| {
            PyValueError::new_err(format!(
                "fingerprint: expected 32 bytes, found {}",
                fingerprint.len()
            ))
        })?;
        Ok(Namespace::new(Arc::clone(&self.handle), &live, bytes))
    }

    /// Register the engine's paged tensors: `(address, stride, page_bytes[, pages])` each, in bytes.
    ///
    /// Page `i` of a tensor is `page_bytes` long and starts `i * stride` after `address`. With `pages` given, ids are
    /// checked against it. **The caller vouches for the addresses**: the tensors must stay where they are while the
    /// result or blocks of it are used. A block is what `Namespace.reserve` takes for a unit where it is told no size.
    fn pages(&self, tensors: &Bound<'_, PyAny>) -> PyResult<Pages> {
        let pages = Pages::new(tensors)?;
        self.handle.register(pages.block_bytes() as u64);
        Ok(pages)
    }

    /// Take back what dead processes of the own domain held, now instead of within 0.1 s. Returns how many.
    fn sweep(&self, py: Python<'_>) -> PyResult<usize> {
        let live = self.handle.live()?;
        Ok(py.detach(|| live.sweep()))
    }

    /// Header lines of a domain that are not free, among `count` from `first` on: `(next, rows)`; `next` is 0 at the end.
    ///
    /// A row is (header, generation, state, damage or None, namespace number, units, bytes, chunks, seconds from format to
    /// commit); damage is the counter that a read would add to. Stores nothing.
    #[pyo3(signature = (domain, first=Int::of(0), count=Int::of(65536)))]
    fn objects(
        &self,
        py: Python<'_>,
        domain: Int<u32>,
        first: Int<u32>,
        count: Int<u32>,
    ) -> PyResult<(u32, Vec<inspect::Row>)> {
        inspect::objects(
            py,
            &self.handle,
            domain.named("domain")?,
            first.named("first")?,
            count.named("count")?,
        )
    }

    /// Read and verify the object of a header: `(bytes, None)`, or `(0, reason)`.
    ///
    /// Attached read-only, what fails is left as it is; the owner drops it, as after any read.
    fn verify(
        &self,
        py: Python<'_>,
        domain: Int<u32>,
        header: Int<u32>,
        generation: Int<u64>,
    ) -> PyResult<(u64, Option<&'static str>)> {
        inspect::verify(
            py,
            &self.handle,
            domain.named("domain")?,
            header.named("header")?,
            generation.named("generation")?,
        )
    }

    /// Chunks of a domain by what they are held for: free, writing, valid, retired, leaving, orphaned.
    fn chunk_use<'py>(&self, py: Python<'py>, domain: Int<u32>) -> PyResult<Bound<'py, PyDict>> {
        inspect::chunk_use(py, &self.handle, domain.named("domain")?)
    }

    /// Puts ever begun in a domain (`claims`) and uses of its objects by its own host (`uses`): numbers that rise.
    fn activity<'py>(&self, py: Python<'py>, domain: Int<u32>) -> PyResult<Bound<'py, PyDict>> {
        inspect::activity(py, &self.handle, domain.named("domain")?)
    }

    /// Access to the raw bytes of a reservation of one unit, for benchmarks.
    fn window(&self, reference: &Bound<'_, PyAny>) -> PyResult<Window> {
        Window::new(Arc::clone(&self.handle), reference)
    }

    /// Fingerprints that a domain has registered, by the number in its headers.
    fn namespaces<'py>(
        &self,
        py: Python<'py>,
        domain: Int<u32>,
    ) -> PyResult<Vec<(u16, Bound<'py, PyBytes>)>> {
        inspect::namespaces(py, &self.handle, domain.named("domain")?)
    }

    #[pyo3(signature = (refs, pages, ids, first, count, *, section=Int::of(0)))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the Python call"
    )]
    /// Copy one section of each reserved object in; `count[i]` ids belong to `refs[i]`, `first[i]` is 0. An int is every
    /// reference's.
    ///
    /// Any process of the host may write what another reserved. One byte per reference: 1 = stored.
    fn write_many<'py>(
        &self,
        py: Python<'py>,
        refs: &Bound<'_, PyAny>,
        pages: &Bound<'_, Pages>,
        ids: &Bound<'_, PyAny>,
        first: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        section: Int<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let section = section.named("section")?;
        self.each(
            py,
            refs,
            pages,
            ids,
            (first, count),
            |live, place, (first, count), buffers| {
                // A write stores whole sections; the count is compared with the reservation by its bytes.
                first == 0 && count > 0 && live.write(place, section, buffers).is_ok()
            },
        )
    }

    #[pyo3(signature = (refs, pages, ids, first, count, *, section=Int::of(0)))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the Python call"
    )]
    /// Copy units `first[i] .. first[i] + count[i]` of each object into the next `count[i]` of `ids`, verified. An int is
    /// every reference's.
    ///
    /// One byte per reference: 1 = copied; 0 = a miss, the pages are then undefined.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        refs: &Bound<'_, PyAny>,
        pages: &Bound<'_, Pages>,
        ids: &Bound<'_, PyAny>,
        first: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        section: Int<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let section = section.named("section")?;
        self.each(
            py,
            refs,
            pages,
            ids,
            (first, count),
            |live, place, (first, count), buffers| {
                let units = Units {
                    section,
                    first,
                    count: Some(count),
                };
                live.read(place, units, buffers).is_ok()
            },
        )
    }

    /// Publish reserved objects whose sections are all stored. One byte per reference: 1 = published.
    ///
    /// What cannot be published (a section is missing, failed, or still being written) is given up.
    fn commit<'py>(
        &self,
        py: Python<'py>,
        refs: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let live = self.handle.live()?;
        let places = refs::parse(refs, live.core().identity.epoch)?;
        let statuses: Vec<u8> = places
            .iter()
            .map(|&place| live.commit(place).is_ok().into())
            .collect();
        Ok(PyBytes::new(py, &statuses))
    }

    /// Keep own objects from being evicted for `seconds` (at most 600), or until released as often as leased.
    ///
    /// One byte per reference: 1 = kept; 0 = gone, or another domain's: its owner is told of the use instead. Reads of an
    /// object that is evicted all the same are misses, as ever.
    #[pyo3(signature = (refs, *, seconds=Int::of(10)))]
    fn lease<'py>(
        &self,
        py: Python<'py>,
        refs: &Bound<'_, PyAny>,
        seconds: Int<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let live = self.handle.live()?;
        let seconds = seconds.named("seconds")?;
        let places = refs::parse(refs, live.core().identity.epoch)?.into_iter();
        let kept: Vec<u8> = places
            .map(|place| live.lease(place, seconds).into())
            .collect();
        Ok(PyBytes::new(py, &kept))
    }

    /// Give leases back, one per reference. Leases also end by themselves.
    fn release(&self, refs: &Bound<'_, PyAny>) -> PyResult<()> {
        let live = self.handle.live()?;
        refs::parse(refs, live.core().identity.epoch)?
            .into_iter()
            .for_each(|place| live.release_lease(place));
        Ok(())
    }

    /// Live processes of this host that hold a slot of `domain`, or None for a domain of another host.
    ///
    /// Told by their locks, so the dead do not count, and read-only processes do not either.
    fn users(&self, domain: Int<u32>) -> PyResult<Option<usize>> {
        let domain = domain.named("domain")?;
        let live = self.handle.live()?;
        let domains = live.core().layout.geometry.domains;
        if domain >= domains {
            return Err(PyValueError::new_err(format!(
                "domain: expected 0 to {}, found {domain}",
                domains - 1
            )));
        }
        Ok(live.users(domain))
    }

    /// Give reservations up. Their bytes return once no live process writes to them.
    fn abort(&self, refs: &Bound<'_, PyAny>) -> PyResult<()> {
        let live = self.handle.live()?;
        refs::parse(refs, live.core().identity.epoch)?
            .into_iter()
            .for_each(|place| live.abort(place));
        Ok(())
    }

    /// Rows behind `Region.hints`: see the facade.
    #[pyo3(signature = (cursor, limit))]
    fn hint_rows<'py>(
        &self,
        py: Python<'py>,
        cursor: Option<&[u8]>,
        limit: Int<usize>,
    ) -> PyResult<advice::Rows<'py>> {
        advice::hints(py, &*self.handle.live()?, cursor, limit.named("limit")?)
    }

    /// Rows behind `Region.evicted`: see the facade.
    #[pyo3(signature = (cursor, limit))]
    fn evicted_rows<'py>(
        &self,
        py: Python<'py>,
        cursor: Option<&[u8]>,
        limit: Int<usize>,
    ) -> PyResult<advice::Rows<'py>> {
        advice::evicted(py, &*self.handle.live()?, cursor, limit.named("limit")?)
    }

    /// Stop this host's lookups from finding these objects until they are stored anew.
    fn quarantine(&self, refs: &Bound<'_, PyAny>) -> PyResult<()> {
        let live = self.handle.live()?;
        refs::parse(refs, live.core().identity.epoch)?
            .into_iter()
            .for_each(|place| live.quarantine(place));
        Ok(())
    }
}

type Ranges<'a, 'py> = (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>);

impl Region {
    /// Runs `work` for each reference with its share of the blocks, and collects one byte per reference.
    fn each<'py>(
        &self,
        py: Python<'py>,
        refs: &Bound<'_, PyAny>,
        pages: &Bound<'_, Pages>,
        ids: &Bound<'_, PyAny>,
        (first, count): Ranges<'_, '_>,
        work: impl Fn(&Live, Place, (u32, u32), hymcache_region::buffers::Buffers) -> bool + Sync,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let live = self.handle.live()?;
        let places = refs::parse(refs, live.core().identity.epoch)?;
        let (first, count) = (
            each_number("first", first, places.len())?,
            each_number("count", count, places.len())?,
        );
        let blocks = pages.get().select(integers("ids", ids)?)?;
        let total: u128 = count.iter().map(|&n| u128::from(n)).sum();
        if first.len() != places.len()
            || count.len() != places.len()
            || total != blocks.len() as u128
        {
            return Err(PyTypeError::new_err(format!(
                "first, count: expected one number per reference ({}) and counts that sum to the {} ids, found {}, {} \
                 and {total}",
                places.len(),
                blocks.len(),
                first.len(),
                count.len()
            )));
        }
        let bytes = blocks.buffers().len();
        let statuses = maybe_detached(py, bytes, || {
            let mut start = 0;
            let mut statuses = Vec::with_capacity(places.len());
            for ((place, &first), &count) in places.iter().zip(&first).zip(&count) {
                let range = u32::try_from(first).ok().zip(u32::try_from(count).ok());
                let part = blocks.part(start, count as usize);
                let done = range
                    .zip(part)
                    .is_some_and(|(range, part)| work(&live, *place, range, part));
                statuses.push(u8::from(done));
                start += count as usize;
            }
            statuses
        });
        Ok(PyBytes::new(py, &statuses))
    }
}
