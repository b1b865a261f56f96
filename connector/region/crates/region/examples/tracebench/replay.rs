//! Replays a trace on real regions: lookup, verified reads of what is found, puts of the rest, the shipping eviction.
//!
//! An object is one chunk of 64 bytes that holds its block's number, so that traces of many gigabytes fit; where its
//! victims come from does not depend on sizes.

use crate::trace::{Chain, Random};
use hymcache_copy::Choice;
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Extent, Identity, Own, Scratch};
use hymcache_region::digest::{Digest, Digester};
use hymcache_region::domain::format_domain;
use hymcache_region::layout::{Counter, Geometry, LINE, Layout, WAYS};
use hymcache_region::mapped::Mapped;
use hymcache_region::memory::Memory as _;
use hymcache_region::os::file::{Medium, Target};
use hymcache_region::os::map::Mapping;
use hymcache_region::read::Units;
use hymcache_region::stats::{Event, Refusal};
use hymcache_region::write::Shape;
use std::error::Error;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};

/// Headers are planned for this load, as a format does.
const LOAD_PERCENT: u32 = 80;
const SHAPE: Shape = Shape {
    units: 1,
    unit_bytes: LINE as u32,
    sections: 1,
    namespace: 0,
};

/// How requests are spread over hosts: so many percent go to the first, the rest evenly to the others.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) hosts: u32,
    pub(crate) first_percent: usize,
}

impl Spread {
    /// One host.
    pub(crate) const ALONE: Self = Self {
        hosts: 1,
        first_percent: 100,
    };

    fn host(self, random: &mut Random) -> usize {
        if random.below(100) < self.first_percent {
            return 0;
        }
        1 + random.below(self.hosts as usize - 1)
    }
}

/// What a replay showed.
#[derive(Default)]
pub(crate) struct Replayed {
    /// Share of the trace's blocks that were found: of each chain, those before the first that is missing.
    pub(crate) hit_rate: f64,
    pub(crate) evictions: u64,
    /// Objects that went because both sets of a key were full.
    pub(crate) conflicts: u64,
    pub(crate) puts: u64,
}

/// Replays `trace` on a region with room for `size` objects, an equal part of it on each host.
pub(crate) fn replay(
    trace: &[Chain],
    size: usize,
    spread: Spread,
    seed: u64,
    uuid: u8,
) -> Result<Replayed, Box<dyn Error>> {
    let region = Region::new(size as u32 / spread.hosts, spread.hosts, [uuid; 16])?;
    let mut random = Random::new(seed);
    let mut scratch = Scratch::default();
    let (mut hits, mut total) = (0, 0);
    for chain in trace {
        let host = spread.host(&mut random);
        hits += region.request(host, chain, &mut scratch)?;
        total += chain.len();
    }
    let sum = |event| region.hosts.iter().map(|core| core.stats.get(event)).sum();
    Ok(Replayed {
        hit_rate: hits as f64 / total as f64,
        evictions: sum(Event::Evictions),
        conflicts: sum(Event::ConflictEvictions),
        puts: sum(Event::Puts),
    })
}

struct Region {
    hosts: Vec<Core<Mapped>>,
    digester: Digester,
}

impl Region {
    fn new(domain_chunks: u32, domains: u32, uuid: [u8; 16]) -> Result<Self, Box<dyn Error>> {
        let geometry = Geometry {
            bytes: u64::from(domains) * (u64::from(domain_chunks) * 512 + (4 << 20)),
            granule: 4096,
            chunk_bytes: LINE,
            domain_chunks,
            domains,
            sets: (domain_chunks * 100).div_ceil(WAYS * LOAD_PERCENT),
            table_lines: 1,
            processes: 1,
            namespaces: 1,
            quarantine_lines: 1,
            rings: [1024, 1, 1, 64], // as a small region has, but for touches
        };
        let layout = Layout::new(geometry)?;
        let file = memory_file(layout.geometry.bytes)?;
        let hosts = (0..domains).map(|domain| {
            let medium = Medium::open(&Target::Fd(file.as_raw_fd()), true)?;
            let mapping = Mapping::new(&medium)?;
            mapping.allow_stores(0, layout.geometry.bytes)?;
            let mem = Mapped::new(mapping, Choice::guess());
            format_domain(&mem, &layout, domain);
            let free = layout.counter(domain, Counter::FreeChunks);
            mem.store(free, domain_chunks.into());
            let own = Own {
                domain,
                process: 0,
                extents: vec![Extent {
                    local: 0,
                    chunk: domain * domain_chunks,
                    count: domain_chunks,
                }],
            };
            let identity = Identity {
                uuid,
                epoch: 1,
                software: false, // all hosts are this process
                formatted_seconds: 0,
            };
            let core = Core::new(mem, layout.clone(), identity, Some(own.clone()), || 0);
            core.enter(&own, std::process::id());
            Ok(core)
        });
        Ok(Self {
            hosts: hosts.collect::<Result<_, Box<dyn Error>>>()?,
            digester: Digester::new(&uuid, &[0; 32]),
        })
    }

    /// A request as an engine's: what of its chain is there is read, the rest computed and stored. Returns the hits.
    fn request(
        &self,
        host: usize,
        chain: &[u64],
        scratch: &mut Scratch,
    ) -> Result<usize, Box<dyn Error>> {
        let core = &self.hosts[host];
        let digest = |block: u64| self.digester.digest(&block.to_le_bytes());
        let hits = core.lookup(chain.len(), |i| Some(digest(chain[i])), |_| ());
        for (i, &block) in chain.iter().enumerate() {
            if i < hits {
                read(core, &digest(block), block, scratch)?;
            } else {
                put(core, &digest(block), block, scratch)?;
            }
        }
        if let Some(own) = &core.own {
            core.send_touches(own); // what a janitor does, several times between two requests of these traces
        }
        Ok(hits)
    }
}

fn read(
    core: &Core<Mapped>,
    digest: &Digest,
    block: u64,
    scratch: &mut Scratch,
) -> Result<(), Box<dyn Error>> {
    let mut words = [0_u64; 8];
    // SAFETY: `words` outlives the call.
    let piece = [unsafe { Piece::new(words.as_mut_ptr().cast(), LINE as usize) }];
    core.get(digest, Units::ALL, Buffers::List(&piece), scratch)
        .map_err(|miss| format!("block {block} was found and not read: {miss:?}"))?;
    if words != [block; 8] {
        return Err(format!("block {block} reads as {words:x?}").into());
    }
    Ok(())
}

fn put(
    core: &Core<Mapped>,
    digest: &Digest,
    block: u64,
    scratch: &mut Scratch,
) -> Result<(), Box<dyn Error>> {
    let mut words = [block; 8];
    // SAFETY: `words` outlives the call.
    let piece = [unsafe { Piece::new(words.as_mut_ptr().cast(), LINE as usize) }];
    match core.put(digest, SHAPE, Buffers::List(&piece), scratch) {
        Ok(()) | Err(Refusal::Exists) => Ok(()),
        Err(refusal) => Err(format!("block {block} was not stored: {refusal:?}").into()),
    }
}

fn memory_file(bytes: u64) -> Result<File, Box<dyn Error>> {
    // SAFETY: the name is a string that ends; the descriptor is ours alone.
    let fd = unsafe { libc::memfd_create(c"tracebench".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: just made.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes)?;
    Ok(file)
}
