//! Returns free memory of the C library's allocator to the system.
//!
//! glibc by itself returns only the free end of its heap. A single small allocation there keeps everything resident
//! that was freed below it: after a flood of connections had ended, 169 MiB stayed resident; after a call of
//! [`give_back`], 29 MiB. This is a crate of its own because it declares a foreign function; the rest of the workspace
//! forbids `unsafe`.

/// Returns free memory to the system. Takes milliseconds, in which allocations of other threads may block.
///
/// Does nothing with other C libraries: they return memory by themselves, or have no such call.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the signature is `int malloc_trim(size_t)` in <malloc.h>. It takes no pointers, and its manual calls
        // it MT-Safe: any thread may call it at any time, so `safe fn` is true.
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> core::ffi::c_int;
        }
        // 0: keep no free memory at the end of the heap. The result only says whether anything was returned.
        malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// Returns the resident size of this process.
    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages")
            * 4096
    }

    #[test]
    fn free_memory_below_a_live_allocation_is_returned() {
        // Below glibc's threshold for mappings of their own. `last` stays allocated at the end of the heap.
        let many: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 16 * 1024]).collect();
        let last = vec![1_u8; 1024];
        let full = resident_bytes();
        drop(many);
        super::give_back();
        let given_back = full - resident_bytes().min(full);
        assert!(given_back > 48 << 20, "{given_back} bytes of 64 MiB");
        drop(last);
    }
}
