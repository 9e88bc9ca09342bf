//! Finds a Rust compiler and a linker for BPF. Shared by the build script, which uses them, and by
//! `cargo xtask setup`, which installs what is missing; so it needs nothing but the standard library.

use std::env;
use std::fmt;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names a compiler to use instead of the system's; it must have a ready `core` for BPF.
pub const RUSTC_VARIABLE: &str = "OPFS_PROBE_BPF_RUSTC";

/// The BPF target for the byte order of the machine that will run the programs.
pub fn target(big_endian: bool) -> &'static str {
    if big_endian { "bpfeb-unknown-none" } else { "bpfel-unknown-none" }
}

/// A compiler that can build `core`-only crates for BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Where it is, and whether `core` is ready.
    pub kind: CompilerKind,
    /// The major version of the LLVM it writes bitcode with.
    pub llvm: u32,
}

/// The two ways to have `core` for BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompilerKind {
    /// A compiler with a ready `core` for BPF, such as Debian's rustc-web.
    Ready(PathBuf),
    /// rustup's nightly toolchain with the sources of `core`, built along.
    Nightly,
}

impl fmt::Display for Compiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            CompilerKind::Ready(path) => write!(formatter, "{}", path.display())?,
            CompilerKind::Nightly => write!(formatter, "rustup's nightly")?,
        }
        write!(formatter, " (LLVM {})", self.llvm)
    }
}

/// A bpf-linker that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linker {
    /// The executable.
    pub path: PathBuf,
    /// The major version of its LLVM, where it can be told.
    pub llvm: Option<u32>,
}

impl Linker {
    /// Whether it reads what the compiler writes: LLVM reads bitcode of its own and older versions.
    pub fn fits(&self, compiler: &Compiler) -> bool {
        self.llvm.is_none_or(|llvm| llvm >= compiler.llvm)
    }
}

/// Why there is no usable pair of compiler and linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No compiler has `core` for the target, ready or as sources.
    Compiler,
    /// There is a compiler for this LLVM, but no bpf-linker starts.
    Linker(Compiler),
    /// There are both, of LLVM versions that don't go together.
    Fit(Compiler, Linker),
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiler => write!(formatter, "no Rust compiler for BPF was found"),
            Self::Linker(compiler) => {
                write!(formatter, "no bpf-linker was found to go with {compiler}")
            }
            Self::Fit(compiler, linker) => write!(
                formatter,
                "{} has LLVM {}, too old for {compiler}",
                linker.path.display(),
                linker.llvm.unwrap_or_default(),
            ),
        }
    }
}

/// The first compiler and linker that go together. `tools` are folders to look for bpf-linker in
/// before PATH.
pub fn find(target: &str, tools: &[PathBuf]) -> Result<(Compiler, Linker), Missing> {
    choose(compilers(target), &linkers(tools))
}

fn choose(
    compilers: impl Iterator<Item = Compiler>,
    linkers: &[Linker],
) -> Result<(Compiler, Linker), Missing> {
    let mut first = None;
    for compiler in compilers {
        if let Some(linker) = linkers.iter().find(|linker| linker.fits(&compiler)) {
            return Ok((compiler, linker.clone()));
        }
        first.get_or_insert(compiler);
    }
    let compiler = first.ok_or(Missing::Compiler)?;
    match linkers.first() {
        Some(linker) => Err(Missing::Fit(compiler, linker.clone())),
        None => Err(Missing::Linker(compiler)),
    }
}

/// Every compiler here that can build for the target, the preferred one first.
pub fn compilers(target: &str) -> impl Iterator<Item = Compiler> {
    // Lazy: asking rustup takes a tenth of a second.
    ready_compiler(target).into_iter().chain(iter::once_with(nightly_compiler).flatten())
}

fn ready_compiler(target: &str) -> Option<Compiler> {
    let rustc = env::var_os(RUSTC_VARIABLE).unwrap_or_else(|| "/usr/bin/rustc".into());
    let core = sysroot(Command::new(&rustc))?.join("lib/rustlib").join(target).join("lib");
    let llvm = core.is_dir().then(|| llvm_of(Command::new(&rustc)))??;
    Some(Compiler { kind: CompilerKind::Ready(rustc.into()), llvm })
}

fn nightly_compiler() -> Option<Compiler> {
    let core = sysroot(nightly("rustc"))?.join("lib/rustlib/src/rust/library/core");
    let llvm = core.is_dir().then(|| llvm_of(nightly("rustc")))??;
    Some(Compiler { kind: CompilerKind::Nightly, llvm })
}

/// A program of rustup's nightly toolchain. Not `cargo +nightly`: inside a build script `cargo` is
/// the toolchain's own, which knows no `+`.
pub fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]);
    // Cargo tells build scripts which compiler it uses, and rustup's proxies would obey.
    command.env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Every bpf-linker that starts, in `tools` first, then in PATH.
pub fn linkers(tools: &[PathBuf]) -> Vec<Linker> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<Linker> = Vec::new();
    for folder in tools.iter().cloned().chain(env::split_paths(&path)) {
        let path = folder.join("bpf-linker");
        let known = found.iter().any(|linker| linker.path == path);
        if !known && output(Command::new(&path).arg("--version")).is_some() {
            let llvm = llvm_inside(&path);
            found.push(Linker { path, llvm });
        }
    }
    found
}

fn sysroot(mut rustc: Command) -> Option<PathBuf> {
    let printed = output(rustc.args(["--print", "sysroot"]))?;
    Some(PathBuf::from(printed.trim_end()))
}

fn llvm_of(mut rustc: Command) -> Option<u32> {
    llvm_in_version(&output(rustc.arg("-vV"))?)
}

fn llvm_in_version(printed: &str) -> Option<u32> {
    let version = printed.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    leading_number(version)
}

/// bpf-linker doesn't print its LLVM version: read the name of the library it needs, or, linked
/// statically, the producer's name that LLVM writes into bitcode.
fn llvm_inside(executable: &Path) -> Option<u32> {
    llvm_in_text(&String::from_utf8_lossy(&fs::read(executable).ok()?))
}

fn llvm_in_text(text: &str) -> Option<u32> {
    let after =
        |marker: &'static str| text.match_indices(marker).map(move |(at, _)| &text[at + marker.len()..]);
    let library = after("libLLVM.so.").chain(after("libLLVM-")).find_map(leading_number);
    library.or_else(|| {
        // "LLVM22.1.8": a number straight after the name, and a version's dot after that.
        let versions = after("LLVM").filter(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            (1..=2).contains(&digits) && rest.as_bytes().get(digits) == Some(&b'.')
        });
        versions.filter_map(leading_number).max()
    })
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..end].parse().ok()
}

/// What a command prints, if it runs and succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(llvm: u32) -> Compiler {
        Compiler { kind: CompilerKind::Nightly, llvm }
    }

    fn linker(llvm: u32) -> Linker {
        Linker { path: PathBuf::from("bpf-linker"), llvm: Some(llvm) }
    }

    #[test]
    fn the_llvm_of_a_compiler_is_read_from_its_version() {
        let printed = "rustc 1.96.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_in_version(printed), Some(22));
        assert_eq!(llvm_in_version("rustc 1.96.0\n"), None);
    }

    #[test]
    fn the_llvm_of_a_linker_is_read_from_its_bytes() {
        assert_eq!(llvm_in_text("\0libLLVM.so.22.1\0LLVM 3.0\0"), Some(22));
        assert_eq!(llvm_in_text("\0libLLVM-21.so.1\0"), Some(21));
        assert_eq!(llvm_in_text("\0LLVM3.2\0LLVM23.1.0\0LLVM_X"), Some(23));
        assert_eq!(llvm_in_text("\0LLVM\0LLVM 22.1.8"), None);
    }

    #[test]
    fn a_linker_must_be_as_new_as_its_compiler() {
        let pair = |compilers: &[u32], linkers: &[u32]| {
            let linkers: Vec<Linker> = linkers.iter().copied().map(linker).collect();
            choose(compilers.iter().copied().map(compiler), &linkers)
        };
        assert_eq!(pair(&[23, 22], &[21, 22]), Ok((compiler(22), linker(22))));
        assert_eq!(pair(&[22], &[21]), Err(Missing::Fit(compiler(22), linker(21))));
        assert_eq!(pair(&[22], &[]), Err(Missing::Linker(compiler(22))));
        assert_eq!(pair(&[], &[22]), Err(Missing::Compiler));
    }
}
