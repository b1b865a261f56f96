//! Private memory of the caller, as the copy engine sees it: a stream of contiguous pieces, never gathered first.

use crate::os::sigbus;

/// A contiguous run of private bytes that stays valid and unmoved while the call that got it runs.
///
/// Whoever makes one vouches for it ([`Piece::new`] is unsafe); everything after only splits it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    address: *mut u8,
    len: usize,
}

// SAFETY: a piece is an address and a length; its maker vouches for the memory in whichever thread the call runs.
unsafe impl Send for Piece {}
// SAFETY: as above; a shared piece gives out copies of the address only.
unsafe impl Sync for Piece {}

impl Piece {
    /// A piece at `address`.
    ///
    /// # Safety
    /// `address..address + len` stays readable (and writable where the piece is a destination) for every call that the
    /// piece is passed to. Other threads may store there meanwhile: the copy is then of unspecified bytes.
    pub const unsafe fn new(address: *mut u8, len: usize) -> Self {
        Self { address, len }
    }

    /// First byte.
    pub const fn address(&self) -> *mut u8 {
        self.address
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when it lies in a region that this process has mapped, in part at least: what is stored while a call runs may
    /// then overwrite what the call has yet to copy.
    pub fn is_in_region(&self) -> bool {
        sigbus::overlaps(self.address.addr(), self.len)
    }

    /// The first `n` bytes and the rest; `n` is cut to the length.
    const fn split(self, n: usize) -> (Self, Self) {
        let n = if n < self.len { n } else { self.len };
        let rest = Self {
            address: self.address.wrapping_add(n),
            len: self.len - n,
        };
        (Self { len: n, ..self }, rest)
    }
}

/// One paged tensor of the engine: page `i` is `page_bytes` long and starts `i * stride` after `address`.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    address: *mut u8,
    stride: usize,
    page_bytes: usize,
    /// Pages the tensor has: ids below it are in range.
    pub pages: u64,
}

// SAFETY: as for Piece.
unsafe impl Send for Tensor {}
// SAFETY: as for Piece.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// A tensor at `address`.
    ///
    /// # Safety
    /// For every id below `pages` that is later used, the page is readable and writable during that use.
    pub const unsafe fn new(
        address: *mut u8,
        stride: usize,
        page_bytes: usize,
        pages: u64,
    ) -> Self {
        Self {
            address,
            stride,
            page_bytes,
            pages,
        }
    }

    /// As [`Piece::is_in_region`], for the pages that it is known to have.
    pub fn is_in_region(&self) -> bool {
        let last = if self.pages == u64::MAX {
            0
        } else {
            self.pages - 1
        };
        let bytes = self.stride.saturating_mul(last as usize);
        sigbus::overlaps(self.address.addr(), bytes.saturating_add(self.page_bytes))
    }

    /// Bytes of one page.
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn page(&self, id: u64) -> Piece {
        // Wrapping: an id out of range never gets here, and an address is only used by the copy kernels.
        let offset = (id as usize).wrapping_mul(self.stride);
        Piece {
            address: self.address.wrapping_add(offset),
            len: self.page_bytes,
        }
    }
}

/// Where a stream of bytes lies in private memory.
#[derive(Clone, Copy)]
pub enum Buffers<'a> {
    /// One after the other.
    List(&'a [Piece]),
    /// For each id in turn, that page of every tensor in turn: an engine block is one unit.
    Pages(&'a [Tensor], &'a [u64]),
}

impl Buffers<'_> {
    /// Bytes of the whole stream.
    pub fn len(&self) -> u64 {
        match self {
            Self::List(pieces) => pieces.iter().map(|piece| piece.len as u64).sum(),
            Self::Pages(tensors, ids) => {
                let block: u64 = tensors.iter().map(|t| t.page_bytes as u64).sum();
                block * ids.len() as u64
            }
        }
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when a read of `bytes` may go here. A list may be longer, as the caller hears how much came; pages are filled
    /// whole or not at all: units of another size would lie across them.
    pub fn takes(&self, bytes: u64) -> bool {
        match self {
            Self::List(_) => self.len() >= bytes,
            Self::Pages(..) => self.len() == bytes,
        }
    }

    fn get(&self, index: usize) -> Option<Piece> {
        match self {
            Self::List(pieces) => pieces.get(index).copied(),
            Self::Pages(tensors, ids) => {
                let id = ids.get(index.checked_div(tensors.len())?)?;
                Some(tensors.get(index % tensors.len())?.page(*id))
            }
        }
    }
}

impl<'a> Buffers<'a> {
    /// The stream in two, the first part `bytes` long; `pieces` holds what a cut through a list makes. `None` where a block
    /// of pages would be cut.
    pub fn cut(self, bytes: u64, pieces: &'a mut [Vec<Piece>; 2]) -> Option<[Self; 2]> {
        match self {
            Self::List(list) => {
                let mut left = bytes as usize;
                for piece in list {
                    let (first, second) = piece.split(left);
                    left -= first.len;
                    pieces[0].push(first);
                    pieces[1].push(second);
                }
                let [first, second] = &*pieces;
                Some([Self::List(first), Self::List(second)])
            }
            Self::Pages(tensors, ids) => {
                let block: u64 = tensors.iter().map(|t| t.page_bytes as u64).sum();
                let blocks = bytes.checked_div(block).filter(|n| n * block == bytes)?;
                let (first, second) = ids.split_at_checked(blocks as usize)?;
                Some([Self::Pages(tensors, first), Self::Pages(tensors, second)])
            }
        }
    }
}

/// Walks a stream of private bytes from its start.
pub struct Cursor<'a> {
    buffers: Buffers<'a>,
    index: usize,
    rest: Piece,
}

impl<'a> Cursor<'a> {
    /// At the start.
    pub const fn new(buffers: Buffers<'a>) -> Self {
        let rest = Piece {
            address: std::ptr::null_mut(),
            len: 0,
        };
        Self {
            buffers,
            index: 0,
            rest,
        }
    }

    /// The next contiguous piece of at most `max` bytes, or `None` at the end.
    #[inline]
    pub fn take(&mut self, max: usize) -> Option<Piece> {
        while self.rest.is_empty() {
            self.rest = self.buffers.get(self.index)?;
            self.index += 1;
        }
        let (piece, rest) = self.rest.split(max);
        self.rest = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(buffers: Buffers, max: usize) -> Vec<(usize, usize)> {
        let mut cursor = Cursor::new(buffers);
        std::iter::from_fn(|| cursor.take(max))
            .map(|piece| (piece.address().addr(), piece.len()))
            .collect()
    }

    fn piece(address: usize, len: usize) -> Piece {
        Piece {
            address: std::ptr::without_provenance_mut(address),
            len,
        }
    }

    #[test]
    fn a_list_is_walked_in_pieces_that_never_cross_a_buffer() {
        let list = [piece(100, 5), piece(0, 0), piece(200, 3)];
        assert_eq!(
            drain(Buffers::List(&list), 4),
            [(100, 4), (104, 1), (200, 3)]
        );
        assert_eq!(Buffers::List(&list).len(), 8);
    }

    #[test]
    fn pages_are_walked_block_by_block_and_tensor_by_tensor() {
        let tensor = |address, stride, page_bytes| Tensor {
            address: std::ptr::without_provenance_mut(address),
            stride,
            page_bytes,
            pages: 100,
        };
        let tensors = [tensor(1000, 10, 4), tensor(5000, 100, 6)];
        let pages = Buffers::Pages(&tensors, &[7, 2]);
        assert_eq!(
            drain(pages, 64),
            [(1070, 4), (5700, 6), (1020, 4), (5200, 6)]
        );
        assert_eq!(pages.len(), 20);
        assert!(drain(Buffers::Pages(&[], &[1]), 64).is_empty());
    }
}
