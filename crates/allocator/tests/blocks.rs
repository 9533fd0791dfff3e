//! Blocks are aligned, keep their bytes when they grow and shrink, and are zero where that was asked for.

use std::alloc::{GlobalAlloc, Layout};

use allocator::Allocator;

/// A block whose bytes say where they are.
struct Block {
    at: *mut u8,
    layout: Layout,
}

impl Block {
    fn new(size: usize, align: usize, zeroed: bool) -> Self {
        let layout = Layout::from_size_align(size, align).expect("a layout");
        // SAFETY: no size here is zero.
        let at = unsafe { if zeroed { Allocator.alloc_zeroed(layout) } else { Allocator.alloc(layout) } };
        let block = Self { at, layout };
        block.check_place();
        if zeroed {
            assert!(block.bytes().iter().all(|b| *b == 0), "{layout:?}");
        }
        block
    }

    fn check_place(&self) {
        assert!(!self.at.is_null() && self.at.addr() % self.layout.align() == 0, "{:?}", self.layout);
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the block has so many bytes, which `new` or `fill` has written.
        unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) }
    }

    fn fill(&mut self) {
        for i in 0..self.layout.size() {
            // SAFETY: inside of the block.
            unsafe { self.at.add(i).write((i * 31) as u8) };
        }
    }

    fn resize(&mut self, size: usize) {
        let kept = size.min(self.layout.size());
        // SAFETY: the block is this allocator's, with this layout.
        self.at = unsafe { Allocator.realloc(self.at, self.layout, size) };
        self.layout = Layout::from_size_align(size, self.layout.align()).expect("a layout");
        self.check_place();
        for i in 0..kept {
            // SAFETY: inside of what both sizes have.
            assert_eq!(unsafe { self.at.add(i).read() }, (i * 31) as u8, "{:?}", self.layout);
        }
        self.fill();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block is this allocator's, with this layout.
        unsafe { Allocator.dealloc(self.at, self.layout) };
    }
}

const SIZES: [usize; 19] =
    [1, 2, 7, 8, 9, 15, 16, 17, 24, 40, 48, 100, 200, 1000, 1025, 4096, 5000, 65_536, 200_001];

#[test]
fn blocks_are_aligned_as_asked() {
    // Kept together, so that blocks come from fresh pages and from used ones.
    let mut kept = Vec::new();
    for round in 0..2 {
        for size in SIZES {
            for align in (0..=13).map(|power| 1 << power) {
                let mut block = Block::new(size, align, false);
                block.fill();
                if (size + align + round) % 3 == 0 && size < 10_000 {
                    kept.push(block);
                }
            }
        }
    }
    for block in &kept {
        assert!(block.bytes().iter().enumerate().all(|(i, b)| *b == (i * 31) as u8), "{:?}", block.layout);
    }
}

#[test]
fn blocks_that_grow_and_shrink_keep_their_bytes() {
    for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
        let mut block = Block::new(1, align, false);
        block.fill();
        for size in SIZES.into_iter().chain(SIZES.into_iter().rev()) {
            block.resize(size);
        }
    }
}

#[test]
fn zeroed_blocks_are_zero_where_others_were() {
    for align in [1, 8, 16, 64] {
        for size in SIZES {
            for _ in 0..4 {
                Block::new(size, align, false).fill();
            }
            Block::new(size, align, true).fill();
        }
    }
}
