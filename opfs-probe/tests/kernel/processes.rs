//! Programs that the kernel side must know for what they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::run::Run;

/// An ELF program of 32-bit x86 code: `fsync(-1)`, then `exit(0)`.
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let code: [u8; 24] = [
        0xb8, 118, 0, 0, 0, // mov eax, 118 (fsync, in 32-bit programs)
        0xbb, 0xff, 0xff, 0xff, 0xff, // mov ebx, -1
        0xcd, 0x80, // int 0x80
        0xb8, 1, 0, 0, 0, // mov eax, 1 (exit)
        0xbb, 0, 0, 0, 0, // mov ebx, 0
        0xcd, 0x80, // int 0x80
    ];
    let size = HEADERS + code.len() as u32;
    let mut program = b"\x7fELF\x01\x01\x01".to_vec();
    program.resize(16, 0);
    let half = |program: &mut Vec<u8>, numbers: &[u16]| {
        program.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    let words = |program: &mut Vec<u8>, numbers: &[u32]| {
        program.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    // ET_EXEC, EM_386; version, entry point, program headers, section headers, flags.
    half(&mut program, &[2, 3]);
    words(&mut program, &[1, BASE + HEADERS, 52, 0, 0]);
    // Sizes and numbers of headers: one program header, no section.
    half(&mut program, &[52, 32, 1, 40, 0, 0]);
    // PT_LOAD, offset, two addresses, two sizes, read and execute, alignment.
    words(&mut program, &[1, 0, BASE, BASE, size, size, 5, 0x1000]);
    program.extend(code);
    program
}

#[test]
fn a_32_bit_program_makes_the_counts_inexact() {
    let run = Run::new(&["--strict"]);
    let program = run.folder().join("program-of-32-bits");
    fs::write(&program, program_of_32_bits()).expect("a file");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("chmod");
    match Command::new(&program).status() {
        Ok(status) => assert!(status.success(), "the program itself fails: {status}"),
        Err(error) => {
            eprintln!("SKIPPED: this kernel runs no 32-bit programs: {error}");
            return;
        }
    }
    let script = format!("{}; sync -d /", program.display());
    let ran = run.of(&["sh", "-c", &script]);
    let completeness = &ran.report.completeness;
    assert_eq!(ran.output.status.code(), Some(3), "--strict says so: {completeness:?}");
    assert!(!completeness.exact_counts);
    assert!(
        completeness.warnings.iter().any(|warning| warning.contains("32-bit program was run")),
        "{completeness:?}"
    );
    let total = ran.report.sessions[0].total.as_ref().expect("it was counted");
    assert_eq!(total.sync_calls, 1, "the 64-bit one is");
}

#[test]
fn a_64_bit_run_passes_strictly() {
    let ran = Run::new(&["--strict"]).of(&["sh", "-c", "sync -d /"]);
    assert!(ran.output.status.success(), "{:?}", ran.report.completeness);
}
