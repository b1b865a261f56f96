//! From what a user asks for (bytes, chunk size, domains, objects) to the numbers of a layout.

use crate::error::{RegionError, Result};
use crate::layout::{Geometry, Layout, WAYS};

/// Smallest and largest chunk.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Sizes are multiples of a page.
const PAGE_BYTES: u64 = 4096;
/// Below this share per domain the fixed areas shrink and domains are aligned to less than a large page.
const SMALL_BYTES: u64 = 64 << 20;
/// Header lines are planned for this load, in percent: above it two full sets become likely.
const LOAD_PERCENT: u64 = 80;
/// Fewest sets of a domain: two choices need some to choose from.
const SETS_MIN: u64 = 4;
/// A table slot of four lines holds 31 unit checksums: units of 66 KiB or more fill their chunks.
const TABLE_LINES: u32 = 4;

/// Plans a region on a medium with pages of `page_bytes`: what domains protect from one another is whole pages.
///
/// # Errors
/// A number is out of range, or the parts do not fit.
pub fn plan(
    bytes: u64,
    chunk_bytes: u64,
    domains: u32,
    objects: Option<u64>,
    page_bytes: u64,
) -> Result<Layout> {
    if !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(RegionError::invalid(format!(
            "size: expected a multiple of {PAGE_BYTES}, found {bytes}"
        )));
    }
    if !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes) {
        return Err(RegionError::invalid(format!(
            "chunk_bytes: expected a power of two from {} to {}, found {chunk_bytes}",
            CHUNK_BYTES.start(),
            CHUNK_BYTES.end()
        )));
    }
    if domains == 0 || objects == Some(0) {
        let name = if domains == 0 { "domains" } else { "objects" };
        return Err(RegionError::invalid(format!(
            "{name}: expected at least 1, found 0"
        )));
    }
    let share = bytes / u64::from(domains);
    let mut chunks = u32::try_from(share / chunk_bytes).unwrap_or(u32::MAX);
    // Metadata grows with the chunks it describes: take chunks away until both fit, a sixty-fourth at a time.
    loop {
        let planned = |chunks, objects| {
            let geometry = geometry(bytes, chunk_bytes, domains, chunks, objects);
            let granule = geometry.granule.max(page_bytes);
            Geometry {
                granule,
                ..geometry
            }
        };
        let granule = planned(1, None).granule;
        let per_granule = (granule / chunk_bytes).max(1) as u32;
        chunks -= chunks % per_granule;
        if chunks == 0 {
            return Err(RegionError::invalid(format!(
                "size: {bytes} bytes are too few for {domains} domains with chunks of {chunk_bytes} bytes, aligned \
                 to {granule}; give more bytes, fewer domains or smaller chunks, or align the device to less"
            )));
        }
        match Layout::new(planned(chunks, objects)) {
            Ok(layout) => return Ok(layout),
            Err(_) => chunks -= (chunks / 64).max(1),
        }
    }
}

fn geometry(
    bytes: u64,
    chunk_bytes: u64,
    domains: u32,
    chunks: u32,
    objects: Option<u64>,
) -> Geometry {
    let small = bytes / u64::from(domains) < SMALL_BYTES;
    let per_domain = objects
        .map_or(u64::from(chunks), |n| n.div_ceil(domains.into()))
        .min(chunks.into());
    let sets = (per_domain * 100)
        .div_ceil(u64::from(WAYS) * LOAD_PERCENT)
        .max(SETS_MIN);
    let ring = if small { 64 } else { 1024 };
    Geometry {
        bytes,
        granule: if small { 64 << 10 } else { 2 << 20 },
        chunk_bytes,
        domain_chunks: chunks,
        domains,
        sets: u32::try_from(sets).unwrap_or(u32::MAX),
        table_lines: TABLE_LINES,
        processes: if small { 64 } else { 256 },
        namespaces: if small { 64 } else { 256 },
        quarantine_lines: if small { 16 } else { 128 },
        rings: [ring, ring, 4 * ring, ring],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_plan_fits_and_wastes_little(
            mib in 8_u64..1 << 22, chunk in 16_u32..27, domains in 1_u32..9, objects in proptest::option::of(1_u64..1 << 24),
            page in prop_oneof![Just(4096_u64), Just(2 << 20), Just(1 << 30)],
        ) {
            let bytes = mib << 20;
            let Ok(layout) = plan(bytes, 1 << chunk, domains, objects, page) else {
                let need = u64::from(domains) * ((1 << chunk) + (4 << 20) + 2 * page) + (4 << 20) + page;
                prop_assert!(bytes < 2 * need, "{} bytes refused", bytes);
                return Ok(());
            };
            let end = layout.chunk(layout.chunks - 1) + layout.geometry.chunk_bytes;
            prop_assert!(end <= bytes);
            let slack = bytes - end;
            prop_assert!(slack <= bytes / 16 + page.max(2 << 20) * u64::from(domains + 1) + (u64::from(domains) << chunk), "{slack}");
            for domain in 0..domains {
                let first = layout.chunk(layout.geometry.domain_chunks * domain);
                prop_assert!(layout.domain(domain).is_multiple_of(page) && first.is_multiple_of(page));
            }
            let last = layout.geometry.domains - 1;
            prop_assert!(layout.table(last, layout.geometry.domain_chunks - 1) + layout.table_bytes() <= layout.pool_at);
            prop_assert!(layout.header(last, layout.headers() - 1) < layout.recency(last, 0));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |bytes, chunk, domains, objects| {
            plan(bytes, chunk, domains, objects, 4096)
                .unwrap_err()
                .message
        };
        assert!(refused((64 << 20) + 1, 2 << 20, 1, None).starts_with("size: expected a multiple"));
        assert!(refused(64 << 20, 3 << 20, 1, None).starts_with("chunk_bytes:"));
        assert!(refused(64 << 20, 128 << 20, 1, None).starts_with("chunk_bytes:"));
        assert!(refused(64 << 20, 64 << 20, 1, None).starts_with("size:"));
        assert!(refused(64 << 20, 2 << 20, 0, None).starts_with("domains:"));
        assert!(refused(64 << 20, 2 << 20, 1, Some(0)).starts_with("objects:"));
        assert!(refused(1 << 40, 2 << 20, 65, None).contains("domains"));
        assert!(refused(0, 2 << 20, 1, None).starts_with("size:"));
    }

    #[test]
    fn ten_terabytes_of_16_mib_objects_need_the_index_that_was_budgeted() {
        let layout = plan(10 << 40, 2 << 20, 4, Some((10 << 40) / (16 << 20)), 2 << 20).unwrap();
        let objects = (10_u64 << 40) / (16 << 20);
        let per_header = 64 + 4 + 16 + 8 + 3; // header, tag, side, ghost, its part of the shadows
        let index = u64::from(layout.headers()) * 4 * per_header;
        assert!(
            index / objects <= 128,
            "{} bytes per object",
            index / objects
        );
        assert!(layout.pool_at < 10 << 40 >> 9);
    }
}
