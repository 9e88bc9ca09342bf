//! Whether the programs may read kernel memory by plain loads, and the object with what they need for it.
//!
//! `bpf_rdonly_cast` (Linux 6.2) turns any address into a pointer to a BTF type, which is then read by plain
//! loads, about twenty times faster than through a helper. aya relocates no calls of kernel functions, so
//! the call's number is put in here.

use opfs_probe_common::config::{CALL, CALLS_KERNEL_FUNCTION, CAST_MARKER};

use super::bpf::{KernelCall, TinyProgram};
use super::btf::{Btf, Kind};

/// `BPF_PROG_TYPE_TRACEPOINT` of include/uapi/linux/bpf.h.
const TRACEPOINT: u32 = 5;

/// A structure that begins with an 8-byte integer in every kernel.
const WORD_STRUCTURE: &str = "timespec64";

/// What plain loads need, by BTF id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectReads {
    function: u32,
    /// See `Config::word_structure`.
    pub word_structure: u32,
}

impl DirectReads {
    /// Asks the kernel, by loading a program that makes such a call; none where it can't.
    pub fn find(kernel: &Btf) -> Option<Self> {
        let function = kernel.type_id(Kind::Function, "bpf_rdonly_cast").ok()?;
        let word_structure = kernel.type_id(Kind::Structure, WORD_STRUCTURE).ok()?;
        let calls = Some(KernelCall { function, argument: word_structure });
        let trial = TinyProgram { program_type: TRACEPOINT, calls, ..TinyProgram::default() };
        trial.load().ok().map(|_| Self { function, word_structure })
    }
}

/// The programs' object, ready to be loaded.
pub struct Object {
    words: Vec<u64>,
    length: usize,
}

impl Object {
    /// Puts the function in where `bytes`, an ELF file, call it; without one, a move that does nothing,
    /// which is never reached.
    pub fn new(bytes: &[u8], direct: Option<DirectReads>) -> Self {
        let wanted = call(CAST_MARKER);
        let instead = direct.map_or(MOVE, |direct| call(direct.function));
        // Instructions are 8 bytes long and lie at multiples of 8.
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            if word == wanted { u64::from_ne_bytes(instead) } else { u64::from_ne_bytes(word) }
        });
        Self { words: words.collect(), length: bytes.len() }
    }

    /// The ELF file, aligned as a parser needs it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold at least as many bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }
}

/// `r0 = r1`: `BPF_ALU64 | BPF_MOV | BPF_X`.
const MOVE: [u8; 8] = [0xbf, if cfg!(target_endian = "big") { 0x01 } else { 0x10 }, 0, 0, 0, 0, 0, 0];

/// A call of the kernel function with this id.
const fn call(function: u32) -> [u8; 8] {
    let [a, b, c, d] = function.to_ne_bytes();
    [CALL, CALLS_KERNEL_FUNCTION, 0, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_at_instructions_and_nothing_else_changes() {
        let direct = DirectReads { function: 0x0102_0304, word_structure: 1 };
        let marked = call(CAST_MARKER);
        let mut bytes = [[1; 8], marked, [2; 8], marked].concat();
        bytes.extend([9, 9, 9]);
        let expected = [[1; 8], call(direct.function), [2; 8], call(direct.function)].concat();
        assert_eq!(Object::new(&bytes, Some(direct)).bytes(), [&expected[..], &[9, 9, 9]].concat());
        let expected = [[1; 8], MOVE, [2; 8], MOVE].concat();
        assert_eq!(Object::new(&bytes, None).bytes(), [&expected[..], &[9, 9, 9]].concat());
        // Not at an instruction.
        bytes.insert(0, 0);
        assert_eq!(Object::new(&bytes, Some(direct)).bytes(), bytes);
    }

    #[test]
    fn the_object_calls_the_function() {
        let object = super::super::load::OBJECT;
        assert!(object.chunks(8).any(|word| word == call(CAST_MARKER)));
    }
}
