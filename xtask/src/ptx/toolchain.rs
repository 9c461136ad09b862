//! A compiler that can build the core library for the GPU.

use std::path::Path;
use std::process::Command;

use crate::process::output;

/// What to do where there is none.
pub const MISSING: &str = "no toolchain for the GPU; install Debian's packages rustc-web, rust-web-src and cargo-web, \
                           or run `rustup toolchain install nightly --component rust-src`";

/// Where Debian puts its compiler, beside what rustup has.
const DEBIAN: [&str; 2] = ["/usr/bin/cargo", "/usr/bin/rustc"];

/// A cargo, and the compiler it runs.
pub enum Toolchain {
    /// Debian's, of a stable version: told to allow what is unstable.
    Debian,
    /// Rustup's nightly.
    Nightly,
}

fn has_sources(rustc: &mut Command) -> bool {
    let sysroot = output(rustc.args(["--print", "sysroot"]));
    sysroot.is_some_and(|sysroot| {
        let library = Path::new(&sysroot).join("lib/rustlib/src/rust/library");
        library.join("core/src/lib.rs").is_file()
    })
}

impl Toolchain {
    /// The first one that is here and has the sources of the core library.
    pub fn find() -> Option<Toolchain> {
        [Toolchain::Debian, Toolchain::Nightly]
            .into_iter()
            .find(|toolchain| has_sources(&mut toolchain.rustc()))
    }

    fn rustc(&self) -> Command {
        match self {
            Toolchain::Debian => Command::new(DEBIAN[1]),
            Toolchain::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "rustc"]);
                command
            }
        }
    }

    /// A call of cargo with this compiler.
    pub fn cargo(&self) -> Command {
        let mut command = match self {
            Toolchain::Debian => {
                let mut command = Command::new(DEBIAN[0]);
                command.env("RUSTC", DEBIAN[1]).env("RUSTC_BOOTSTRAP", "1");
                command
            }
            Toolchain::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo"]).env_remove("RUSTC");
                command
            }
        };
        // What the cargo that runs this program has set for itself.
        command.env_remove("CARGO").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }

    /// Its name and version, such as `rustc 1.96.0`.
    pub fn version(&self) -> String {
        let version = output(self.rustc().arg("--version")).unwrap_or_default();
        version.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }
}
