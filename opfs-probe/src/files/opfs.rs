//! What a browser's file name means.

use super::mounts::strip_directory;

/// Whether an absolute path is in a browser's store of origin-private files: the files of web pages
/// and the browser's own records about them, not the rest of the profile.
///
/// Chromium keeps them in `<profile>/Default/File System/` and, for storage buckets other than an
/// origin's default, in `<profile>/Default/WebStorage/<number>/FileSystem/` (`Default` is the name of
/// the profile in use). Firefox: `<profile>/storage/default/<origin>/fs/`, with `metadata.sqlite`
/// and its journals beside the files; the directory itself is synced too.
pub fn is_opfs(path: &[u8]) -> bool {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let chromium = names.windows(2).any(|pair| pair[1] == b"File System" && is_chromium_profile(pair[0]));
    let bucket = names.windows(4).any(|names| {
        is_chromium_profile(names[0])
            && names[1] == b"WebStorage"
            && is_number(names[2])
            && names[3] == b"FileSystem"
    });
    let firefox = names.windows(4).any(|names| {
        names[0] == b"storage"
            && [&b"default"[..], b"temporary", b"permanent", b"private"].contains(&names[1])
            && is_origin(names[2])
            && names[3] == b"fs"
    });
    chromium || bucket || firefox
}

/// Path of a file relative to a profile's directory, or none if it is not in it.
pub fn relative_to_profile<'a>(path: &'a [u8], profile: &[u8]) -> Option<&'a [u8]> {
    let rest = strip_directory(path, profile)?;
    Some(rest.strip_prefix(b"/").unwrap_or(rest))
}

/// `chrome::kInitialProfile`, its numbered siblings and the two profiles that are no person's.
fn is_chromium_profile(name: &[u8]) -> bool {
    matches!(name, b"Default" | b"Guest Profile" | b"System Profile")
        || name.strip_prefix(b"Profile ").is_some_and(is_number)
}

fn is_number(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Firefox writes an origin with `+` for what can't be in a file name: `https+++example.org`.
fn is_origin(name: &[u8]) -> bool {
    name.windows(3).any(|window| window == b"+++")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::files::components::tests::name;

    #[test]
    fn origin_private_files_are_told_from_the_rest_of_a_profile() {
        for path in [
            "/tmp/p/Default/File System/000/t/00/00000017",
            "/tmp/p/Default/File System",
            "/tmp/p/Default/File System/Origins/000003.log",
            "/home/me/.config/chromium/Profile 12/File System/primary/Origins/LOG",
            "/tmp/p/Default/WebStorage/3/FileSystem/t/00/00000001",
            "/tmp/p/storage/default/http+++127.0.0.1+44213/fs",
            "/tmp/p/storage/default/http+++127.0.0.1+44213/fs/metadata.sqlite",
            "/tmp/p/storage/default/http+++127.0.0.1+44213/fs/metadata.sqlite-journal",
            "/tmp/p/storage/default/https+++a.example^userContextId=2/fs/YI/YIN2PGVCO5HG",
            "/tmp/p/storage/private/8f0c+++x/fs/YI/YIN2",
        ] {
            assert!(is_opfs(path.as_bytes()), "{path}");
        }
        for path in [
            "/",
            "",
            "/tmp/p/Default",
            "/tmp/p/Default/Web Data-journal",
            "/tmp/p/Default/IndexedDB/http_127.0.0.1_1.indexeddb.leveldb/000003.log",
            "/tmp/p/Default/WebStorage/3/IndexedDB/x",
            "/home/me/File System/notes",
            "/tmp/p/storage/permanent/chrome/idb/3870112724rsegmnoittet-es.sqlite-wal",
            "/tmp/p/storage/default/http+++127.0.0.1+44213/idb/1.sqlite",
            "/tmp/p/storage/default/http+++127.0.0.1+44213/.metadata-v2",
            "/tmp/p/storage/default/http+++127.0.0.1+44213",
            "/srv/storage/default/me/fs/x",
            "/tmp/p/storage.sqlite",
        ] {
            assert!(!is_opfs(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn paths_are_made_relative_to_the_profile() {
        let relative = |path: &'static str, profile: &str| {
            relative_to_profile(path.as_bytes(), profile.as_bytes())
                .map(|path| std::str::from_utf8(path).unwrap())
        };
        assert_eq!(relative("/tmp/p/Default/Cookies", "/tmp/p"), Some("Default/Cookies"));
        assert_eq!(relative("/tmp/p/Default/Cookies", "/tmp/p/"), Some("Default/Cookies"));
        assert_eq!(relative("/tmp/p", "/tmp/p"), Some(""));
        assert_eq!(relative("/tmp/profile/x", "/tmp/p"), None);
        assert_eq!(relative("pipe:[3]", "/tmp/p"), None);
    }

    proptest! {
        #[test]
        fn only_the_profile_is_taken_off(profile in prop::collection::vec(name(), 1..4), file in name()) {
            let profile: Vec<u8> = profile.iter().flat_map(|name| [&b"/"[..], name].concat()).collect();
            let path = [profile.as_slice(), b"/", &file].concat();
            prop_assert_eq!(relative_to_profile(&path, &profile), Some(file.as_slice()));
            let _ = is_opfs(&path);
        }
    }
}
