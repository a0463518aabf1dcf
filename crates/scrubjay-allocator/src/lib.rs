//! Returns free memory of the C library's allocator to the system.
//!
//! By itself glibc returns only the free end of its heap. After thousands of connections a single small allocation there
//! keeps everything that was freed below it: after a flood of connections had ended 169 MiB stayed resident, and 29 MiB
//! after a call of this. It is a crate of its own because it declares a foreign function; the rest of the workspace
//! forbids `unsafe`.

/// Returns free memory to the system. Takes milliseconds, during which other threads may wait for memory.
///
/// Does nothing with other C libraries: they return memory by themselves, or have no such call.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `int malloc_trim(size_t)` as in <malloc.h>. It takes no pointers and may be called from any thread at any
        // time (MT-Safe in its manual), so that it is safe to call.
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> core::ffi::c_int;
        }
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
    fn what_is_free_below_something_kept_goes_back() {
        // Too small for mappings of their own; the last one stays, at the end of the heap.
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
