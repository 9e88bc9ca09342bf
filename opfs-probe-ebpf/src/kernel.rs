//! Checked ways to read the kernel's memory, and the few intrinsics that BPF needs.
//!
//! Every `unsafe` of this kind is here. A read that fails gives `None`, never a partial value.

use core::arch::asm;
use core::ffi::c_void;
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
use core::mem::MaybeUninit;
use core::ptr::{addr_of, read_volatile};

use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_probe_read_kernel,
    bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_task_pt_regs,
};
use opfs_probe_common::config::Config;
use opfs_probe_common::offsets::Offsets;

/// Offsets of the running kernel, set by the loader.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = {
    // Loaded programs never see these values; zero keeps the symbol in `.rodata`.
    // SAFETY: all fields are integers.
    unsafe { MaybeUninit::zeroed().assume_init() }
};

/// Settings, set by the loader.
#[unsafe(no_mangle)]
static CONFIG: Config = Config { self_test_fd: 0, syscall_fields_offset: 0, o_direct: 0, word_structure: 0 };

/// Reads one offset. Volatile, because the loader changes it after compilation; the verifier then
/// knows its value, since the map behind is frozen.
macro_rules! offset {
    ($field:ident) => {
        // SAFETY: a valid, aligned static.
        unsafe { core::ptr::read_volatile(core::ptr::addr_of!($crate::kernel::offsets().$field)) }
    };
}
pub(crate) use offset;

/// Where `offset!` reads.
#[inline(always)]
pub fn offsets() -> &'static Offsets {
    &OFFSETS
}

/// The descriptor number of the probe's own test call.
#[inline(always)]
pub fn self_test_fd() -> i32 {
    // SAFETY: a valid, aligned static.
    unsafe { read_volatile(addr_of!(CONFIG.self_test_fd)) }
}

/// `O_DIRECT` here.
#[inline(always)]
pub fn o_direct() -> u64 {
    // SAFETY: a valid, aligned static.
    u64::from(unsafe { read_volatile(addr_of!(CONFIG.o_direct)) })
}

/// Offset of the first argument, or of the result, in a system call tracepoint's record.
#[inline(always)]
pub fn syscall_fields_offset() -> usize {
    // SAFETY: a valid, aligned static.
    unsafe { read_volatile(addr_of!(CONFIG.syscall_fields_offset)) as usize }
}

/// BTF id of the structure that [`read`] takes all memory for, or 0.
#[inline(always)]
fn word_structure() -> u32 {
    // SAFETY: a valid, aligned static.
    unsafe { read_volatile(addr_of!(CONFIG.word_structure)) }
}

/// `bpf_rdonly_cast(address, structure)`: the same address as a pointer to a BTF type. The verifier makes
/// one move of registers of it (`KF_bpf_rdonly_cast` in kernel/bpf/verifier.c).
#[cfg(target_arch = "bpf")]
#[inline(always)]
fn cast(address: u64, structure: u32) -> *const u8 {
    use opfs_probe_common::config::{CALL, CALLS_KERNEL_FUNCTION, CAST_MARKER};

    let pointer;
    // SAFETY: a call, which gives its result in r0 and leaves nothing in r1 to r5. The loader puts the
    // function's number in.
    unsafe {
        asm!(
            ".byte {call}, {registers}, 0, 0",
            ".long {marker}",
            call = const CALL,
            registers = const CALLS_KERNEL_FUNCTION,
            marker = const CAST_MARKER,
            inlateout("r1") address => _,
            inlateout("r2") u64::from(structure) => _,
            lateout("r0") pointer,
            lateout("r3") _,
            lateout("r4") _,
            lateout("r5") _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    pointer
}

/// For the lints alone, which run on the crate as built for the machine they run on.
#[cfg(not(target_arch = "bpf"))]
fn cast(address: u64, _structure: u32) -> *const u8 {
    address as *const u8
}

/// A pointer whose type the verifier knows from BTF: its members are read by plain loads.
#[derive(Clone, Copy)]
pub struct Typed(*const u8);

impl Typed {
    /// Takes a typed pointer that the kernel passed as an argument.
    ///
    /// # Safety
    /// `pointer` must be one that the verifier tracks as a pointer to a BTF type.
    #[inline(always)]
    pub unsafe fn new(pointer: *const c_void) -> Self {
        Self(pointer.cast())
    }

    /// The current task.
    #[inline(always)]
    pub fn current_task() -> Self {
        // SAFETY: the helper has no precondition.
        Self(unsafe { bpf_get_current_task_btf() } as *const u8)
    }

    /// The member at `offset`: an integer, or a pointer without a known type.
    #[inline(always)]
    pub fn load<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier refuses the program unless a member of this size lies at the offset;
        // a fault (a null or stale pointer) reads as zero.
        unsafe { self.0.add(offset as usize).cast::<T>().read() }
    }

    /// The typed pointer at `offset`; null where the kernel has none.
    #[inline(always)]
    pub fn follow(self, offset: u32) -> Self {
        Self(self.load(offset))
    }

    /// Whether the pointer is null.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address of the member at `offset`, for reads through [`read`].
    #[inline(always)]
    pub fn address(self, offset: u32) -> u64 {
        self.0 as u64 + u64::from(offset)
    }
}

/// Whether a program's memory is that of a 32-bit one: it ends below 4 GiB (`setup_new_exec()` in
/// fs/exec.c). The thread flag that says the same moves from one kernel to the next.
#[inline(always)]
pub fn is_32_bit(memory: Typed) -> bool {
    const END_OF_32_BITS: u64 = 1 << 32;
    memory.load::<u64>(offset!(mm_task_size)) < END_OF_32_BITS
}

/// The current task's user registers, as they were when it entered the kernel.
#[inline(always)]
pub fn user_registers() -> Typed {
    // SAFETY: the helper takes the typed pointer that the other helper gives.
    Typed(unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as *const u8)
}

/// Reads a value from kernel memory. Where plain loads do it, an address that can't be read gives zero.
#[inline(always)]
pub fn read<T: Copy>(address: u64) -> Option<T> {
    // The verifier knows the number and drops the branch that is not taken.
    let structure = word_structure();
    if structure != 0 && size_of::<T>() <= size_of::<u64>() {
        // SAFETY: the verifier takes the pointer for one to a structure of which these bytes are part, and
        // has a load from it that faults read as zero. `T` is an integer wherever this is called.
        return Some(unsafe { cast(address, structure).cast::<T>().read() });
    }
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the destination is as large as the size says; the helper survives any address.
    let status = unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, address as *const c_void)
    };
    // SAFETY: the helper fills the whole destination when it succeeds.
    (status == 0).then(|| unsafe { value.assume_init() })
}

/// Copies a NUL-terminated string from kernel memory; gives its length with the NUL.
///
/// # Safety
/// `room` bytes must be writable at `destination`.
#[inline(always)]
pub unsafe fn read_string(destination: *mut u8, room: u32, address: u64) -> Option<u32> {
    // SAFETY: the caller's promise.
    let length = unsafe { bpf_probe_read_kernel_str(destination.cast(), room, address as *const c_void) };
    (length > 0).then_some(length as u32)
}

/// Copies bytes from the current process's memory.
///
/// # Safety
/// `length` bytes must be writable at `destination`.
#[inline(always)]
pub unsafe fn read_user(destination: *mut u8, length: u32, address: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { bpf_probe_read_user(destination.cast(), length, address as *const c_void) == 0 }
}

/// `CLOCK_MONOTONIC`
#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: the helper has no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// Adds to a counter that several CPUs share.
///
/// # Safety
/// `counter` must point into a map value.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, amount: u64) {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, amount) };
}

/// Adds to a counter that several CPUs share, and gives its value before.
///
/// # Safety
/// `counter` must point into a map value.
#[inline(always)]
pub unsafe fn fetch_add(counter: *mut u64, amount: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, amount) }
}

/// Puts `new` where `expected` was; gives what was there before.
///
/// # Safety
/// `place` must point into a map value.
#[inline(always)]
pub unsafe fn compare_exchange<T: Copy>(place: *mut T, expected: T, new: T) -> T {
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
    // SAFETY: the caller's promise.
    unsafe { atomic_cxchg::<T, ORDER, ORDER>(place, expected, new) }.0
}

/// Makes a number that several CPUs share at least `value`. Gives up, and says so, when others change it
/// again and again meanwhile.
///
/// # Safety
/// `place` must point into a map value.
#[inline(always)]
pub unsafe fn raise(place: *mut u64, value: u64) -> bool {
    const TRIES: u32 = 8;
    // SAFETY: the caller's promise.
    let mut there = unsafe { place.read_volatile() };
    for _ in 0..TRIES {
        if there >= value {
            return true;
        }
        // SAFETY: as above.
        let before = unsafe { compare_exchange(place, there, value) };
        if before == there {
            return true;
        }
        there = before;
    }
    false
}

/// Keeps the compiler from moving writes across. The processors that we build for keep their order.
#[inline(always)]
pub fn keep_order() {
    // SAFETY: no instruction at all.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// The number of the CPU that runs the program.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the helper has no precondition.
    unsafe { bpf_get_smp_processor_id() }
}

/// An index below `count`, a power of two, that spreads values which differ anywhere.
#[inline(always)]
pub fn hash(value: u64, count: u32) -> u32 {
    // 2^64 over the golden ratio: D. E. Knuth, The Art of Computer Programming, section 6.4.
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 >> (32 - count.ilog2())
}
