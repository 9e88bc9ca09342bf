//! The component bytes of kernel records: NUL-terminated names, leaf first, in up to three parts.

use super::PathBytes;

/// The parts of a record's path, each as components with a leading slash, root first; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// From the mount's root to the file.
    pub within_mount: PathBytes,
    /// From the mount namespace's root to the mount.
    pub above: PathBytes,
    /// From the file system's root to the mount's root.
    pub beneath: PathBytes,
}

impl Parts {
    /// Takes apart `bytes`, whose parts have these lengths. None if they are not what the kernel side
    /// writes: cut off, a name that is empty or that holds a slash.
    pub fn decode(bytes: &[u8], mount_len: u32, above_len: u32, beneath_len: u32) -> Option<Self> {
        let (within_mount, rest) = bytes.split_at_checked(mount_len as usize)?;
        let (above, rest) = rest.split_at_checked(above_len as usize)?;
        let beneath = rest.get(..beneath_len as usize)?;
        Some(Self { within_mount: join(within_mount)?, above: join(above)?, beneath: join(beneath)? })
    }

    /// The path from the mount namespace's root.
    pub fn path(&self) -> PathBytes {
        concatenate(&self.above, &self.within_mount)
    }

    /// The path from the file system's root.
    pub fn fs_path(&self) -> PathBytes {
        concatenate(&self.beneath, &self.within_mount)
    }
}

fn concatenate(upper: &[u8], lower: &[u8]) -> PathBytes {
    let path = [upper, lower].concat();
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// Turns `leaf NUL parent NUL` into `/parent/leaf`.
fn join(part: &[u8]) -> Option<PathBytes> {
    if part.is_empty() {
        return Some(PathBytes::new());
    }
    let names = part.strip_suffix(b"\0")?;
    let mut path = PathBytes::with_capacity(part.len());
    for name in names.rsplit(|byte| *byte == 0) {
        if name.is_empty() || name.contains(&b'/') {
            return None;
        }
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel side writes for a path.
    pub(crate) fn encode(path: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in path.split(|byte| *byte == b'/').rev().filter(|name| !name.is_empty()) {
            bytes.extend_from_slice(name);
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn a_bind_mount_has_three_parts() {
        // /srv/data on the file system is mounted at /home/me/data.
        let bytes = b"f\0dir\0data\0me\0home\0data\0srv\0";
        let parts = Parts::decode(bytes, 6, 13, 9).unwrap();
        assert_eq!(parts.path(), b"/home/me/data/dir/f");
        assert_eq!(parts.fs_path(), b"/srv/data/dir/f");
    }

    #[test]
    fn the_root_itself_has_no_components() {
        let parts = Parts::decode(b"", 0, 0, 0).unwrap();
        assert_eq!((parts.path(), parts.fs_path()), (b"/".to_vec(), b"/".to_vec()));
        let mount_root = Parts::decode(b"mnt\0", 0, 4, 0).unwrap();
        assert_eq!((mount_root.path(), mount_root.fs_path()), (b"/mnt".to_vec(), b"/".to_vec()));
    }

    #[test]
    fn what_is_cut_or_odd_gives_nothing() {
        for (bytes, lengths) in [
            (&b"name"[..], (4, 0, 0)),
            (b"a\0", (3, 0, 0)),
            (b"a\0", (2, u32::MAX, 0)),
            (b"a\0", (u32::MAX, u32::MAX, u32::MAX)),
            (b"\0", (1, 0, 0)),
            (b"a\0\0b\0", (5, 0, 0)),
            (b"a/b\0", (4, 0, 0)),
            (b"/\0", (0, 2, 0)),
        ] {
            assert_eq!(Parts::decode(bytes, lengths.0, lengths.1, lengths.2), None, "{bytes:?} {lengths:?}");
        }
    }

    /// A file name: any bytes but NUL and slash.
    pub(crate) fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = any::<u8>().prop_filter("not in a name", |byte| *byte != 0 && *byte != b'/');
        prop::collection::vec(byte, 1..12)
    }

    fn path() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(name(), 0..6)
            .prop_map(|names| names.iter().flat_map(|name| [&b"/"[..], name].concat()).collect())
    }

    proptest! {
        #[test]
        fn any_path_survives(within in path(), above in path(), beneath in path()) {
            let parts = [encode(&within), encode(&above), encode(&beneath)];
            let lengths = parts.each_ref().map(|part| part.len() as u32);
            let decoded = Parts::decode(&parts.concat(), lengths[0], lengths[1], lengths[2]).unwrap();
            prop_assert_eq!(decoded, Parts { within_mount: within, above, beneath });
        }

        #[test]
        fn any_bytes_are_taken(
            bytes in prop::collection::vec(0..4_u8, 0..40),
            lengths in any::<(u8, u8, u8)>(),
        ) {
            let lengths = (u32::from(lengths.0 % 32), u32::from(lengths.1 % 16), u32::from(lengths.2 % 16));
            if let Some(parts) = Parts::decode(&bytes, lengths.0, lengths.1, lengths.2) {
                prop_assert!(parts.path().starts_with(b"/") && parts.fs_path().starts_with(b"/"));
            }
        }
    }
}
