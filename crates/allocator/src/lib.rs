//! The global allocator of Loligo's programs: mimalloc, by `mi_malloc` where a block's size gives its
//! alignment.
//!
//! The `mimalloc` crate calls `mi_malloc_aligned` each time. For a size that is no power of two that often
//! takes a larger block and more instructions, both to allocate it and to free it, although mimalloc's blocks
//! are aligned as almost every Rust type needs. `docs/performance-log.md` has the figures.
//!
//! This is the only unsafe code of the workspace: calls of the C library, and the promise that they keep
//! `GlobalAlloc`'s contract.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// A block is aligned to the largest power of two, up to this, that is no larger than its size, as malloc's
/// are in C. Source: MI_MAX_ALIGN_SIZE in include/mimalloc/types.h.
const NATURAL: usize = 16;

/// See the module.
pub struct Allocator;

fn is_natural(align: usize, size: usize) -> bool {
    align <= NATURAL && align <= size
}

// SAFETY: mimalloc gives blocks of at least the size that is asked for, null when there is none, and never
// panics. Blocks whose alignment is not natural are asked for with it. `mi_free` and both ways to grow a
// block take any block of either.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (align, size) = (layout.align(), layout.size());
        // SAFETY: any size, and a power of two as the alignment, are allowed.
        unsafe {
            match is_natural(align, size) {
                true => mi::mi_malloc(size).cast(),
                false => mi::mi_malloc_aligned(size, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (align, size) = (layout.align(), layout.size());
        // SAFETY: as for `alloc`.
        unsafe {
            match is_natural(align, size) {
                true => mi::mi_zalloc(size).cast(),
                false => mi::mi_zalloc_aligned(size, align).cast(),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives a block of this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let align = layout.align();
        // SAFETY: the caller gives a block of this allocator; sizes and alignments as for `alloc`.
        unsafe {
            match is_natural(align, size) {
                true => mi::mi_realloc(block.cast(), size).cast(),
                false => mi::mi_realloc_aligned(block.cast(), size, align).cast(),
            }
        }
    }
}
