//! Brings the kernel programs into the binary: builds `opfs-probe-ebpf` for BPF and leaves the
//! object where the library includes it from, `OUT_DIR/opfs-probe.bpf.o`.

#[path = "build/toolchain.rs"]
mod toolchain;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use toolchain::{Compiler, CompilerKind, Linker};

/// Names an object built elsewhere, for packagers.
const OBJECT_VARIABLE: &str = "OPFS_PROBE_BPF_OBJECT";
/// The kernel crate's name, folder and binary.
const KERNEL_CRATE: &str = "opfs-probe-ebpf";

fn main() -> ExitCode {
    for variable in [OBJECT_VARIABLE, toolchain::RUSTC_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Explained(text)) => {
            // Cargo prints these and fails the build; a failing exit would add a dump of our output.
            for line in text.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::SUCCESS
        }
        Err(Failure::Compiler(text)) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    /// A message that says what to do.
    Explained(String),
    /// What the compiler had to say about the kernel programs.
    Compiler(String),
}

impl Failure {
    fn explained(what: impl std::fmt::Display, remedy: &str) -> Self {
        Self::Explained(format!("the kernel programs could not be built: {what}; {remedy}"))
    }
}

fn run() -> Result<(), Failure> {
    let out_dir = PathBuf::from(variable("OUT_DIR"));
    let object = out_dir.join("opfs-probe.bpf.o");
    let big_endian = variable("CARGO_CFG_TARGET_ENDIAN") == "big";
    if let Some(given) = env::var_os(OBJECT_VARIABLE).filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        watch(&given);
        return install(&given, &object, big_endian);
    }
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for source in ["Cargo.toml", "Cargo.lock", "src"] {
        watch(&root.join(KERNEL_CRATE).join(source));
    }
    for source in ["Cargo.toml", "src"] {
        watch(&root.join("opfs-probe-common").join(source));
    }
    let target = toolchain::target(big_endian);
    // `cargo xtask setup` puts bpf-linker into the target folder, which is above OUT_DIR
    // wherever the user has it.
    let tools: Vec<PathBuf> = out_dir.ancestors().skip(1).map(|folder| folder.join("tools/bin")).collect();
    let (compiler, linker) = toolchain::find(target, &tools).map_err(|missing| {
        let remedy = format!(
            "run `cargo xtask setup`, which installs what is missing or prints the commands, \
             or set {OBJECT_VARIABLE} to an object built elsewhere"
        );
        Failure::explained(missing, &remedy)
    })?;
    watch(&linker.path);
    if let CompilerKind::Ready(path) = &compiler.kind {
        watch(path);
    }
    let target_dir = out_dir.join("kernel");
    compile(&root.join(KERNEL_CRATE), &target_dir, target, &compiler, &linker)?;
    let built = target_dir.join(target).join("release").join(KERNEL_CRATE);
    install(&built, &object, big_endian)
}

/// Builds the kernel crate with a cargo of its own, in a target folder of its own: the outer cargo
/// holds the lock of the other one.
fn compile(
    source: &Path,
    target_dir: &Path,
    target: &str,
    compiler: &Compiler,
    linker: &Linker,
) -> Result<(), Failure> {
    let mut cargo = match &compiler.kind {
        CompilerKind::Ready(rustc) => {
            let mut cargo = Command::new(variable("CARGO"));
            // aya-ebpf uses unstable features, which a released compiler allows only by this.
            cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
            cargo
        }
        CompilerKind::Nightly => toolchain::nightly("cargo"),
    };
    cargo.args(["build", "--quiet", "--release", "--bin", KERNEL_CRATE, "--target", target]);
    if compiler.kind == CompilerKind::Nightly {
        cargo.args(["-Z", "build-std=core"]);
    }
    if env::var_os("CARGO_FEATURE_KERNEL_LOG").is_some() {
        cargo.args(["--features", "kernel-log"]);
    }
    cargo.arg("--target-dir").arg(target_dir).current_dir(source);
    forget_outer_settings(&mut cargo);
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let flags = [
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        format!("-Clinker={}", linker.path.display()),
        "-Clink-arg=--btf".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        // Atomic additions that give the old value need the third instruction set (Linux 5.12).
        "-Ctarget-cpu=v3".to_owned(),
    ];
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let output = cargo
        .output()
        .map_err(|error| Failure::explained(format_args!("cargo did not start: {error}"), "check PATH"))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::Compiler(format!(
            "building the kernel programs with {compiler} and {} failed:\n{printed}",
            linker.path.display()
        )));
    }
    if printed.lines().any(|line| line.starts_with("warning")) {
        for line in printed.lines() {
            println!("cargo::warning={line}");
        }
    }
    Ok(())
}

/// The outer build's compiler flags, wrappers and profile are for another target.
fn forget_outer_settings(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let outer = matches!(
            name,
            "RUSTFLAGS" | "RUSTC_WORKSPACE_WRAPPER" | "CARGO_TARGET_DIR" | "CARGO_BUILD_TARGET"
        ) || name.starts_with("CARGO_PROFILE_")
            || name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_CFG_");
        if outer {
            cargo.env_remove(name);
        }
    }
    // Empty also overrides a wrapper named in a configuration file.
    cargo.env("RUSTC_WRAPPER", "");
}

/// Copies an object into place, after a look at its header: a wrong file would only be noticed when
/// the program runs.
fn install(from: &Path, to: &Path, big_endian: bool) -> Result<(), Failure> {
    let remedy = format!("set {OBJECT_VARIABLE} to an object built from {KERNEL_CRATE}");
    let explain = |error| Failure::explained(format_args!("{}: {error}", from.display()), &remedy);
    let object = fs::read(from).map_err(explain)?;
    if !is_bpf_object(&object, big_endian) {
        let what = format!("{} is no BPF object of this byte order", from.display());
        return Err(Failure::explained(what, &remedy));
    }
    fs::write(to, object).map_err(explain)
}

/// ELF's magic number, its byte order at offset 5, and its machine at 18: `EM_BPF` is 247.
fn is_bpf_object(object: &[u8], big_endian: bool) -> bool {
    let (order, machine) = if big_endian { (2, [0, 247]) } else { (1, [247, 0]) };
    object.starts_with(b"\x7fELF")
        && object.get(5) == Some(&order)
        && object.get(18..20) == Some(machine.as_slice())
}

/// Runs this script again when the path changes. Cargo takes a path that isn't there as changed
/// always, and the nested cargo may yet write the lock file.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// A variable that cargo promises to build scripts.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
