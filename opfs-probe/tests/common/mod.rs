//! What the tests that need the kernel share.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::geteuid;

/// The program under test.
pub const PROBE: &str = env!("CARGO_BIN_EXE_opfs-probe");

/// Fails the test unless root runs it: a test that could not test must not pass.
pub fn require_root() {
    assert!(geteuid().is_root(), "this test loads kernel programs: run it as root (`cargo xtask test`)");
}

/// The program that issues a known mix of sync calls, built if it is not: Cargo builds no examples for a
/// single test.
pub fn sync_generator() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        // target/PROFILE/deps/TEST
        let own = std::env::current_exe().expect("the test's own path");
        let folder = own.ancestors().nth(2).expect("the profile's folder");
        let profile = folder.file_name().and_then(|name| name.to_str()).expect("the profile's name");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "opfs-probe", "--example", "sync-generator"])
            .args(["--profile", if profile == "debug" { "dev" } else { profile }])
            .arg("--target-dir")
            .arg(folder.parent().expect("the target folder"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo starts").success(), "building the example sync-generator");
        folder.join("examples/sync-generator")
    };
    BUILT.get_or_init(build).clone()
}
