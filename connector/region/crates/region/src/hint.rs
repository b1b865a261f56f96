//! Prefetch hints: which objects a request will read, in the order it will read them.
//!
//! A host tells it when the request arrives, long before it runs; whoever stages data of a slow medium reads all domains'
//! rings. A request that ends early is withdrawn. A withdrawal may be lost, so each hint ends at its deadline.
//!
//! | word of the body | prefetch | withdrawal |
//! |---|---|---|
//! | 0, 1 | digest: a, b | 0 |
//! | 2 | digest: c in the low half, tag in the high half | 0 |
//! | 3 | request | request |
//! | 4 | deadline in ms since 1970 (48 bits), priority (8), kind (8): 1 = prefetch, 2 = withdrawal | |
//! | 5 | units wanted from the first on, 0 = all (32 bits); ms from issue to deadline (32) | |

use crate::core::{Core, Place};
use crate::digest::Digest;
use crate::layout::Ring;
use crate::memory::{Memory, Step};
use crate::probe::Accept;
use crate::ring::{Body, Cursor};
use crate::stats::Event;
use sha2::{Digest as _, Sha256};

const PREFETCH: u64 = 1;
const WITHDRAWAL: u64 = 2;
const DEADLINE_MASK: u64 = (1 << 48) - 1;

/// What a hint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The request, a number that its host chose.
    pub request: u64,
    /// When the hint ends, in milliseconds since 1970.
    pub deadline_ms: u64,
    /// Higher goes first.
    pub priority: u8,
    /// Units wanted, from the first on; 0 = all.
    pub units: u32,
}

/// An entry of a prefetch ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The object; `None` = the request is withdrawn.
    pub object: Option<Digest>,
    /// What it is about; of a withdrawal the request alone counts.
    pub terms: Terms,
    /// When it was issued, in milliseconds since 1970 by the issuer's clock.
    pub issued_ms: u64,
}

impl Hint {
    fn encode(&self) -> Body {
        let terms = &self.terms;
        let lead = terms.deadline_ms.saturating_sub(self.issued_ms);
        let lead = lead.min(u32::MAX.into());
        let kind = if self.object.is_some() {
            PREFETCH
        } else {
            WITHDRAWAL
        };
        let key = self.object.unwrap_or_default();
        [
            key.a,
            key.b,
            u64::from(key.c) | u64::from(key.tag) << 32,
            terms.request,
            terms.deadline_ms & DEADLINE_MASK | u64::from(terms.priority) << 48 | kind << 56,
            u64::from(terms.units) | lead << 32,
        ]
    }

    /// Reads an entry; `None` for a kind that this version does not know.
    fn decode(body: &Body) -> Option<Self> {
        let object = match body[4] >> 56 {
            PREFETCH => Some(Digest {
                a: body[0],
                b: body[1],
                c: body[2] as u32,
                tag: (body[2] >> 32) as u32,
            }),
            WITHDRAWAL => None,
            _ => return None,
        };
        let deadline_ms = body[4] & DEADLINE_MASK;
        Some(Self {
            object,
            terms: Terms {
                request: body[3],
                deadline_ms,
                priority: (body[4] >> 48) as u8,
                units: body[5] as u32,
            },
            issued_ms: deadline_ms.saturating_sub(body[5] >> 32),
        })
    }
}

/// The number of a request that is named by text: the first 8 bytes of its SHA-256.
pub fn request_number(name: &[u8]) -> u64 {
    let digest = Sha256::digest(name);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

impl<M: Memory> Core<M> {
    /// Tells that `objects` will be read in this order. Returns how many hints are on their way.
    pub fn prefetch(&self, objects: &[Digest], terms: Terms) -> usize {
        let issued_ms = (self.now_ms)();
        self.hint(objects.iter().map(|&object| Hint {
            object: Some(object),
            terms,
            issued_ms,
        }))
    }

    /// Tells that a request will read nothing more.
    pub fn withdraw(&self, request: u64) {
        let issued_ms = (self.now_ms)();
        let terms = Terms {
            request,
            deadline_ms: issued_ms,
            priority: 0,
            units: 0,
        };
        self.hint(std::iter::once(Hint {
            object: None,
            terms,
            issued_ms,
        }));
    }

    fn hint(&self, hints: impl Iterator<Item = Hint>) -> usize {
        let Some(own) = &self.own else { return 0 };
        let sent = hints
            .filter(|hint| self.push(own, Ring::Prefetch, &hint.encode()))
            .count();
        self.mem.store_fence(Step::RingFence);
        self.stats.add(Event::HintsSent, sent as u64);
        sent
    }

    /// Reads the hints of one domain from `cursor` on, at most `limit`. Returns how many entries were missed.
    pub fn hints(
        &self,
        domain: u32,
        cursor: &mut Cursor,
        limit: usize,
        mut visit: impl FnMut(u64, &Hint),
    ) -> u64 {
        self.poll(domain, Ring::Prefetch, cursor, limit, |sequence, body| {
            if let Some(hint) = Hint::decode(body) {
                visit(sequence, &hint);
            }
        })
    }

    /// Where the object of a hint lies now.
    pub fn place_of(&self, hint: &Hint) -> Option<Place> {
        self.locate(&hint.object?, Accept::Valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hint_survives_encode_and_decode(
            a: u64, b: u64, c: u32, tag: u32, request: u64, priority: u8, units: u32,
            issued_ms in 0_u64..1 << 47, lead in 0_u64..1 << 32, withdrawn: bool,
        ) {
            let object = (!withdrawn).then_some(Digest { a, b, c, tag });
            let terms = Terms { request, deadline_ms: issued_ms + lead, priority, units };
            let hint = Hint { object, terms, issued_ms };
            prop_assert_eq!(Hint::decode(&hint.encode()), Some(hint));
        }

        #[test]
        fn any_body_is_read_without_panic(body: [u64; 6]) {
            let known = Hint::decode(&body).is_some();
            prop_assert_eq!(known, matches!(body[4] >> 56, PREFETCH | WITHDRAWAL));
        }
    }

    #[test]
    fn a_named_request_has_one_number_on_every_host() {
        assert_eq!(request_number(b"cmpl-1"), request_number(b"cmpl-1"));
        assert_ne!(request_number(b"cmpl-1"), request_number(b"cmpl-2"));
        assert_eq!(request_number(b""), 0x141c_fc98_42c4_b0e3);
    }
}
