//! Byte offsets of structure members, read from the kernel's BTF.
//!
//! The format is documented in the kernel's Documentation/bpf/btf.rst. Only what is needed to find a
//! member is read; rustc emits no relocations that would let the loader do this.

#[cfg(test)]
pub mod cut;

use std::ops::Range;

/// A parsed BTF blob. Drop it once the offsets are known: it is several megabytes.
pub struct Btf {
    data: Vec<u8>,
    strings: Range<usize>,
    /// Start of each type's record.
    types: Vec<u32>,
    /// What the first of them and the first byte of the strings count as: a module's go on where those of
    /// the kernel end.
    first_type: u32,
    first_string: u32,
}

/// How structures are laid out.
pub trait Layout {
    /// The byte offset of a member path such as `f_path.dentry` in a structure. Anonymous structures
    /// and unions on the way are looked into.
    fn offset(&self, structure: &str, path: &str) -> Result<u32, BtfError>;

    /// The size of a structure in bytes.
    fn size(&self, structure: &str) -> Result<u32, BtfError>;
}

/// Why an offset could not be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The bytes are not BTF.
    #[error("the BTF data is malformed: {0}")]
    Malformed(&'static str),
    /// The kernel has no such member, type or function.
    #[error("the kernel's BTF has no {0}")]
    NotFound(String),
}

/// Kinds of types that are looked up by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Another name of a type, such as a tracepoint's `btf_trace_…`.
    Typedef = TYPEDEF as isize,
    /// A function.
    Function = FUNC as isize,
    /// A structure.
    Structure = STRUCT as isize,
}

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

// Kinds, from include/uapi/linux/btf.h.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

impl Btf {
    /// Reads a BTF blob such as /sys/kernel/btf/vmlinux.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let short = BtfError::Malformed("it ends early");
        let header = |offset| read_u32(&data, offset).ok_or(short.clone());
        if data.get(..2) != Some(&MAGIC.to_ne_bytes()) {
            return Err(BtfError::Malformed("it does not begin with BTF's magic number"));
        }
        let base = header(4)? as usize;
        let section = |offset: usize, length: usize| {
            let start = base.checked_add(offset)?;
            let end = start.checked_add(length)?;
            (base >= HEADER_BYTES && end <= data.len()).then_some(start..end)
        };
        let records = section(header(8)? as usize, header(12)? as usize).ok_or(short.clone())?;
        let strings = section(header(16)? as usize, header(20)? as usize).ok_or(short.clone())?;
        let mut types = Vec::new();
        let mut at = records.start;
        while at < records.end {
            let info = read_u32(&data, at + 4).ok_or(short.clone())?;
            types.push(at as u32);
            at += TYPE_BYTES + trailing_bytes(kind(info), (info & 0xffff) as usize);
        }
        if at != records.end {
            return Err(BtfError::Malformed("a type runs past the end"));
        }
        Ok(Self { data, strings, types, first_type: 1, first_string: 0 })
    }

    /// Reads what a module adds, such as /sys/kernel/btf/xfs. Only its own structures can be looked up,
    /// and of their members only those that are not beneath a type of the kernel's.
    pub fn parse_module(data: Vec<u8>, kernel: &Self) -> Result<Self, BtfError> {
        let first_type = kernel.first_type.saturating_add(kernel.types.len() as u32);
        let first_string = kernel.first_string.saturating_add(kernel.strings.len() as u32);
        Ok(Self { first_type, first_string, ..Self::parse(data)? })
    }

    /// The id of a type or function.
    pub fn type_id(&self, wanted: Kind, name: &str) -> Result<u32, BtfError> {
        let found = self.types.iter().map(|at| *at as usize).position(|at| {
            read_u32(&self.data, at + 4).is_some_and(|info| kind(info) == wanted as u32)
                && read_u32(&self.data, at).is_some_and(|offset| self.string_is(offset, name))
        });
        found.map(|index| index as u32 + self.first_type).ok_or_else(|| BtfError::NotFound(name.to_owned()))
    }

    /// The records of all structures of a name.
    fn structures<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.types.iter().map(|at| *at as usize).filter(move |at| {
            read_u32(&self.data, at + 4).is_some_and(|info| kind(info) == STRUCT)
                && read_u32(&self.data, *at).is_some_and(|offset| self.string_is(offset, name))
        })
    }

    /// A member's offset in bits and its type id. `depth` bounds malformed recursion.
    fn member(&self, record: usize, name: &str, depth: u32) -> Option<(u32, u32)> {
        const DEEPEST: u32 = 16;
        let info = read_u32(&self.data, record + 4)?;
        let bitfields = info >> 31 == 1;
        for index in 0..(info & 0xffff) as usize {
            let at = record + TYPE_BYTES + index * MEMBER_BYTES;
            let member_name = read_u32(&self.data, at)?;
            let type_id = read_u32(&self.data, at + 4)?;
            let raw = read_u32(&self.data, at + 8)?;
            let bits = if bitfields { raw & 0x00ff_ffff } else { raw };
            if self.string_is(member_name, name) {
                return Some((bits, type_id));
            }
            if self.string_is(member_name, "") && depth < DEEPEST {
                let inner = self.structure_behind(type_id);
                if let Some((more, type_id)) = inner.and_then(|inner| self.member(inner, name, depth + 1)) {
                    return Some((bits + more, type_id));
                }
            }
        }
        None
    }

    /// The structure or union that a type is, through typedefs and qualifiers.
    fn structure_behind(&self, mut type_id: u32) -> Option<usize> {
        const LONGEST_CHAIN: usize = 32;
        for _ in 0..LONGEST_CHAIN {
            let record = *self.types.get(type_id.checked_sub(self.first_type)? as usize)? as usize;
            match kind(read_u32(&self.data, record + 4)?) {
                STRUCT | UNION => return Some(record),
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => {
                    type_id = read_u32(&self.data, record + 8)?;
                }
                _ => return None,
            }
        }
        None
    }

    fn string_is(&self, offset: u32, expected: &str) -> bool {
        // A module's anonymous names are the kernel's first string.
        if offset == 0 {
            return expected.is_empty();
        }
        let Some(offset) = offset.checked_sub(self.first_string) else { return false };
        let strings = &self.data[self.strings.clone()];
        strings.get(offset as usize..).is_some_and(|rest| {
            rest.strip_prefix(expected.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }
}

impl Layout for Btf {
    fn offset(&self, structure: &str, path: &str) -> Result<u32, BtfError> {
        let missing = || BtfError::NotFound(format!("{structure}.{path}"));
        self.structures(structure)
            .find_map(|record| {
                path.split('.').try_fold((0, Some(record)), |(bits, record), name| {
                    let (member_bits, type_id) = self.member(record?, name, 0)?;
                    Some((bits + member_bits, self.structure_behind(type_id)))
                })
            })
            .map(|(bits, _)| bits / 8)
            .ok_or_else(missing)
    }

    fn size(&self, structure: &str) -> Result<u32, BtfError> {
        self.structures(structure)
            .find_map(|record| read_u32(&self.data, record + 8))
            .ok_or_else(|| BtfError::NotFound(structure.to_owned()))
    }
}

fn kind(info: u32) -> u32 {
    (info >> 24) & 0x1f
}

/// Bytes that follow a type's fixed record.
fn trailing_bytes(kind: u32, count: usize) -> usize {
    match kind {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
        ENUM | FUNC_PROTO => 8 * count,
        _ => 0,
    }
}

fn read_u32(data: &[u8], offset: usize) -> Option<u32> {
    let bytes = data.get(offset..offset.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `struct outer { int first; union { struct { long a; inner_t b; }; }; struct inner *next; }`
    /// with `typedef struct inner { short x; int y; } inner_t`.
    fn sample() -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut string = |text: &str| {
            let offset = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            offset
        };
        let (outer, inner, inner_t) = (string("outer"), string("inner"), string("inner_t"));
        let (first, a, b, next) = (string("first"), string("a"), string("b"), string("next"));
        let (x, y, int) = (string("x"), string("y"), string("int"));
        let mut types: Vec<u32> = Vec::new();
        let info = |kind: u32, count: u32| kind << 24 | count;
        types.extend([int, info(INT, 0), 4, 32]); // 1
        types.extend([inner, info(STRUCT, 2), 8, x, 1, 0, y, 1, 32]); // 2
        types.extend([inner_t, info(TYPEDEF, 0), 2]); // 3
        types.extend([0, info(STRUCT, 2), 16, a, 1, 0, b, 3, 64]); // 4
        types.extend([0, info(UNION, 1), 16, 0, 4, 0]); // 5
        types.extend([0, info(2, 0), 2]); // 6: pointer to inner
        types.extend([outer, info(STRUCT, 3), 32, first, 1, 0, 0, 5, 64, next, 6, 192]); // 7
        blob(&types, &strings)
    }

    fn blob(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let [types_len, strings_len] = [types.len() as u32 * 4, strings.len() as u32];
        let header = [HEADER_BYTES as u32, 0, types_len, types_len, strings_len];
        let words = header.iter().chain(types).flat_map(|word| word.to_ne_bytes());
        MAGIC.to_ne_bytes().into_iter().chain([1, 0]).chain(words).chain(strings.iter().copied()).collect()
    }

    #[test]
    fn members_are_found_through_anonymous_members_and_typedefs() {
        let btf = Btf::parse(sample()).unwrap();
        assert_eq!(btf.offset("outer", "first"), Ok(0));
        assert_eq!(btf.offset("outer", "a"), Ok(8));
        assert_eq!(btf.offset("outer", "b"), Ok(16));
        assert_eq!(btf.offset("outer", "b.y"), Ok(20));
        assert_eq!(btf.offset("outer", "next"), Ok(24));
        assert_eq!(btf.size("outer"), Ok(32));
        assert_eq!(btf.type_id(Kind::Typedef, "inner_t"), Ok(3));
        assert!(btf.type_id(Kind::Function, "inner_t").is_err());
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let btf = Btf::parse(sample()).unwrap();
        let missing = |path: &str| Err(BtfError::NotFound(format!("outer.{path}")));
        assert_eq!(btf.offset("outer", "second"), missing("second"));
        // A pointer is no structure: its target's members are not at an offset of this one.
        assert_eq!(btf.offset("outer", "next.y"), missing("next.y"));
        assert!(btf.size("absent").is_err());
    }

    /// `struct module { outer; int own; }`, whose first member is anonymous and of the kernel.
    #[test]
    fn a_module_goes_on_where_the_kernel_ends() {
        let kernel = Btf::parse(sample()).unwrap();
        let first = kernel.strings.len() as u32;
        let types = [first, STRUCT << 24 | 2, 36, 0, 7, 0, first + 7, 1, 256];
        let data = blob(&types, b"module\0own\0");
        let module = Btf::parse_module(data, &kernel).unwrap();
        assert_eq!(module.offset("module", "own"), Ok(32));
        assert_eq!(module.size("module"), Ok(36));
        assert!(module.offset("module", "first").is_err(), "that one is beneath a type of the kernel's");
        assert!(module.offset("outer", "first").is_err());
    }

    proptest! {
        #[test]
        fn damaged_data_is_refused_without_a_panic(
            flips in prop::collection::vec((0_usize..400, any::<u8>()), 0..12),
            length in 0_usize..400,
        ) {
            let mut data = sample();
            for (at, byte) in flips {
                let at = at % data.len();
                data[at] = byte;
            }
            data.truncate(length);
            if let Ok(btf) = Btf::parse(data) {
                let _ = btf.offset("outer", "b.y");
                let _ = btf.size("inner");
            }
        }
    }
}
