//! News of a domain: objects that lookups do not find any more, so that routers forget them.
//!
//! Told by whoever made the change; one who dies in between tells nobody, one who stands still in between tells late.
//! So what is told is the end of one object at one place in one generation: its key may be stored anew by then.
//!
//! | word of the body | |
//! |---|---|
//! | 0, 1 | digest: a, b |
//! | 2 | digest: c in the low half, tag in the high half |
//! | 3 | header (32 bits), namespace (16), cause (16): 1 = evicted, 2 = dropped |
//! | 4 | generation |
//! | 5 | bytes of the object |

use crate::core::{Core, Own, Place};
use crate::digest::Digest;
use crate::header::{Header, Line};
use crate::layout::Ring;
use crate::memory::Memory;
use crate::ring::{Body, Cursor};

/// Why an object is in the news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was retired to make room, or on demand.
    Evicted = 1,
    /// It went at once: it failed its checks, or both sets of another key were full.
    Dropped = 2,
}

/// An entry of an evicted ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The object's key.
    pub key: Digest,
    /// Where it lies or lay.
    pub place: Place,
    /// Its namespace in its domain.
    pub namespace: u16,
    /// Its bytes.
    pub bytes: u64,
    /// What happened.
    pub cause: Cause,
}

impl News {
    fn encode(&self) -> Body {
        [
            self.key.a,
            self.key.b,
            u64::from(self.key.c) | u64::from(self.key.tag) << 32,
            u64::from(self.place.header)
                | u64::from(self.namespace) << 32
                | (self.cause as u64) << 48,
            self.place.generation,
            self.bytes,
        ]
    }

    /// Reads an entry of a domain's ring; `None` for a cause that this version does not know.
    fn decode(domain: u32, body: &Body) -> Option<Self> {
        let cause = match body[3] >> 48 {
            1 => Cause::Evicted,
            2 => Cause::Dropped,
            _ => return None,
        };
        Some(Self {
            key: Digest {
                a: body[0],
                b: body[1],
                c: body[2] as u32,
                tag: (body[2] >> 32) as u32,
            },
            place: Place {
                domain,
                header: body[3] as u32,
                generation: body[4],
            },
            namespace: (body[3] >> 32) as u16,
            bytes: body[5],
            cause,
        })
    }
}

impl<M: Memory> Core<M> {
    /// What there is to tell about an own object, whose header is `line`. To be asked while the header is that object's:
    /// its tag is read here.
    pub(crate) fn news_of(&self, own: &Own, index: u32, line: &Line, cause: Cause) -> News {
        let header = Header::decode(line);
        let (at, shift) = self.tag_place(own.domain, index);
        News {
            key: Digest {
                a: header.key_a,
                b: header.key_b,
                c: header.key_c,
                tag: (self.mem.load(at) >> shift) as u32,
            },
            place: Place {
                domain: own.domain,
                header: index,
                generation: header.word.generation(),
            },
            namespace: header.namespace,
            bytes: header.total_units() * u64::from(header.unit_bytes),
            cause,
        }
    }

    /// Tells the others. The caller fences.
    pub(crate) fn tell(&self, own: &Own, news: &News) {
        self.push(own, Ring::Evicted, &news.encode());
    }

    /// Reads the news of one domain from `cursor` on, at most `limit`. Returns how many entries were missed.
    pub fn news(
        &self,
        domain: u32,
        cursor: &mut Cursor,
        limit: usize,
        mut visit: impl FnMut(u64, &News),
    ) -> u64 {
        self.poll(domain, Ring::Evicted, cursor, limit, |sequence, body| {
            if let Some(news) = News::decode(domain, body) {
                visit(sequence, &news);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn news_survive_encode_and_decode(
            a: u64, b: u64, c: u32, tag: u32, domain in 0_u32..64, header: u32, generation: u64, namespace: u16, bytes: u64,
            dropped: bool,
        ) {
            let news = News {
                key: Digest { a, b, c, tag },
                place: Place { domain, header, generation },
                namespace,
                bytes,
                cause: if dropped { Cause::Dropped } else { Cause::Evicted },
            };
            prop_assert_eq!(News::decode(domain, &news.encode()), Some(news));
        }

        #[test]
        fn any_body_is_read_without_panic(body: [u64; 6], domain: u32) {
            prop_assert_eq!(News::decode(domain, &body).is_some(), matches!(body[3] >> 48, 1 | 2));
        }
    }
}
