//! What the C library's start files would do, for a machine that lacks them (see `cc` beside this).
#![no_std]

// The handle by which the C library tells loaded objects apart; each has its own.
core::arch::global_asm!(
    ".hidden __dso_handle",
    ".globl __dso_handle",
    ".section .data.__dso_handle,\"aw\"",
    ".balign 8",
    "__dso_handle: .8byte 0",
    ".text",
);

// The kernel enters here, with argc at the stack pointer and argv above it. The C library runs the
// initialisers itself when it is given none (since 2.34; the standard library needs none before).
#[cfg(all(start, target_arch = "x86_64"))]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov r9, rdx",
    "pop rsi",
    "mov rdx, rsp",
    "and rsp, -16",
    "push rax",
    "push rsp",
    "xor r8d, r8d",
    "xor ecx, ecx",
    "lea rdi, [rip + main]",
    "call qword ptr [rip + __libc_start_main@GOTPCREL]",
    "hlt",
);

#[cfg(all(start, target_arch = "aarch64"))]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x30, #0",
    "mov x5, x0",
    "ldr x1, [sp]",
    "add x2, sp, #8",
    "mov x6, sp",
    "adrp x0, main",
    "add x0, x0, :lo12:main",
    "mov x3, #0",
    "mov x4, #0",
    "bl __libc_start_main",
    "brk #0",
);
