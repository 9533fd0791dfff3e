//! The memory allocator of Loligo's programs: mimalloc, asked by its short ways.
//!
//! The `mimalloc` crate asks for an alignment each time. For a size that is no power of two mimalloc then often
//! takes a larger block and a longer way, to take it and to give it back, although its blocks are aligned as
//! almost every Rust type needs. `docs/performance-log.md` says what that came to.
//!
//! This is the only unsafe code of the workspace: calls of the C library, and the promise that they keep
//! `GlobalAlloc`'s contract.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// Every block of at least so many bytes has this alignment without being asked. Source: MI_MAX_ALIGN_SIZE in
/// include/mimalloc/types.h, as for malloc in C.
const NATURAL: usize = 16;

/// See the module.
pub struct Allocator;

fn is_natural(align: usize, size: usize) -> bool {
    align <= NATURAL && align <= size
}

// SAFETY: mimalloc gives blocks of at least the size that is asked for, null when there is none, and never panics. Blocks
// whose alignment is not natural are asked for with it. `mi_free` and both ways to grow a block take any block of either.
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
