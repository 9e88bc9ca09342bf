//! Cuts a kernel's BTF down to a few members: real records for tests without the megabytes.

use std::collections::BTreeMap;

use super::{Btf, HEADER_BYTES, MAGIC, MEMBER_BYTES, TYPE_BYTES, read_u32};

/// The members to keep, by the place of their structure's or union's record, then by their own: the
/// record of what the member is, if that is kept too.
type Kept = BTreeMap<usize, BTreeMap<usize, Option<usize>>>;

/// BTF with nothing but these members of structures, the anonymous ones on the way, and their types as
/// far as they are looked into. A path that is empty keeps the structure, for its size.
pub fn cut(btf: &Btf, asked: &[(String, String)]) -> Vec<u8> {
    let mut kept = Kept::new();
    for (structure, path) in asked {
        let found = btf.structures(structure).find_map(|record| Some((record, steps(btf, record, path)?)));
        let Some((record, steps)) = found else { continue };
        kept.entry(record).or_default();
        for (record, member, inside) in steps {
            kept.entry(record).or_default().entry(member).or_default();
            if let Some(inside) = inside {
                kept.entry(inside).or_default();
                kept.entry(record).or_default().insert(member, Some(inside));
            }
        }
    }
    write(btf, &kept)
}

/// A record, a member's place in it, and the record of what that member is.
type Step = (usize, usize, Option<usize>);

/// The way along a path, anonymous members included.
fn steps(btf: &Btf, record: usize, path: &str) -> Option<Vec<Step>> {
    let mut record = Some(record);
    let mut all = Vec::new();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let way = way_to(btf, record?, name)?;
        record = way.last().and_then(|(.., inside)| *inside);
        all.extend(way);
    }
    // What the last one is, is of no interest.
    if let Some((.., inside)) = all.last_mut() {
        *inside = None;
    }
    Some(all)
}

fn way_to(btf: &Btf, record: usize, name: &str) -> Option<Vec<Step>> {
    let count = (read_u32(&btf.data, record + 4)? & 0xffff) as usize;
    for at in (0..count).map(|index| record + TYPE_BYTES + index * MEMBER_BYTES) {
        let member_name = read_u32(&btf.data, at)?;
        let inside = btf.structure_behind(read_u32(&btf.data, at + 4)?);
        if btf.string_is(member_name, name) {
            return Some(vec![(record, at, inside)]);
        }
        if btf.string_is(member_name, "")
            && let Some(mut rest) = inside.and_then(|inside| way_to(btf, inside, name))
        {
            rest.insert(0, (record, at, inside));
            return Some(rest);
        }
    }
    None
}

fn write(btf: &Btf, kept: &Kept) -> Vec<u8> {
    const VOID: u32 = 0;
    let word = |at: usize| read_u32(&btf.data, at).expect("records were read before");
    let id = |record: &usize| kept.keys().position(|kept| kept == record).map_or(VOID, |at| at as u32 + 1);
    let mut strings = vec![0];
    let mut types: Vec<u32> = Vec::new();
    let mut string = |offset: u32| {
        let text = &btf.data[btf.strings.clone()][offset as usize..];
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        if text.is_empty() {
            return 0;
        }
        let at = strings.len() as u32;
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    for (record, members) in kept {
        let info = word(record + 4) & !0xffff | members.len() as u32;
        types.extend([string(word(*record)), info, word(record + 8)]);
        for (member, inside) in members {
            types.extend([string(word(*member)), inside.as_ref().map_or(VOID, id), word(member + 8)]);
        }
    }
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let [types_len, strings_len] = [types.len() as u32, strings.len() as u32];
    let mut data = [MAGIC.to_ne_bytes(), [1, 0]].concat();
    for word in [HEADER_BYTES as u32, 0, types_len, types_len, strings_len] {
        data.extend_from_slice(&word.to_ne_bytes());
    }
    data.extend(types);
    data.extend(strings);
    data
}
