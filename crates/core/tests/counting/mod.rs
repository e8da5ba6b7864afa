//! A counting allocator, for the test and the benchmark that check for allocations.
//!
//! `mod counting;` in a program makes it the allocator of the program; the benchmark includes this
//! file by its path.
#![allow(unsafe_code)] // The counting allocator; nothing else.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    // Per thread, so that allocations of the test harness are not counted.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The number of allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of this method, which is that of `System`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method, which is that of `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
